//! Access of devices to each other, taken away while it is used: S42.

use std::thread;

use cuda_core::{Context, ContextFlags, Device, Error, MemoryPool, PeerAccess, Result, Stream};
use cuda_sim::Session;
use support::kernels;

use super::{clean, device};

#[test]
fn s42_disabling_waits_for_what_is_queued() {
    clean(|session| {
        let (a, b) = (device(), Device::get(1)?);
        let (one, two) = (a.context()?, b.context()?);
        one.enable_peer_access(&two)?;
        let streams = [a.create_stream()?, b.create_stream()?];
        let source = streams[1].alloc_zeroed::<u32>(64)?;
        let mut target = streams[0].alloc::<u32>(64)?;
        streams[0].copy(&source, &mut target)?;
        assert!(session.pending_ops() > 0, "the copy has not run yet");
        one.disable_peer_access(&two)?;
        assert_eq!(session.pending_ops(), 0);
        Ok(())
    });
}

/// Pools belong to devices: closing one concerns the streams of every context.
#[test]
fn s42_disabling_waits_for_other_contexts_of_the_device() {
    clean(|session| {
        let (a, b) = (device(), Device::get(1)?);
        let (one, two) = (a.context()?, b.context()?);
        one.enable_peer_access(&two)?;
        let created = Context::create(a, ContextFlags::default())?;
        let stream = created.create_stream()?;
        let home = b.create_stream()?;
        let source = home.alloc_zeroed::<u32>(64)?;
        let mut target = stream.alloc::<u32>(64)?;
        stream.copy(&source, &mut target)?;
        one.disable_peer_access(&two)?;
        assert_eq!(session.pending_ops(), 0, "the copy may need the access");
        drop((source, target));
        Ok(())
    });
}

#[test]
fn s42_copies_work_without_access() -> Result<()> {
    clean(|_| {
        let (a, b) = (device(), Device::get(1)?);
        let (one, two) = (a.context()?, b.context()?);
        one.enable_peer_access(&two)?;
        one.disable_peer_access(&two)?;
        let streams = [a.create_stream()?, b.create_stream()?];
        let source = streams[1].alloc_zeroed::<u32>(64)?;
        let mut target = streams[0].alloc::<u32>(64)?;
        streams[0].copy(&source, &mut target)?;
        let mut back = [1; 64];
        streams[0].download_to(&target, &mut back)?;
        assert_eq!(back, [0; 64]);
        Ok(())
    });
    Ok(())
}

/// The copy comes from another thread, on a device whose work was waited for already, while the other
/// device's is.
#[test]
fn s42_a_copy_that_comes_during_the_wait_is_waited_for_too() {
    clean(|session| {
        let (a, b) = (device(), Device::get(1)?);
        let (one, two) = (a.context()?, b.context()?);
        one.enable_peer_access(&two)?;
        let streams = [a.create_stream()?, b.create_stream()?];
        let source = streams[1].alloc_zeroed::<u32>(64)?;
        let mut target = streams[0].alloc::<u32>(64)?;
        streams[0].copy(&source, &mut target)?;
        streams[0].synchronize()?;
        comes_during_the_wait(
            session,
            &streams[1],
            "cuCtxDisablePeerAccess",
            || one.disable_peer_access(&two),
            || {
                streams[0].copy(&source, &mut target)?;
                Ok("cuMemcpyPeerAsync")
            },
        )
    });
}

/// The calls of `work`, which another thread does on a device whose work was waited for already while
/// `taking`, the access, waits for the other device's: they come before a wait, and that before
/// `taken`.
fn comes_during_the_wait(
    session: &Session,
    held_up: &Stream,
    taken: &str,
    taking: impl FnOnce() -> Result<()> + Send,
    work: impl FnOnce() -> Result<&'static str>,
) -> Result<()> {
    let stalled = support::stall(held_up.as_raw());
    let mark = session.mark();
    let waits = session.calls("cuCtxSynchronize");
    let enqueued = thread::scope(|scope| {
        let taking = scope.spawn(taking);
        // The first device's work is done, the second's is held up.
        while session.calls("cuCtxSynchronize") < waits + 2 {
            thread::yield_now();
        }
        let enqueued = work()?;
        drop(stalled);
        taking.join().expect("no assertion failed")?;
        Result::<_>::Ok(enqueued)
    })?;
    // Of all threads.
    let calls: Vec<_> = session.since(mark).iter().map(|call| call.name).collect();
    let at = |name: &str| calls.iter().position(|&call| call == name);
    let (enqueued, taken) = (at(enqueued).expect("enqueued"), at(taken).expect("taken"));
    let waits = &calls[enqueued..taken];
    assert!(waits.contains(&"cuCtxSynchronize"), "{waits:?}");
    assert_eq!(session.pending_ops(), 0, "the work came first: {calls:?}");
    Ok(())
}

#[test]
fn s42_a_launch_that_comes_during_the_wait_is_waited_for_too() {
    clean(|session| {
        let (a, b) = (device(), Device::get(1)?);
        let (one, two) = (a.context()?, b.context()?);
        one.enable_peer_access(&two)?;
        let streams = [a.create_stream()?, b.create_stream()?];
        let source = streams[1].alloc_zeroed::<u32>(64)?;
        let mut target = streams[0].alloc::<u32>(64)?;
        let copy_words = kernels::get(&one, "copy_words")?;
        let mut launch = || {
            let mut launch = streams[0].kernel(&copy_words);
            launch.elements(64).arg(&mut target).arg(&source).arg(64u32);
            // SAFETY: 64 elements of both.
            unsafe { launch.launch() }?;
            Ok("cuLaunchKernelEx")
        };
        launch()?;
        streams[0].synchronize()?;
        comes_during_the_wait(
            session,
            &streams[1],
            "cuCtxDisablePeerAccess",
            || one.disable_peer_access(&two),
            launch,
        )
    });
}

