//! Copies. A synchronous copy is work on the legacy stream. The host waits for it unless both ends are device
//! memory, since CUDA does not wait then.

use cuda_sys::*;

use crate::call::{Call, Outcome};
use crate::engine::enqueue::Submission;
use crate::engine::work::{AccessKind, HostPtr, Place, Work};
use crate::graph::node::{CopyParams, End, NodeKind};
use crate::handle::Id;
use crate::report::ViolationKind;

entries! {
    cuMemcpy(dst, src, bytes) |call| {
        // SAFETY: neither end is pageable memory.
        unsafe { copy(call, End::Unified(dst), End::Unified(src), bytes, None) }
    }

    cuMemcpyHtoD_v2(dst, src, bytes) |call| {
        // SAFETY: the caller passes `bytes` readable bytes.
        unsafe { copy(call, End::Device(dst), End::Host(src.cast_mut().cast()), bytes, None) }
    }

    cuMemcpyDtoH_v2(dst, src, bytes) |call| {
        // SAFETY: the source is not pageable memory.
        unsafe { copy(call, End::Host(dst.cast()), End::Device(src), bytes, None) }
    }

    cuMemcpyDtoD_v2(dst, src, bytes) |call| {
        // SAFETY: neither end is pageable memory.
        unsafe { copy(call, End::Device(dst), End::Device(src), bytes, None) }
    }

    cuMemcpyAsync(dst, src, bytes, stream) |call| {
        // SAFETY: neither end is pageable memory.
        unsafe { copy(call, End::Unified(dst), End::Unified(src), bytes, Some(stream)) }
    }

    cuMemcpyHtoDAsync_v2(dst, src, bytes, stream) |call| {
        let src = End::Host(src.cast_mut().cast());
        // SAFETY: the caller passes `bytes` readable bytes.
        unsafe { copy(call, End::Device(dst), src, bytes, Some(stream)) }
    }

    cuMemcpyDtoHAsync_v2(dst, src, bytes, stream) |call| {
        // SAFETY: the source is not pageable memory.
        unsafe { copy(call, End::Host(dst.cast()), End::Device(src), bytes, Some(stream)) }
    }

    cuMemcpyDtoDAsync_v2(dst, src, bytes, stream) |call| {
        // SAFETY: neither end is pageable memory.
        unsafe { copy(call, End::Device(dst), End::Device(src), bytes, Some(stream)) }
    }

    cuMemcpyPeerAsync(dst, dst_context, src, src_context, bytes, stream) |call| {
        let home = call.stream(stream)?;
        let contexts = [call.context(dst_context)?, call.context(src_context)?];
        refuse_peer(call, stream)?;
        if bytes == 0 {
            return Ok(());
        }
        let ends = (End::Device(dst), End::Device(src));
        let dst = call.device_memory(dst, bytes)?;
        let src = call.device_memory(src, bytes)?;
        for (context, place) in contexts.iter().zip([&dst, &src]) {
            require_of(call, *context, place)?;
        }
        submit(call, home, ends, (dst, src), bytes, false)
    }
}

/// # Safety
/// A source in pageable memory is valid for reads of `bytes` bytes.
unsafe fn copy(
    call: &mut Call,
    to: End,
    from: End,
    bytes: usize,
    stream: Option<CUstream>,
) -> Outcome {
    // A synchronous copy is one of the current legacy stream.
    let home = call.stream(stream.unwrap_or(std::ptr::null_mut()))?;
    if bytes == 0 {
        return Ok(());
    }
    let dst = place(call, to, bytes)?;
    let mut src = place(call, from, bytes)?;
    // SAFETY: this function's contract.
    unsafe { stage(call, home, &mut src, bytes) };
    admit(call, stream, &[&dst, &src])?;
    let wait = match stream {
        None => [&dst, &src].iter().any(|place| !matches!(place, Place::Device { .. })),
        // A copy to pageable memory is complete when the call returns.
        Some(_) => matches!(dst, Place::Pageable(_)),
    };
    submit(call, home, (to, from), (dst, src), bytes, wait)
}

fn place(call: &mut Call, end: End, bytes: usize) -> Outcome<Place> {
    match end {
        End::Host(pointer) => call.host_memory(pointer, bytes),
        End::Device(address) | End::Unified(address) => call.device_memory(address, bytes),
    }
}

/// Copies a pageable source now, unless the stream captures: then each launch reads the source.
///
/// # Safety
/// A pageable source is valid for reads of `bytes` bytes.
pub(super) unsafe fn stage(call: &Call, stream: Id, src: &mut Place, bytes: usize) {
    if let (Place::Pageable(HostPtr(from)), None) = (&*src, call.streams[&stream].capture) {
        let mut staged = vec![0_u8; bytes];
        // SAFETY: valid for reads by this function's contract; `staged` is new.
        unsafe { std::ptr::copy_nonoverlapping(from.cast_const(), staged.as_mut_ptr(), bytes) };
        *src = Place::Staged(staged.into_boxed_slice());
    }
}

/// Ends a capture and refuses a copy that names two contexts, as driver 580 does.
pub(super) fn refuse_peer(call: &mut Call, stream: CUstream) -> Outcome {
    let stream = call.stream(stream)?;
    match call.streams[&stream].capture {
        Some(_) => call.forbid_capturing(stream),
        None => Ok(()),
    }
}

