//! S42: memory that is unmapped or closed while work is queued.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use cuda_core::{
    Access, Device, PeerAccess, Result,
    virtual_memory::{Granularity, VirtualBuffer},
};
use cuda_sim::{Fault, LeakKind};
use support::{DropReports, judge};

use super::{clean, device, primary};

fn buffer(chunks: usize) -> Result<(VirtualBuffer<u8>, usize)> {
    let step = device().virtual_memory_granularity(Granularity::Minimum)?;
    let mut buffer = VirtualBuffer::new(&primary(), 4 * step)?;
    for chunk in 1..=chunks {
        buffer.grow_to(chunk * step)?;
    }
    Ok((buffer, step))
}

#[test]
fn s42_shrinking_waits_for_the_tail_alone() {
    clean(|session| {
        let (mut buffer, step) = buffer(3)?;
        let (head, tail) = (device().create_stream()?, device().create_stream()?);
        head.fill(buffer.slice_mut(..10)?, 1)?;
        tail.fill(buffer.slice_mut(step..step + 10)?, 2)?;
        buffer.shrink_to(2 * step)?;
        assert_eq!(session.pending_ops(), 2, "neither touches the last chunk");
        buffer.shrink_to(10)?;
        assert!(!head.query()?, "the first chunk stays");
        assert!(tail.query()?, "the second one is gone");
        Ok(())
    });
}

#[test]
fn s42_growing_waits_for_nothing() {
    clean(|session| {
        let (mut buffer, step) = buffer(1)?;
        let stream = device().create_stream()?;
        stream.fill(&mut buffer, 1)?;
        buffer.grow_to(2 * step)?;
        buffer.set_access(Device::get(1)?, PeerAccess::ReadWrite)?;
        assert_eq!(session.pending_ops(), 1);
        Ok(())
    });
}

#[test]
fn s42_revoking_waits_for_everything() {
    clean(|session| {
        let (mut buffer, _) = buffer(1)?;
        let peer = Device::get(1)?;
        buffer.set_access(peer, PeerAccess::ReadWrite)?;
        let stream = device().create_stream()?;
        stream.fill(&mut buffer, 1)?;
        buffer.set_access(peer, PeerAccess::None)?;
        assert_eq!(session.pending_ops(), 0);
        Ok(())
    });
}

/// The driver's answer may come late: it may wait for a host function, and that may ask for the capacity.
#[test]
fn s31_the_capacity_is_known_while_the_driver_is_asked_for_access() {
    clean(|session| {
        let (buffer, step) = buffer(1)?;
        let (buffer, held, (sender, receiver)) =
            (&buffer, session.hold("cuMemGetAccess"), mpsc::channel());
        let (capacity, access) = thread::scope(|scope| {
            let asking = scope.spawn(|| buffer.access(device()));
            held.await_call();
            scope.spawn(move || sender.send(buffer.capacity()));
            let capacity = receiver.recv_timeout(Duration::from_secs(10));
            drop(held);
            (capacity, asking.join().expect("no panic"))
        });
        assert_eq!((capacity, access?), (Ok(step), PeerAccess::ReadWrite));
        Ok(())
    });
}

#[test]
fn s02_dropping_waits_for_everything() {
    clean(|session| {
        let (mut buffer, step) = buffer(2)?;
        let stream = device().create_stream()?;
        stream.fill(buffer.slice_mut(step..)?, 1)?;
        drop(buffer);
        assert_eq!(session.pending_ops(), 0);
        Ok(())
    });
}

/// Newly mapped memory is different memory, though at the same address.
#[test]
fn s29_a_chunk_that_comes_back_does_not_wait() {
    clean(|session| {
        let (mut buffer, step) = buffer(2)?;
        let (one, two) = (device().create_stream()?, device().create_stream()?);
        one.fill(buffer.slice_mut(step..)?, 1)?;
        buffer.shrink_to(step)?;
        buffer.grow_to(2 * step)?;
        let mark = session.mark();
        two.fill(buffer.slice_mut(step..)?, 2)?;
        assert_eq!(session.names_since(mark), ["cuMemsetD8Async"]);
        Ok(())
    });
}

/// Memory that could not be made accessible is released at once, not with the buffer.
#[test]
fn growing_in_vain_keeps_nothing() {
    clean(|session| {
        let (mut buffer, step) = buffer(1)?;
        let held = session.leaks().len();
        session.inject(Fault::new(cuda_sys::CUDA_ERROR_UNKNOWN).function("cuMemSetAccess"));
        assert!(buffer.grow_to(2 * step).is_err());
        assert_eq!(session.leaks().len(), held);
        assert_eq!((buffer.len(), buffer.capacity()), (step, step));
        buffer.grow_to(2 * step)
    });
}

