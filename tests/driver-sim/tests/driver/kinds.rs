//! Other kinds of memory: pitched, managed, of other processes, of shared pools.

use std::ptr::null_mut;

use cuda_sim::LeakKind;
use cuda_sim::ViolationKind::{DoubleFree, Race, UseAfterFree};
use cuda_sys::*;

use crate::support::*;

fn managed(bytes: usize) -> CUdeviceptr {
    let mut address = 0;
    ok!(cuMemAllocManaged(&mut address, bytes, CU_MEM_ATTACH_GLOBAL.0));
    address
}

#[test]
fn rows_are_apart() {
    let session = begin();
    bind(0);
    let (mut address, mut pitch) = (0, 0);
    ok!(cuMemAllocPitch_v2(&mut address, &mut pitch, 1000, 3, 4));
    assert_eq!((address % 512, pitch), (0, 1024));
    ok!(cuMemsetD8_v2(address + 2 * 1024, 1, 1024));
    ok!(cuCtxSynchronize());
    ok!(cuMemFree_v2(address));
    fails!(CUDA_ERROR_INVALID_VALUE, cuMemAllocPitch_v2(&mut address, &mut pitch, 1000, 0, 4));
    fails!(CUDA_ERROR_INVALID_VALUE, cuMemAllocPitch_v2(&mut address, &mut pitch, 1000, 3, 5));
    session.assert_clean();
}

#[test]
#[cfg_attr(miri, ignore = "makes a pointer of an address")]
fn managed_memory_is_the_hosts_too() {
    let session = begin();
    bind(0);
    let d = managed(64);
    ok!(cuMemsetD8_v2(d, 7, 64));
    ok!(cuCtxSynchronize());
    let host: *const u8 = std::ptr::with_exposed_provenance(d as usize);
    // SAFETY: `host` points to 64 bytes of managed memory.
    let last = unsafe { host.add(63) };
    // SAFETY: the address is inside those 64 bytes, which no work uses any more.
    assert_eq!(unsafe { last.read() }, 7);
    let mut is_managed = 2_u8;
    let place = (&raw mut is_managed).cast();
    ok!(cuPointerGetAttribute(place, CU_POINTER_ATTRIBUTE_IS_MANAGED, d + 3));
    assert_eq!(is_managed, 1);
    assert_eq!(session.leaks().first().map(|leak| leak.kind), Some(LeakKind::Device));
    ok!(cuMemFree_v2(d));
    fails!(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(d));
    assert_eq!(violations(&session).len(), 1);
    fails!(CUDA_ERROR_INVALID_VALUE, cuMemAllocManaged(&mut 0, 64, 3));
    session.assert_clean();
}

#[test]
fn advice_holds_for_the_range_it_was_given_for() {
    let session = begin();
    bind(0);
    let (d, s) = (managed(100), stream());
    let attribute_of = |attribute, start: u64, len: usize| {
        let mut value = [9_i32; 2];
        let size = if attribute == CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY { 8 } else { 4 };
        let place = value.as_mut_ptr().cast();
        ok!(cuMemRangeGetAttribute(place, size, attribute, d + start, len));
        value
    };
    ok!(cuMemAdvise(d, 50, CU_MEM_ADVISE_SET_READ_MOSTLY, CU_DEVICE_CPU));
    assert_eq!(attribute_of(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, 10, 40)[0], 1);
    assert_eq!(attribute_of(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, 10, 41)[0], 0);
    assert_eq!(attribute_of(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, 0, 100)[0], -2);
    ok!(cuMemAdvise(d, 100, CU_MEM_ADVISE_SET_ACCESSED_BY, 1));
    assert_eq!(attribute_of(CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, 0, 100), [1, -2]);
    ok!(cuMemPrefetchAsync(d, 100, 1, s));
    assert_eq!(attribute_of(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, 0, 100)[0], 1);
    fails!(CUDA_ERROR_INVALID_DEVICE, cuMemPrefetchAsync(d, 100, 99, s));
    fails!(CUDA_ERROR_INVALID_VALUE, cuMemPrefetchAsync(d, 101, 1, s));
    let plain = alloc(100);
    fails!(CUDA_ERROR_INVALID_VALUE, cuMemPrefetchAsync(plain, 100, 1, s));
    fails!(
        CUDA_ERROR_INVALID_VALUE,
        cuMemAdvise(plain, 100, CU_MEM_ADVISE_SET_READ_MOSTLY, CU_DEVICE_CPU)
    );
    // The prefetch is still queued.
    ok!(cuMemFree_v2(d));
    assert_eq!(violations(&session), [Race]);
    ok!(cuMemFree_v2(plain));
    ok!(cuStreamDestroy_v2(s));
    session.assert_clean();
}

