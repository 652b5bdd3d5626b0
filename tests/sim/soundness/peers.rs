//! Access of devices to each other, taken away while it is used: S42.

use std::thread;

use cuda_core::{Context, ContextFlags, Device, Error, Result};

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
        let stalled = support::stall(streams[1].as_raw());
        let mark = session.mark();
        thread::scope(|scope| {
            let disabling = scope.spawn(|| one.disable_peer_access(&two));
            // The first device's work is done, the second's is held up.
            while session.calls("cuCtxSynchronize") < 2 {
                thread::yield_now();
            }
            streams[0].copy(&source, &mut target)?;
            drop(stalled);
            disabling.join().expect("no assertion failed")
        })?;
        let calls: Vec<_> = session.since(mark).iter().map(|call| call.name).collect();
        let at = |name| calls.iter().position(|&call| call == name);
        let (copied, disabled) = (at("cuMemcpyPeerAsync"), at("cuCtxDisablePeerAccess"));
        let waits = &calls[copied.expect("copied")..disabled.expect("disabled")];
        assert!(waits.contains(&"cuCtxSynchronize"), "{waits:?}");
        assert_eq!(session.pending_ops(), 0, "the copy came first: {calls:?}");
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