#[test]
fn s42_unmapping_waits_for_what_was_noted_by_hand() {
    clean(|session| {
        let (mut buffer, _) = buffer(1)?;
        let (one, two) = (device().create_stream()?, device().create_stream()?);
        one.fill(&mut buffer, 1)?;
        let mark = session.mark();
        // SAFETY: only the fill uses the memory between the two calls.
        unsafe { buffer.note_use(&two, Access::Write) }?;
        assert!(session.names_since(mark).contains(&"cuStreamWaitEvent"));
        // SAFETY: the memory is kept until the fill, which the buffer has noted, is complete.
        let filled = unsafe { cuda_sys::cuMemsetD8Async(buffer.as_raw(), 7, 10, two.as_raw()) };
        assert_eq!(filled, cuda_sys::CUDA_SUCCESS);
        // SAFETY: only the fill has used the memory since the first call.
        unsafe { buffer.note_use(&two, Access::Write) }?;
        assert!(session.pending_ops() > 0);
        drop(buffer);
        assert_eq!(session.pending_ops(), 0);
        Ok(())
    });
}

/// "May also return error codes from previous launches": the library cannot know whether the memory was
/// unmapped.
#[test]
fn s42_what_was_unmapped_with_an_error_is_no_obstacle() {
    clean(|session| {
        let (mut buffer, step) = buffer(3)?;
        let unmap = Fault::new(cuda_sys::CUDA_ERROR_LAUNCH_FAILED).function("cuMemUnmap");
        session.inject(unmap.clone().takes_effect());
        assert!(buffer.shrink_to(step).is_err());
        assert_eq!(buffer.capacity(), 2 * step);
        buffer.grow_to(3 * step)?;
        let stream = device().create_stream()?;
        stream.fill(&mut buffer, 3)?;
        // The same for a chunk that was not unmapped.
        session.inject(unmap);
        assert!(buffer.shrink_to(step).is_err());
        buffer.grow_to(3 * step)?;
        stream.fill(&mut buffer, 4)
    });
}

/// The same for an error of the mapping call.
#[test]
fn s42_what_was_mapped_with_an_error_is_no_obstacle() {
    clean(|session| {
        let (mut buffer, step) = buffer(1)?;
        let free = device().memory_info()?.free;
        let map = Fault::new(cuda_sys::CUDA_ERROR_LAUNCH_FAILED).function("cuMemMap");
        for map in [map.clone().takes_effect(), map] {
            session.inject(map);
            assert!(buffer.grow_to(2 * step).is_err());
            assert_eq!(buffer.capacity(), step);
            assert_eq!(device().memory_info()?.free, free, "it was given back at once");
        }
        buffer.grow_to(2 * step)?;
        device().create_stream()?.fill(&mut buffer, 3)
    });
}

/// An unmapping of memory that is known to be mapped fails as often as the driver refuses it.
#[test]
fn s42_an_unmapping_that_is_refused_is_tried_again() {
    clean(|session| {
        let (mut buffer, step) = buffer(2)?;
        let refused = Fault::new(cuda_sys::CUDA_ERROR_INVALID_VALUE).function("cuMemUnmap");
        for _ in 0..2 {
            session.inject(refused.clone());
            assert!(buffer.shrink_to(step).is_err());
            session.clear_faults();
        }
        buffer.grow_to(2 * step)
    });
}

#[test]
fn s42_a_chunk_that_cannot_be_unmapped_keeps_no_other() {
    let session = support::simulator();
    let drops = DropReports::listen();
    let free = || device().memory_info().expect("no fault").free;
    let before = free();
    let (buffer, step) = buffer(3).expect("no fault yet");
    assert_eq!(free(), before - 3 * step);
    let unmap = Fault::new(cuda_sys::CUDA_ERROR_UNKNOWN).function("cuMemUnmap");
    session.inject(unmap.nth(2));
    let unmapped = session.calls("cuMemUnmap");
    drop(buffer);
    assert_eq!(session.calls("cuMemUnmap"), unmapped + 3);
    assert_eq!(free(), before - step, "the second one's memory");
    assert_eq!(drops.end().counted, 1);
    let leaks = session.leaks();
    let kinds: Vec<_> = leaks.iter().map(|leak| leak.kind).collect();
    assert_eq!(kinds, [LeakKind::Addresses]);
    judge::take_away(&session, leaks);
}
