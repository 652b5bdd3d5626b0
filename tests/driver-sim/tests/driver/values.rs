//! Values that streams write and wait for: where they may lie, and how they compare.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use cuda_sys::*;

use super::support::*;

#[test]
fn the_host_ends_a_wait_without_a_call() {
    let session = begin();
    bind(0);
    let (s, memory) = (stream(), Pinned::new(&[0; 16]));
    let address = memory.0.addr() as CUdeviceptr;
    // SAFETY: pinned and aligned; host and device access it atomically from here on.
    let go = unsafe { AtomicU32::from_ptr(memory.0.cast()) };
    // SAFETY: the memory has 16 bytes.
    let second = unsafe { memory.0.byte_add(8) };
    // SAFETY: as for the first value.
    let done = unsafe { AtomicU64::from_ptr(second.cast()) };
    ok!(cuStreamWaitValue32_v2(s, address, 2, 0));
    ok!(cuStreamWriteValue64_v2(s, address + 8, 1 << 40, 0));
    for _ in 0..10 {
        fails!(CUDA_ERROR_NOT_READY, cuStreamQuery(s));
    }
    go.store(1, Ordering::Release);
    fails!(CUDA_ERROR_NOT_READY, cuStreamQuery(s));
    std::thread::scope(|scope| {
        scope.spawn(|| go.store(2, Ordering::Release));
        ok!(cuStreamSynchronize(s));
    });
    assert_eq!(done.load(Ordering::Acquire), 1 << 40);
    ok!(cuStreamDestroy_v2(s));
    drop(memory);
    session.assert_clean();
}

#[test]
fn memory_of_pools_and_flags_are_refused() {
    scene(8, |_, [s], plain| {
        let pooled = alloc_async(8, s);
        for address in [pooled, plain + 2] {
            fails!(CUDA_ERROR_INVALID_VALUE, cuStreamWriteValue32_v2(s, address, 1, 0));
            fails!(CUDA_ERROR_INVALID_VALUE, cuStreamWaitValue32_v2(s, address, 1, 0));
            fails!(CUDA_ERROR_INVALID_VALUE, cuStreamWriteValue64_v2(s, address, 1, 0));
            fails!(CUDA_ERROR_INVALID_VALUE, cuStreamWaitValue64_v2(s, address, 1, 0));
        }
        // `CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER`.
        fails!(CUDA_ERROR_INVALID_VALUE, cuStreamWriteValue32_v2(s, plain, 1, 1));
        ok!(cuStreamWriteValue32_v2(s, plain, 1, 0));
        ok!(cuMemFreeAsync(pooled, s));
        ok!(cuStreamSynchronize(s));
    });
}

#[test]
fn there_are_no_other_processes() {
    let session = begin();
    bind(0);
    let (e, mut opened) = (event(), null_mut());
    let mut handle = CUipcEventHandle { reserved: [0; 64] };
    fails!(CUDA_ERROR_NOT_SUPPORTED, cuIpcGetEventHandle(&mut handle, e));
    fails!(CUDA_ERROR_NOT_SUPPORTED, cuIpcOpenEventHandle(&mut opened, handle));
    ok!(cuEventDestroy_v2(e));
    session.assert_clean();
}