#[test]
fn s42_work_that_comes_while_a_pool_is_closed_is_waited_for_too() {
    clean(|session| {
        let (a, b) = (device(), Device::get(1)?);
        let pool = MemoryPool::builder(b).build()?;
        let streams = [a.create_stream()?, b.create_stream()?];
        let mut source = streams[1].alloc_from::<u32>(&pool, 64)?;
        streams[1].fill(&mut source, 7)?;
        let mut target = streams[0].alloc::<u32>(64)?;
        let copy_words = kernels::get(&a.context()?, "copy_words")?;
        for kernel in [false, true] {
            pool.set_access(a, PeerAccess::ReadWrite)?;
            let work = || {
                if !kernel {
                    streams[0].copy(&source, &mut target)?;
                    return Ok("cuMemcpyPeerAsync");
                }
                let mut launch = streams[0].kernel(&copy_words);
                launch.elements(64).arg(&mut target).arg(&source).arg(64u32);
                // SAFETY: 64 elements of both.
                unsafe { launch.launch() }?;
                Ok("cuLaunchKernelEx")
            };
            streams[0].synchronize()?;
            comes_during_the_wait(
                session,
                &streams[1],
                "cuMemPoolSetAccess",
                || pool.set_access(a, PeerAccess::None),
                work,
            )?;
            let mut back = [0; 64];
            streams[0].download_to(&target, &mut back)?;
            assert_eq!(back, [7; 64]);
        }
        drop((source, target));
        Ok(())
    });
}

/// What counts is the access at the launch, not when the argument was given.
#[test]
fn s42_a_launch_prepared_before_access_was_taken_away() {
    clean(|session| {
        let (a, b) = (device(), Device::get(1)?);
        let (one, two) = (a.context()?, b.context()?);
        let streams = [a.create_stream()?, b.create_stream()?];
        let mut memory = streams[1].alloc_zeroed::<u32>(64)?;
        let add_one = kernels::get(&one, "add_one")?;
        let mut launch = streams[0].kernel(&add_one);
        launch.elements(64).arg(&mut memory).arg(64u32);
        for _ in 0..2 {
            one.enable_peer_access(&two)?;
            // SAFETY: 64 elements.
            unsafe { launch.launch() }?;
            one.disable_peer_access(&two)?;
            assert_eq!(session.pending_ops(), 0);
            // SAFETY: refused.
            let refused = unsafe { launch.launch() };
            assert!(
                matches!(refused, Err(Error::WrongDevice { memory: 1, .. })),
                "{refused:?}"
            );
        }
        Ok(())
    });
}

/// A pool that was opened by itself is enough for a launch; the right to it ends with the pool.
#[test]
fn s42_a_pool_of_ones_own_is_enough_for_a_launch() {
    clean(|_| {
        let (a, b) = (device(), Device::get(1)?);
        let add_one = kernels::get(&a.context()?, "add_one")?;
        let (here, there) = (a.create_stream()?, b.create_stream()?);
        let pool = MemoryPool::builder(b).build()?;
        let mut memory = there.alloc_from::<u32>(&pool, 64)?;
        there.fill(&mut memory, 1)?;
        let mut launch = here.kernel(&add_one);
        launch.elements(64).arg(&mut memory).arg(64u32);
        // SAFETY: refused.
        assert!(unsafe { launch.launch() }.is_err());
        pool.set_access(a, PeerAccess::ReadWrite)?;
        // SAFETY: 64 elements.
        unsafe { launch.launch() }?;
        let mut back = [0; 64];
        there.download_to(&memory, &mut back)?;
        assert_eq!(back, [2; 64]);
        drop((memory, pool));
        let mut other = there.alloc_zeroed::<u32>(64)?;
        // SAFETY: refused.
        let refused = unsafe {
            here.kernel(&add_one)
                .elements(64)
                .arg(&mut other)
                .arg(64u32)
                .launch()
        };
        assert!(
            matches!(refused, Err(Error::WrongDevice { .. })),
            "{refused:?}"
        );
        Ok(())
    });
}

/// Copies by other threads go on while access comes and goes.
#[test]
#[cfg_attr(miri, ignore = "loops long")]
fn s42_access_comes_and_goes_beside_copies() {
    clean(|_| {
        let (a, b) = (device(), Device::get(1)?);
        let (one, two) = (a.context()?, b.context()?);
        let copies = |from: Device, to: Device| -> Result<()> {
            let streams = [from.create_stream()?, to.create_stream()?];
            let source = streams[0].alloc_zeroed::<u32>(64)?;
            let mut target = streams[1].alloc::<u32>(64)?;
            for _ in 0..200 {
                streams[1].copy(&source, &mut target)?;
            }
            streams[1].synchronize()
        };
        thread::scope(|scope| {
            let threads = [scope.spawn(|| copies(a, b)), scope.spawn(|| copies(b, a))];
            for _ in 0..50 {
                one.enable_peer_access(&two)?;
                match one.disable_peer_access(&two) {
                    Err(Error::PeerAccessInUse { .. }) => {}
                    other => other?,
                }
            }
            for thread in threads {
                thread.join().expect("no assertion failed")?;
            }
            Result::<()>::Ok(())
        })?;
        one.enable_peer_access(&two)?;
        one.disable_peer_access(&two)
    });
}
