//! Pinned memory: its first allocation, its reuse, its transfer rate, and transfers including the wait.

use std::ffi::c_void;
use std::ptr;
use std::time::Instant;

use cuda_core::{Device, DeviceBuffer, PinnedBuffer};
use cuda_sys::{cuMemFreeHost, cuMemHostAlloc};

use super::SMALL;
use crate::bench::goal::Goal;
use crate::bench::measure::{Effort, Measured, Unit, median, once};
use crate::bench::operation::{Fixture, Operation};
use crate::bench::raw::{self, Direction};

/// Milliseconds that the first gibibyte may take: mapping, touching and registering it by hand
/// takes 32 to 37 with 16 cores.
const FIRST: f64 = 45e6;

/// Nanoseconds that a reused block may take.
const CACHED: f64 = 60.0;

pub(super) fn operations() -> Vec<Operation> {
    vec![
        Operation::fresh("first 1 GiB, pinned", Box::new(first), Some(Box::new(first_raw)))
            .goal(Goal::Absolute(FIRST, Unit::Nanoseconds)),
        Operation::new("alloc + free 1 MiB, pinned", cached)
            .goal(Goal::Absolute(CACHED, Unit::Nanoseconds)),
        Operation::new("upload + wait 1 GiB, beside cuMemHostAlloc", upload)
            .goal(Goal::Share(0.99)),
    ]
}

fn first(device: Device, effort: Effort) -> anyhow::Result<f64> {
    let context = device.context()?;
    once(|| Ok(PinnedBuffer::<u8>::new(&context, effort.bytes(1 << 30))?))
}

fn first_raw(device: Device, effort: Effort) -> anyhow::Result<f64> {
    let context = device.context()?;
    let _current = context.enter()?;
    once(|| Raw::new(effort.bytes(1 << 30)))
}

/// `cuMemHostAlloc`, portable.
struct Raw(*mut c_void);

impl Raw {
    fn new(bytes: usize) -> anyhow::Result<Self> {
        let mut pointer = ptr::null_mut();
        let flags = cuda_sys::CU_MEMHOSTALLOC_PORTABLE;
        // SAFETY: the pointer is valid for a write; a context is current.
        let code = unsafe { cuMemHostAlloc(&mut pointer, bytes, flags) };
        raw::check("cuMemHostAlloc", code)?;
        Ok(Self(pointer))
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // SAFETY: allocated by cuMemHostAlloc, freed once, and the copies are waited for.
        let _ = unsafe { cuMemFreeHost(self.0) };
    }
}

/// A thousand of the library's calls take as long as one of the driver's, so each way has its own
/// batches.
fn cached(fixture: &Fixture) -> anyhow::Result<Measured> {
    const MEBIBYTE: usize = 1 << 20;
    const BATCH: usize = 1000;
    let effort = fixture.effort;
    let (mut ours, mut raw) = (Vec::new(), Vec::new());
    for _ in 0..effort.batches {
        let start = Instant::now();
        for _ in 0..BATCH {
            drop(PinnedBuffer::<u8>::new(&fixture.context, MEBIBYTE)?);
        }
        ours.push(start.elapsed().as_nanos() as f64 / BATCH as f64);
    }
    for _ in 0..effort.at_most(15).batches {
        // With its drop.
        raw.push(once(|| Raw::new(MEBIBYTE).map(drop))?);
    }
    let raw = Some(median(&raw));
    Ok(Measured::new(Unit::Nanoseconds, median(&ours), raw))
}

fn upload(fixture: &Fixture) -> anyhow::Result<Measured> {
    let bytes = fixture.effort.bytes(1 << 30);
    let stream = &fixture.stream;
    let host = PinnedBuffer::<u8>::zeroed(&fixture.context, bytes)?;
    let theirs = Raw::new(bytes)?;
    let mut buffer = stream.alloc_zeroed::<u8>(bytes)?;
    let address = buffer.as_raw();
    fixture.rate(
        bytes,
        || stream.upload(&host, &mut buffer),
        // SAFETY: both have this many bytes, and the library's copies end before the raw calls begin.
        || unsafe { raw::transfer(stream, Direction::Up, address, theirs.0.cast(), bytes) },
    )
}

pub(super) fn transfers() -> Vec<Operation> {
    let mut operations = vec![Operation::new("upload + wait 4 KiB, pinned", small)];
    for mebibytes in [64, 1024] {
        for direction in Direction::BOTH {
            let what = direction.pick("upload", "download");
            let name = format!("{what} + wait {mebibytes} MiB, pinned");
            let run = move |fixture: &Fixture| large(fixture, mebibytes << 20, direction);
            operations.push(Operation::new(name, run));
        }
    }
    operations
}

fn ends(fixture: &Fixture, bytes: usize) -> anyhow::Result<(PinnedBuffer<u8>, DeviceBuffer<u8>)> {
    let host = PinnedBuffer::zeroed(&fixture.context, bytes)?;
    Ok((host, fixture.stream.alloc_zeroed(bytes)?))
}

fn small(fixture: &Fixture) -> anyhow::Result<Measured> {
    let stream = &fixture.stream;
    let (mut host, mut buffer) = ends(fixture, SMALL)?;
    let (address, memory) = (buffer.as_raw(), host.as_mut_slice()?.as_mut_ptr());
    fixture.waited(
        fixture.effort.batches,
        20,
        || stream.upload(&host, &mut buffer),
        // SAFETY: both have this many bytes, and the library's copies end before the raw calls begin.
        || unsafe { raw::transfer(stream, Direction::Up, address, memory, SMALL) },
    )
}

fn large(fixture: &Fixture, bytes: usize, direction: Direction) -> anyhow::Result<Measured> {
    let bytes = fixture.effort.bytes(bytes);
    let stream = &fixture.stream;
    let (mut host, mut buffer) = ends(fixture, bytes)?;
    let (address, memory) = (buffer.as_raw(), host.as_mut_slice()?.as_mut_ptr());
    fixture.rate(
        bytes,
        || match direction {
            Direction::Up => stream.upload(&host, &mut buffer),
            Direction::Down => stream.download(&buffer, &mut host),
        },
        // SAFETY: as in `small`.
        || unsafe { raw::transfer(stream, direction, address, memory, bytes) },
    )
}
