//! Calls that a thread may make during a capture, and calls that invalidate it.

use std::ffi::c_void;
use std::ptr::null_mut;

use cuda_sys::*;

use crate::support::*;

const GLOBAL: CUstreamCaptureMode = CU_STREAM_CAPTURE_MODE_GLOBAL;
const THREAD_LOCAL: CUstreamCaptureMode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
const RELAXED: CUstreamCaptureMode = CU_STREAM_CAPTURE_MODE_RELAXED;
const MODES: [CUstreamCaptureMode; 3] = [GLOBAL, THREAD_LOCAL, RELAXED];

/// The results of the call during the capture, and of ending the capture.
const FINE: (CUresult, CUresult) = (CUDA_SUCCESS, CUDA_SUCCESS);
const ENDS_IT: (CUresult, CUresult) =
    (CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);

/// Objects that do not belong to the capturing stream.
struct Beside {
    stream: CUstream,
    event: CUevent,
    /// Allocated from the pool; zero once a call under test has freed it.
    pooled: CUdeviceptr,
    plain: CUdeviceptr,
    /// Null once a call under test has freed it.
    pinned: *mut c_void,
    /// Null once a call under test has destroyed it.
    pool: CUmemoryPool,
}

impl Beside {
    fn new() -> Self {
        let (stream, event) = (stream(), event());
        let pooled = alloc_async(8, stream);
        ok!(cuEventRecord(event, stream));
        ok!(cuStreamSynchronize(stream));
        let mut pinned = null_mut();
        ok!(cuMemHostAlloc(&mut pinned, 8, 0));
        Self { stream, event, pooled, plain: alloc(8), pinned, pool: pool() }
    }

    fn close(self) {
        ok!(cuMemFreeAsync(self.pooled, self.stream));
        ok!(cuStreamSynchronize(self.stream));
        ok!(cuMemFree_v2(self.plain));
        if !self.pinned.is_null() {
            ok!(cuMemFreeHost(self.pinned));
        }
        if !self.pool.is_null() {
            ok!(cuMemPoolDestroy(self.pool));
        }
        ok!(cuEventDestroy_v2(self.event));
        ok!(cuStreamDestroy_v2(self.stream));
    }
}

type Act = fn(&mut Beside) -> CUresult;

/// Calls that invalidate the captures that forbid them.
const UNSAFE: [(&str, Act); 13] = [
    ("cuStreamQuery", |it| call!(cuStreamQuery(it.stream))),
    ("cuStreamSynchronize", |it| call!(cuStreamSynchronize(it.stream))),
    ("cuEventQuery", |it| call!(cuEventQuery(it.event))),
    ("cuEventSynchronize", |it| call!(cuEventSynchronize(it.event))),
    ("cuMemHostAlloc", |_| {
        let mut pointer = null_mut();
        let code = call!(cuMemHostAlloc(&mut pointer, 8, 0));
        if code == CUDA_SUCCESS {
            ok!(cuMemFreeHost(pointer));
        }
        code
    }),
    ("cuMemFreeHost", |it| {
        let code = call!(cuMemFreeHost(it.pinned));
        if code == CUDA_SUCCESS {
            it.pinned = null_mut();
        }
        code
    }),
    ("cuMemHostRegister", |_| {
        let mut page = vec![0_u8; 4096];
        let pointer = page.as_mut_ptr().cast();
        let code = call!(cuMemHostRegister_v2(pointer, 4096, 0));
        if code == CUDA_SUCCESS {
            ok!(cuMemHostUnregister(pointer));
        }
        code
    }),
    ("cuMemPoolCreate", |_| {
        let mut pool = null_mut();
        let code = create_pool(&mut pool);
        if code == CUDA_SUCCESS {
            ok!(cuMemPoolDestroy(pool));
        }
        code
    }),
    ("cuMemPoolDestroy", |it| {
        let code = call!(cuMemPoolDestroy(it.pool));
        if code == CUDA_SUCCESS {
            it.pool = null_mut();
        }
        code
    }),
    ("cuMemPoolTrimTo", |it| call!(cuMemPoolTrimTo(it.pool, 0))),
    ("cuMemFree", |_| {
        let mut address = 0;
        let code = call!(cuMemAlloc_v2(&mut address, 8));
        if code == CUDA_SUCCESS {
            ok!(cuMemFree_v2(address));
        }
        code
    }),
    ("cuMemAllocAsync", |it| {
        let mut address = 0;
        let code = call!(cuMemAllocAsync(&mut address, 8, it.stream));
        if code == CUDA_SUCCESS {
            ok!(cuMemFreeAsync(address, it.stream));
        }
        code
    }),
    ("cuMemFreeAsync", |it| {
        let code = call!(cuMemFreeAsync(it.pooled, it.stream));
        if code == CUDA_SUCCESS {
            it.pooled = 0;
        }
        code
    }),
];

