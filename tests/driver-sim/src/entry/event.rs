//! Events.

use std::ffi::c_uint;
use std::time::Instant;

use cuda_sys::*;

use crate::call::{Call, Outcome, put};
use crate::engine::clock::{Clock, Point};
use crate::engine::enqueue::Submission;
use crate::engine::stream::{Event, Recorded, StreamKind};
use crate::engine::work::Work;
use crate::graph::node::NodeKind;
use crate::handle::{Id, pointer};

const FLAGS: c_uint = 7;
/// The flag of records and waits that are captured as nodes.
const EXTERNAL: c_uint = 1;

entries! {
    cuEventCreate(event, flags) |call| {
        let context = call.current()?;
        let interprocess_with_timing = flags & 6 == 4;
        if event.is_null() || flags & !FLAGS != 0 || interprocess_with_timing {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let id = call.new_id();
        let timing = flags & CU_EVENT_DISABLE_TIMING.0 == 0;
        let recorded = Recorded::Never;
        let handle = call.events.add(id, Event { context, timing, recorded, polls: 0 });
        // SAFETY: the caller passes a place for the event.
        unsafe { put(event, pointer(handle)) }
    }

    cuEventDestroy_v2(event) |call| {
        let id = call.event(event)?;
        call.events.remove(&id);
        Ok(())
    }

    cuEventRecord(event, stream) |call| {
        record(call, event, stream)
    }

    cuEventRecordWithFlags(event, stream, flags) |call| {
        match flags {
            0 => record(call, event, stream),
            EXTERNAL => {
                let id = call.event(event)?;
                capture_external(call, stream, NodeKind::Record(id), Work::Record { event: id })
            }
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }

    cuEventQuery(event) |call| {
        let id = call.event(event)?;
        let Some((point, clock)) = last_record(call, id)? else { return Ok(()) };
        call.forbid_in_capture()?;
        if query(call, id, point, &clock) { Ok(()) } else { Err(CUDA_ERROR_NOT_READY) }
    }

    cuEventSynchronize(event) |call| {
        let id = call.event(event)?;
        let Some((point, clock)) = last_record(call, id)? else { return Ok(()) };
        call.forbid_in_capture()?;
        call.drive(point);
        call.host_join(&clock);
        Ok(())
    }

    cuEventElapsedTime(ms, start, end) |call| {
        // SAFETY: the caller passes a place for the time.
        unsafe { elapsed(call, ms, start, end) }
    }

    cuIpcGetEventHandle(handle, event) |call| {
        call.event(event)?;
        if handle.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // The simulated machine has no other process.
        Err(CUDA_ERROR_NOT_SUPPORTED)
    }

    cuIpcOpenEventHandle(event, _handle) |call| {
        call.current()?;
        if event.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        Err(CUDA_ERROR_NOT_SUPPORTED)
    }

    cuStreamWaitEvent(stream, event, flags) |call| {
        let event = call.event(event)?;
        match flags {
            0 => {
                let stream = call.stream(stream)?;
                call.wait_event(stream, event)
            }
            EXTERNAL => capture_external(call, stream, NodeKind::Wait(event), Work::Nothing),
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }

    cuEventElapsedTime_v2(ms, start, end) |call| {
        // SAFETY: the caller passes a place for the time.
        unsafe { elapsed(call, ms, start, end) }
    }
}

fn record(call: &mut Call, event: CUevent, stream: CUstream) -> Outcome {
    let stream = call.stream(stream)?;
    let id = call.event(event)?;
    if call.events[&id].context != call.streams[&stream].context {
        return Err(CUDA_ERROR_INVALID_HANDLE);
    }
    let (context, kind) = (call.streams[&stream].context, call.streams[&stream].kind);
    if kind == StreamKind::Legacy {
        // Checked before the event loses its last record.
        call.forbid_implicit(context)?;
    }
    if let Some(capture) = call.streams[&stream].capture {
        if !call.captures_still(capture) {
            return Err(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        }
        call.capture_point(capture, stream);
        let clock = call.streams[&stream].clock.clone();
        let nodes = call.captures[&capture].ends(stream).to_vec();
        set_record(call, id, Recorded::Captured { capture, clock, nodes });
        return Ok(());
    }
    // The record is stored before the work is enqueued: in eager mode the work runs at once.
    let point = Point { stream, seq: call.streams[&stream].issued + 1 };
    set_record(call, id, Recorded::On { point, clock: Clock::default(), reached: None });
    call.submit(Submission::new(stream, NodeKind::Record(id), Work::Record { event: id }))?;
    let before = call.streams.get(&stream).map(|stream| stream.clock.clone());
    if let Some(Event { recorded: Recorded::On { clock, .. }, .. }) = call.events.get_mut(&id) {
        *clock = before.unwrap_or_default();
    }
    Ok(())
}

/// Captures a record or a wait as a node; refuses it outside a capture.
fn capture_external(call: &mut Call, stream: CUstream, kind: NodeKind, work: Work) -> Outcome {
    let stream = call.stream(stream)?;
    if call.streams[&stream].capture.is_none() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    call.submit(Submission::new(stream, kind, work)).map(drop)
}

fn set_record(call: &mut Call, event: Id, recorded: Recorded) {
    if let Some(event) = call.events.get_mut(&event) {
        event.recorded = recorded;
        event.polls = 0;
    }
}

/// Returns the point of an event's latest record, if it was ever recorded.
fn last_record(call: &mut Call, event: Id) -> Outcome<Option<(Point, Clock)>> {
    match &call.events[&event].recorded {
        Recorded::Never => Ok(None),
        Recorded::On { point, clock, .. } => Ok(Some((*point, clock.clone()))),
        Recorded::Captured { capture, .. } => {
            let capture = *capture;
            // After the capture has ended, the event means nothing.
            let code = match call.captures_still(capture) {
                true => CUDA_ERROR_CAPTURED_EVENT,
                false => CUDA_ERROR_INVALID_VALUE,
            };
            call.invalidate(capture);
            Err(code)
        }
    }
}

fn query(call: &mut Call, event: Id, point: Point, clock: &Clock) -> bool {
    let polls = call.events.get_mut(&event).map_or(0, |event| {
        event.polls += 1;
        event.polls
    });
    call.query(point, clock, polls)
}

/// # Safety
/// `ms` is null or valid for a write.
unsafe fn elapsed(call: &mut Call, ms: *mut f32, start: CUevent, end: CUevent) -> Outcome {
    let ids = [call.event(start)?, call.event(end)?];
    if call.events[&ids[0]].context != call.events[&ids[1]].context {
        return Err(CUDA_ERROR_INVALID_HANDLE);
    }
    let unfit = |event: &Event| !event.timing || matches!(event.recorded, Recorded::Never);
    if ids.iter().any(|id| unfit(&call.events[id])) {
        return Err(CUDA_ERROR_INVALID_HANDLE);
    }
    let mut times: [Option<Instant>; 2] = [None; 2];
    for (id, time) in ids.into_iter().zip(&mut times) {
        let record = last_record(call, id)?;
        let (point, clock) = record.ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        if !query(call, id, point, &clock) {
            return Err(CUDA_ERROR_NOT_READY);
        }
        if let Recorded::On { reached, .. } = call.events[&id].recorded {
            *time = reached;
        }
    }
    let [Some(from), Some(to)] = times else {
        return Err(CUDA_ERROR_INVALID_HANDLE);
    };
    let forward = to.checked_duration_since(from).map(|time| time.as_secs_f32());
    let seconds = forward.unwrap_or_else(|| -from.duration_since(to).as_secs_f32());
    // SAFETY: the caller's contract.
    unsafe { put(ms, seconds * 1000.0) }
}

impl Call {
    /// Makes a stream wait for the event's latest record.
    pub(crate) fn wait_event(&mut self, stream: Id, event: Id) -> Outcome {
        let mut submission = Submission::new(stream, NodeKind::Wait(event), Work::Nothing);
        match &self.events[&event].recorded {
            Recorded::Never => return Ok(()),
            Recorded::On { point, clock, .. } => {
                if let Some(capture) = self.streams[&stream].capture {
                    self.invalidate(capture);
                    return Err(CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
                }
                submission.waits = Some((*point, clock.clone()));
            }
            Recorded::Captured { capture, clock, nodes } => {
                let (capture, clock, nodes) = (*capture, clock.clone(), nodes.clone());
                if !self.captures_still(capture) {
                    return Err(CUDA_ERROR_INVALID_VALUE);
                }
                self.join_capture(stream, capture)?;
                self.capture_wait(capture, stream, &nodes, &clock);
                return Ok(());
            }
        }
        self.submit(submission)?;
        Ok(())
    }
}
