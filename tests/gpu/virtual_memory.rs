//! E: device memory that grows and shrinks in place.

use std::time::Duration;

use cuda_core::{
    Device, DeviceSlice, Error, PeerAccess, Result, Stream,
    interop::ShareableHandle,
    virtual_memory::{Granularity, PhysicalMemory, VirtualBuffer},
};
use support::{block_on, gpu_test, kernels, pattern, refusal, report, stall};

use crate::forms::{Down, Up, same};

/// How long a stream is stalled if the test itself waits for it.
const PAUSE: Duration = Duration::from_millis(50);

fn setup() -> Result<(Device, Stream, usize)> {
    let device = Device::get(0)?;
    let step = device.virtual_memory_granularity(Granularity::Minimum)?;
    Ok((device, device.create_stream()?, step))
}

fn reserve(device: Device, max_len: usize) -> Result<VirtualBuffer<u8>> {
    VirtualBuffer::new(&device.context()?, max_len)
}

fn fetch(stream: &Stream, view: DeviceSlice<'_, u8>) -> Result<Vec<u8>> {
    Down::Borrowed.fetch(stream, view)
}

gpu_test! {
    needs 1;
    fn e13_growing_keeps_address_and_prefix() -> Result<()> {
        let (device, stream, step) = setup()?;
        let mut buffer = reserve(device, 8 * step)?;
        let address = buffer.as_raw();
        assert_eq!((buffer.len(), buffer.capacity()), (0, 0));
        buffer.grow_to(100)?;
        assert_eq!((buffer.len(), buffer.capacity()), (100, step));
        let bytes = pattern(1, 100);
        stream.upload(&bytes, &mut buffer)?;
        // Grows within the chunk, then beyond it.
        buffer.grow_to(step)?;
        buffer.grow_to(step + 100)?;
        assert_eq!((buffer.as_raw(), buffer.capacity()), (address, 2 * step));
        assert_eq!(buffer.max_len(), 8 * step);
        same(&fetch(&stream, buffer.slice(..100)?)?, &bytes, "the prefix");
        // A copy that crosses from one chunk into the next.
        let bytes = pattern(2, 200);
        stream.upload(&bytes, buffer.slice_mut(step - 100..)?)?;
        let (head, tail) = (buffer.slice(step - 100..step)?, buffer.slice(step..)?);
        same(&fetch(&stream, head)?, &bytes[..100], "before the border");
        same(&fetch(&stream, tail)?, &bytes[100..], "behind the border");
        buffer.grow_to(10)?;
        assert_eq!(buffer.len(), step + 100, "growing does not shrink");
        Ok(buffer.close()?)
    }
}

