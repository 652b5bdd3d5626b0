//! Blocks, quarantine, limits, pinned memory.

use std::ffi::c_void;
use std::ptr::null_mut;

use cuda_sim::ViolationKind::{DoubleFree, OutOfRange, UnknownAddress, UseAfterFree};
use cuda_sys::*;

use crate::support::*;

#[test]
fn round_trip_with_odd_offsets() {
    let session = begin();
    bind(0);
    let d = alloc(100_000);
    let data: Vec<u8> = (0..99_001_u32).map(|n| (n * 7) as u8).collect();
    ok!(cuMemcpyHtoD_v2(d + 255, data.as_ptr().cast(), data.len()));
    let e = alloc(100_000);
    ok!(cuMemcpyDtoD_v2(e + 3, d + 255, data.len()));
    let mut back = vec![0_u8; data.len()];
    ok!(cuMemcpyDtoH_v2(back.as_mut_ptr().cast(), e + 3, back.len()));
    assert_eq!(back, data);
    ok!(cuMemFree_v2(d));
    ok!(cuMemFree_v2(e));
    session.assert_clean();
}

#[test]
fn new_memory_is_not_zero() {
    let session = begin();
    bind(0);
    let d = alloc(8);
    let mut back = [0_u8; 8];
    ok!(cuMemcpyDtoH_v2(back.as_mut_ptr().cast(), d, 8));
    assert_ne!(back, [0; 8]);
    ok!(cuMemFree_v2(d));
    session.assert_clean();
}

#[test]
fn misuse_is_refused_and_reported() {
    let session = begin();
    bind(0);
    let (d, s) = (alloc(16), stream());
    let mut byte = [0_u8; 32];
    let to: *mut c_void = byte.as_mut_ptr().cast();
    fails!(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH_v2(to, d + 8, 9));
    assert_eq!(violations(&session), [OutOfRange]);
    fails!(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH_v2(to, 0x1234, 1));
    assert_eq!(violations(&session), [UnknownAddress]);
    fails!(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(d + 1));
    assert_eq!(violations(&session), [UnknownAddress]);
    ok!(cuMemFree_v2(d));
    fails!(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(d));
    fails!(CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync(d, s));
    assert_eq!(violations(&session), [DoubleFree, DoubleFree]);
    fails!(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH_v2(to, d, 1));
    assert_eq!(violations(&session), [UseAfterFree]);
    ok!(cuStreamDestroy_v2(s));
    session.assert_clean();
}

#[test]
fn a_queued_free_counts_as_a_free() {
    let session = begin();
    bind(0);
    let s = stream();
    let d = alloc_async(16, s);
    ok!(cuMemFreeAsync(d, s));
    fails!(CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync(d, s));
    assert_eq!(violations(&session), [DoubleFree]);
    ok!(cuMemsetD8Async(d, 0, 16, s));
    assert_eq!(violations(&session), [UseAfterFree]);
    ok!(cuStreamSynchronize(s));
    assert_eq!(violations(&session), [UseAfterFree]);
    ok!(cuStreamDestroy_v2(s));
    session.assert_clean();
}

#[test]
fn addresses_come_back_after_the_quarantine() {
    let session = begin();
    bind(0);
    let first = alloc(3 << 10);
    ok!(cuMemFree_v2(first));
    // These tests quarantine two blocks.
    let mut reused_after = None;
    for round in 0..4 {
        let d = alloc(3 << 10);
        ok!(cuMemFree_v2(d));
        if d == first {
            reused_after = Some(round);
            break;
        }
    }
    assert_eq!(reused_after, Some(2));
    session.assert_clean();
}

#[test]
fn more_than_there_is() {
    let session = begin();
    bind(0);
    let s = stream();
    for bytes in [usize::MAX, 1 << 50, (1 << 30) + 1] {
        fails!(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&mut 0, bytes));
        fails!(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocAsync(&mut 0, bytes, s));
        fails!(CUDA_ERROR_OUT_OF_MEMORY, cuMemHostAlloc(&mut null_mut(), bytes | 1 << 40, 0));
    }
    let (mut free, mut total) = (0, 0);
    ok!(cuMemGetInfo_v2(&mut free, &mut total));
    let d = alloc_async(free, s);
    assert_eq!(session.device_bytes_in_use(0), free);
    fails!(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&mut 0, 1));
    // The memory of a queued free is available to any allocation that needs it.
    ok!(cuMemFreeAsync(d, s));
    let e = alloc(1);
    ok!(cuMemFree_v2(e));
    ok!(cuStreamDestroy_v2(s));
    session.assert_clean();
}

