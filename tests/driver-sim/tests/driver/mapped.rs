//! Virtual memory: which addresses may be mapped, unmapped and accessed.

use cuda_sim::LeakKind;
use cuda_sim::ViolationKind::{DanglingHandle, Race, UnknownAddress};
use cuda_sys::*;

use crate::support::*;

/// `CUmemAllocationProp`: pinned memory of device 0.
pub(crate) fn properties() -> CUmemAllocationProp {
    let mut properties = CUmemAllocationProp {
        type_: CU_MEM_ALLOCATION_TYPE_PINNED,
        ..CUmemAllocationProp::default()
    };
    // Properties begin with two enums, then the location's two words, in every header.
    let location = (&raw mut properties).cast::<u32>().wrapping_add(2);
    // SAFETY: within the properties, as above.
    unsafe { location.write(1) };
    properties
}

/// `CUmemAccessDesc` of device 0.
pub(crate) fn access(flags: u32) -> CUmemAccessDesc {
    let mut access = CUmemAccessDesc::default();
    // SAFETY: in every header it is three words: kind and number of the location, flags.
    unsafe { (&raw mut access).cast::<[u32; 3]>().write([1, 0, flags]) };
    access
}

pub(crate) fn step() -> usize {
    let mut step = 0;
    let which = CU_MEM_ALLOC_GRANULARITY_MINIMUM;
    ok!(cuMemGetAllocationGranularity(&mut step, &properties(), which));
    step
}

pub(crate) fn reserve(bytes: usize) -> CUdeviceptr {
    let mut address = 0;
    ok!(cuMemAddressReserve(&mut address, bytes, 0, 0, 0));
    address
}

pub(crate) fn create(bytes: usize) -> CUmemGenericAllocationHandle {
    let mut handle = 0;
    ok!(cuMemCreate(&mut handle, bytes, &properties(), 0));
    handle
}

/// Creates memory that can be exported, and exports it as a descriptor.
#[cfg(unix)]
pub(crate) fn exported(bytes: usize) -> (CUmemGenericAllocationHandle, i32) {
    let properties = CUmemAllocationProp { requestedHandleTypes: DESCRIPTOR, ..properties() };
    let mut memory = 0;
    ok!(cuMemCreate(&mut memory, bytes, &properties, 0));
    (memory, exported_again(memory))
}

#[cfg(unix)]
pub(crate) fn exported_again(memory: CUmemGenericAllocationHandle) -> i32 {
    let mut fd = -1;
    ok!(cuMemExportToShareableHandle((&raw mut fd).cast(), memory, DESCRIPTOR, 0));
    fd
}

#[cfg(unix)]
const DESCRIPTOR: CUmemAllocationHandleType = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

#[test]
fn only_what_is_mapped_and_open_can_be_touched() {
    let session = begin();
    bind(0);
    let (step, s) = (step(), stream());
    let address = reserve(2 * step);
    fails!(CUDA_ERROR_INVALID_VALUE, cuMemsetD8Async(address, 1, 1, s));
    assert_eq!(violations(&session), [UnknownAddress], "nothing is mapped");
    let memory = create(step);
    ok!(cuMemMap(address, step, 0, memory, 0));
    fails!(CUDA_ERROR_INVALID_VALUE, cuMemsetD8Async(address, 1, 1, s));
    assert_eq!(violations(&session), [UnknownAddress], "no device has access yet");
    ok!(cuMemSetAccess(address, step, &access(3), 1));
    ok!(cuMemsetD8Async(address, 7, step, s));
    fails!(CUDA_ERROR_INVALID_VALUE, cuMemsetD8Async(address, 1, step + 1, s));
    assert_eq!(violations(&session), [UnknownAddress], "beyond what is mapped");
    fails!(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(address));
    assert_eq!(violations(&session), [UnknownAddress], "no allocation");
    let mut back = [0_u8; 2];
    ok!(cuStreamSynchronize(s));
    ok!(cuMemcpyDtoH_v2(back.as_mut_ptr().cast(), address + 5, 2));
    assert_eq!(back, [7, 7]);
    ok!(cuMemUnmap(address, step));
    ok!(cuMemRelease(memory));
    ok!(cuMemAddressFree(address, 2 * step));
    ok!(cuStreamDestroy_v2(s));
    session.assert_clean();
}