#[test]
fn managed_memory_is_attached_as_a_whole() {
    let session = begin();
    bind(0);
    let (d, s) = (managed(100), stream());
    ok!(cuStreamAttachMemAsync(s, d, 0, CU_MEM_ATTACH_SINGLE.0));
    ok!(cuStreamAttachMemAsync(s, d, 100, CU_MEM_ATTACH_GLOBAL.0));
    fails!(CUDA_ERROR_INVALID_VALUE, cuStreamAttachMemAsync(s, d, 50, CU_MEM_ATTACH_HOST.0));
    fails!(CUDA_ERROR_INVALID_VALUE, cuStreamAttachMemAsync(s, d, 0, 3));
    let legacy = null_mut();
    fails!(CUDA_ERROR_INVALID_VALUE, cuStreamAttachMemAsync(legacy, d, 0, CU_MEM_ATTACH_SINGLE.0));
    ok!(cuStreamSynchronize(s));
    ok!(cuMemFree_v2(d));
    ok!(cuStreamDestroy_v2(s));
    session.assert_clean();
}

#[test]
fn memory_of_another_process_is_closed_not_freed() {
    let session = begin();
    bind(0);
    let mut handle = CUipcMemHandle::default();
    let own = alloc(64);
    ok!(cuIpcGetMemHandle(&mut handle, own));
    let mut opened = 0;
    let lazy = CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS.0;
    // The handle is the process's own.
    fails!(CUDA_ERROR_INVALID_CONTEXT, cuIpcOpenMemHandle_v2(&mut opened, handle, lazy));
    handle.reserved = cuda_sim::foreign_memory(64).map(|byte| byte as _);
    ok!(cuIpcOpenMemHandle_v2(&mut opened, handle, lazy));
    ok!(cuMemsetD8_v2(opened, 1, 64));
    fails!(CUDA_ERROR_INVALID_VALUE, cuIpcGetMemHandle(&mut handle, opened));
    ok!(cuCtxSynchronize());
    ok!(cuIpcCloseMemHandle(opened));
    fails!(CUDA_ERROR_INVALID_VALUE, cuIpcCloseMemHandle(opened));
    fails!(CUDA_ERROR_INVALID_VALUE, cuMemsetD8_v2(opened, 1, 64));
    assert_eq!(violations(&session), [DoubleFree, UseAfterFree]);
    fails!(CUDA_ERROR_INVALID_VALUE, cuIpcCloseMemHandle(own));
    handle.reserved = [1; 64];
    fails!(CUDA_ERROR_INVALID_VALUE, cuIpcOpenMemHandle_v2(&mut opened, handle, lazy));
    let s = stream();
    let pooled = alloc_async(64, s);
    fails!(CUDA_ERROR_INVALID_VALUE, cuIpcGetMemHandle(&mut handle, pooled));
    ok!(cuMemFreeAsync(pooled, s));
    ok!(cuMemFree_v2(own));
    ok!(cuStreamDestroy_v2(s));
    session.assert_clean();
}

#[test]
#[cfg(unix)]
#[cfg_attr(miri, ignore = "opens files")]
fn a_pool_is_found_by_its_file() {
    use std::fs::File;
    use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

    unsafe extern "C" {
        fn dup2(from: i32, to: i32) -> i32;
    }
    const DESCRIPTOR: CUmemAllocationHandleType = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    let session = begin();
    let mut props = CUmemPoolProps {
        allocType: CU_MEM_ALLOCATION_TYPE_PINNED,
        handleTypes: DESCRIPTOR,
        ..Default::default()
    };
    // Properties begin with two enums, then the location's two words, in every header.
    let location = (&raw mut props).cast::<u32>().wrapping_add(2);
    // SAFETY: within the properties, as above.
    unsafe { location.write(CU_MEM_LOCATION_TYPE_DEVICE.0) };
    let (mut pool, mut fd, mut imported) = (null_mut(), -1, null_mut());
    ok!(cuMemPoolCreate(&mut pool, &props));
    ok!(cuMemPoolExportToShareableHandle((&raw mut fd).cast(), pool, DESCRIPTOR, 0));
    // SAFETY: the descriptor was just made, for the program.
    let exported = unsafe { OwnedFd::from_raw_fd(fd) };
    let copy = exported.try_clone().expect("a descriptor");
    let number = |fd: i32| std::ptr::without_provenance_mut(fd as usize);
    ok!(cuMemPoolImportFromShareableHandle(&mut imported, number(copy.as_raw_fd()), DESCRIPTOR, 0));
    ok!(cuMemPoolDestroy(imported));
    // The descriptor's number now names another file.
    let other = File::open("/dev/null").expect("it exists");
    // SAFETY: both are open, and `exported` closes the second one.
    assert_eq!(unsafe { dup2(other.as_raw_fd(), fd) }, fd);
    let refused = CUDA_ERROR_INVALID_VALUE;
    fails!(refused, cuMemPoolImportFromShareableHandle(&mut imported, number(fd), DESCRIPTOR, 0));
    drop(exported);
    fails!(refused, cuMemPoolImportFromShareableHandle(&mut imported, number(fd), DESCRIPTOR, 0));
    ok!(cuMemPoolDestroy(pool));
    session.assert_clean();
}