/// Refuses memory that is not of the device of the context that the call names for it.
pub(super) fn require_of(call: &mut Call, context: Id, place: &Place) -> Outcome {
    let (named, device) = (call.contexts[&context].device, call.device_of(place));
    if device.is_none_or(|device| device == named) {
        return Ok(());
    }
    let message = format!("memory that is not of device {named}, whose context the call names");
    call.violation(ViolationKind::WrongDevice, message);
    Err(CUDA_ERROR_INVALID_VALUE)
}

/// Applies driver 580's condition for copies of pool memory in calls that name no devices.
///
/// Between two devices, one pool must be accessible from the other's device. On one device, an asynchronous
/// copy fails if the current context's device has no access to the pool, although the stream determines where
/// the copy runs; without a current context it works. Without one, it is captured, too, but the graph cannot
/// be instantiated if the device of the capture's first stream has no access.
pub(in crate::entry) fn admit(
    call: &mut Call,
    stream: Option<CUstream>,
    places: &[&Place],
) -> Outcome {
    let home = stream.map(|stream| call.stream(stream)).transpose()?;
    let captured = home.filter(|home| call.streams[home].capture.is_some());
    let mut devices = places.iter().filter_map(|place| Some(call.device_block(place)?.device));
    let first = devices.next();
    if let (Some(stream), true) = (captured, devices.any(|device| Some(device) != first)) {
        return admit_captured(call, stream, places);
    }
    let blocks: Vec<_> = places
        .iter()
        .filter_map(|place| {
            let block = call.device_block(place)?;
            Some((block.device, call.pools.get(&block.pool?)?))
        })
        .collect();
    let open = match blocks[..] {
        [(near, pool), (far, other)] if near != far => {
            let open = pool.is_open_to(far) || other.is_open_to(near);
            if !open && call.current().is_err() {
                let message = "without access of one device to the other's pool, and without a \
                               current context, the driver crashes";
                call.violation(ViolationKind::Crash, message);
            }
            open
        }
        _ => {
            let current = call.current_device().ok().filter(|_| stream.is_some());
            let reaches = |device| blocks.iter().all(|(_, pool)| pool.is_open_to(device));
            let origin = captured.and_then(|stream| call.streams[&stream].capture);
            let origin = origin.map(|capture| call.streams[&call.captures[&capture].origin].device);
            if let (None, Some(stream), false) = (current, captured, origin.is_none_or(reaches)) {
                spoil(call, stream);
                return Ok(());
            }
            current.is_none_or(reaches)
        }
    };
    if open { Ok(()) } else { Err(CUDA_ERROR_INVALID_VALUE) }
}

/// Makes it impossible to instantiate the graph that is captured.
fn spoil(call: &mut Call, stream: Id) {
    let graph = call.streams[&stream].capture.map(|capture| call.captures[&capture].graph);
    if let Some(graph) = graph.and_then(|graph| call.graphs.graphs.get_mut(&graph)) {
        graph.unusable = true;
    }
}

/// Applies driver 580's condition for a captured copy between two devices: the device of the current context
/// must have access to all pools. Without a current context the stream's device must. Then a copy that this
/// device cannot make is captured all the same, and so is a copy of memory that a graph allocates, but the
/// graph cannot be instantiated.
fn admit_captured(call: &mut Call, stream: Id, places: &[&Place]) -> Outcome {
    let current = call.current_device();
    let device = current.unwrap_or(call.streams[&stream].device);
    let blocks = places.iter().filter_map(|place| call.device_block(place));
    let mut blocks = blocks.filter_map(|block| Some((block, call.pools.get(&block.pool?)?)));
    let is_refused = blocks.any(|(block, pool)| {
        let of_a_graph = current.is_err() && block.recurring.is_some();
        of_a_graph || block.recurring.is_none() && !pool.is_open_to(device)
    });
    if is_refused && current.is_ok() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    if is_refused {
        spoil(call, stream);
    }
    Ok(())
}

fn submit(
    call: &mut Call,
    stream: Id,
    (to, from): (End, End),
    (dst, src): (Place, Place),
    bytes: usize,
    wait: bool,
) -> Outcome {
    let write = dst.access(bytes, AccessKind::Write);
    let read = src.access(bytes, AccessKind::Read);
    if let (Some(write), Some(read)) = (&write, &read) {
        if write.overlaps(read) {
            let message = format!("bytes {:?} onto {:?}", read.range, write.range);
            call.violation(ViolationKind::Overlap, message);
        }
    }
    let kind = NodeKind::Memcpy(CopyParams::linear(call, to, from, bytes));
    let mut submission = Submission::new(stream, kind, Work::Copy { dst, src, bytes });
    submission.accesses.extend(read.into_iter().chain(write));
    finish(call, submission, wait)
}

/// Enqueues a copy, and waits for it if the call does.
pub(super) fn finish(call: &mut Call, submission: Submission, wait: bool) -> Outcome {
    let stream = submission.stream;
    if wait {
        call.forbid_capturing(stream)?;
    }
    let point = call.submit(submission)?;
    if let (true, Some(point)) = (wait, point) {
        let clock = call.streams[&stream].clock.clone();
        call.drive(point);
        call.host_join(&clock);
    }
    Ok(())
}
