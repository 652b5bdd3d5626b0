//! The operations, each with the raw calls that do the same.

mod launches;
mod transfers;

use std::ptr;

use cuda_core::{Context, ContextFlags, Device, Event, EventFlags, PinnedBuffer, Stream};
use cuda_sys::{
    CUDA_SUCCESS, CUcontext, CUresult, cuCtxGetCurrent, cuCtxSetCurrent, cuEventCreate,
    cuEventDestroy_v2, cuEventRecord, cuMemAllocAsync, cuMemFreeAsync, cuMemcpyDtoDAsync_v2,
    cuMemcpyDtoHAsync_v2, cuMemcpyHtoDAsync_v2, cuMemsetD8Async, cuStreamCreateWithPriority,
    cuStreamDestroy_v2, cuStreamSynchronize, cuStreamWaitEvent,
};

use super::measure::{Effort, pair};
use super::report::Row;

/// Enqueues of one batch: well below the depth of the driver's queue.
const BATCH: usize = 100;

/// Bytes of a small transfer.
const SMALL: usize = 4096;

/// Measures every operation that is `wanted`, and hands each row over as it comes.
pub(crate) fn run_all(
    device: Device,
    effort: Effort,
    wanted: impl Fn(&str) -> bool,
    mut done: impl FnMut(Row),
) -> anyhow::Result<()> {
    let fixture = Fixture::new(device)?;
    let _current = fixture.context.enter()?;
    type Operation = fn(&Fixture, Effort, &str) -> anyhow::Result<Row>;
    let operations: [(&str, Operation); 18] = [
        ("guard, context already current", guard_current),
        ("guard, another context", guard_other),
        ("upload enqueue 4 KiB, pinned", upload),
        ("download enqueue 4 KiB, pinned", download),
        ("copy enqueue 4 KiB, on device", copy),
        ("fill enqueue 4 KiB", fill),
        ("event record", record),
        ("stream wait for an event", wait),
        ("event create + destroy", event_create),
        ("stream create + destroy", stream_create),
        ("alloc + free 1 MiB, stream-ordered", alloc),
        ("copy enqueue 32 rows of 128 bytes", transfers::plane),
        ("launch, empty kernel", launches::empty),
        ("launch, 6 buffers", launches::six_buffers),
        ("host function + wait", launches::host_function),
        ("upload + wait 4 KiB, pinned", upload_wait),
        ("upload_from 4 KiB, borrowed slice", upload_from),
        ("download_to 4 KiB, borrowed slice", download_to),
    ];
    for (name, operation) in operations {
        if wanted(name) {
            done(operation(&fixture, effort, name)?);
        }
    }
    for bytes in effort.large {
        let size = format!("{} MiB", bytes >> 20);
        let name = format!("upload + wait {size}, pinned");
        if wanted(&name) {
            done(large(&fixture, effort, name, bytes, Direction::Up)?);
        }
        let name = format!("download + wait {size}, pinned");
        if wanted(&name) {
            done(large(&fixture, effort, name, bytes, Direction::Down)?);
        }
    }
    if wanted("peer copy") {
        let [_, bytes] = effort.large;
        for access in [false, true] {
            if let Some(row) = transfers::peer(&fixture, effort, bytes, access)? {
                done(row);
            }
        }
    }
    Ok(())
}

struct Fixture {
    context: Context,
    stream: Stream,
    event: Event,
}

impl Fixture {
    fn new(device: Device) -> anyhow::Result<Self> {
        let context = device.context()?;
        Ok(Self {
            stream: context.create_stream()?,
            event: Event::new(&context, EventFlags::DISABLE_TIMING)?,
            context,
        })
    }

    fn settle(&self) -> cuda_core::Result<()> {
        self.stream.synchronize()
    }
}