gpu_test! {
    needs 1;
    fn e13_shrinking_keeps_address_and_prefix() -> Result<()> {
        let (device, stream, step) = setup()?;
        let mut buffer = reserve(device, 4 * step)?;
        buffer.grow_to(step)?;
        buffer.grow_to(2 * step)?;
        let (address, bytes) = (buffer.as_raw(), pattern(3, 64));
        stream.upload(&bytes, buffer.slice_mut(..64)?)?;
        stream.fill(buffer.slice_mut(step..step + 64)?, 9)?;
        // A chunk of which only half is needed stays mapped as a whole.
        buffer.shrink_to(step + 1)?;
        assert_eq!((buffer.len(), buffer.capacity()), (step + 1, 2 * step));
        buffer.shrink_to(64)?;
        assert_eq!((buffer.len(), buffer.capacity()), (64, step));
        assert_eq!(buffer.as_raw(), address);
        buffer.shrink_to(1000)?;
        assert_eq!(buffer.len(), 64, "shrinking does not grow");
        same(&fetch(&stream, buffer.as_view())?, &bytes, "the prefix");
        buffer.grow_to(3 * step)?;
        same(&fetch(&stream, buffer.slice(..64)?)?, &bytes, "the prefix");
        buffer.shrink_to(0)?;
        assert_eq!((buffer.len(), buffer.capacity()), (0, 0));
        buffer.grow_to(1)?;
        stream.fill(&mut buffer, 5)?;
        same(&fetch(&stream, buffer.as_view())?, &[5], "after nothing");
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn every_form_of_copy_and_fill() -> Result<()> {
        let (device, stream, step) = setup()?;
        let other = device.create_stream()?;
        let mut buffer = reserve(device, step)?;
        buffer.grow_to(1021)?;
        let mut plain = stream.alloc::<u8>(1021)?;
        for up in Up::ALL {
            for (seed, down) in Down::ALL.into_iter().enumerate() {
                let bytes = pattern(seed as u64, 1021);
                up.send(&stream, &bytes, buffer.as_view_mut())?;
                other.copy(&buffer, &mut plain)?;
                stream.fill(&mut buffer, 7)?;
                other.copy(&plain, &mut buffer)?;
                let back = down.fetch(&stream, buffer.as_view())?;
                same(&back, &bytes, &format!("up {up:?}, down {down:?}"));
            }
        }
        let (mut low, mut high) = buffer.as_view_mut().split_at_mut(1000)?;
        stream.fill(&mut low, 1)?;
        other.fill(&mut high, 2)?;
        let expected = [vec![1; 1000], vec![2; 21]].concat();
        same(&fetch(&stream, buffer.as_view())?, &expected, "two halves");
        buffer.synchronize()
    }
}

gpu_test! {
    needs 1;
    fn e02_elements_of_other_sizes() -> Result<()> {
        let (device, stream, step) = setup()?;
        let mut buffer = VirtualBuffer::<[f32; 3]>::new(&device.context()?, step)?;
        buffer.grow_to(5)?;
        assert_eq!(buffer.capacity(), step / 12);
        let points = [[1.0, 2.0, 3.0]; 5];
        stream.upload(&points, &mut buffer)?;
        let mut back = [[0.0; 3]; 5];
        stream.download(&buffer, &mut back)?;
        assert_eq!(back, points);
        let floats = buffer.as_view().cast::<f32>()?;
        assert_eq!(floats.len(), 15);
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn j14_nothing_reserved_nothing_mapped() -> Result<()> {
        let (device, stream, _) = setup()?;
        let mut buffer = reserve(device, 0)?;
        buffer.grow_to(0)?;
        buffer.shrink_to(0)?;
        stream.fill(&mut buffer, 1)?;
        stream.upload(&[], &mut buffer)?;
        assert!(buffer.is_empty() && buffer.as_raw() != 0);
        assert_eq!(refusal(buffer.grow_to(1)), "addresses are reserved for 0 elements, not for 1");
        buffer.close()?;
        // Addresses without memory can be dropped.
        drop(reserve(device, 1)?);
        let memory = PhysicalMemory::new(&device.context()?, 0, ShareableHandle::None)?;
        assert_eq!(memory.size(), 0);
        let mut buffer = reserve(device, 1)?;
        buffer.append(memory)?;
        assert!(buffer.is_empty());
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn e03_too_much() -> Result<()> {
        let (device, stream, step) = setup()?;
        let context = device.context()?;
        let overflow = VirtualBuffer::<u64>::new(&context, usize::MAX / 4);
        assert!(matches!(overflow, Err(Error::SizeOverflow { .. })));
        assert!(reserve(device, isize::MAX as usize).is_err());
        let mut buffer = reserve(device, 1 << 40)?;
        buffer.grow_to(10)?;
        let refused = buffer.grow_to((1 << 40) + 1);
        assert!(refusal(refused).starts_with("addresses are reserved for 1099511627776 elements, "));
        // The request exceeds the device's memory.
        let refused = buffer.grow_to(1 << 40);
        assert!(matches!(refused, Err(Error::OutOfMemory(_))), "{refused:?}");
        assert_eq!((buffer.len(), buffer.capacity()), (10, step));
        stream.fill(&mut buffer, 3)?;
        same(&fetch(&stream, buffer.as_view())?, &[3; 10], "afterwards");
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn physical_memory_of_the_callers_own() -> Result<()> {
        let (device, stream, step) = setup()?;
        let context = device.context()?;
        let mut buffer = reserve(device, 3 * step)?;
        buffer.grow_to(10)?;
        let memory = PhysicalMemory::new(&context, step + 1, ShareableHandle::None)?;
        assert_eq!((memory.size(), memory.device()), (2 * step, device));
        assert_eq!(memory.shareable()?, ShareableHandle::None);
        buffer.append(memory)?;
        assert_eq!((buffer.len(), buffer.capacity()), (3 * step, 3 * step));
        stream.fill(buffer.slice_mut(3 * step - 9..)?, 6)?;
        same(&fetch(&stream, buffer.slice(3 * step - 9..)?)?, &[6; 9], "the end");
        let more = PhysicalMemory::new(&context, 1, ShareableHandle::None)?;
        assert!(matches!(buffer.append(more), Err(Error::OutOfBounds(_))));
        let unused = PhysicalMemory::new(&context, 1, ShareableHandle::None)?;
        Ok(unused.close()?)
    }
}

// A file descriptor needs an operating system.
#[cfg(all(unix, not(miri)))]
gpu_test! {
    needs 1;
    fn physical_memory_in_two_places() -> Result<()> {
        use std::os::fd::AsFd;

        let (device, stream, step) = setup()?;
        let context = device.context()?;
        let memory = PhysicalMemory::new(&context, 1, ShareableHandle::PosixFd)?;
        assert_eq!(memory.shareable()?, ShareableHandle::PosixFd);
        let fd = memory.export_fd()?;
        // SAFETY: the descriptor is of this memory, so of this size and device; the stream orders the work of
        // both.
        let again = unsafe { PhysicalMemory::import_fd(&context, fd.as_fd(), step) }?;
        drop(fd);
        let (mut one, mut two) = (reserve(device, step)?, reserve(device, step)?);
        one.append(memory)?;
        two.append(again)?;
        stream.fill(one.slice_mut(..50)?, 8)?;
        same(&fetch(&stream, two.slice(..50)?)?, &[8; 50], "the other place");
        drop(one);
        stream.fill(two.slice_mut(..50)?, 9)?;
        same(&fetch(&stream, two.slice(..50)?)?, &[9; 50], "the last place");
        let private = PhysicalMemory::new(&context, 1, ShareableHandle::None)?;
        assert!(private.export_fd().is_err());
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn halves_and_when_they_are_ready() -> Result<()> {
        let (device, one, step) = setup()?;
        let two = device.create_stream()?;
        let mut buffer = reserve(device, 2 * step)?;
        buffer.grow_to(2 * step)?;
        let (low, high) = buffer.split_at_mut(step)?;
        one.fill(low, 1)?;
        two.fill(high, 2)?;
        block_on(buffer.ready())?;
        assert_eq!(one.download_vec(buffer.slice(step - 1..=step)?)?, [1, 2]);
        block_on(buffer.ready_mut())?;
        assert!(buffer.split_at_mut(2 * step + 1).is_err());
        Ok(())
    }
}

gpu_test! {
    needs 1, asynchronous;
    fn s42_shrinking_waits() -> Result<()> {
        let (device, stream, step) = setup()?;
        let mut buffer = reserve(device, 2 * step)?;
        buffer.grow_to(step)?;
        buffer.grow_to(2 * step)?;
        stream.fill(&mut buffer, 1)?;
        stream.checkpoint()?;
        buffer.synchronize()?;
        let stalled = stall(stream.as_raw());
        stream.fill(buffer.slice_mut(step..)?, 2)?;
        stalled.release_after(PAUSE);
        buffer.shrink_to(10)?;
        assert!(stream.query()?, "the shrinking has waited");
        same(&fetch(&stream, buffer.as_view())?, &[1; 10], "what stayed");
        Ok(())
    }
}

gpu_test! {
    needs 1, asynchronous;
    fn s02_dropped_before_its_work() -> Result<()> {
        let (device, stream, step) = setup()?;
        let mut buffer = reserve(device, step)?;
        buffer.grow_to(1000)?;
        stream.fill(&mut buffer, 1)?;
        stream.checkpoint()?;
        buffer.synchronize()?;
        let stalled = stall(stream.as_raw());
        stream.fill(&mut buffer, 2)?;
        stalled.release_after(PAUSE);
        drop(buffer);
        assert!(stream.query()?, "the drop has waited");
        Ok(())
    }
}

gpu_test! {
    needs 2;
    fn a38_made_and_dropped_with_another_device_current() -> Result<()> {
        let (device, stream, step) = setup()?;
        let _guard = Device::get(1)?.enter()?;
        let mut buffer = reserve(device, 2 * step)?;
        buffer.grow_to(10)?;
        assert_eq!(buffer.device(), device);
        stream.fill(&mut buffer, 4)?;
        same(&fetch(&stream, buffer.as_view())?, &[4; 10], "from elsewhere");
        buffer.grow_to(step + 1)?;
        buffer.shrink_to(1)?;
        std::thread::scope(|scope| scope.spawn(|| drop(buffer)).join()).expect("drops");
        Ok(())
    }
}

gpu_test! {
    needs 2;
    fn k04_copies_between_devices() -> Result<()> {
        let (here, stream, step) = setup()?;
        let there = Device::get(1)?;
        let mut near = reserve(here, step)?;
        let mut far = reserve(there, step)?;
        near.grow_to(5000)?;
        far.grow_to(5000)?;
        let bytes = pattern(5, 5000);
        stream.upload(&bytes, &mut near)?;
        stream.copy(&near, &mut far)?;
        stream.fill(&mut near, 0)?;
        there.create_stream()?.copy(&far, &mut near)?;
        same(&fetch(&stream, near.as_view())?, &bytes, "there and back");
        Ok(())
    }
}

gpu_test! {
    needs 2;
    fn k06_access_of_a_peer() -> Result<()> {
        let (here, stream, step) = setup()?;
        let peer = Device::get(1)?;
        if !peer.can_access_peer(here)? {
            let refused = reserve(here, step)?.set_access(peer, PeerAccess::ReadWrite);
            assert!(matches!(refused, Err(Error::Unsupported { .. })));
            report!("no access from device 1 to 0: only the refusal was tried");
            return Ok(());
        }
        let mut buffer = reserve(here, 3 * step)?;
        // Access is set before there is memory, for memory mapped later.
        buffer.set_access(peer, PeerAccess::ReadWrite)?;
        assert_eq!(buffer.access(peer)?, PeerAccess::None, "nothing is mapped");
        buffer.grow_to(step)?;
        buffer.grow_to(2 * step)?;
        assert_eq!(buffer.access(here)?, PeerAccess::ReadWrite);
        assert_eq!(buffer.access(peer)?, PeerAccess::ReadWrite);
        let remote = peer.create_stream()?;
        let bytes = pattern(6, 300);
        stream.upload(&bytes, buffer.slice_mut(step - 100..step + 200)?)?;
        let mut copy = remote.alloc::<u8>(300)?;
        remote.copy(buffer.slice(step - 100..step + 200)?, &mut copy)?;
        same(&fetch(&remote, copy.as_view())?, &bytes, "at the peer");
        // A kernel that would write memory which its device may only read is refused; one that only reads is
        // not.
        buffer.set_access(peer, PeerAccess::Read)?;
        let copy_words = kernels::get(remote.context(), "copy_words")?;
        let mut words = remote.alloc_zeroed::<u32>(4)?;
        let mut far = buffer.slice_mut(..16)?.cast::<u32>()?;
        // SAFETY: four elements of each.
        let read = unsafe { remote.kernel(&copy_words).elements(4).arg(&mut words).arg(&far).arg(4u32).launch() };
        read?;
        // SAFETY: as above.
        let written = unsafe { remote.kernel(&copy_words).elements(4).arg(&mut far).arg(&words).arg(4u32).launch() };
        assert!(matches!(written, Err(Error::WrongDevice(_))), "{written:?}");
        remote.synchronize()?;
        buffer.set_access(peer, PeerAccess::None)?;
        assert_eq!(buffer.access(peer)?, PeerAccess::None);
        buffer.grow_to(3 * step)?;
        assert_eq!(buffer.access(peer)?, PeerAccess::None);
        let own = buffer.set_access(here, PeerAccess::Read);
        assert!(matches!(own, Err(Error::Invalid(_))));
        Ok(())
    }
}

gpu_test! {
    needs 2, asynchronous;
    fn s42_revoking_waits() -> Result<()> {
        let (here, stream, step) = setup()?;
        let peer = Device::get(1)?;
        let mut buffer = reserve(here, step)?;
        buffer.grow_to(100)?;
        if peer.can_access_peer(here)? {
            buffer.set_access(peer, PeerAccess::ReadWrite)?;
        }
        stream.fill(&mut buffer, 1)?;
        stream.checkpoint()?;
        buffer.synchronize()?;
        let stalled = stall(stream.as_raw());
        stream.fill(&mut buffer, 2)?;
        stalled.release_after(PAUSE);
        buffer.set_access(peer, PeerAccess::None)?;
        assert!(stream.query()?, "taking access away has waited");
        Ok(())
    }
}
