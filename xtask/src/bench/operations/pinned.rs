//! Pinned memory: its first allocation, its reuse, its transfer rate, and transfers including the wait.

use std::ffi::c_void;
use std::ptr;

use anyhow::Result;
use cuda_core::{Device, PinnedBuffer};
use cuda_sys as sys;

use super::{SMALL, TRANSFERS};
use crate::bench::ends::{Direction, Ends, RawEnds};
use crate::bench::measure::{each_of, median_of, once};
use crate::bench::raw::check;
use crate::bench::run::Side;
use crate::bench::{Effort, Fixture, Goal, Measured, Operation, Unit};

/// The time allowed for the first gibibyte: mapping, touching and registering it by hand takes 32 to 37
/// milliseconds with 16 cores.
const FIRST: Goal = Goal::Absolute(45e6, Unit::Nanoseconds);

/// The time allowed for a reused block.
const CACHED: Goal = Goal::Absolute(60.0, Unit::Nanoseconds);

pub(super) fn operations() -> Vec<Operation> {
    vec![
        Operation::fresh("first 1 GiB, pinned", first).goal(FIRST),
        Operation::new("alloc + free 1 MiB, pinned", cached).goal(CACHED),
        Operation::new("upload + wait 1 GiB, beside cuMemHostAlloc", upload)
            .goal(Goal::Share(0.99)),
    ]
}

fn first(device: Device, effort: Effort, side: Side) -> Result<f64> {
    let (context, bytes) = (device.context()?, effort.bytes(1 << 30));
    if side == Side::Ours {
        return once(|| Ok(PinnedBuffer::<u8>::new(&context, bytes)?));
    }
    let _current = context.enter()?;
    once(|| Raw::new(bytes))
}

/// Memory of `cuMemHostAlloc`, portable.
struct Raw(*mut c_void);

impl Raw {
    fn new(bytes: usize) -> Result<Self> {
        let mut pointer = ptr::null_mut();
        let flags = sys::CU_MEMHOSTALLOC_PORTABLE;
        // SAFETY: the pointer is valid for a write; a context is current.
        check("cuMemHostAlloc", unsafe { sys::cuMemHostAlloc(&mut pointer, bytes, flags) })?;
        Ok(Self(pointer))
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // SAFETY: allocated by cuMemHostAlloc, freed once, and the copies are waited for.
        let _ = unsafe { sys::cuMemFreeHost(self.0) };
    }
}

/// Measures each way in batches of its own, since a thousand of the library's calls take as long as one of
/// the driver's.
fn cached(fixture: &Fixture) -> Result<Measured> {
    const MEBIBYTE: usize = 1 << 20;
    const BATCH: usize = 1000;
    let effort = fixture.effort;
    let reuse = || PinnedBuffer::<u8>::new(&fixture.context, MEBIBYTE).map(drop);
    let ours = median_of(effort.batches, || each_of(BATCH, reuse))?;
    // Includes the drop.
    let raw = median_of(effort.at_most(15).batches, || once(|| Raw::new(MEBIBYTE).map(drop)))?;
    Ok(Measured::new(Unit::Nanoseconds, ours, Some(raw)))
}

fn upload(fixture: &Fixture) -> Result<Measured> {
    let bytes = fixture.effort.bytes(1 << 30);
    let (mut ends, theirs) = (Ends::pinned(fixture, bytes)?, Raw::new(bytes)?);
    let raw = RawEnds { host: theirs.0.cast(), ..ends.raw()? };
    rate(fixture, ends, raw, Direction::Up)
}

pub(super) fn transfers() -> Vec<Operation> {
    let mut operations = vec![Operation::new("upload + wait 4 KiB, pinned", small)];
    for mebibytes in [64, 1024] {
        for (direction, what) in Direction::BOTH {
            let name = format!("{what} + wait {mebibytes} MiB, pinned");
            operations.push(Operation::new(name, move |fixture| {
                let bytes = fixture.effort.bytes(mebibytes << 20);
                let mut ends = Ends::pinned(fixture, bytes)?;
                let raw = ends.raw()?;
                rate(fixture, ends, raw, direction)
            }));
        }
    }
    operations
}

fn small(fixture: &Fixture) -> Result<Measured> {
    let (stream, to) = (&fixture.stream, Direction::Up);
    let mut ends = Ends::pinned(fixture, SMALL)?;
    let raw = ends.raw()?;
    let ours = || ends.copy(stream, to);
    // SAFETY: both have this many bytes, and the library's copies end before the raw calls begin.
    fixture.waited(fixture.effort.batches, 20, ours, || unsafe { raw.copy(fixture, to) })
}

/// Measures the rate of whole copies.
fn rate(fixture: &Fixture, mut ends: Ends, raw: RawEnds, to: Direction) -> Result<Measured> {
    let stream = &fixture.stream;
    // SAFETY: as in `small`.
    let theirs = || unsafe { raw.copy(fixture, to) };
    let measured = fixture.waited(TRANSFERS, 1, || ends.copy(stream, to), theirs)?;
    Ok(measured.moving(raw.bytes))
}
