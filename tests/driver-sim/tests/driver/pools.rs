//! Stream-ordered memory, and which copies may access it.

use std::ptr::null_mut;

use cuda_sim::ViolationKind;
use cuda_sys::*;

use crate::support::*;

fn default_pool(device: CUdevice) -> CUmemoryPool {
    let mut pool = null_mut();
    ok!(cuDeviceGetDefaultMemPool(&mut pool, device));
    pool
}

/// A `CUmemAccessDesc` in the layout of every header: kind of location, device, flags.
fn access(device: u32, flags: CUmemAccess_flags) -> [u32; 3] {
    [CU_MEM_LOCATION_TYPE_DEVICE.0, device, flags.0]
}

/// Makes every asynchronous copy that names no device, between `d` and other memory.
fn copies(d: CUdeviceptr, p: &Pinned, s: CUstream) -> [CUresult; 7] {
    let mut pageable = [0_u8; 8];
    let host = p.0.addr() as CUdeviceptr;
    [
        call!(cuMemcpyHtoDAsync_v2(d, p.0, 8, s)),
        call!(cuMemcpyHtoDAsync_v2(d, pageable.as_ptr().cast(), 8, s)),
        call!(cuMemcpyDtoHAsync_v2(p.0, d, 8, s)),
        call!(cuMemcpyDtoHAsync_v2(pageable.as_mut_ptr().cast(), d, 8, s)),
        call!(cuMemcpyDtoDAsync_v2(d + 8, d, 8, s)),
        call!(cuMemcpyAsync(d + 8, d, 8, s)),
        call!(cuMemcpyAsync(d, host, 8, s)),
    ]
}

