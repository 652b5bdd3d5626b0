//! `cuMemcpyBatchAsync`: copies in no particular order.

use cuda_sys::*;

use super::copy::{admit, finish};
use crate::call::{Call, Outcome, list};
use crate::engine::enqueue::Submission;
use crate::engine::work::{Access, AccessKind, Work};
use crate::graph::node::NodeKind;
use crate::report::ViolationKind;

entries! {
    cuMemcpyBatchAsync_v2(to, from, sizes, count, attributes, since, sets, stream) |call| {
        let batch = Batch { to, from, sizes, count, attributes, since, sets };
        // SAFETY: the caller passes lists of the lengths that `Batch` holds.
        unsafe { batch.enqueue(call, stream) }
    }

    // The first version, of CUDA 12.8: `failed` is the index of a copy that is refused.
    cuMemcpyBatchAsync(to, from, sizes, count, attributes, since, sets, failed, stream) |call| {
        if failed.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let batch = Batch { to, from, sizes, count, attributes, since, sets };
        // SAFETY: the caller passes lists of the lengths that `Batch` holds.
        unsafe { batch.enqueue(call, stream) }
    }
}

/// The arguments of both versions.
struct Batch {
    to: *mut CUdeviceptr,
    from: *mut CUdeviceptr,
    sizes: *mut usize,
    count: usize,
    attributes: *mut CUmemcpyAttributes,
    since: *mut usize,
    sets: usize,
}

impl Batch {
    /// # Safety
    /// The fields point to three lists of `count` entries, and two of `sets`.
    unsafe fn enqueue(self, call: &mut Call, stream: CUstream) -> Outcome {
        let Self { to, from, sizes, count, attributes, since, sets } = self;
        // "Must not be legacy NULL stream."
        let legacy = stream.addr() <= 1;
        if count == 0 || sets != 1 || legacy {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: the caller passes one set of attributes.
        let order = unsafe { list(attributes, 1) }?[0].srcAccessOrder;
        // SAFETY: the caller passes one index for this set.
        if order != CU_MEMCPY_SRC_ACCESS_ORDER_STREAM || unsafe { list(since, 1) }? != [0] {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let home = call.stream(stream)?;
        // As on driver 580: some context must be current, any one.
        call.current().map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
        // SAFETY: the caller passes three lists of `count` entries.
        let to = unsafe { list(to, count) }?;
        // SAFETY: the caller passes three lists of `count` entries, of which this is the second.
        let from = unsafe { list(from, count) }?;
        // SAFETY: the caller passes three lists of `count` entries, of which this is the third.
        let sizes = unsafe { list(sizes, count) }?;
        let (mut works, mut accesses) = (Vec::new(), Vec::<Access>::new());
        for ((&to, &from), &bytes) in to.iter().zip(from).zip(sizes) {
            if bytes == 0 {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            let dst = call.device_memory(to, bytes)?;
            let src = call.device_memory(from, bytes)?;
            admit(call, Some(stream), &[&dst, &src])?;
            accesses.extend(src.access(bytes, AccessKind::Read));
            accesses.extend(dst.access(bytes, AccessKind::Write));
            works.push(Work::Copy { dst, src, bytes });
        }
        if let Some((one, other)) = dependent(&accesses) {
            let message = format!("bytes {:?} and {:?} of one batch", one.range, other.range);
            call.violation(ViolationKind::Overlap, message);
        }
        // The order is unspecified, so the last copy runs first.
        works.reverse();
        let mut submission = Submission::new(home, NodeKind::Copies, Work::Each(works));
        submission.accesses = accesses;
        finish(call, submission, false)
    }
}

/// Returns two accesses of which one writes what the other accesses.
fn dependent(accesses: &[Access]) -> Option<(&Access, &Access)> {
    accesses.iter().enumerate().find_map(|(at, one)| {
        let later = &accesses[at + 1..];
        later.iter().find(|other| one.conflicts_with(other)).map(|other| (one, other))
    })
}
