//! Groups: several devices used as one.

mod order;
mod stress;

use cuda_core::{Context, Device, DeviceBuffer, DeviceGroup, Error, PinnedBuffer, Result};
use support::{context, gpu_test, refusal};

use crate::forms::{contents, same, scaled, varied};

/// Returns a group of all devices.
fn all() -> Result<DeviceGroup> {
    DeviceGroup::all()
}

/// Returns bytes that differ from rank to rank.
fn bytes_of(rank: usize, len: usize) -> Vec<u8> {
    varied(rank as u64 + 1, len)
}

/// Allocates a buffer on each device, with different bytes.
fn filled(group: &DeviceGroup, len: usize) -> Result<Vec<DeviceBuffer<u8>>> {
    let mut buffers = group.alloc::<u8>(len)?;
    for (rank, buffer) in buffers.iter_mut().enumerate() {
        group.streams()[rank].upload(&bytes_of(rank, len), buffer)?;
    }
    Ok(buffers)
}

/// Asserts that each buffer holds what `expected` returns for its rank.
#[track_caller]
fn hold(
    group: &DeviceGroup,
    buffers: &[DeviceBuffer<u8>],
    expected: impl Fn(usize) -> Vec<u8>,
    what: &str,
) -> Result<()> {
    for (rank, buffer) in buffers.iter().enumerate() {
        let found = contents(&group.streams()[rank], buffer)?;
        same(&found, &expected(rank), &format!("{what}, rank {rank}"));
    }
    Ok(())
}

fn pinned(group: &DeviceGroup, bytes: &[u8]) -> Result<PinnedBuffer<u8>> {
    PinnedBuffer::from_slice(group.streams()[0].context(), bytes)
}

/// Returns no bytes, few, more than a chunk, and more than all chunks of one thread.
fn sizes() -> Vec<usize> {
    let large = scaled(256 << 20, 17 << 20, 5000) + 3;
    vec![0, 1, 4097, scaled(3 << 20, 3 << 20, 70_000), large]
}