#[test]
fn copies_ask_whether_the_current_device_has_access() {
    const FINE: [CUresult; 7] = [CUDA_SUCCESS; 7];
    const REFUSED: [CUresult; 7] = [CUDA_ERROR_INVALID_VALUE; 7];
    let session = begin();
    let own = bind(0);
    let (s, p, plain) = (stream(), Pinned::new(&[3; 8]), alloc(16));
    let pooled = alloc_async(16, s);
    ok!(cuMemsetD8Async(pooled, 1, 16, s));
    ok!(cuStreamSynchronize(s));
    let pool = default_pool(0);
    let mut second = null_mut();
    ok!(cuCtxCreate_v2(&mut second, 0, 0));
    ok!(cuCtxPopCurrent_v2(null_mut()));
    let far = primary(1);
    let open = access(1, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    let shut = access(1, CU_MEM_ACCESS_FLAGS_PROT_NONE);

    ok!(cuCtxSetCurrent(far));
    assert_eq!(copies(pooled, &p, s), REFUSED);
    assert_eq!(session.pending_ops(), 0, "nothing was enqueued");
    ok!(cuMemsetD8Async(pooled, 1, 16, s));
    ok!(cuMemsetD16Async(pooled, 1, 8, s));
    ok!(cuMemsetD32Async(pooled, 1, 4, s));
    ok!(cuMemcpyPeerAsync(pooled + 8, own, pooled, own, 8, s));
    assert_eq!(copies(plain, &p, s), FINE);

    ok!(cuMemPoolSetAccess(pool, open.as_ptr().cast(), 1));
    assert_eq!(copies(pooled, &p, s), FINE);
    ok!(cuStreamSynchronize(s));
    ok!(cuMemPoolSetAccess(pool, shut.as_ptr().cast(), 1));

    for current in [own, second, null_mut()] {
        ok!(cuCtxSetCurrent(current));
        assert_eq!(copies(pooled, &p, s), FINE);
        assert_eq!(copies(plain, &p, s), FINE);
    }
    ok!(cuMemFreeAsync(pooled, s));
    ok!(cuStreamSynchronize(s));
    ok!(cuMemFree_v2(plain));
    drop(p);
    ok!(cuCtxDestroy_v2(second));
    ok!(cuStreamDestroy_v2(s));
    session.assert_clean();
}

#[test]
fn copies_between_two_devices() {
    let session = begin();
    let (a, b) = (primary(0), bind(1));
    let t = stream();
    ok!(cuCtxSetCurrent(a));
    let s = stream();
    let (x, y) = (alloc_async(64, s), alloc_async(64, t));
    ok!(cuStreamSynchronize(t));
    ok!(cuMemsetD8Async(x, 7, 64, s));

    fails!(CUDA_ERROR_INVALID_VALUE, cuMemcpyAsync(y, x, 64, s));
    ok!(cuMemcpyPeerAsync(y, b, x, a, 64, s));

    let pool = default_pool(0);
    let open = access(1, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    let shut = access(1, CU_MEM_ACCESS_FLAGS_PROT_NONE);
    ok!(cuMemPoolSetAccess(pool, open.as_ptr().cast(), 1));
    ok!(cuMemcpyAsync(y, x, 64, s));
    ok!(cuMemPoolSetAccess(pool, shut.as_ptr().cast(), 1));
    fails!(CUDA_ERROR_INVALID_VALUE, cuMemcpyAsync(y, x, 64, s));

    // Without a context, a real driver hangs in this call.
    assert_eq!(violations(&session), []);
    ok!(cuCtxPopCurrent_v2(null_mut()));
    fails!(CUDA_ERROR_INVALID_VALUE, cuMemcpyAsync(y, x, 64, s));
    assert_eq!(violations(&session), [ViolationKind::Crash]);
    ok!(cuMemcpyPeerAsync(y, b, x, a, 64, s));
    ok!(cuMemPoolSetAccess(pool, open.as_ptr().cast(), 1));
    ok!(cuMemcpyAsync(y, x, 64, s));
    ok!(cuMemPoolSetAccess(pool, shut.as_ptr().cast(), 1));
    ok!(cuCtxSetCurrent(a));

    // Each context must be that of its memory.
    fails!(CUDA_ERROR_INVALID_VALUE, cuMemcpyPeerAsync(y, a, x, b, 64, s));
    assert_eq!(violations(&session), [ViolationKind::WrongDevice]);

    // Filling another device's memory never works.
    fails!(CUDA_ERROR_INVALID_VALUE, cuMemsetD8Async(y, 0, 64, s));
    ok!(cuStreamSynchronize(s));
    let mut back = [0_u8; 64];
    ok!(cuMemcpyDtoH_v2(back.as_mut_ptr().cast(), y, 64));
    assert_eq!(back, [7; 64]);
    ok!(cuMemFreeAsync(x, s));
    ok!(cuMemFreeAsync(y, t));
    ok!(cuStreamDestroy_v2(s));
    ok!(cuStreamDestroy_v2(t));
    session.assert_clean();
}

#[test]
fn copies_of_rows_name_the_contexts_of_their_memory() {
    let session = begin();
    let (a, b) = (primary(0), bind(1));
    let y = alloc(64);
    ok!(cuCtxSetCurrent(a));
    let (x, s, array) = (alloc(64), stream(), crate::images::array(0));
    ok!(cuMemsetD8Async(x, 7, 64, s));
    let copy = CUDA_MEMCPY3D_PEER {
        srcMemoryType: CU_MEMORYTYPE_DEVICE,
        srcDevice: x,
        srcContext: a,
        srcPitch: 16,
        dstMemoryType: CU_MEMORYTYPE_DEVICE,
        dstDevice: y,
        dstContext: b,
        dstPitch: 16,
        WidthInBytes: 8,
        Height: 4,
        Depth: 1,
        ..Default::default()
    };
    ok!(cuMemcpy3DPeerAsync(&copy, s));
    for (from, into) in [(b, b), (a, a), (b, a)] {
        let odd = CUDA_MEMCPY3D_PEER { srcContext: from, dstContext: into, ..copy };
        fails!(CUDA_ERROR_INVALID_VALUE, cuMemcpy3DPeerAsync(&odd, s));
        assert_eq!(violations(&session), [ViolationKind::WrongDevice]);
    }
    let odd = CUDA_MEMCPY3D_PEER { srcContext: null_mut(), ..copy };
    fails!(CUDA_ERROR_INVALID_CONTEXT, cuMemcpy3DPeerAsync(&odd, s));
    // The context is "ignored" if the end is an array.
    let from_array = CUDA_MEMCPY3D_PEER {
        srcMemoryType: CU_MEMORYTYPE_ARRAY,
        srcArray: array,
        srcContext: null_mut(),
        ..copy
    };
    ok!(cuMemcpy3DPeerAsync(&from_array, s));
    ok!(cuStreamSynchronize(s));
    ok!(cuArrayDestroy(array));
    ok!(cuMemFree_v2(x));
    ok!(cuStreamDestroy_v2(s));
    ok!(cuCtxSetCurrent(b));
    ok!(cuMemFree_v2(y));
    session.assert_clean();
}