/// What a guard asks the driver, by hand.
fn raw_guard(context: CUcontext) -> CUresult {
    let mut before = ptr::null_mut();
    let mut now = ptr::null_mut();
    // SAFETY: the pointer is valid for a write.
    let mut code = unsafe { cuCtxGetCurrent(&mut before) };
    if before != context {
        // SAFETY: the context is live.
        code.0 |= unsafe { cuCtxSetCurrent(context) }.0;
    }
    // SAFETY: the pointer is valid for a write.
    code.0 |= unsafe { cuCtxGetCurrent(&mut now) }.0;
    if now != before {
        // SAFETY: what was current a moment ago is live.
        code.0 |= unsafe { cuCtxSetCurrent(before) }.0;
    }
    code
}

fn guard_of(
    context: &Context,
    fixture: &Fixture,
    effort: Effort,
    name: &str,
) -> anyhow::Result<Row> {
    let raw = context.as_raw();
    let pair = pair(
        effort.batches,
        BATCH * 10,
        || context.enter()?.restore(),
        || raw_guard(raw),
        || fixture.settle(),
    )?;
    Ok(Row::new(name, pair))
}

fn guard_current(fixture: &Fixture, effort: Effort, name: &str) -> anyhow::Result<Row> {
    guard_of(&fixture.context, fixture, effort, name)
}

fn guard_other(fixture: &Fixture, effort: Effort, name: &str) -> anyhow::Result<Row> {
    let device = fixture.context.device();
    let other = match Device::all()?.find(|other| *other != device) {
        Some(other) => other.context()?,
        None => Context::create(device, ContextFlags::SCHED_AUTO)?,
    };
    guard_of(&other, fixture, effort, name)
}

fn upload(fixture: &Fixture, effort: Effort, name: &str) -> anyhow::Result<Row> {
    let stream = &fixture.stream;
    let host = PinnedBuffer::<u8>::zeroed(&fixture.context, SMALL)?;
    let mut buffer = stream.alloc_zeroed::<u8>(SMALL)?;
    let (to, from) = (buffer.as_raw(), host.as_slice()?.as_ptr());
    let pair = pair(
        effort.batches,
        BATCH,
        || stream.upload(&host, &mut buffer),
        // SAFETY: both sides have SMALL bytes that outlive the batch, which is waited for.
        || unsafe { cuMemcpyHtoDAsync_v2(to, from.cast(), SMALL, stream.as_raw()) },
        || fixture.settle(),
    )?;
    Ok(Row::new(name, pair))
}

fn download(fixture: &Fixture, effort: Effort, name: &str) -> anyhow::Result<Row> {
    let stream = &fixture.stream;
    let mut host = PinnedBuffer::<u8>::zeroed(&fixture.context, SMALL)?;
    let buffer = stream.alloc_zeroed::<u8>(SMALL)?;
    let (to, from) = (host.as_mut_slice()?.as_mut_ptr(), buffer.as_raw());
    let pair = pair(
        effort.batches,
        BATCH,
        || stream.download(&buffer, &mut host),
        // SAFETY: as in `upload`.
        || unsafe { cuMemcpyDtoHAsync_v2(to.cast(), from, SMALL, stream.as_raw()) },
        || fixture.settle(),
    )?;
    Ok(Row::new(name, pair))
}

fn copy(fixture: &Fixture, effort: Effort, name: &str) -> anyhow::Result<Row> {
    let stream = &fixture.stream;
    let source = stream.alloc_zeroed::<u8>(SMALL)?;
    let mut target = stream.alloc_zeroed::<u8>(SMALL)?;
    let (to, from) = (target.as_raw(), source.as_raw());
    let pair = pair(
        effort.batches,
        BATCH,
        || stream.copy(&source, &mut target),
        // SAFETY: as in `upload`.
        || unsafe { cuMemcpyDtoDAsync_v2(to, from, SMALL, stream.as_raw()) },
        || fixture.settle(),
    )?;
    Ok(Row::new(name, pair))
}

