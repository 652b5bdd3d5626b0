//! S39: per-thread default streams: the one handle means a different stream on every thread.

use std::thread;

use cuda_core::Result;

use super::{clean, device, pinned, primary};

#[test]
fn s39_two_threads_two_timelines() {
    clean(|_| {
        let here = primary().per_thread_stream()?;
        let there = thread::scope(|scope| {
            let id = scope.spawn(|| primary().per_thread_stream().map(|stream| stream.id()));
            id.join().expect("it only asks")
        })?;
        assert_ne!(here.id(), there);
        assert_eq!(here, primary().per_thread_stream()?);
        Ok(())
    });
}

#[test]
fn s39_work_of_another_threads_stream_is_waited_for() {
    clean(|_| {
        let home = device().create_stream()?;
        let mut buffer = home.alloc::<u32>(64)?;
        thread::scope(|scope| {
            let fill = scope.spawn(|| primary().per_thread_stream()?.fill(&mut buffer, 7));
            fill.join().expect("no panic")
        })?;
        // Both streams have the same handle.
        let mut host = pinned(&[0; 64])?;
        primary().per_thread_stream()?.download(&buffer, &mut host)?;
        assert_eq!(host.as_slice()?, [7; 64]);
        Ok(())
    });
}

#[test]
fn s39_work_of_a_thread_that_is_gone_is_waited_for() {
    clean(|_| {
        let home = device().create_stream()?;
        let mut buffer = home.alloc::<u32>(64)?;
        let mut host = pinned(&[0; 64])?;
        thread::scope(|scope| {
            let work = scope.spawn(|| -> Result<()> {
                let stream = primary().per_thread_stream()?;
                stream.fill(&mut buffer, 7)?;
                stream.download(&buffer, &mut host)
            });
            work.join().expect("no panic")
        })?;
        assert_eq!(host.as_slice()?, [7; 64]);
        drop(buffer);
        home.synchronize()
    });
}

#[test]
fn s39_handles_come_and_go() {
    clean(|_| {
        let home = device().create_stream()?;
        let mut buffer = home.alloc::<u32>(64)?;
        for round in 0..20 {
            primary().per_thread_stream()?.fill(&mut buffer, round)?;
            let mut back = [99; 64];
            home.download(&buffer, &mut back)?;
            assert_eq!(back, [round; 64]);
        }
        Ok(())
    });
}

#[test]
fn s39_staged_copies() {
    clean(|_| {
        let stream = primary().per_thread_stream()?;
        let home = device().create_stream()?;
        let mut buffer = home.alloc::<u32>(64)?;
        stream.upload(&[7; 64], &mut buffer)?;
        let mut back = [0; 64];
        stream.scope(|scope| scope.download(&buffer, &mut back))?;
        assert_eq!(back, [7; 64]);
        Ok(())
    });
}

#[test]
fn s39_asking_while_the_thread_ends() {
    struct AtTheEnd;
    impl Drop for AtTheEnd {
        fn drop(&mut self) {
            // The call may succeed or fail, but must not panic.
            let _ = primary().per_thread_stream();
        }
    }
    thread_local! {
        static LAST: AtTheEnd = const { AtTheEnd };
    }
    clean(|_| {
        thread::scope(|scope| {
            let asks = scope.spawn(|| {
                // Dropped after the library's own locals, which are initialised later.
                LAST.with(|_| {});
                primary().per_thread_stream().map(drop)
            });
            asks.join().expect("no panic")
        })
    });
}