gpu_test! {
    needs 1;
    fn contexts_of_all_devices_are_the_devices_own() -> Result<()> {
        let contexts = Device::contexts(Device::all()?)?;
        let own: Result<Vec<Context>> = Device::all()?.map(Device::context).collect();
        assert_eq!(contexts, own?);
        assert!(context::current().is_null());
        let first = Device::get(0)?;
        assert_eq!(Device::contexts([first, first])?, [first.context()?, first.context()?]);
        assert!(Device::contexts([])?.is_empty());
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn a_group_has_its_devices_in_order() -> Result<()> {
        let group = all()?;
        let devices: Vec<Device> = Device::all()?.collect();
        assert_eq!(group.len(), devices.len());
        assert_eq!(group.devices().collect::<Vec<_>>(), devices);
        assert!(group.contexts().eq(&Device::contexts(devices.iter().copied())?));
        assert_eq!(format!("{group:?}"), format!("{devices:?}"));
        let shares = group.alloc_shares::<u16>(1003)?;
        assert_eq!(shares.iter().map(DeviceBuffer::len).sum::<usize>(), 1003);
        let (least, most) = (shares[group.len() - 1].len(), shares[0].len());
        assert!(most - least <= 1, "{least} to {most}");
        match DeviceGroup::new([]) {
            Err(Error::Invalid(_)) => {}
            other => panic!("{other:?}"),
        }
        group.synchronize()
    }
}

gpu_test! {
    needs 1;
    fn uploaded_to_all() -> Result<()> {
        let group = all()?;
        for len in sizes() {
            let bytes = varied(len as u64, len);
            let mut copies = group.alloc::<u8>(len)?;
            let mut host = pinned(&group, &bytes)?;
            group.upload_all(&host, &mut copies)?;
            // The write waits for every device.
            host.as_mut_slice()?.fill(0xEE);
            hold(&group, &copies, |_| bytes.clone(), &format!("pinned, {len} bytes"))?;
            let mut slice = varied(len as u64 + 1, len);
            let expected = slice.clone();
            group.upload_all(&slice, &mut copies)?;
            slice.fill(0xEE);
            hold(&group, &copies, |_| expected.clone(), &format!("borrowed, {len} bytes"))?;
        }
        Ok(())
    }
}

/// Returns different lengths, one of them zero.
fn uneven(group: &DeviceGroup, len: usize) -> Vec<usize> {
    let mut rest = len;
    let last = group.len() - 1;
    let mut lens: Vec<usize> = (0..last)
        .map(|rank| {
            let part = if rank == 1 { 0 } else { rest / 3 };
            rest -= part;
            part
        })
        .collect();
    lens.push(rest);
    lens
}

gpu_test! {
    needs 1;
    fn scattered_and_gathered() -> Result<()> {
        let group = all()?;
        for len in sizes() {
            let bytes = varied(len as u64, len);
            let lens = uneven(&group, len);
            let new = || -> Result<Vec<DeviceBuffer<u8>>> {
                let streams = group.streams().iter().zip(&lens);
                streams.map(|(stream, &len)| stream.alloc_zeroed(len)).collect()
            };
            let part = |rank: usize| {
                let start: usize = lens[..rank].iter().sum();
                bytes[start..start + lens[rank]].to_vec()
            };
            let what = |how| format!("{how}, {len} bytes");

            let mut host = pinned(&group, &bytes)?;
            let mut parts = new()?;
            group.scatter(&host, &mut parts)?;
            hold(&group, &parts, part, &what("pinned"))?;
            host.as_mut_slice()?.fill(0);
            group.gather(&parts, &mut host)?;
            same(host.as_slice()?, &bytes, &what("to pinned"));

            let mut parts = new()?;
            group.scatter(&bytes, &mut parts)?;
            hold(&group, &parts, part, &what("borrowed"))?;
            let mut back = vec![0; len];
            group.gather(&parts, &mut back)?;
            same(&back, &bytes, &what("to borrowed"));

            let home = &group.streams()[group.len() - 1];
            let mut whole = home.alloc::<u8>(len)?;
            home.upload(&bytes, &mut whole)?;
            let mut parts = new()?;
            group.scatter(&whole, &mut parts)?;
            hold(&group, &parts, part, &what("device"))?;
            home.fill(&mut whole, 0)?;
            group.gather(&parts, &mut whole)?;
            same(&contents(home, &whole)?, &bytes, &what("to device"));
        }
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn broadcast_from_every_rank() -> Result<()> {
        let group = all()?;
        group.enable_all_peers()?;
        // Some lengths are broadcast as a tree, others in pieces from rank to rank.
        for len in [0, 1, 5000, scaled(200 << 20, 13 << 20, 20_000) + 1] {
            for root in 0..group.len() {
                let mut buffers = filled(&group, len)?;
                group.broadcast_in_place(&mut buffers, root)?;
                let what = format!("{len} bytes from {root}");
                hold(&group, &buffers, |_| bytes_of(root, len), &what)?;
            }
        }
        group.disable_all_peers()
    }
}

gpu_test! {
    needs 1;
    fn rotated_by_any_number() -> Result<()> {
        let group = all()?;
        let count = group.len();
        for len in [0, 3, scaled(8 << 20, 1 << 20, 3000)] {
            let sources = filled(&group, len)?;
            for by in [0, 1, count - 1, count, 3 * count + 2] {
                let mut destinations = group.alloc_zeroed::<u8>(len)?;
                group.rotate(&sources, &mut destinations, by)?;
                let from = |rank: usize| bytes_of((rank + count - by % count) % count, len);
                hold(&group, &destinations, from, &format!("{len} bytes by {by}"))?;
            }
        }
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn all_to_all() -> Result<()> {
        let group = all()?;
        let count = group.len();
        for part in [0, 1, scaled(4 << 20, 200_000, 500)] {
            let sources = filled(&group, part * count)?;
            let mut destinations = group.alloc_zeroed::<u8>(part * count)?;
            group.all_to_all(&sources, &mut destinations)?;
            let expected = |rank: usize| {
                let parts = (0..count).map(|from| {
                    let bytes = bytes_of(from, part * count);
                    bytes[rank * part..(rank + 1) * part].to_vec()
                });
                parts.collect::<Vec<_>>().concat()
            };
            hold(&group, &destinations, expected, &format!("parts of {part} bytes"))?;
        }
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn parts_of_any_length_to_all() -> Result<()> {
        let group = all()?;
        let count = group.len();
        let len = |from: usize, to: usize| (from * 1000 + to * 37) % 4099;
        let seed = |from: usize, to: usize| from * count + to;
        let mut sources = Vec::new();
        let mut destinations: Vec<Vec<DeviceBuffer<u8>>> = Vec::new();
        for (rank, stream) in group.streams().iter().enumerate() {
            let mut row = Vec::new();
            for to in 0..count {
                let mut part = stream.alloc::<u8>(len(rank, to))?;
                stream.upload(&bytes_of(seed(rank, to), len(rank, to)), &mut part)?;
                row.push(part);
            }
            sources.push(row);
            let row = (0..count).map(|from| stream.alloc_zeroed(len(from, rank)));
            destinations.push(row.collect::<Result<_>>()?);
        }
        group.exchange(&sources, &mut destinations)?;
        for (to, row) in destinations.iter().enumerate() {
            for (from, part) in row.iter().enumerate() {
                let found = contents(&group.streams()[to], part)?;
                same(&found, &bytes_of(seed(from, to), len(from, to)), &format!("{from} to {to}"));
            }
        }
        Ok(())
    }
}

gpu_test! {
    needs 2;
    fn what_does_not_fit_is_refused() -> Result<()> {
        let group = all()?;
        let count = group.len();
        let mut four = group.alloc_zeroed::<u8>(4)?;
        let mut five = group.alloc_zeroed::<u8>(5)?;
        let host = pinned(&group, &[1; 4])?;
        let too_long = |result: Result<()>, culprit: u32| match result {
            Err(Error::OnDevice { device, error, .. }) => {
                assert_eq!(device, culprit);
                assert!(matches!(*error, Error::LengthMismatch(_)), "{error}");
            }
            other => panic!("{other:?}"),
        };
        too_long(group.upload_all(&host, &mut five), 0);
        too_long(group.upload_all(&[1; 4], &mut five), 0);
        too_long(group.rotate(&four, &mut five, 1), 1);
        let mixed = || four.iter().take(count - 1).map(|b| b.as_view()).chain([five[count - 1].as_view()]);
        let mut out = group.alloc::<u8>(4)?;
        too_long(group.rotate(mixed(), &mut out, 0), count as u32 - 1);
        assert!(matches!(group.scatter(&host, &mut four), Err(Error::LengthMismatch(_))));
        assert!(matches!(group.scatter(&[1; 4], &mut four), Err(Error::LengthMismatch(_))));
        assert!(matches!(group.gather(&four, &mut [0; 4]), Err(Error::LengthMismatch(_))));
        let mut host = host;
        assert!(matches!(group.gather(&four, &mut host), Err(Error::LengthMismatch(_))));
        // Elements of size zero, whose total number cannot be represented.
        let nothing = group.streams().iter().map(|stream| stream.alloc::<[u8; 0]>(usize::MAX));
        let mut nothing = nothing.collect::<Result<Vec<_>>>()?;
        let uncounted = group.scatter(&[[]; 3], &mut nothing);
        let mismatch = matches!(uncounted, Err(Error::SizeOverflow { .. } | Error::LengthMismatch(_)));
        assert!(mismatch, "{uncounted:?}");
        let fewer = group.broadcast_in_place(&mut four[..1], 0);
        assert_eq!(refusal(fewer), format!("1 buffer or slice given for a group of {count} devices"));
        let no_member = format!("there is no member {count} among {count}");
        assert!(refusal(group.broadcast_in_place(&mut four, count)).contains(&no_member));
        let odd = group.alloc_zeroed::<u8>(count + 1)?;
        let mut even = group.alloc_zeroed::<u8>(count)?;
        assert!(refusal(group.all_to_all(&odd, &mut even)).contains("equal parts"));
        even.reverse();
        let swapped = group.broadcast_in_place(&mut even, 0);
        assert!(matches!(swapped, Err(Error::WrongDevice(ref it)) if it.stream == 0), "{swapped:?}");
        let ragged = [&four[..], &four[..1]];
        let mut rows: Vec<_> = (0..count).map(|_| group.alloc::<u8>(4)).collect::<Result<_>>()?;
        assert!(refusal(group.exchange(ragged, &mut rows)).contains("given for a group"));
        // No copy has begun.
        hold(&group, &four, |_| vec![0; 4], "as before")
    }
}

gpu_test! {
    needs 1;
    fn a_device_may_be_a_member_several_times() -> Result<()> {
        let device = Device::get(0)?;
        let group = DeviceGroup::new([device; 3])?;
        assert_eq!(group.enable_all_peers()?, [], "no peer of itself");
        let mut buffers = filled(&group, 5000)?;
        let mut next = group.alloc::<u8>(5000)?;
        group.rotate(&buffers, &mut next, 2)?;
        hold(&group, &next, |rank| bytes_of((rank + 1) % 3, 5000), "rotated")?;
        group.broadcast_in_place(&mut buffers, 2)?;
        hold(&group, &buffers, |_| bytes_of(2, 5000), "broadcast")?;
        group.disable_all_peers()
    }
}

gpu_test! {
    needs 1;
    fn streams_of_the_callers_own() -> Result<()> {
        let created = Context::new(Device::get(0)?, cuda_core::ContextFlags::SCHED_AUTO)?;
        let streams = [Device::get(0)?.context()?.default_stream()?, created.create_stream()?];
        let group = DeviceGroup::from_streams(streams.clone())?;
        assert_eq!(group.streams(), streams);
        let mut shares = group.alloc_shares::<u8>(70_001)?;
        let bytes = varied(5, 70_001);
        group.scatter(&bytes, &mut shares)?;
        let mut back = vec![0; 70_001];
        group.gather(&shares, &mut back)?;
        same(&back, &bytes, "through a default stream and another context");
        Ok(())
    }
}

gpu_test! {
    needs 2;
    fn k02_all_peers() -> Result<()> {
        let group = all()?;
        group.disable_all_peers()?;
        let unreachable = group.enable_all_peers()?;
        assert_eq!(unreachable, group.enable_all_peers()?, "a second call has no effect");
        let (a, b) = (Device::get(0)?, Device::get(1)?);
        assert_eq!(unreachable.contains(&(a, b)), !a.can_access_peer(b)?);
        if a.can_access_peer(b)? {
            // The group enabled the access, so it can be disabled once.
            a.context()?.disable_peer_access(&b.context()?)?;
        }
        // Access that other code has disabled is no error.
        group.disable_all_peers()?;
        group.disable_all_peers()?;
        let refused = a.context()?.disable_peer_access(&b.context()?);
        assert!(refused.is_err(), "no access is left to disable");
        let sources = filled(&group, 5000)?;
        let mut next = group.alloc::<u8>(5000)?;
        group.rotate(&sources, &mut next, 1)?;
        let count = group.len();
        hold(&group, &next, |rank| bytes_of((rank + count - 1) % count, 5000), "without access")
    }
}

gpu_test! {
    needs 2;
    fn k07_groups_leave_current_alone() -> Result<()> {
        fn everything(group: &DeviceGroup) -> Result<()> {
            let before = context::current();
            let step = |what: &str| assert_eq!(context::current(), before, "after {what}");
            let count = group.len();
            let mut sources = group.alloc_zeroed::<u8>(100 * count)?;
            let mut destinations = group.alloc::<u8>(100 * count)?;
            step("alloc");
            let unreachable = group.enable_all_peers()?;
            step("enable_all_peers");
            group.upload_all(&vec![1; 100 * count], &mut sources)?;
            step("upload_all");
            group.upload_all(&pinned(group, &vec![1; 100 * count])?, &mut sources)?;
            step("upload_all");
            group.rotate(&sources, &mut destinations, 1)?;
            step("rotate");
            group.all_to_all(&sources, &mut destinations)?;
            step("all_to_all");
            group.broadcast_in_place(&mut destinations, 1)?;
            step("broadcast");
            let mut shares = group.alloc_shares::<u8>(999)?;
            group.scatter(&[1; 999], &mut shares)?;
            group.gather(&shares, &mut [0; 999])?;
            step("scatter and gather");
            group.synchronize()?;
            step("synchronize");
            assert!(group.broadcast_in_place(&mut shares, count).is_err());
            step("what is refused");
            if unreachable.is_empty() {
                group.disable_all_peers()?;
                step("disable_all_peers");
            }
            Ok(())
        }
        let group = all()?;
        everything(&group)?;
        let _guard = Device::get(1)?.enter()?;
        everything(&group)?;
        everything(&all()?)
    }
}