#[test]
fn unmapping_behind_queued_work_is_reported() {
    let session = begin();
    bind(0);
    let (step, s) = (step(), stream());
    let address = reserve(step);
    let memory = create(step);
    ok!(cuMemMap(address, step, 0, memory, 0));
    // Mapped memory stays after its handle is released.
    ok!(cuMemRelease(memory));
    fails!(CUDA_ERROR_INVALID_VALUE, cuMemRelease(memory));
    assert_eq!(violations(&session), [DanglingHandle]);
    ok!(cuMemSetAccess(address, step, &access(3), 1));
    ok!(cuMemsetD8Async(address, 7, step, s));
    ok!(cuMemSetAccess(address, step, &access(0), 1));
    assert_eq!(violations(&session), [Race], "closing it");
    ok!(cuMemUnmap(address, step));
    assert_eq!(violations(&session), [Race], "unmapping it");
    ok!(cuStreamSynchronize(s));
    violations(&session);
    ok!(cuMemAddressFree(address, step));
    ok!(cuStreamDestroy_v2(s));
    session.assert_clean();
}

#[test]
fn odd_requests_are_refused() {
    let session = begin();
    bind(0);
    let step = step();
    let mut place = 0;
    let refused = CUDA_ERROR_INVALID_VALUE;
    fails!(refused, cuMemAddressReserve(&mut place, step + 1, 0, 0, 0));
    fails!(refused, cuMemAddressReserve(&mut place, 0, 0, 0, 0));
    fails!(refused, cuMemCreate(&mut place, step + 1, &properties(), 0));
    let (address, memory) = (reserve(2 * step), create(step));
    fails!(refused, cuMemMap(address + 1, step, 0, memory, 0));
    fails!(refused, cuMemMap(address, 2 * step, 0, memory, 0));
    ok!(cuMemMap(address, step, 0, memory, 0));
    fails!(refused, cuMemMap(address, step, 0, memory, 0));
    fails!(refused, cuMemUnmap(address, 2 * step));
    fails!(refused, cuMemAddressFree(address, 2 * step));
    fails!(refused, cuMemSetAccess(address, 2 * step, &access(3), 1));
    ok!(cuMemUnmap(address, step));
    fails!(refused, cuMemAddressFree(address, step));
    ok!(cuMemRelease(memory));
    ok!(cuMemAddressFree(address, 2 * step));
    session.assert_clean();
}

#[test]
fn what_is_left_is_listed() {
    let session = begin();
    bind(0);
    let step = step();
    let (address, memory) = (reserve(step), create(step));
    ok!(cuMemMap(address, step, 0, memory, 0));
    let leaks = session.leaks();
    let found: Vec<_> = leaks.iter().map(|leak| (leak.kind, leak.handle)).collect();
    assert_eq!(found, [(LeakKind::Addresses, address), (LeakKind::Physical, memory)]);
    let (mut free, mut total) = (0, 0);
    ok!(cuMemGetInfo_v2(&mut free, &mut total));
    ok!(cuMemRelease(memory));
    let mut later = 0;
    ok!(cuMemGetInfo_v2(&mut later, &mut total));
    assert_eq!(later, free, "what is mapped is in use");
    ok!(cuMemUnmap(address, step));
    ok!(cuMemGetInfo_v2(&mut later, &mut total));
    assert_eq!(later, free + step);
    ok!(cuMemAddressFree(address, step));
    session.assert_clean();
}

#[test]
#[cfg(unix)]
#[cfg_attr(miri, ignore = "opens files")]
fn an_import_of_memory_without_handles_makes_one() {
    use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

    let session = begin();
    bind(0);
    let step = step();
    let (memory, fd) = exported(step);
    // SAFETY: the descriptor was just made, for the program.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    let address = reserve(step);
    ok!(cuMemMap(address, step, 0, memory, 0));
    ok!(cuMemRelease(memory));
    // The new memory gets the handle that was released.
    let other = create(step);
    assert_eq!(other, memory);
    let (mut imported, shared) = (0, std::ptr::without_provenance_mut(fd.as_raw_fd() as usize));
    ok!(cuMemImportFromShareableHandle(&mut imported, shared, DESCRIPTOR));
    assert_ne!(imported, other);
    ok!(cuMemRelease(other));
    let second = reserve(step);
    ok!(cuMemMap(second, step, 0, imported, 0));
    ok!(cuMemRelease(imported));
    for address in [address, second] {
        ok!(cuMemUnmap(address, step));
        ok!(cuMemAddressFree(address, step));
    }
    assert_eq!(session.device_bytes_in_use(0), 0);
    session.assert_clean();
}