/// Creates a pool of the current device.
fn pool() -> CUmemoryPool {
    let mut pool = null_mut();
    assert_eq!(create_pool(&mut pool), CUDA_SUCCESS);
    pool
}

fn create_pool(pool: &mut CUmemoryPool) -> CUresult {
    let mut device = 0;
    ok!(cuCtxGetDevice(&mut device));
    // SAFETY: all zeros are valid properties.
    let mut properties: CUmemPoolProps = unsafe { std::mem::zeroed() };
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type_ = CU_MEM_LOCATION_TYPE_DEVICE;
    // By offset: the field is in a union or not, depending on the header.
    let location = (&raw mut properties.location).cast::<i32>();
    // SAFETY: the location has a second field.
    let ordinal = unsafe { location.add(1) };
    // SAFETY: the second field is an int.
    unsafe { ordinal.write(device) };
    call!(cuMemPoolCreate(pool, &properties))
}

/// Calls that no capture forbids.
const SAFE: [(&str, Act); 15] = [
    ("cuStreamIsCapturing", |it| {
        let mut status = CU_STREAM_CAPTURE_STATUS_NONE;
        call!(cuStreamIsCapturing(it.stream, &mut status))
    }),
    ("cuCtxCreate and cuCtxDestroy", |_| {
        let (mut device, mut made) = (0, null_mut());
        ok!(cuCtxGetDevice(&mut device));
        ok!(cuCtxCreate_v2(&mut made, 0, device));
        call!(cuCtxDestroy_v2(made))
    }),
    ("cuEventRecord", |it| call!(cuEventRecord(it.event, it.stream))),
    ("cuStreamWaitEvent", |it| call!(cuStreamWaitEvent(it.stream, it.event, 0))),
    ("cuMemcpyHtoDAsync", |it| call!(cuMemcpyHtoDAsync_v2(it.pooled, it.pinned, 8, it.stream))),
    ("cuMemcpyDtoHAsync", |it| call!(cuMemcpyDtoHAsync_v2(it.pinned, it.pooled, 8, it.stream))),
    ("cuMemcpyDtoDAsync", |it| call!(cuMemcpyDtoDAsync_v2(it.pooled + 4, it.pooled, 4, it.stream))),
    ("cuMemcpyAsync", |it| call!(cuMemcpyAsync(it.pooled + 4, it.pooled, 4, it.stream))),
    ("cuMemsetD8Async", |it| call!(cuMemsetD8Async(it.pooled, 0, 8, it.stream))),
    ("cuEventCreate and cuEventDestroy", |_| call!(cuEventDestroy_v2(event()))),
    ("cuStreamCreate and cuStreamDestroy", |_| call!(cuStreamDestroy_v2(stream()))),
    ("cuMemGetInfo", |_| call!(cuMemGetInfo_v2(&mut 0, &mut 0))),
    ("cuCtxGetCurrent and cuCtxSetCurrent", |_| call!(cuCtxSetCurrent(current()))),
    ("cuMemcpyHtoD", |it| call!(cuMemcpyHtoD_v2(it.plain, [1_u8; 8].as_ptr().cast(), 8))),
    ("cuPointerGetAttribute", |it| {
        let mut kind = 0_u32;
        let attribute = CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
        call!(cuPointerGetAttribute((&raw mut kind).cast(), attribute, it.pooled))
    }),
];

/// Makes a call while a stream of the current context captures, and returns both results.
fn during(mode: CUstreamCaptureMode, act: Act) -> (CUresult, CUresult) {
    let (capturing, mut beside) = (stream(), Beside::new());
    ok!(cuStreamBeginCapture_v2(capturing, mode));
    let code = act(&mut beside);
    let mut graph = null_mut();
    let end = call!(cuStreamEndCapture(capturing, &mut graph));
    if end == CUDA_SUCCESS {
        ok!(cuGraphDestroy(graph));
    }
    beside.close();
    ok!(cuStreamDestroy_v2(capturing));
    (code, end)
}

