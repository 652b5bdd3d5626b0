//! Captures that other code begins and ends while an event is recorded late: S45.

use std::ptr;
use std::thread;

use cuda_core::{Error, Result, Stream};
use cuda_sys::{
    CU_STREAM_CAPTURE_MODE_RELAXED, CU_STREAM_CAPTURE_STATUS_NONE, CUDA_SUCCESS, CUresult,
    CUstream, cuGraphDestroy, cuStreamBeginCapture_v2, cuStreamEndCapture, cuStreamIsCapturing,
};

use super::{clean, device};

/// `cuStreamBeginCapture`, as another library that has the handle. Any thread may end it.
fn begin(theirs: &Stream) {
    // SAFETY: the stream is live, and no operation of this crate on it is under way.
    let code = unsafe { cuStreamBeginCapture_v2(theirs.as_raw(), CU_STREAM_CAPTURE_MODE_RELAXED) };
    assert_eq!(code, CUDA_SUCCESS);
}

fn end(theirs: &Stream) -> CUresult {
    end_of(theirs.as_raw())
}

fn end_of(stream: CUstream) -> CUresult {
    let mut graph = ptr::null_mut();
    // SAFETY: the stream is live; the call writes one handle, to a local.
    let code = unsafe { cuStreamEndCapture(stream, &mut graph) };
    if !graph.is_null() {
        // SAFETY: nobody has the graph.
        assert_eq!(unsafe { cuGraphDestroy(graph) }, CUDA_SUCCESS);
    }
    code
}

fn is_captured(stream: &Stream) -> bool {
    let mut status = CU_STREAM_CAPTURE_STATUS_NONE;
    // SAFETY: the stream is live; the call writes one status, to a local.
    let code = unsafe { cuStreamIsCapturing(stream.as_raw(), &mut status) };
    assert_eq!(code, CUDA_SUCCESS);
    status != CU_STREAM_CAPTURE_STATUS_NONE
}

#[track_caller]
fn refused<R>(done: Result<R>) {
    assert!(
        matches!(done, Err(Error::Capturing { .. })),
        "{:?}",
        done.err()
    );
}

/// The stream was asked, and is captured when the event is recorded.
#[test]
fn s45_a_capture_that_begins_before_the_record() {
    clean(|session| {
        let (ours, theirs) = (device().create_stream()?, device().create_stream()?);
        let mut buffer = ours.alloc_zeroed::<u32>(64)?;
        theirs.fill(&mut buffer, 1)?;
        theirs.as_raw();
        thread::scope(|scope| {
            let record = session.hold("cuEventRecord");
            let filling = scope.spawn(|| ours.fill(&mut buffer, 2));
            record.await_call();
            begin(&theirs);
            drop(record);
            refused(filling.join().expect("no panic"));
        });
        assert!(!is_captured(&ours), "it waits for an event of the capture");
        // What was recorded there is no event to anybody.
        refused(ours.fill(&mut buffer, 2));
        refused(buffer.synchronize());
        assert_eq!(end(&theirs), CUDA_SUCCESS);
        ours.fill(&mut buffer, 3)?;
        assert_eq!(ours.download_vec(&buffer)?, [3; 64]);
        Ok(())
    });
}

/// The whole capture lies between two questions: what was recorded into it is listed as recorded.
#[test]
fn s45_a_capture_that_nobody_sees() {
    clean(|session| {
        for waits_on_the_host in [false, true] {
            let (ours, theirs) = (device().create_stream()?, device().create_stream()?);
            let mut buffer = ours.alloc_zeroed::<u32>(64)?;
            theirs.fill(&mut buffer, 1)?;
            theirs.as_raw();
            thread::scope(|scope| {
                let record = session.hold("cuEventRecord");
                let waiting = scope.spawn(|| match waits_on_the_host {
                    true => buffer.synchronize(),
                    false => ours.fill(&mut buffer, 2),
                });
                record.await_call();
                begin(&theirs);
                // In place of the record, which goes on.
                let asked = session.hold("cuStreamIsCapturing");
                asked.await_call();
                assert_eq!(end(&theirs), CUDA_SUCCESS);
                drop((asked, record));
                refused(waiting.join().expect("no panic"));
            });
            // Recorded anew.
            ours.fill(&mut buffer, 3)?;
            assert_eq!(ours.download_vec(&buffer)?, [3; 64]);
        }
        Ok(())
    });
}

/// The capture needs it, and so does whoever waits for its work.
#[test]
fn s45_a_stream_is_destroyed_when_its_capture_has_ended() {
    clean(|session| {
        let (ours, theirs) = (device().create_stream()?, device().create_stream()?);
        let mut buffer = ours.alloc_zeroed::<u32>(64)?;
        theirs.fill(&mut buffer, 1)?;
        let handle = theirs.as_raw();
        begin(&theirs);
        drop(theirs);
        cuda_core::flush_deferred_drops();
        assert_eq!(session.calls("cuStreamDestroy_v2"), 0);
        refused(ours.fill(&mut buffer, 2));
        assert_eq!(end_of(handle), CUDA_SUCCESS);
        ours.fill(&mut buffer, 3)?;
        cuda_core::flush_deferred_drops();
        assert_eq!(session.calls("cuStreamDestroy_v2"), 1);
        assert_eq!(ours.download_vec(&buffer)?, [3; 64]);
        Ok(())
    });
}
