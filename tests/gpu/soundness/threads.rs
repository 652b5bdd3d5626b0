//! Threads and host functions: S15, S16, S31, S34, S39.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use cuda_core::{Device, Error, Event, EventFlags, Result};
use support::{gpu_test, stall};

use super::{LEN, assert_all, device, pinned, primary, warm};

gpu_test! {
    needs 1;
    fn s15_concurrent_readers() -> Result<()> {
        let streams = [warm()?, warm()?];
        let mut host = pinned(0_u32, LEN)?;
        for round in 0..16 {
            host.as_mut_slice()?.fill(round);
            thread::scope(|scope| {
                let readers = streams.each_ref().map(|stream| {
                    let host = &host;
                    scope.spawn(move || -> Result<()> {
                        let mut buffer = stream.alloc(LEN)?;
                        stream.upload(host, &mut buffer)?;
                        assert_all(host.as_slice()?, round);
                        let mut back = vec![0; LEN];
                        stream.download(&buffer, &mut back)?;
                        assert_all(&back, round);
                        stream.upload(host, &mut buffer)
                    })
                });
                readers
                    .into_iter()
                    .try_for_each(|reader| reader.join().expect("no panic"))
            })?;
        }
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn s16_a_host_function_runs_once_and_is_freed() -> Result<()> {
        let stream = warm()?;
        let calls = Arc::new(AtomicUsize::new(0));
        for _ in 0..10 {
            let counted = calls.clone();
            stream.launch_host_func(move || {
                counted.fetch_add(1, Ordering::Relaxed);
            })?;
        }
        stream.synchronize()?;
        assert_eq!(calls.load(Ordering::Relaxed), 10);
        assert_eq!(Arc::strong_count(&calls), 1, "the closures are gone");
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn s31_drop_in_a_host_function() -> Result<()> {
        let (stream, other) = (warm()?, warm()?);
        let event = Event::new(&primary()?, EventFlags::DEFAULT)?;
        let buffer = other.alloc_zeroed::<u32>(LEN)?;
        let mut host = pinned(1, LEN)?;
        stream.download(&buffer, &mut host)?;
        let refused = Arc::new(AtomicUsize::new(0));
        let inside = refused.clone();
        stream.launch_host_func(move || {
            let asked = [
                other.synchronize().err(),
                buffer.synchronize().err(),
                device().and_then(|device| device.name()).err(),
            ];
            let said = asked.iter().filter(|error| matches!(error, Some(Error::InCallback)));
            inside.store(said.count(), Ordering::Relaxed);
            drop((buffer, host, event, other));
        })?;
        stream.synchronize()?;
        cuda_core::drops::flush();
        assert_eq!(refused.load(Ordering::Relaxed), 3);
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn s34_streams_made_and_destroyed_by_many_threads() -> Result<()> {
        const THREADS: u32 = 8;
        const ROUNDS: u32 = 50;
        let devices = Device::count()?;
        thread::scope(|scope| {
            let workers: Vec<_> = (0..THREADS)
                .map(|index| {
                    scope.spawn(move || -> Result<()> {
                        let device = Device::get(index % devices)?;
                        for round in 0..ROUNDS {
                            let (a, b) = (device.create_stream()?, device.create_stream()?);
                            let mut buffer = a.alloc::<u32>(1000)?;
                            b.fill(&mut buffer, round)?;
                            drop(b);
                            let mut back = vec![0; 1000];
                            a.download(&buffer, &mut back)?;
                            assert_all(&back, round);
                        }
                        Ok(())
                    })
                })
                .collect();
            workers
                .into_iter()
                .try_for_each(|worker| worker.join().expect("no panic"))
        })
    }
}

gpu_test! {
    needs 1, asynchronous;
    fn s39_work_of_another_threads_stream_is_waited_for() -> Result<()> {
        let home = warm()?;
        let mut buffer = home.alloc::<u32>(LEN)?;
        let mut host = pinned(0, LEN)?;
        let stalled = thread::scope(|scope| {
            let work = scope.spawn(|| -> Result<_> {
                let stream = primary()?.per_thread_stream()?;
                // While the context is current here, the handle means this thread's stream.
                let guard = device()?.enter()?;
                let stalled = stall(stream.as_raw());
                guard.restore()?;
                stream.fill(&mut buffer, 7)?;
                Ok(stalled)
            });
            work.join().expect("no panic")
        })?;
        // Both streams have the same handle, and this one is not stalled.
        let stream = primary()?.per_thread_stream()?;
        stream.download(&buffer, &mut host)?;
        assert!(!stream.query()?, "it waits for the other thread's stream");
        stalled.release();
        assert_all(host.as_slice()?, 7);
        Ok(())
    }
}
