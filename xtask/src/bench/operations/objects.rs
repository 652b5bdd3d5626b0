//! Contexts, guards, streams and events, beside the driver calls that they make.

use std::ptr;

use cuda_core::{Context, ContextFlags, Device, Event, EventFlags};
use cuda_sys::{self as sys, CUcontext, CUresult};

use super::BATCH;
use crate::bench::measure::once;
use crate::bench::raw::{first_error, retain};
use crate::bench::run::Side;
use crate::bench::{Effort, Fixture, Measured, Operation};

pub(super) fn contexts_and_guards() -> Vec<Operation> {
    vec![
        Operation::fresh("first context of a device", first).without_goal(
            "it is one driver call, and a few processes vary by more than the library adds",
        ),
        Operation::new("guard, context already current", |it| guard_of(&it.context, it)),
        Operation::new("guard, another context", another),
    ]
}

fn first(device: Device, _: Effort, side: Side) -> anyhow::Result<f64> {
    match side {
        Side::Ours => once(|| Ok(device.context()?)),
        Side::Raw => once(|| retain(device)),
    }
}

/// Makes a guard's driver calls directly.
fn raw_guard(context: CUcontext) -> CUresult {
    let mut before = ptr::null_mut();
    let mut now = ptr::null_mut();
    // SAFETY: the call writes one handle, to a local that outlives it.
    let mut code = unsafe { sys::cuCtxGetCurrent(&mut before) };
    if before != context {
        // SAFETY: the context is live.
        code.0 |= unsafe { sys::cuCtxSetCurrent(context) }.0;
    }
    // SAFETY: the call writes one handle, to a local that outlives it.
    code.0 |= unsafe { sys::cuCtxGetCurrent(&mut now) }.0;
    if now != before {
        // SAFETY: the context that was current a moment ago is live.
        code.0 |= unsafe { sys::cuCtxSetCurrent(before) }.0;
    }
    code
}

fn guard_of(context: &Context, fixture: &Fixture) -> anyhow::Result<Measured> {
    let raw = context.as_raw();
    fixture.pair(BATCH * 10, || context.enter()?.restore(), || raw_guard(raw))
}

fn another(fixture: &Fixture) -> anyhow::Result<Measured> {
    let device = fixture.context.device();
    let other = match Device::all()?.find(|other| *other != device) {
        Some(other) => other.context()?,
        None => Context::new(device, ContextFlags::SCHED_AUTO)?,
    };
    guard_of(&other, fixture)
}

pub(super) fn streams_and_events() -> Vec<Operation> {
    vec![
        Operation::new("event record", record),
        Operation::new("stream wait for an event", wait),
        // A creation also queries the current context.
        Operation::new("event create + destroy", event_create).calls(2),
        Operation::new("stream create + destroy", stream_create).calls(2),
    ]
}

fn record(fixture: &Fixture) -> anyhow::Result<Measured> {
    let (stream, event) = (fixture.raw_stream(), fixture.event.as_raw());
    let ours = || fixture.event.record(&fixture.stream);
    // SAFETY: event and stream are live.
    fixture.pair(BATCH, ours, || unsafe { sys::cuEventRecord(event, stream) })
}

fn wait(fixture: &Fixture) -> anyhow::Result<Measured> {
    let (stream, event) = (fixture.raw_stream(), fixture.event.as_raw());
    fixture.event.record(&fixture.stream)?;
    let ours = || fixture.stream.wait_event(&fixture.event);
    // SAFETY: event and stream are live.
    fixture.pair(BATCH, ours, || unsafe { sys::cuStreamWaitEvent(stream, event, 0) })
}

fn event_create(fixture: &Fixture) -> anyhow::Result<Measured> {
    let ours = || Event::new(&fixture.context, EventFlags::DISABLE_TIMING).map(drop);
    fixture.pair(BATCH, ours, || {
        let mut event = ptr::null_mut();
        // SAFETY: the pointer is valid for a write; the fixture's context is current.
        let created = unsafe { sys::cuEventCreate(&mut event, 2) };
        // SAFETY: the event is live and destroyed once.
        first_error([created, unsafe { sys::cuEventDestroy_v2(event) }])
    })
}

fn stream_create(fixture: &Fixture) -> anyhow::Result<Measured> {
    let ours = || fixture.context.create_stream().map(drop);
    fixture.pair(10, ours, || {
        let mut stream = ptr::null_mut();
        // SAFETY: the pointer is valid for a write; the fixture's context is current.
        let created = unsafe { sys::cuStreamCreateWithPriority(&mut stream, 1, 0) };
        // SAFETY: the stream is live and destroyed once.
        first_error([created, unsafe { sys::cuStreamDestroy_v2(stream) }])
    })
}