fn fill(fixture: &Fixture, effort: Effort, name: &str) -> anyhow::Result<Row> {
    let stream = &fixture.stream;
    let mut buffer = stream.alloc::<u8>(SMALL)?;
    let address = buffer.as_raw();
    let pair = pair(
        effort.batches,
        BATCH,
        || stream.fill(&mut buffer, 1),
        // SAFETY: as in `upload`.
        || unsafe { cuMemsetD8Async(address, 1, SMALL, stream.as_raw()) },
        || fixture.settle(),
    )?;
    Ok(Row::new(name, pair))
}

fn record(fixture: &Fixture, effort: Effort, name: &str) -> anyhow::Result<Row> {
    let (stream, event) = (fixture.stream.as_raw(), fixture.event.as_raw());
    let pair = pair(
        effort.batches,
        BATCH,
        || fixture.event.record(&fixture.stream),
        // SAFETY: event and stream are live.
        || unsafe { cuEventRecord(event, stream) },
        || fixture.settle(),
    )?;
    Ok(Row::new(name, pair))
}

fn wait(fixture: &Fixture, effort: Effort, name: &str) -> anyhow::Result<Row> {
    let (stream, event) = (fixture.stream.as_raw(), fixture.event.as_raw());
    fixture.event.record(&fixture.stream)?;
    let pair = pair(
        effort.batches,
        BATCH,
        || fixture.stream.wait_event(&fixture.event),
        // SAFETY: event and stream are live.
        || unsafe { cuStreamWaitEvent(stream, event, 0) },
        || fixture.settle(),
    )?;
    Ok(Row::new(name, pair))
}

fn event_create(fixture: &Fixture, effort: Effort, name: &str) -> anyhow::Result<Row> {
    let pair = pair(
        effort.batches,
        BATCH,
        || Event::new(&fixture.context, EventFlags::DISABLE_TIMING).map(drop),
        || {
            let mut event = ptr::null_mut();
            // SAFETY: the pointer is valid for a write; the fixture's context is current.
            let created = unsafe { cuEventCreate(&mut event, 2) };
            // SAFETY: the event is live and destroyed once.
            let destroyed = unsafe { cuEventDestroy_v2(event) };
            CUresult(created.0 | destroyed.0)
        },
        || fixture.settle(),
    )?;
    // The question of what is current comes on top.
    Ok(Row::of_calls(name, pair, 2.0))
}

fn stream_create(fixture: &Fixture, effort: Effort, name: &str) -> anyhow::Result<Row> {
    let pair = pair(
        effort.batches,
        10,
        || fixture.context.create_stream().map(drop),
        || {
            let mut stream = ptr::null_mut();
            // SAFETY: the pointer is valid for a write; the fixture's context is current.
            let created = unsafe { cuStreamCreateWithPriority(&mut stream, 1, 0) };
            // SAFETY: the stream is live and destroyed once.
            let destroyed = unsafe { cuStreamDestroy_v2(stream) };
            CUresult(created.0 | destroyed.0)
        },
        || fixture.settle(),
    )?;
    Ok(Row::of_calls(name, pair, 2.0))
}

fn alloc(fixture: &Fixture, effort: Effort, name: &str) -> anyhow::Result<Row> {
    let stream = &fixture.stream;
    let pair = pair(
        effort.batches,
        BATCH,
        || stream.alloc::<u8>(1 << 20).map(drop),
        || {
            let mut address = 0;
            // SAFETY: the pointer is valid for a write; the stream is live.
            let allocated = unsafe { cuMemAllocAsync(&mut address, 1 << 20, stream.as_raw()) };
            // SAFETY: allocated on the same stream, freed once.
            let freed = unsafe { cuMemFreeAsync(address, stream.as_raw()) };
            CUresult(allocated.0 | freed.0)
        },
        || fixture.settle(),
    )?;
    Ok(Row::of_calls(name, pair, 2.0))
}

