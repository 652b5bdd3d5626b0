//! Access of devices to each other, taken away while it is used: S42.

use cuda_core::{Context, ContextFlags, Device, Result};

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
