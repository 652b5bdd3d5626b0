//! S28: a stream's record of other streams, and failed waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cuda_core::Result;
use cuda_sys::CUDA_ERROR_UNKNOWN;

use super::{clean, device, pinned};

#[test]
fn s28_a_recycled_handle_inherits_nothing() {
    clean(|_| {
        let reader = device().create_stream()?;
        let mut buffer = reader.alloc::<u32>(64)?;
        let first = device().create_stream()?;
        let handle = first.as_raw();
        for round in 0..4 {
            first.fill(&mut buffer, round)?;
        }
        // The reader has now waited for the fourth operation of the first stream.
        reader.wait_stream(&first)?;
        first.synchronize()?;
        reader.synchronize()?;
        drop(first);
        let second = device().create_stream()?;
        assert_eq!(second.as_raw(), handle, "the driver uses the handle again");
        second.fill(&mut buffer, 7)?;
        let mut back = [0; 64];
        reader.download(&buffer, &mut back)?;
        assert_eq!(back, [7; 64]);
        Ok(())
    });
}

/// Runs a copy that fails at this call, and then works.
fn works_after(call: &str) {
    clean(|session| {
        let (a, b) = (device().create_stream()?, device().create_stream()?);
        let mut buffer = a.alloc::<u32>(64)?;
        a.fill(&mut buffer, 7)?;
        let mut host = pinned(&[0; 64])?;
        session.fail_nth(Some(call), 1, CUDA_ERROR_UNKNOWN);
        assert!(b.download(&buffer, &mut host).is_err());
        b.download(&buffer, &mut host)?;
        assert_eq!(host.as_slice()?, [7; 64]);
        Ok(())
    });
}

#[test]
fn s28_a_wait_that_failed_is_not_remembered() {
    works_after("cuStreamWaitEvent");
}

/// Events recorded before a stream had to wait do not cover the wait, even if no work followed it.
#[test]
fn s28_a_wait_whose_work_failed_is_passed_on() {
    clean(|session| {
        let streams = [(); 4].map(|()| device().create_stream());
        let [first, second, between, last] = streams.map(|stream| stream.expect("a stream"));
        let mut done = between.alloc::<u32>(64)?;
        between.fill(&mut done, 1)?;
        between.checkpoint()?;
        let reached = Arc::new(AtomicBool::new(false));
        let (reaches, looks) = (Arc::clone(&reached), reached);
        first.launch_host_func(move || reaches.store(true, Ordering::Release))?;
        let (mut source, mut target) = (first.alloc::<u32>(64)?, second.alloc::<u32>(64)?);
        first.fill(&mut source, 7)?;
        second.fill(&mut target, 8)?;
        // The stream waits for the first one, but its wait for the second fails.
        session.fail_nth(Some("cuStreamWaitEvent"), 2, CUDA_ERROR_UNKNOWN);
        assert!(between.copy(&source, &mut target).is_err());
        let mark = session.mark();
        between.wait_stream(&first)?;
        assert_eq!(session.names_since(mark), [""; 0], "it waits already");
        last.wait_stream(&between)?;
        let saw = Arc::new(AtomicBool::new(false));
        let sees = Arc::clone(&saw);
        last.launch_host_func(move || {
            sees.store(looks.load(Ordering::Acquire), Ordering::Release);
        })?;
        last.synchronize()?;
        assert!(saw.load(Ordering::Acquire), "the last came before the first");
        Ok(())
    });
}

#[test]
fn s28_a_record_that_failed_is_not_waited_for() {
    works_after("cuEventRecord");
}

#[test]
fn s28_an_enqueue_that_failed_is_marked() {
    clean(|session| {
        let (a, b) = (device().create_stream()?, device().create_stream()?);
        let mut buffer = a.alloc::<u32>(64)?;
        session.fail_nth(Some("cuMemsetD32Async"), 1, CUDA_ERROR_UNKNOWN);
        assert!(b.fill(&mut buffer, 7).is_err());
        // The program must assume that the fill was enqueued: the free waits for it.
        let mark = session.mark();
        drop(buffer);
        assert_eq!(
            session.names_since(mark).last_chunk(),
            Some(&[
                "cuEventRecord",
                "cuStreamWaitEvent",
                "cuThreadExchangeStreamCaptureMode",
                "cuMemFreeAsync",
                "cuThreadExchangeStreamCaptureMode",
            ])
        );
        Ok(())
    });
}

#[test]
fn s28_an_old_event_does_not_cover_new_work() {
    clean(|_| {
        let (a, b) = (device().create_stream()?, device().create_stream()?);
        let mut buffer = a.alloc::<u32>(64)?;
        for round in 0..4 {
            a.fill(&mut buffer, round)?;
            let mut host = pinned(&[99; 64])?;
            b.download(&buffer, &mut host)?;
            assert_eq!(host.as_slice()?, [round; 64]);
            a.fill(&mut a.alloc::<u32>(1)?, round)?;
        }
        Ok(())
    });
}

#[test]
fn s28_many_points_and_few_events() {
    clean(|_| {
        let (a, b) = (device().create_stream()?, device().create_stream()?);
        let mut buffers = Vec::new();
        let rounds = if cfg!(miri) { 12 } else { 40 };
        for round in 0..rounds {
            let mut buffer = a.alloc::<u32>(64)?;
            a.fill(&mut buffer, round)?;
            a.checkpoint()?;
            buffers.push(buffer);
        }
        for (buffer, round) in buffers.iter().zip(0..) {
            let mut host = pinned(&[99; 64])?;
            b.download(buffer, &mut host)?;
            assert_eq!(host.as_slice()?, [round; 64]);
        }
        Ok(())
    });
}

/// Two threads wait for two points of a stream while a third enqueues. An event that is waited for is not
/// recorded again at a later point, and no point counts as complete too early.
#[test]
fn s28_events_are_not_recorded_again_while_awaited() -> Result<()> {
    clean(|_| {
        let a = device().create_stream()?;
        let rounds = if cfg!(miri) { 6 } else { 30 };
        std::thread::scope(|scope| {
            let threads = [(); 2].map(|()| {
                scope.spawn(|| -> Result<()> {
                    let stream = device().create_stream()?;
                    for round in 0..rounds {
                        let mut buffer = stream.alloc::<u32>(16)?;
                        a.fill(&mut buffer, round)?;
                        let mut host = pinned(&[99; 16])?;
                        stream.download(&buffer, &mut host)?;
                        assert_eq!(host.as_slice()?, [round; 16]);
                    }
                    Ok(())
                })
            });
            let ended = threads.map(|thread| thread.join().expect("no panic"));
            ended.into_iter().collect()
        })
    });
    Ok(())
}