/// Exchanges the calling thread's capture mode.
fn exchange(mut mode: CUstreamCaptureMode) -> CUstreamCaptureMode {
    ok!(cuThreadExchangeStreamCaptureMode(&mut mode));
    mode
}

#[test]
fn unsafe_calls_end_a_capture_of_the_thread_unless_it_is_relaxed() {
    let session = begin();
    bind(0);
    for (name, act) in UNSAFE {
        for mode in [GLOBAL, THREAD_LOCAL] {
            assert_eq!(during(mode, act), ENDS_IT, "{name} in {mode:?}");
        }
        assert_eq!(during(RELAXED, act), FINE, "{name}");
    }
    session.assert_clean();
}

#[test]
fn safe_calls_leave_every_capture_alone() {
    let session = begin();
    bind(0);
    for (name, act) in SAFE {
        for mode in MODES {
            assert_eq!(during(mode, act), FINE, "{name} in {mode:?}");
        }
    }
    session.assert_clean();
}

#[test]
fn a_thread_that_relaxed_its_mode_may_do_all_of_it() {
    let session = begin();
    bind(0);
    let before = exchange(RELAXED);
    for (name, act) in UNSAFE.into_iter().chain(SAFE) {
        for mode in MODES {
            assert_eq!(during(mode, act), FINE, "{name} in {mode:?}");
        }
    }
    assert_eq!(exchange(before), RELAXED);
    let (name, act) = UNSAFE[0];
    assert_eq!(during(GLOBAL, act), ENDS_IT, "{name} as before");
    session.assert_clean();
}

#[test]
fn waiting_for_the_context_ends_every_capture_in_it() {
    let session = begin();
    bind(0);
    for own in MODES {
        exchange(own);
        for mode in MODES {
            let ended = during(mode, |_| call!(cuCtxSynchronize()));
            assert_eq!(ended, ENDS_IT, "{mode:?} in a thread of {own:?}");
        }
        // Another context has no such capture.
        let elsewhere = during(RELAXED, |_| {
            ok!(cuCtxPushCurrent_v2(primary(1)));
            let code = call!(cuCtxSynchronize());
            ok!(cuCtxPopCurrent_v2(null_mut()));
            code
        });
        assert_eq!(elsewhere, FINE);
    }
    exchange(GLOBAL);
    session.assert_clean();
}

#[test]
fn the_mode_is_the_thread_s_own_and_global_at_first() {
    let session = begin();
    assert_eq!(exchange(THREAD_LOCAL), GLOBAL);
    assert_eq!(exchange(RELAXED), THREAD_LOCAL);
    std::thread::scope(|scope| {
        scope.spawn(|| assert_eq!(exchange(RELAXED), GLOBAL));
    });
    fails!(CUDA_ERROR_INVALID_VALUE, cuThreadExchangeStreamCaptureMode(null_mut()));
    let mut unknown = CUstreamCaptureMode(3);
    fails!(CUDA_ERROR_INVALID_VALUE, cuThreadExchangeStreamCaptureMode(&mut unknown));
    assert_eq!(exchange(GLOBAL), RELAXED, "unchanged by the failed call");
    assert_eq!(session.calls("cuThreadExchangeStreamCaptureMode"), 6);
    session.assert_clean();
}

#[test]
fn other_threads_mind_a_global_capture_unless_their_mode_is_their_own() {
    let session = begin();
    bind(0);
    // Each pair: a call on another thread, and whether it ends a global capture that this thread began.
    let threads: [(Act, _); 3] = [
        (|it| elsewhere(GLOBAL, it), ENDS_IT),
        (|it| elsewhere(THREAD_LOCAL, it), FINE),
        (|it| elsewhere(RELAXED, it), FINE),
    ];
    for (act, expected) in threads {
        assert_eq!(during(GLOBAL, act), expected);
        assert_eq!(during(THREAD_LOCAL, act), FINE);
    }
    session.assert_clean();
}

/// Queries the stream on another thread in this capture mode.
fn elsewhere(mode: CUstreamCaptureMode, beside: &Beside) -> CUresult {
    let stream = beside.stream.addr();
    let query = move || {
        exchange(mode);
        call!(cuStreamQuery(std::ptr::without_provenance_mut(stream)))
    };
    std::thread::scope(|scope| scope.spawn(query).join()).unwrap()
}
