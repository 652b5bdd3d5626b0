//! Streams and events.

use std::ptr;

use cuda_core::{Event, EventFlags};
use cuda_sys::{
    cuEventCreate, cuEventDestroy_v2, cuEventRecord, cuStreamCreateWithPriority,
    cuStreamDestroy_v2, cuStreamWaitEvent,
};

use super::BATCH;
use crate::bench::measure::Measured;
use crate::bench::operation::{Fixture, Operation};
use crate::bench::raw::first_error;

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
    fixture.pair(
        BATCH,
        || fixture.event.record(&fixture.stream),
        // SAFETY: event and stream are live.
        || unsafe { cuEventRecord(event, stream) },
    )
}

fn wait(fixture: &Fixture) -> anyhow::Result<Measured> {
    let (stream, event) = (fixture.raw_stream(), fixture.event.as_raw());
    fixture.event.record(&fixture.stream)?;
    fixture.pair(
        BATCH,
        || fixture.stream.wait_event(&fixture.event),
        // SAFETY: event and stream are live.
        || unsafe { cuStreamWaitEvent(stream, event, 0) },
    )
}

fn event_create(fixture: &Fixture) -> anyhow::Result<Measured> {
    fixture.pair(
        BATCH,
        || Event::new(&fixture.context, EventFlags::DISABLE_TIMING).map(drop),
        || {
            let mut event = ptr::null_mut();
            // SAFETY: the pointer is valid for a write; the fixture's context is current.
            let created = unsafe { cuEventCreate(&mut event, 2) };
            // SAFETY: the event is live and destroyed once.
            let destroyed = unsafe { cuEventDestroy_v2(event) };
            first_error([created, destroyed])
        },
    )
}

fn stream_create(fixture: &Fixture) -> anyhow::Result<Measured> {
    fixture.pair(
        10,
        || fixture.context.create_stream().map(drop),
        || {
            let mut stream = ptr::null_mut();
            // SAFETY: the pointer is valid for a write; the fixture's context is current.
            let created = unsafe { cuStreamCreateWithPriority(&mut stream, 1, 0) };
            // SAFETY: the stream is live and destroyed once.
            let destroyed = unsafe { cuStreamDestroy_v2(stream) };
            first_error([created, destroyed])
        },
    )
}
