//! Groups: one call per copy, and events only if a stream has to wait.

use cuda_core::{DeviceBuffer, DeviceGroup, PinnedBuffer};

use super::*;

const DEVICES: usize = 4;

/// Waits until the group's buffers are known to be idle.
fn idle(group: &DeviceGroup, buffers: &[DeviceBuffer<u8>]) -> Result<()> {
    group.synchronize()?;
    buffers.iter().try_for_each(DeviceBuffer::synchronize)
}

#[test]
fn a_group_costs_its_streams() {
    Counted::run(|driver| {
        // One stream per device, and one for what the device sends to others.
        let create = entered(["cuStreamCreateWithPriority"]).repeat(2 * DEVICES);
        let group = driver.expect(create, DeviceGroup::all)?;
        driver.expect(relaxed(SYNC).repeat(2 * DEVICES), || group.synchronize())?;
        drop(group);
        driver.refused(|| DeviceGroup::new([]));
        Ok(())
    });
}

#[test]
fn an_upload_to_all_costs_one_each() {
    Counted::run(|driver| {
        let group = DeviceGroup::all()?;
        let host = PinnedBuffer::from_slice(group.streams()[0].context(), &[1_u8; 64])?;
        let mut copies = group.alloc::<u8>(64)?;
        driver.expect([UPLOAD].repeat(DEVICES), || group.upload_all(&host, &mut copies))?;
        driver.expect([], || group.upload_all(host.slice(..0)?, copies.iter_mut().map(empty)))?;
        idle(&group, &copies)?;
        // From its first use on, each stream keeps a chunk in which it stages small slices.
        group.upload_all(&[2; 64], &mut copies)?;
        driver.expect([UPLOAD].repeat(DEVICES), || group.upload_all(&[3; 64], &mut copies))?;
        Ok(())
    });
}

fn empty(buffer: &mut DeviceBuffer<u8>) -> cuda_core::DeviceSliceMut<'_, u8> {
    buffer.slice_mut(..0).expect("an empty range is valid")
}

#[test]
fn parts_cost_one_each_and_empty_ones_none() {
    Counted::run(|driver| {
        let group = DeviceGroup::all()?;
        let mut host = PinnedBuffer::from_slice(group.streams()[0].context(), &[1_u8; 6])?;
        let lens = [1, 0, 2, 3];
        let streams = group.streams().iter().zip(lens);
        let mut parts: Vec<_> =
            streams.map(|(s, len)| s.alloc::<u8>(len)).collect::<Result<_>>()?;
        driver.expect([UPLOAD].repeat(3), || group.scatter(&host, &mut parts))?;
        idle(&group, &parts)?;
        host.synchronize()?;
        driver.expect([DOWNLOAD].repeat(3), || group.gather(&parts, &mut host))?;
        Ok(())
    });
}

#[test]
fn copies_between_devices_cost_one_each_once_events_have_been_recorded() {
    Counted::run(|driver| {
        let group = DeviceGroup::all()?;
        let sources = group.alloc_zeroed::<u8>(64)?;
        let mut destinations = group.alloc_zeroed::<u8>(64)?;
        idle(&group, &sources)?;
        idle(&group, &destinations)?;
        for by in [1, 3] {
            group.rotate(&sources, &mut destinations, by)?;
            let ring = [PEER_COPY].repeat(DEVICES);
            driver.expect(ring, || group.rotate(&sources, &mut destinations, by))?;
        }
        group.all_to_all(&sources, &mut destinations)?;
        let all = [[COPY].repeat(DEVICES), [PEER_COPY].repeat(DEVICES * (DEVICES - 1))];
        driver.expect(all.concat(), || group.all_to_all(&sources, &mut destinations))?;
        Ok(())
    });
}

/// If the events were recorded between the copies, each copy would also wait for its neighbour's copy.
#[test]
fn what_a_ring_waits_for_is_recorded_before_its_first_copy() {
    Counted::run(|driver| {
        driver.session.set_mode(cuda_sim::Mode::Lazy);
        let group = DeviceGroup::all()?;
        let mut here = group.alloc_zeroed::<u8>(64)?;
        let mut there = group.alloc_zeroed::<u8>(64)?;
        // Twice, until each stream has its events.
        for _ in 0..2 {
            group.rotate(&here, &mut there, 1)?;
            group.rotate(&there, &mut here, 1)?;
            group.synchronize()?;
        }
        group.rotate(&here, &mut there, 1)?;
        // Each copy waits for the copy that wrote its source, and for the one that read its target.
        let calls = [(RECORD, 1), (WAIT, 2), (PEER_COPY, 1)];
        let calls = calls.map(|(call, times)| [call].repeat(times * DEVICES));
        driver.expect(calls.concat(), || group.rotate(&there, &mut here, 1))
    });
}

#[test]
fn a_small_broadcast_spreads_like_a_tree() {
    Counted::run(|driver| {
        let group = DeviceGroup::all()?;
        let mut buffers = group.alloc_zeroed::<u8>(64)?;
        // The first broadcast creates an event.
        group.broadcast_in_place(&mut buffers, 1)?;
        idle(&group, &buffers)?;
        // 1 → 2; 1 → 3 and 2 → 0, which waits for the copy to 2.
        let calls = [PEER_COPY, PEER_COPY, RECORD, WAIT, PEER_COPY];
        driver.expect(calls, || group.broadcast_in_place(&mut buffers, 1))?;
        Ok(())
    });
}

#[test]
fn one_device_alone_copies_nothing_between_devices() {
    Counted::run(|driver| {
        let group = DeviceGroup::new([Device::get(2)?])?;
        let mut buffers = group.alloc_zeroed::<u8>(64)?;
        let mut others = group.alloc_zeroed::<u8>(64)?;
        idle(&group, &buffers)?;
        idle(&group, &others)?;
        driver.expect([], || group.broadcast_in_place(&mut buffers, 0))?;
        driver.expect([], || group.enable_all_peers().map(|apart| assert_eq!(apart, [])))?;
        driver.expect([COPY], || group.rotate(&buffers, &mut others, 1))?;
        driver.expect([COPY], || group.all_to_all(&buffers, &mut others))
    });
}

#[test]
fn what_is_refused_costs_nothing() {
    Counted::run(|driver| {
        let group = DeviceGroup::all()?;
        let host = PinnedBuffer::from_slice(group.streams()[0].context(), &[1_u8; 6])?;
        let mut some = group.alloc_zeroed::<u8>(5)?;
        let mut more = group.alloc_zeroed::<u8>(6)?;
        driver.refused(|| group.upload_all(&host, &mut some));
        driver.refused(|| group.upload_all(&[1; 6], &mut some));
        driver.refused(|| group.scatter(&host, &mut some));
        driver.refused(|| group.scatter(&[1; 6], &mut some));
        driver.refused(|| group.gather(&some, &mut [0; 6]));
        driver.refused(|| group.broadcast_in_place(&mut some, 4));
        driver.refused(|| group.broadcast_in_place(some.iter_mut().skip(1), 0));
        driver.refused(|| group.broadcast_in_place(some.iter_mut().rev(), 0));
        driver.refused(|| group.rotate(&some, &mut more, 1));
        driver.refused(|| group.all_to_all(&some, &mut more));
        Ok(())
    });
}

#[test]
fn contexts_that_exist_cost_nothing() {
    Counted::run(|driver| {
        let all = driver.expect([], || Device::contexts(Device::all()?))?;
        assert_eq!(all.len(), DEVICES);
        Ok(())
    });
}
