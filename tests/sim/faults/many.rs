//! Groups.

use cuda_core::{Device, DeviceGroup, PinnedBuffer, Result};
use support::Staged;

use super::harness::sweep;
use crate::staged_large::CHUNK;

/// Creates a group of three devices, so that a tree has two levels.
fn group() -> Result<DeviceGroup> {
    DeviceGroup::new([Device::get(0)?, Device::get(1)?, Device::get(2)?])
}

#[test]
fn made_and_waited_for() {
    sweep(|| {
        let group = group()?;
        drop(group.alloc_zeroed::<u32>(9)?);
        drop(group.alloc_shares::<u32>(4)?);
        group.synchronize()
    });
}

#[test]
fn from_pinned_memory_and_back() {
    sweep(|| {
        let group = group()?;
        let context = group.streams()[0].context();
        let host = PinnedBuffer::from_slice(context, &[1_u8, 2, 3, 4])?;
        let mut back = PinnedBuffer::<u8>::zeroed(context, 12)?;
        let mut copies = group.alloc::<u8>(4)?;
        group.upload_all(&host, &mut copies)?;
        group.gather(&copies, &mut back)?;
        assert_eq!(back.as_slice()?, [1, 2, 3, 4].repeat(3));
        let mut shares = group.alloc_shares::<u8>(4)?;
        group.scatter(&host, &mut shares)?;
        group.gather(&shares, back.slice_mut(8..)?)?;
        assert_eq!(back.as_slice()?, [1, 2, 3, 4].repeat(3));
        Ok(())
    });
}

#[test]
fn borrowed_and_small() {
    sweep(|| {
        let group = group()?;
        let mut copies = group.alloc::<u16>(4)?;
        group.upload_all(&[1, 2, 3, 4], &mut copies)?;
        let mut back = [9; 12];
        let gathered = group.gather(&copies, &mut back);
        if gathered.is_ok() {
            assert_eq!(back[..], [1, 2, 3, 4].repeat(3));
        }
        gathered?;
        group.scatter(&[5; 12], &mut copies)?;
        group.gather(&copies, &mut back)?;
        assert_eq!(back, [5; 12]);
        Ok(())
    });
}

#[test]
fn borrowed_and_large() {
    sweep(|| {
        // More than two chunks of the smallest size.
        const LEN: usize = 2 * CHUNK + 1;
        let _staged = Staged::by(0, CHUNK)?;
        let group = DeviceGroup::new([Device::get(0)?, Device::get(1)?])?;
        let slice = vec![7; LEN];
        let mut copies = group.alloc::<u8>(LEN)?;
        group.upload_all(&slice, &mut copies)?;
        let mut back = vec![0; LEN];
        group.gather([copies[0].slice(..1)?, copies[1].slice(1..)?], &mut back)?;
        assert!(back == slice, "the data came back changed");
        Ok(())
    });
}

#[test]
fn between_devices() {
    sweep(|| {
        let group = group()?;
        let mut here = group.alloc_zeroed::<u8>(6)?;
        let mut there = group.alloc_zeroed::<u8>(6)?;
        group.streams()[0].fill(&mut here[0], 3)?;
        group.broadcast_in_place(&mut here, 0)?;
        group.rotate(&here, &mut there, 1)?;
        group.all_to_all(&there, &mut here)?;
        let mut back = [0; 18];
        group.gather(&here, &mut back)?;
        assert_eq!(back, [3; 18]);
        group.synchronize()
    });
}

#[test]
fn from_one_device_and_back() {
    sweep(|| {
        let group = group()?;
        let mut whole = group.streams()[1].alloc_zeroed::<u8>(7)?;
        let mut shares = group.alloc_shares::<u8>(7)?;
        group.scatter(&whole, &mut shares)?;
        group.gather(&shares, &mut whole)?;
        let mut back = [1; 7];
        group.streams()[1].download(&whole, &mut back)?;
        assert_eq!(back, [0; 7]);
        Ok(())
    });
}

#[test]
#[cfg_attr(miri, ignore = "loops long")]
fn access_of_all_to_all() {
    sweep(|| {
        let group = group()?;
        let enabled = group.enable_all_peers();
        let sources = group.alloc_zeroed::<u8>(6)?;
        let mut destinations = group.alloc::<u8>(6)?;
        let rotated = group.rotate(&sources, &mut destinations, 1);
        // Disables all access again; otherwise the next run would find it enabled.
        super::harness::again(|| group.disable_all_peers())?;
        enabled?;
        rotated
    });
}
