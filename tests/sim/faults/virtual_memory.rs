//! Memory that is reserved, mapped and shared, with a failure at each step.

use cuda_core::{
    Device, Error, PeerAccess, Rejected, Result,
    interop::ShareableHandle,
    virtual_memory::{Granularity, PhysicalMemory, VirtualBuffer},
};

use super::harness::{again, first, sweep};

fn step(device: Device) -> Result<usize> {
    device.virtual_memory_granularity(Granularity::Minimum)
}

#[test]
fn growing_and_shrinking() {
    sweep(|| {
        let (device, context) = first()?;
        let step = step(device)?;
        let stream = context.create_stream()?;
        let mut buffer = VirtualBuffer::<u8>::new(&context, 4 * step)?;
        buffer.grow_to(3)?;
        stream.upload(&[1, 2, 3], &mut buffer)?;
        buffer.grow_to(step + 1)?;
        stream.fill(buffer.slice_mut(step..)?, 4)?;
        buffer.shrink_to(3)?;
        let mut back = [0; 3];
        stream.download(&buffer, &mut back)?;
        assert_eq!(back, [1, 2, 3]);
        Ok(buffer.close()?)
    });
}

/// A failure leaves the buffer unchanged, or shorter, and a second try works.
#[test]
fn each_step_again() {
    sweep(|| {
        let (device, context) = again(first)?;
        let step = again(|| step(device))?;
        let stream = again(|| context.create_stream())?;
        let mut buffer = again(|| VirtualBuffer::<u8>::new(&context, 3 * step))?;
        let grow = |buffer: &mut VirtualBuffer<u8>, len| {
            let before = (buffer.len(), buffer.capacity());
            if buffer.grow_to(len).is_ok() {
                return Ok(());
            }
            assert_eq!((buffer.len(), buffer.capacity()), before);
            buffer.grow_to(len)
        };
        grow(&mut buffer, 3)?;
        again(|| stream.upload(&[1, 2, 3], &mut buffer))?;
        grow(&mut buffer, step + 1)?;
        again(|| stream.fill(buffer.slice_mut(step..)?, 4))?;
        again(|| buffer.shrink_to(3))?;
        assert_eq!((buffer.len(), buffer.capacity()), (3, step));
        grow(&mut buffer, 2 * step)?;
        let mut back = [0; 3];
        again(|| stream.download(buffer.slice(..3)?, &mut back))?;
        assert_eq!(back, [1, 2, 3]);
        match buffer.close() {
            Ok(()) => Ok(()),
            Err(Rejected { value: buffer, .. }) => buffer.close().map_err(Error::from),
        }
    });
}

#[test]
fn memory_of_the_callers_own() {
    sweep(|| {
        let (device, context) = first()?;
        let step = step(device)?;
        let mut buffer = VirtualBuffer::<u8>::new(&context, 4 * step)?;
        let memory = PhysicalMemory::new(&context, 1, ShareableHandle::PosixFd)?;
        memory.shareable()?;
        buffer.append(memory)?;
        let unused = PhysicalMemory::new(&context, 1, ShareableHandle::None)?;
        Ok(unused.close()?)
    });
}

/// Imports the memory as external memory.
#[test]
#[cfg(all(unix, not(miri)))]
fn memory_of_another_interface() {
    use cuda_core::interop::{
        ExternalMemory, ExternalMemoryKind, ExternalSemaphore, ExternalSemaphoreKind,
    };

    sweep(|| {
        let (device, context) = first()?;
        let step = step(device)?;
        let memory = PhysicalMemory::new(&context, step, ShareableHandle::PosixFd)?;
        let (fd, kind) = (memory.export_fd()?, ExternalMemoryKind::Allocation);
        // SAFETY: the descriptor is of this size and device, and no other code uses the memory.
        let imported = unsafe { ExternalMemory::import_fd(&context, fd, step, kind) };
        let imported = imported?;
        let mapped = imported.into_buffer::<u32>(0, 100);
        let mut buffer = mapped?;
        let fd = std::fs::File::open("/dev/null").expect("a file").into();
        // SAFETY: the simulated driver accepts any descriptor as a semaphore; each wait has its signal.
        let imported =
            unsafe { ExternalSemaphore::import_fd(&context, fd, ExternalSemaphoreKind::Binary) };
        let semaphore = imported?;
        let stream = context.create_stream()?;
        stream.fill(&mut buffer, 1)?;
        stream.signal_external(&semaphore, 0)?;
        stream.wait_external(&semaphore, 0)?;
        match buffer.close() {
            Ok(()) => Ok(()),
            Err(Rejected { value: buffer, .. }) => buffer.close().map_err(Error::from),
        }
    });
}

#[test]
fn access_of_a_peer() {
    sweep(|| {
        let (device, context) = first()?;
        let (step, peer) = (step(device)?, Device::get(1)?);
        let stream = context.create_stream()?;
        let mut buffer = VirtualBuffer::<u8>::new(&context, 4 * step)?;
        buffer.set_access(peer, PeerAccess::ReadWrite)?;
        buffer.grow_to(1)?;
        stream.fill(&mut buffer, 1)?;
        if buffer.set_access(peer, PeerAccess::None).is_err() {
            assert_eq!(buffer.access(peer)?, PeerAccess::ReadWrite);
        }
        drop(buffer);
        Ok(())
    });
}