#[test]
fn pool_accounts() {
    let session = begin();
    bind(0);
    let s = stream();
    let mut pool = null_mut();
    ok!(cuDeviceGetDefaultMemPool(&mut pool, 0));
    let read = |attribute| {
        let mut value = 0_u64;
        ok!(cuMemPoolGetAttribute(pool, attribute, (&raw mut value).cast()));
        value
    };
    let mut keep = u64::MAX;
    let threshold = CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
    ok!(cuMemPoolSetAttribute(pool, threshold, (&raw mut keep).cast()));
    let d = alloc_async(1000, s);
    assert_eq!(read(CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 1000);
    ok!(cuMemFreeAsync(d, s));
    ok!(cuStreamSynchronize(s));
    assert_eq!(read(CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0);
    assert!(read(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) >= 1000, "kept below the threshold");
    ok!(cuMemPoolTrimTo(pool, 0));
    assert_eq!(read(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 0);
    keep = 0;
    ok!(cuMemPoolSetAttribute(pool, threshold, (&raw mut keep).cast()));
    ok!(cuStreamDestroy_v2(s));
    session.assert_clean();
}

#[test]
fn registered_memory() {
    let session = begin();
    bind(0);
    let mut host = vec![5_u8; 64];
    let pointer: *mut c_void = host.as_mut_ptr().cast();
    ok!(cuMemHostRegister_v2(pointer, 64, 0));
    fails!(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, cuMemHostRegister_v2(pointer, 64, 0));
    let (s, d) = (stream(), alloc(64));
    ok!(cuMemcpyHtoDAsync_v2(d, pointer, 64, s));
    assert_eq!(session.pending_ops(), 1, "registered memory is read when the work runs");
    ok!(cuStreamSynchronize(s));
    ok!(cuMemHostUnregister(pointer));
    fails!(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, cuMemHostUnregister(pointer));
    assert_eq!(violations(&session), [DoubleFree]);
    ok!(cuMemFree_v2(d));
    ok!(cuStreamDestroy_v2(s));
    session.assert_clean();
}

#[test]
fn pointer_attributes() {
    let session = begin();
    bind(1);
    let (d, p) = (alloc(64), Pinned::new(&[0; 64]));
    let word = |attribute, address| {
        let mut value = 0_u32;
        let code = call!(cuPointerGetAttribute((&raw mut value).cast(), attribute, address));
        (code, value)
    };
    let host = p.0.addr() as CUdeviceptr;
    assert_eq!(word(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, d + 5).1, CU_MEMORYTYPE_DEVICE.0);
    assert_eq!(word(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, d + 63).1, 1);
    assert_eq!(word(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, host + 5).1, CU_MEMORYTYPE_HOST.0);
    let local = 0_u8;
    let address = (&raw const local).addr() as CUdeviceptr;
    assert_eq!(word(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address).0, CUDA_ERROR_INVALID_VALUE);
    assert_eq!(word(CU_POINTER_ATTRIBUTE_HOST_POINTER, d).0, CUDA_ERROR_INVALID_VALUE);
    let (mut base, mut size) = (0, 0);
    ok!(cuMemGetAddressRange_v2(&mut base, &mut size, d + 9));
    assert_eq!((base, size), (d, 64));
    ok!(cuMemFree_v2(d));
    drop(p);
    session.assert_clean();
}

/// Programs can rely on no greater alignment than that of the blocks which the driver packs.
#[test]
fn pinned_blocks_start_at_odd_multiples_of_512_bytes() {
    let session = begin();
    bind(0);
    for size in [1, 511, 4096, 1 << 20] {
        let mut pinned = null_mut();
        ok!(cuMemHostAlloc(&mut pinned, size, 0));
        assert_eq!(pinned.addr() % 1024, 512, "{size}");
        ok!(cuMemFreeHost(pinned));
    }
    session.assert_clean();
}

#[test]
fn leaks_are_listed() {
    let session = begin();
    bind(0);
    let (s, e, d) = (stream(), event(), alloc(16));
    let p = Pinned::new(&[0; 32]);
    let kinds = session.leaks().into_iter().map(|leak| (leak.kind, leak.bytes));
    use cuda_sim::LeakKind::{Device, Event, Pinned as Host, Stream};
    assert_eq!(kinds.collect::<Vec<_>>(), [(Stream, 0), (Event, 0), (Device, 16), (Host, 32)]);
    ok!(cuMemFree_v2(d));
    drop(p);
    ok!(cuEventDestroy_v2(e));
    ok!(cuStreamDestroy_v2(s));
    session.assert_clean();
}

#[test]
fn sizes_that_overflow_are_refused() {
    let session = begin();
    bind(0);
    let refused = CUDA_ERROR_INVALID_VALUE;
    let (d, s, mut host) = (alloc(64), stream(), [0_u8; 64]);
    let pointer: *mut c_void = host.as_mut_ptr().cast();
    fails!(refused, cuMemHostRegister_v2(pointer, usize::MAX, 0));
    let flat = CUDA_MEMCPY2D {
        srcMemoryType: CU_MEMORYTYPE_DEVICE,
        srcDevice: d,
        srcPitch: 8,
        dstMemoryType: CU_MEMORYTYPE_DEVICE,
        dstDevice: d + 32,
        dstPitch: 8,
        WidthInBytes: 8,
        Height: 2,
        ..Default::default()
    };
    for odd in [
        CUDA_MEMCPY2D { srcY: usize::MAX, ..flat },
        CUDA_MEMCPY2D { dstY: usize::MAX, ..flat },
        CUDA_MEMCPY2D { srcXInBytes: usize::MAX, ..flat },
        CUDA_MEMCPY2D { srcY: usize::MAX / 8, ..flat },
        CUDA_MEMCPY2D {
            dstMemoryType: CU_MEMORYTYPE_HOST,
            dstHost: pointer,
            dstY: usize::MAX,
            ..flat
        },
    ] {
        fails!(refused, cuMemcpy2DAsync_v2(&odd, s));
    }
    let deep = CUDA_MEMCPY3D {
        srcMemoryType: CU_MEMORYTYPE_DEVICE,
        srcDevice: d,
        srcPitch: 8,
        srcHeight: 2,
        dstMemoryType: CU_MEMORYTYPE_DEVICE,
        dstDevice: d + 32,
        dstPitch: 8,
        dstHeight: 2,
        WidthInBytes: 8,
        Height: 2,
        Depth: 2,
        ..Default::default()
    };
    for odd in [
        CUDA_MEMCPY3D { srcZ: usize::MAX, ..deep },
        CUDA_MEMCPY3D { srcHeight: usize::MAX, ..deep },
        CUDA_MEMCPY3D { srcHeight: usize::MAX, srcY: usize::MAX, ..deep },
    ] {
        fails!(refused, cuMemcpy3DAsync_v2(&odd, s));
    }
    assert_eq!(violations(&session), []);
    let array = crate::images::array(0);
    let texels = CUDA_MEMCPY3D { dstMemoryType: CU_MEMORYTYPE_ARRAY, dstArray: array, ..deep };
    for odd in [
        CUDA_MEMCPY3D { dstXInBytes: usize::MAX, ..texels },
        CUDA_MEMCPY3D { dstY: usize::MAX, ..texels },
        CUDA_MEMCPY3D { dstZ: usize::MAX, ..texels },
    ] {
        fails!(refused, cuMemcpy3DAsync_v2(&odd, s));
        assert_eq!(violations(&session), [OutOfRange]);
    }
    fails!(refused, cuMemsetD2D8Async(d, usize::MAX, 0, 1, 3, s));
    fails!(CUDA_ERROR_OUT_OF_MEMORY, cuMemAddressReserve(&mut 0, 1 << 50, 0, 0, 0));
    ok!(cuArrayDestroy(array));
    ok!(cuMemFree_v2(d));
    ok!(cuStreamDestroy_v2(s));
    session.assert_clean();
}

#[test]
fn memory_of_a_graph_or_of_another_process_may_be_too_much() {
    let session = begin();
    bind(0);
    let (s, mut graph) = (stream(), null_mut());
    ok!(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_RELAXED));
    for bytes in [usize::MAX, 1 << 50] {
        fails!(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocAsync(&mut 0, bytes, s));
    }
    ok!(cuStreamEndCapture(s, &mut graph));
    ok!(cuGraphDestroy(graph));
    let reserved = cuda_sim::foreign_memory(usize::MAX).map(|byte| byte as _);
    let handle = CUipcMemHandle { reserved };
    let lazy = CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS.0;
    fails!(CUDA_ERROR_OUT_OF_MEMORY, cuIpcOpenMemHandle_v2(&mut 0, handle, lazy));
    ok!(cuStreamDestroy_v2(s));
    session.assert_clean();
}
