//! Copies of planes, and between devices.

use cuda_core::{Context, Device, Shape};
use cuda_sys::{
    CU_MEMORYTYPE_DEVICE, CUDA_MEMCPY2D, CUresult, cuMemcpy2DAsync_v2, cuMemcpyPeerAsync,
    cuStreamSynchronize,
};

use super::{BATCH, Fixture};
use crate::bench::measure::{Effort, pair};
use crate::bench::report::Row;

/// Rows and bytes a row of a small plane.
const ROWS: usize = 32;
const WIDTH: usize = 128;
/// Bytes from one row to the next.
const PITCH: usize = 512;

pub(super) fn plane(fixture: &Fixture, effort: Effort, name: &str) -> anyhow::Result<Row> {
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
    let pair = pair(
        effort.batches,
        BATCH,
        || stream.copy_pitched(source.pitched(shape)?, target.pitched_mut(shape)?),
        // SAFETY: both sides have so many rows, which outlive the batch, which is waited for.
        || unsafe { cuMemcpy2DAsync_v2(&raw, stream.as_raw()) },
        || fixture.settle(),
    )?;
    Ok(Row::new(name, pair))
}

/// Copies from the device to another, until they are done; [`None`] where there is no other.
pub(super) fn peer(
    fixture: &Fixture,
    effort: Effort,
    bytes: usize,
    access: bool,
) -> anyhow::Result<Option<Row>> {
    let here = &fixture.context;
    let Some(other) = Device::all()?.find(|other| *other != here.device()) else {
        return Ok(None);
    };
    let there = other.context()?;
    if access && !here.device().can_access_peer(other)? {
        return Ok(None);
    }
    if access {
        here.enable_peer_access(&there)?;
        there.enable_peer_access(here)?;
    }
    let row = between(fixture, &there, effort, bytes, access);
    if access {
        here.disable_peer_access(&there)?;
        there.disable_peer_access(here)?;
    }
    row.map(Some)
}

fn between(
    fixture: &Fixture,
    there: &Context,
    effort: Effort,
    bytes: usize,
    access: bool,
) -> anyhow::Result<Row> {
    let stream = &fixture.stream;
    let far = there.create_stream()?;
    let source = stream.alloc_zeroed::<u8>(bytes)?;
    let mut target = far.alloc_zeroed::<u8>(bytes)?;
    far.synchronize()?;
    let (to, from) = (target.as_raw(), source.as_raw());
    let (near, other) = (fixture.context.as_raw(), there.as_raw());
    let pair = pair(
        effort.batches.min(15),
        1,
        || {
            stream.copy(&source, &mut target)?;
            stream.synchronize()
        },
        || {
            let raw = stream.as_raw();
            // SAFETY: both sides have `bytes` bytes that outlive the call and its wait.
            let copied = unsafe { cuMemcpyPeerAsync(to, other, from, near, bytes, raw) };
            // SAFETY: the stream is live.
            let waited = unsafe { cuStreamSynchronize(raw) };
            CUresult(copied.0 | waited.0)
        },
        || Ok(()),
    )?;
    let how = if access { "with" } else { "without" };
    let name = format!("peer copy + wait {} MiB, {how} access", bytes >> 20);
    Ok(Row::new(name, pair).moving(bytes))
}