fn upload_wait(fixture: &Fixture, effort: Effort, name: &str) -> anyhow::Result<Row> {
    transfer(fixture, effort, name.to_owned(), SMALL, 20, Direction::Up)
}

fn large(
    fixture: &Fixture,
    effort: Effort,
    name: String,
    bytes: usize,
    direction: Direction,
) -> anyhow::Result<Row> {
    let effort = Effort {
        batches: effort.batches.min(15),
        ..effort
    };
    Ok(transfer(fixture, effort, name, bytes, 1, direction)?.moving(bytes))
}

#[derive(Clone, Copy)]
enum Direction {
    Up,
    Down,
}

/// A pinned transfer until it is done.
fn transfer(
    fixture: &Fixture,
    effort: Effort,
    name: String,
    bytes: usize,
    batch: usize,
    direction: Direction,
) -> anyhow::Result<Row> {
    let stream = &fixture.stream;
    let mut host = PinnedBuffer::<u8>::zeroed(&fixture.context, bytes)?;
    let mut buffer = stream.alloc_zeroed::<u8>(bytes)?;
    let (address, memory) = (buffer.as_raw(), host.as_mut_slice()?.as_mut_ptr());
    let pair = pair(
        effort.batches,
        batch,
        || {
            match direction {
                Direction::Up => stream.upload(&host, &mut buffer)?,
                Direction::Down => stream.download(&buffer, &mut host)?,
            }
            stream.synchronize()
        },
        || {
            let raw = stream.as_raw();
            let code = match direction {
                // SAFETY: both sides have `bytes` bytes that outlive the call and its wait.
                Direction::Up => unsafe {
                    cuMemcpyHtoDAsync_v2(address, memory.cast(), bytes, raw)
                },
                // SAFETY: as above.
                Direction::Down => unsafe {
                    cuMemcpyDtoHAsync_v2(memory.cast(), address, bytes, raw)
                },
            };
            // SAFETY: the stream is live.
            let waited = unsafe { cuStreamSynchronize(raw) };
            CUresult(code.0 | waited.0)
        },
        || Ok(()),
    )?;
    Ok(Row::new(name, pair))
}

fn upload_from(fixture: &Fixture, effort: Effort, name: &str) -> anyhow::Result<Row> {
    let stream = &fixture.stream;
    let source = vec![7u8; SMALL];
    let mut buffer = stream.alloc_zeroed::<u8>(SMALL)?;
    let (to, from) = (buffer.as_raw(), source.as_ptr());
    let pair = pair(
        effort.batches,
        BATCH,
        || stream.upload_from(&source, &mut buffer),
        // SAFETY: both sides have SMALL bytes; the driver copies pageable memory before it returns.
        || unsafe { cuMemcpyHtoDAsync_v2(to, from.cast(), SMALL, stream.as_raw()) },
        || fixture.settle(),
    )?;
    // The driver's own handling of pageable memory is what it is compared with.
    Ok(Row::new(name, pair).without_goal())
}

fn download_to(fixture: &Fixture, effort: Effort, name: &str) -> anyhow::Result<Row> {
    let stream = &fixture.stream;
    let mut target = vec![0u8; SMALL];
    let buffer = stream.alloc_zeroed::<u8>(SMALL)?;
    let (to, from) = (target.as_mut_ptr(), buffer.as_raw());
    let pair = pair(
        effort.batches,
        20,
        || stream.download_to(&buffer, &mut target),
        || {
            // SAFETY: both sides have SMALL bytes that outlive the call and its wait.
            let code = unsafe { cuMemcpyDtoHAsync_v2(to.cast(), from, SMALL, stream.as_raw()) };
            // SAFETY: the stream is live.
            let waited = unsafe { cuStreamSynchronize(stream.as_raw()) };
            if code == CUDA_SUCCESS { waited } else { code }
        },
        || fixture.settle(),
    )?;
    Ok(Row::new(name, pair).without_goal())
}
