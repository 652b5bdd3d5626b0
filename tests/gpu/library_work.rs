//! Work that other code enqueues, named and enqueued in one call.

use std::panic::{AssertUnwindSafe, catch_unwind};

use cuda_core::{Device, DeviceBuffer, Error, Graph, Result, Stream};
use cuda_sys::{CUstream, cuMemcpyDtoDAsync_v2};
use support::{check, gpu_test, one_stream, stall, two_streams};

const LEN: usize = 1 << 16;

/// Copies `from` to `to` like another library: by raw calls on the stream.
fn library_copy(
    stream: &Stream,
    from: &DeviceBuffer<u32>,
    to: &mut DeviceBuffer<u32>,
    after: impl FnOnce(),
) -> Result<()> {
    let (source, target) = (from.as_raw(), to.as_raw());
    let work = stream.work().read(from).write(to);
    let call = |raw: CUstream| {
        // SAFETY: both buffers have `LEN` elements, and live until the work that is noted here is complete.
        let code = unsafe { cuMemcpyDtoDAsync_v2(target, source, LEN * 4, raw) };
        after();
        code
    };
    // SAFETY: the copy is on this stream, and reads and writes the named buffers.
    check("cuMemcpyDtoDAsync", unsafe { work.enqueue(call) }?);
    Ok(())
}

gpu_test! {
    needs 1, asynchronous;
    fn l_library_work_is_ordered_with_other_streams() -> Result<()> {
        let (context, one, two) = two_streams()?;
        let mut x = one.alloc_zeroed::<u32>(LEN)?;
        let mut y = one.alloc_zeroed::<u32>(LEN)?;
        let mut z = one.alloc_zeroed::<u32>(LEN)?;
        library_copy(&two, &x, &mut y, || ())?;
        context.synchronize()?;
        let stalled = stall(one.as_raw());
        one.fill(&mut x, 5)?;
        library_copy(&two, &x, &mut y, || ())?; // after the fill
        assert!(!two.query()?);
        stalled.release();
        one.copy(&y, &mut z)?; // after the library
        assert_eq!(one.download_vec(&z)?, [5; LEN]);
        // Memory that the work reads is not written before it is complete.
        let stalled = stall(two.as_raw());
        library_copy(&two, &x, &mut y, || ())?;
        one.fill(&mut x, 6)?;
        assert!(!one.query()?);
        stalled.release();
        assert_eq!(two.download_vec(&y)?, [5; LEN]);
        Ok(())
    }
}

gpu_test! {
    needs 1, asynchronous;
    fn s33_library_work_that_panics_is_marked() -> Result<()> {
        let (context, one, two) = two_streams()?;
        let mut x = one.alloc_zeroed::<u32>(LEN)?;
        let mut y = one.alloc_zeroed::<u32>(LEN)?;
        one.fill(&mut x, 1)?;
        context.synchronize()?;
        let stalled = stall(two.as_raw());
        let enqueue = || library_copy(&two, &x, &mut y, || panic!("as the test wants"));
        assert!(catch_unwind(AssertUnwindSafe(enqueue)).is_err());
        one.fill(&mut x, 2)?;
        assert!(!one.query()?, "it waits for the copy");
        stalled.release();
        assert_eq!(one.download_vec(&y)?, [1; LEN]);
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn l_library_work_is_captured() -> Result<()> {
        let (context, stream) = one_stream()?;
        let mut x = stream.alloc_zeroed::<u32>(LEN)?;
        let mut y = stream.alloc_zeroed::<u32>(LEN)?;
        let mut z = stream.alloc_zeroed::<u32>(LEN)?;
        let mut work = |stream: &Stream| {
            stream.fill(&mut z, 1)?;
            stream.fill(&mut x, 4)?;
            library_copy(stream, &x, &mut y, || ())?;
            stream.copy(&y, &mut z)
        };
        let graphs =
            [Graph::capture(&context, &mut work)?, Graph::capture_by_access(&context, &mut work)?];
        for graph in graphs {
            let mut exec = graph.instantiate()?;
            for _ in 0..4 {
                exec.launch(&stream)?;
                assert_eq!(stream.download_vec(&z)?, [4; LEN]);
                stream.fill_bytes(&mut z, 0)?;
            }
        }
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn s45_library_work_on_a_captured_stream_is_refused() -> Result<()> {
        let context = Device::get(0)?.context()?;
        let stream = context.create_stream()?;
        let mut buffers = Vec::new();
        for _ in 0..20 {
            buffers.push(stream.alloc_zeroed::<u32>(4)?); // more than fit inline
        }
        let name = |stream| {
            let begun: cuda_core::StreamWork<'_, _> = Stream::work(stream);
            buffers.iter().fold(begun, |work, buffer| work.read(buffer))
        };
        // SAFETY: nothing is enqueued.
        assert_eq!(unsafe { name(&stream).enqueue(|raw| raw) }?, stream.as_raw());
        // SAFETY: the stream is live; the capture is ended below.
        let begun = unsafe { cuda_sys::cuStreamBeginCapture_v2(stream.as_raw(), cuda_sys::CU_STREAM_CAPTURE_MODE_RELAXED) };
        check("cuStreamBeginCapture", begun);
        // SAFETY: nothing is enqueued.
        let refused = unsafe { name(&stream).enqueue(|_| panic!("it is not called")) };
        let mut graph = std::ptr::null_mut();
        // SAFETY: the stream is captured; the call writes one handle, to a local that outlives it.
        let mut end = || unsafe { cuda_sys::cuStreamEndCapture(stream.as_raw(), &mut graph) };
        let mut ended = end();
        if ended != cuda_sys::CUDA_SUCCESS {
            // A sweep lets one call fail.
            ended = end();
        }
        check("cuStreamEndCapture", ended);
        // SAFETY: the graph was just made, and is not used again.
        check("cuGraphDestroy", unsafe { cuda_sys::cuGraphDestroy(graph) });
        assert!(matches!(refused, Err::<(), _>(Error::Capturing { .. })));
        Ok(())
    }
}
