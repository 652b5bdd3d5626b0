//! Managed memory, treated as pinned memory, since host and devices access it by one address.

use std::ffi::c_int;
use std::ops::Range;

use cuda_sys::*;

use super::host::{HOST_MEMORY, pin};
use super::virtual_memory::located;
use crate::call::{Call, Outcome, put};
use crate::engine::enqueue::Submission;
use crate::engine::work::{Access, AccessKind, Target, Work};
use crate::graph::node::NodeKind;
use crate::handle::Id;
use crate::memory::pinned::{Advised, Origin, Subject, allocate};

const NOWHERE: CUdevice = -2;

entries! {
    cuMemAllocManaged(address, bytes, flags) |call| {
        let context = call.current()?;
        let attach = [CU_MEM_ATTACH_GLOBAL.0, CU_MEM_ATTACH_HOST.0];
        if address.is_null() || bytes == 0 || !attach.contains(&flags) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        call.forbid_in_capture()?;
        if bytes > HOST_MEMORY {
            return Err(CUDA_ERROR_OUT_OF_MEMORY);
        }
        let base = allocate(bytes).ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
        pin(call, context, base, bytes, 0, Origin::Managed);
        // The program makes a pointer from the address.
        let start = base.0.expose_provenance() as CUdeviceptr;
        // SAFETY: the caller passes a place for the address.
        unsafe { put(address, start) }
    }

    cuMemPrefetchAsync(address, bytes, location, stream) |call| {
        let location = place(call, location);
        prefetch(call, address, bytes, location, stream)
    }

    cuMemAdvise(address, bytes, advice, location) |call| {
        let (id, range) = managed(call, address, bytes)?;
        let (subject, value) = match advice {
            CU_MEM_ADVISE_SET_READ_MOSTLY => (Subject::ReadMostly, 1),
            CU_MEM_ADVISE_UNSET_READ_MOSTLY => (Subject::ReadMostly, 0),
            CU_MEM_ADVISE_SET_PREFERRED_LOCATION => (Subject::Preferred, place(call, location)?),
            CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION => (Subject::Preferred, NOWHERE),
            CU_MEM_ADVISE_SET_ACCESSED_BY => (Subject::User(place(call, location)?), 1),
            CU_MEM_ADVISE_UNSET_ACCESSED_BY => (Subject::User(place(call, location)?), 0),
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        };
        note_advice(call, id, &range, subject, value);
        Ok(())
    }

    cuMemPrefetchAsync_v2(address, bytes, location, flags, stream) |call| {
        if flags != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let location = place_of(call, &location);
        prefetch(call, address, bytes, location, stream)
    }

    cuMemAdvise_v2(address, bytes, advice, location) |call| {
        let (id, range) = managed(call, address, bytes)?;
        // For host NUMA nodes, only the preferred location is recorded.
        if advice != CU_MEM_ADVISE_SET_PREFERRED_LOCATION {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let location = place_of(call, &location)?;
        note_advice(call, id, &range, Subject::Preferred, location);
        Ok(())
    }

    cuMemRangeGetAttribute(data, size, attribute, address, bytes) |call| {
        let (id, range) = managed(call, address, bytes)?;
        let block = &call.pinned.blocks[&id];
        let value = |subject, none| block.last_advice(subject, &range).unwrap_or(none);
        let values = match attribute {
            CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY => vec![value(Subject::ReadMostly, 0)],
            CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION => vec![value(Subject::Preferred, NOWHERE)],
            CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION => vec![value(Subject::Prefetch, NOWHERE)],
            CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY => {
                let places = CU_DEVICE_CPU..call.devices.len() as c_int;
                let mut users: Vec<_> =
                    places.filter(|&place| value(Subject::User(place), 0) == 1).collect();
                users.resize(size / size_of::<c_int>(), NOWHERE);
                users
            }
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        };
        if data.is_null() || size == 0 || size != values.len() * size_of::<c_int>() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        for (index, value) in values.into_iter().enumerate() {
            let place = data.cast::<c_int>().wrapping_add(index);
            // SAFETY: the caller passes a place for `size` bytes.
            unsafe { put(place, value) }?;
        }
        Ok(())
    }

    cuStreamAttachMemAsync(stream, address, length, flags) |call| {
        let id = call.stream(stream)?;
        let (block, _) = call.pinned.find(address as usize).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let size = call.pinned.blocks[&block].size;
        let (block, range) = managed(call, address, size)?;
        let single = flags == CU_MEM_ATTACH_SINGLE.0;
        let known = single || [CU_MEM_ATTACH_GLOBAL.0, CU_MEM_ATTACH_HOST.0].contains(&flags);
        let whole = range.start == 0 && (length == 0 || length == size);
        if !known || !whole || single && stream.addr() <= 2 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let mut submission = Submission::new(id, NodeKind::Empty, Work::Nothing);
        submission.accesses.push(access(block, range, AccessKind::Write));
        call.submit(submission).map(drop)
    }
}

/// Returns the device of a location, on a machine with the single NUMA node 0.
fn place_of(call: &Call, location: &CUmemLocation) -> Outcome<CUdevice> {
    match location.type_ {
        CU_MEM_LOCATION_TYPE_HOST | CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT => Ok(CU_DEVICE_CPU),
        // SAFETY: the location of a node uses the union's number, which came with the type.
        CU_MEM_LOCATION_TYPE_HOST_NUMA if unsafe { location.__bindgen_anon_1.id } == 0 => {
            Ok(CU_DEVICE_CPU)
        }
        _ => Ok(located(call, location)? as CUdevice),
    }
}

/// Implements both versions of `cuMemPrefetchAsync`.
fn prefetch(
    call: &mut Call,
    address: CUdeviceptr,
    bytes: usize,
    location: Outcome<CUdevice>,
    stream: CUstream,
) -> Outcome {
    let stream = call.stream(stream)?;
    let (id, range) = managed(call, address, bytes)?;
    note_advice(call, id, &range, Subject::Prefetch, location?);
    let mut submission = Submission::new(stream, NodeKind::Empty, Work::Nothing);
    submission.accesses.push(access(id, range, AccessKind::Read));
    call.submit(submission).map(drop)
}

fn access(id: Id, range: Range<usize>, kind: AccessKind) -> Access {
    Access { target: Target::Pinned(id), range, kind }
}

/// Returns the managed block that contains the bytes, and their range in it.
fn managed(call: &Call, address: CUdeviceptr, bytes: usize) -> Outcome<(Id, Range<usize>)> {
    let found = call.pinned.find(address as usize);
    let (id, offset) = found.ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let block = &call.pinned.blocks[&id];
    let end = offset.checked_add(bytes).filter(|end| *end <= block.size);
    match end {
        Some(end) if block.origin == Origin::Managed && bytes > 0 => Ok((id, offset..end)),
        _ => Err(CUDA_ERROR_INVALID_VALUE),
    }
}

/// Checks a location: a device, or the host.
fn place(call: &Call, location: CUdevice) -> Outcome<CUdevice> {
    if location != CU_DEVICE_CPU {
        call.device(location)?;
    }
    Ok(location)
}

fn note_advice(call: &mut Call, id: Id, range: &Range<usize>, subject: Subject, value: c_int) {
    if let Some(block) = call.pinned.blocks.get_mut(&id) {
        block.advice.push(Advised { range: range.clone(), subject, value });
    }
}
