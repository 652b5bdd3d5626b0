//! Enqueues of small copies and fills: the time that a call takes on its thread.

use cuda_core::Shape;
use cuda_sys::{self as sys, CU_MEMORYTYPE_DEVICE, CUDA_MEMCPY2D};

use super::{BATCH, SMALL};
use crate::bench::ends::{Direction, Ends};
use crate::bench::raw::{first_error, wait};
use crate::bench::{Fixture, Measured, Operation};

pub(super) fn operations() -> Vec<Operation> {
    let pinned = |name, to| {
        Operation::new(name, move |fixture| enqueue(fixture, Ends::pinned(fixture, SMALL)?, to))
    };
    vec![
        pinned("upload enqueue 4 KiB, pinned", Direction::Up),
        pinned("download enqueue 4 KiB, pinned", Direction::Down),
        Operation::new("copy enqueue 4 KiB, on device", copy),
        Operation::new("fill enqueue 4 KiB", fill),
        Operation::new("copy enqueue 32 rows of 128 bytes", plane),
    ]
}

fn enqueue(fixture: &Fixture, mut ends: Ends, to: Direction) -> anyhow::Result<Measured> {
    let raw = ends.raw()?;
    // SAFETY: both sides outlive the batch, which is waited for; the driver copies pageable memory before it
    // returns.
    let theirs = || unsafe { raw.enqueue(fixture.raw_stream(), to) };
    fixture.pair(BATCH, || ends.copy(&fixture.stream, to), theirs)
}

fn copy(fixture: &Fixture) -> anyhow::Result<Measured> {
    let stream = &fixture.stream;
    let source = stream.alloc_zeroed::<u8>(SMALL)?;
    let mut target = stream.alloc_zeroed::<u8>(SMALL)?;
    let (to, from) = (target.as_raw(), source.as_raw());
    let ours = || stream.copy(&source, &mut target);
    // SAFETY: both sides have SMALL bytes that outlive the batch, which is waited for.
    let theirs = || unsafe { sys::cuMemcpyDtoDAsync_v2(to, from, SMALL, fixture.raw_stream()) };
    fixture.pair(BATCH, ours, theirs)
}

fn fill(fixture: &Fixture) -> anyhow::Result<Measured> {
    let stream = &fixture.stream;
    let mut buffer = stream.alloc::<u8>(SMALL)?;
    let address = buffer.as_raw();
    // SAFETY: as in `copy`.
    let theirs = || unsafe { sys::cuMemsetD8Async(address, 1, SMALL, fixture.raw_stream()) };
    fixture.pair(BATCH, || stream.fill(&mut buffer, 1), theirs)
}

/// Fills with an 8-byte value whose halves differ, including the wait: compares the library's memsets and
/// doubling copies with memsets of all elements, one for each half of the value.
pub(super) fn wide_fills() -> Vec<Operation> {
    let why = "it compares two ways";
    [SMALL, 1 << 20]
        .map(|bytes| {
            let name = format!("fill {} KiB of f64, waited for", bytes >> 10);
            Operation::new(name, move |fixture| wide_fill(fixture, bytes)).without_goal(why)
        })
        .into()
}

fn wide_fill(fixture: &Fixture, bytes: usize) -> anyhow::Result<Measured> {
    const WIDTH: usize = size_of::<f64>();
    let (stream, raw) = (&fixture.stream, fixture.raw_stream());
    let bytes = fixture.effort.bytes(bytes);
    let mut buffer = stream.alloc::<f64>(bytes / WIDTH)?;
    let address = buffer.as_raw();
    let half = |at, value| {
        // SAFETY: the buffer has this many elements, and outlives the wait below.
        unsafe { sys::cuMemsetD2D32Async(address + at, WIDTH, value, 1, bytes / WIDTH, raw) }
    };
    let theirs = || wait(first_error([half(0, 1), half(4, 2)]), &fixture.raw);
    fixture.waited(20, 1, || stream.fill(&mut buffer, 1.1), theirs)
}

/// Rows, and bytes per row, of a small plane.
const ROWS: usize = 32;
const WIDTH: usize = 128;
/// Bytes from one row to the next.
const PITCH: usize = 512;

fn plane(fixture: &Fixture) -> anyhow::Result<Measured> {
    let stream = &fixture.stream;
    let source = stream.alloc_zeroed::<u8>(ROWS * PITCH)?;
    let mut target = stream.alloc_zeroed::<u8>(ROWS * PITCH)?;
    let shape = Shape::plane(WIDTH, ROWS).with_pitch(PITCH);
    let raw = CUDA_MEMCPY2D {
        srcMemoryType: CU_MEMORYTYPE_DEVICE,
        srcDevice: source.as_raw(),
        srcPitch: PITCH,
        dstMemoryType: CU_MEMORYTYPE_DEVICE,
        dstDevice: target.as_raw(),
        dstPitch: PITCH,
        WidthInBytes: WIDTH,
        Height: ROWS,
        ..Default::default()
    };
    let ours = || stream.copy_pitched(source.pitched(shape)?, target.pitched_mut(shape)?);
    // SAFETY: both sides have this many rows, which outlive the batch, which is waited for.
    fixture.pair(BATCH, ours, || unsafe { sys::cuMemcpy2DAsync_v2(&raw, fixture.raw_stream()) })
}

/// Copies of pageable memory.
pub(super) fn pageable() -> Vec<Operation> {
    let why = "the driver handles pageable memory in its own way";
    let upload = |fixture: &_| enqueue(fixture, Ends::pageable(fixture, SMALL)?, Direction::Up);
    vec![
        Operation::new("upload 4 KiB, borrowed slice", upload).without_goal(why),
        Operation::new("download 4 KiB, borrowed slice", download_slice).without_goal(why),
    ]
}

/// Measures downloads; both ways wait.
fn download_slice(fixture: &Fixture) -> anyhow::Result<Measured> {
    let (stream, to) = (&fixture.stream, Direction::Down);
    let mut ends = Ends::pageable(fixture, SMALL)?;
    let raw = ends.raw()?;
    // SAFETY: both have this many bytes, and the library's copies end before the raw calls begin.
    fixture.pair(20, || ends.copy(stream, to), || unsafe { raw.copy(fixture, to) })
}
