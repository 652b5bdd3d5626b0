//! Random programs against a model of the address space.

use std::collections::BTreeMap;

use cuda_core::{Device, pools::PoolLimit};
use proptest::prelude::*;

use super::*;
use crate::property::config;

/// One step of a program.
#[derive(Debug, Clone)]
enum Step {
    /// Allocates on the stream.
    Alloc {
        stream: usize,
        bytes: usize,
    },
    /// Uses the block on the stream.
    Use {
        block: usize,
        stream: usize,
    },
    /// Frees the block.
    Free {
        block: usize,
    },
    /// Waits for the stream.
    Synchronize {
        stream: usize,
    },
    /// Replaces the stream with a new one.
    Replace {
        stream: usize,
    },
    Trim,
}

const STREAMS: usize = 3;

fn step() -> impl Strategy<Value = Step> {
    let bytes = prop_oneof![
        4 => 1..5000_usize,
        2 => 1..(1_usize << 20),
        1 => 1..(8_usize << 20),
    ];
    let stream = 0..STREAMS;
    prop_oneof![
        5 => (stream.clone(), bytes).prop_map(|(stream, bytes)| Step::Alloc { stream, bytes }),
        3 => (any::<usize>(), stream.clone()).prop_map(|(block, stream)| Step::Use { block, stream }),
        4 => any::<usize>().prop_map(|block| Step::Free { block }),
        1 => stream.clone().prop_map(|stream| Step::Synchronize { stream }),
        1 => stream.prop_map(|stream| Step::Replace { stream }),
        1 => Just(Step::Trim),
    ]
}

/// Returns the bytes of the block that serves a request: eight sizes per power of two up to a mebibyte,
/// multiples of 512 beyond.
fn rounded(bytes: usize) -> usize {
    let step = match bytes {
        0..=4096 => 512,
        4097..=0x10_0000 => bytes.next_power_of_two() / 16,
        _ => 512,
    };
    bytes.next_multiple_of(step)
}

/// The most by which a large block may exceed its request, unless memory is short.
const SPARE: usize = 512 << 10;

/// Runs the program, and asserts that no two blocks overlap, and that the counters are exact.
fn execute(program: &[Step], pool: &CachingPool) -> Result<()> {
    // Not the device of the tests with faults: there the process's pool may have given up addresses that
    // those tests released, and that may be allocated again.
    let device = Device::get(Device::count()? - 1)?;
    let mut streams = Vec::new();
    for _ in 0..STREAMS {
        streams.push(device.create_stream()?);
    }
    let mut blocks: Vec<DeviceBuffer<u8>> = Vec::new();
    // Blocks in use, by first byte, with their size.
    let mut model: BTreeMap<u64, usize> = BTreeMap::new();
    let (mut allocations, before) = (0, pool.usage(device));
    let (mut in_use, mut allocated) = (0, 0);
    let is_limited = pool.limit() != PoolLimit::None;
    for step in program {
        match *step {
            Step::Alloc { stream, bytes } => match alloc(&streams[stream], pool, bytes) {
                Ok(block) => {
                    let address = block.as_raw();
                    assert_eq!(address % 256, 0);
                    let below = model.range(..=address).next_back();
                    assert!(below.is_none_or(|(at, len)| at + *len as u64 <= address));
                    let above = model.range(address..).next();
                    let len = used(pool, device) - in_use;
                    let spare = len - rounded(bytes);
                    let may_spare = bytes > 1 << 20 || is_limited;
                    assert!(spare < SPARE && (spare == 0 || may_spare), "{len}: {bytes}");
                    assert!(above.is_none_or(|(at, _)| address + len as u64 <= *at));
                    model.insert(address, len);
                    blocks.push(block);
                    (allocations, in_use) = (allocations + 1, in_use + len);
                    allocated += len as u64;
                }
                Err(error) => assert_eq!(error.code(), Some(cuda_sys::CUDA_ERROR_OUT_OF_MEMORY)),
            },
            Step::Use { block, stream } if !blocks.is_empty() => {
                let at = block % blocks.len();
                let end = blocks[at].len().min(32);
                streams[stream].fill(blocks[at].slice_mut(..end)?, block as u8)?;
            }
            Step::Free { block } if !blocks.is_empty() => {
                let block = blocks.swap_remove(block % blocks.len());
                in_use -= model.remove(&block.as_raw()).expect("it is in use");
            }
            Step::Synchronize { stream } => streams[stream].synchronize()?,
            Step::Replace { stream } => streams[stream] = device.create_stream()?,
            Step::Trim => {
                pool.trim(0)?;
            }
            Step::Use { .. } | Step::Free { .. } => {}
        }
        assert_eq!(used(pool, device), in_use);
        let usage = pool.usage(device);
        assert_eq!(usage.allocations - before.allocations, allocations);
        assert_eq!(usage.allocated - before.allocated, allocated);
    }
    drop(blocks);
    assert_eq!(used(pool, device), 0);
    for stream in &streams {
        stream.synchronize()?;
    }
    // This also waits for the replaced streams.
    device.synchronize()?;
    pool.trim(0)?;
    assert_eq!(
        pool.usage(device).reserved,
        before.reserved,
        "all memory of the program is released"
    );
    Ok(())
}

fn programs(cases: u32, of: impl Fn(&[Step]) -> Result<()> + Sync) {
    let config = config(if cfg!(miri) { 2 } else { cases });
    let longest = if cfg!(miri) { 20 } else { 80 };
    let of = &of;
    proptest!(config, |(program in prop::collection::vec(step(), 1..longest))| {
        run(|_| of(&program));
    });
}

#[test]
fn programs_in_the_shared_pool() {
    programs(150, |program| execute(program, &CachingPool::shared()?));
}

#[test]
fn programs_in_a_pool_of_their_own() {
    programs(150, |program| execute(program, &CachingPool::new()));
}

#[test]
fn programs_short_of_memory() {
    programs(150, |program| {
        let pool = CachingPool::builder().limit(PoolLimit::Bytes(5 * U)).build()?;
        execute(program, &pool)
    });
}
