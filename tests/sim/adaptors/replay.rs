//! Replays the recorded training step against the caching pool.

use std::collections::HashMap;

use cuda_core::{CachingPool, Device, DeviceBuffer, Result, Stream, with_allocator};
use support::simulator;

/// The requests that PyTorch received, in the format of docs/traces.md.
const LOG: &str = include_str!("../../traces/training-step.csv");

/// The most memory that the caching pool may reserve, relative to PyTorch.
const GOAL: f64 = 1.05;

/// One operation on the block of the given number.
enum Step {
    Allocate { block: usize, bytes: usize },
    Free { block: usize },
}

/// Returns the log's operations, and the number of blocks.
fn steps() -> (Vec<Step>, usize) {
    let mut live = HashMap::new();
    let mut blocks = 0;
    let lines = LOG.lines().filter(|line| !line.starts_with('#')).skip(1);
    let steps = lines.map(|line| {
        let fields: Vec<_> = line.split(',').collect();
        let [_, _, "0", "0", op, address, bytes] = fields[..] else {
            panic!("another device or stream: {line}");
        };
        match op {
            "allocate" => {
                let block = blocks;
                assert!(live.insert(address, block).is_none(), "allocated twice: {line}");
                blocks += 1;
                Step::Allocate { block, bytes: bytes.parse().expect("a size") }
            }
            "deallocate" => Step::Free { block: live.remove(address).expect("freed twice") },
            other => panic!("{other}"),
        }
    });
    let steps = steps.collect();
    (steps, blocks)
}

/// Returns a number from the log's heading.
fn noted(key: &str) -> usize {
    let line = LOG.lines().find_map(|line| line.strip_prefix(key));
    line.expect(key).trim().parse().expect("a number")
}

/// Runs the log once and frees what it leaves allocated. Returns the bytes requested at the peak.
///
/// `share`, in sixteenths, makes blocks smaller, as batches of fewer tokens would.
fn pass(stream: &Stream, steps: &[Step], blocks: usize, share: usize) -> Result<usize> {
    let mut buffers: Vec<Option<DeviceBuffer<u8>>> = (0..blocks).map(|_| None).collect();
    let (mut in_use, mut peak) = (0, 0);
    for step in steps {
        match *step {
            Step::Allocate { block, bytes } => {
                let more = match bytes {
                    0..=65_536 => bytes,
                    _ => bytes / 16 * share,
                };
                buffers[block] = Some(stream.alloc(more)?);
                in_use += more;
            }
            Step::Free { block } => in_use -= buffers[block].take().expect("allocated").len(),
        }
        peak = peak.max(in_use);
    }
    Ok(peak)
}

/// Runs the log repeatedly. A turn is one pass for each of the shares, the first of which is whole. Asserts
/// that no driver call comes after the first turn, and that the pool reserves at most [`GOAL`] times
/// PyTorch's memory.
fn replay(pool: &CachingPool, shares: &[usize], turns: usize) -> Result<()> {
    let session = simulator();
    let device = Device::get(0)?;
    let stream = device.create_stream()?;
    let (steps, blocks) = steps();
    with_allocator(&pool.allocator(), || -> Result<()> {
        let turn = || shares.iter().map(|share| pass(&stream, &steps, blocks, *share));
        let requested = turn().collect::<Result<Vec<_>>>()?;
        assert_eq!(requested[0], noted("# peak requested:"));
        let mark = session.mark();
        for _ in 0..turns {
            turn().try_for_each(|peak| peak.map(|_| ()))?;
        }
        assert_eq!(session.names_since(mark), [""; 0], "after the first turn");
        Ok(())
    })?;
    let usage = pool.usage(device);
    assert_eq!(usage.used, 0, "{usage:?}");
    let ratio = usage.reserved_peak as f64 / noted("# peak reserved by PyTorch:") as f64;
    assert!(ratio <= GOAL, "{ratio:.3} of what PyTorch reserved: {usage:?}");
    drop(stream);
    pool.trim(0)?;
    Ok(())
}

#[test]
#[cfg_attr(miri, ignore = "thousands of allocations")]
fn h30_a_training_step_needs_no_driver_after_the_first() -> Result<()> {
    replay(&CachingPool::shared()?, &[16], 10)
}

#[test]
#[cfg_attr(miri, ignore = "thousands of allocations")]
fn h30_a_training_step_in_a_pool_of_its_own() -> Result<()> {
    replay(&CachingPool::new(), &[16], 10)
}

#[test]
#[cfg_attr(miri, ignore = "thousands of allocations")]
fn h30_steps_of_several_sizes_do_not_creep() -> Result<()> {
    replay(&CachingPool::shared()?, &[16, 13, 10, 15], 4)
}
