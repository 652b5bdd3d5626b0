//! Captures by raw calls, which a device and the simulated driver must treat alike.

use std::ptr;
use std::thread;

use cuda_core::{Error, Result, Stream};
use cuda_sys::{
    CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_RELAXED,
    CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, CUDA_ERROR_ILLEGAL_STATE,
    CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
    CUDA_ERROR_STREAM_CAPTURE_UNJOINED, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED,
    CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, CUDA_SUCCESS, CUresult, CUstreamCaptureMode,
    cuEventRecord, cuStreamBeginCapture_v2, cuStreamQuery, cuStreamSynchronize, cuStreamWaitEvent,
};
use support::gpu_test;

use super::context;
use crate::capture::{end_capture, is_capturing};
use crate::stack;

fn begin(stream: &Stream, mode: CUstreamCaptureMode) -> CUresult {
    // SAFETY: the stream is live.
    unsafe { cuStreamBeginCapture_v2(stream.as_raw(), mode) }
}

/// Makes `other` wait for the work now on `stream`: it joins a capture of `stream`.
fn fork(stream: &Stream, other: &Stream) -> Result<()> {
    let event = cuda_core::Event::new(stream.context(), cuda_core::EventFlags::DISABLE_TIMING)?;
    // SAFETY: event and stream are live and of one context.
    support::check("cuEventRecord", unsafe { cuEventRecord(event.as_raw(), stream.as_raw()) });
    // SAFETY: stream and event are live; flags must be zero.
    let code = unsafe { cuStreamWaitEvent(other.as_raw(), event.as_raw(), 0) };
    support::check("cuStreamWaitEvent", code);
    Ok(())
}

gpu_test! {
    needs 1;
    fn l06_null_stream() -> Result<()> {
        let context = context()?;
        stack::with(context.as_raw(), || {
            // SAFETY: null is the legacy stream of the context that is current.
            let code = unsafe {
                cuStreamBeginCapture_v2(ptr::null_mut(), CU_STREAM_CAPTURE_MODE_RELAXED)
            };
            assert_eq!(code, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        });
        let stream = context.create_stream()?;
        let mut x = stream.alloc::<u32>(10)?;
        stream.fill(&mut x, 1)?;
        stream.synchronize()
    }
}

gpu_test! {
    needs 1;
    fn l07_legacy_implicit() -> Result<()> {
        let context = context()?;
        let blocking = context.stream_builder().blocking().build()?;
        assert_eq!(begin(&blocking, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
        // This library does not touch the capture; the raw call ends it.
        match context.default_stream()?.query() {
            Err(Error::Capturing { .. }) => {}
            other => panic!("{other:?}"),
        }
        stack::with(context.as_raw(), || {
            // SAFETY: null is the legacy stream of the context that is current.
            let code = unsafe { cuStreamQuery(ptr::null_mut()) };
            assert_eq!(code, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
        });
        assert_eq!(end_capture(blocking.as_raw()), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        blocking.synchronize()
    }
}

gpu_test! {
    needs 1;
    fn l08_sync_invalidates() -> Result<()> {
        let stream = context()?.create_stream()?;
        assert_eq!(begin(&stream, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
        // SAFETY: the stream is live.
        let code = unsafe { cuStreamSynchronize(stream.as_raw()) };
        assert_eq!(code, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        assert_eq!(end_capture(stream.as_raw()), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        assert!(!is_capturing(stream.as_raw()));
        stream.synchronize()
    }
}

gpu_test! {
    needs 1;
    fn l09_unmatched() -> Result<()> {
        let context = context()?;
        let (one, two) = (context.create_stream()?, context.create_stream()?);
        assert_eq!(begin(&one, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
        assert_eq!(end_capture(two.as_raw()), CUDA_ERROR_ILLEGAL_STATE);
        fork(&one, &two)?;
        assert_eq!(end_capture(two.as_raw()), CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
        assert_eq!(end_capture(one.as_raw()), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        one.synchronize()?;
        two.synchronize()
    }
}

gpu_test! {
    needs 1;
    fn l10_unjoined() -> Result<()> {
        let context = context()?;
        let (one, two) = (context.create_stream()?, context.create_stream()?);
        let x = two.alloc_zeroed::<u8>(100)?;
        two.synchronize()?;
        assert_eq!(begin(&one, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
        fork(&one, &two)?;
        // SAFETY: the stream is live and captured; the memory outlives the graph, which is destroyed.
        let code = unsafe { cuda_sys::cuMemsetD8Async(x.as_raw(), 1, 100, two.as_raw()) };
        support::check("cuMemsetD8Async", code);
        assert_eq!(end_capture(one.as_raw()), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
        one.synchronize()?;
        two.synchronize()
    }
}

gpu_test! {
    needs 1;
    fn l12_begin_twice() -> Result<()> {
        let stream = context()?.create_stream()?;
        assert_eq!(begin(&stream, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
        assert_eq!(begin(&stream, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_ERROR_ILLEGAL_STATE);
        assert_eq!(end_capture(stream.as_raw()), CUDA_SUCCESS);
        stream.synchronize()
    }
}

gpu_test! {
    needs 1;
    fn l24_thread_mode() -> Result<()> {
        let context = context()?;
        let allocates = || {
            let handle = context.clone();
            let allocated = thread::spawn(move || {
                stack::with(handle.as_raw(), || {
                    let mut address = 0;
                    // SAFETY: a context is current; the call writes one address, to a local.
                    let code = unsafe { cuda_sys::cuMemAlloc_v2(&mut address, 1024) };
                    if code == CUDA_SUCCESS {
                        // SAFETY: allocated just now, and not used.
                        support::check("cuMemFree", unsafe { cuda_sys::cuMemFree_v2(address) });
                    }
                    code
                })
            });
            allocated.join().expect("the thread ends")
        };
        for mode in [CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, CU_STREAM_CAPTURE_MODE_RELAXED] {
            let stream = context.create_stream()?;
            assert_eq!(begin(&stream, mode), CUDA_SUCCESS);
            assert_eq!(allocates(), CUDA_SUCCESS);
            assert_eq!(end_capture(stream.as_raw()), CUDA_SUCCESS);
        }
        let stream = context.create_stream()?;
        assert_eq!(begin(&stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
        assert_eq!(allocates(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        assert_eq!(end_capture(stream.as_raw()), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        Ok(())
    }
}
