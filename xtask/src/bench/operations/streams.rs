//! Streams and events.

use std::ptr;

use cuda_core::{Event, EventFlags};
use cuda_sys::{
    CUresult, cuEventCreate, cuEventDestroy_v2, cuEventRecord, cuStreamCreateWithPriority,
    cuStreamDestroy_v2, cuStreamWaitEvent,
};

use super::BATCH;
use crate::bench::measure::{Measured, pair};
use crate::bench::operation::{Fixture, Operation};

pub(super) fn operations() -> Vec<Operation> {
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
    pair(
        fixture.effort,
        BATCH,
        || fixture.event.record(&fixture.stream),
        // SAFETY: event and stream are live.
        || unsafe { cuEventRecord(event, stream) },
        || fixture.settle(),
    )
}

fn wait(fixture: &Fixture) -> anyhow::Result<Measured> {
    let (stream, event) = (fixture.raw_stream(), fixture.event.as_raw());
    fixture.event.record(&fixture.stream)?;
    pair(
        fixture.effort,
        BATCH,
        || fixture.stream.wait_event(&fixture.event),
        // SAFETY: event and stream are live.
        || unsafe { cuStreamWaitEvent(stream, event, 0) },
        || fixture.settle(),
    )
}

fn event_create(fixture: &Fixture) -> anyhow::Result<Measured> {
    pair(
        fixture.effort,
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
    )
}

fn stream_create(fixture: &Fixture) -> anyhow::Result<Measured> {
    pair(
        fixture.effort,
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
    )
}
