//! Managed memory, which the host and devices use alternately.

use std::thread;
use std::time::Duration;

use cuda_core::nccl::{CommunicatorOptions, Ranks, Reduction};
use cuda_core::{
    Device, Error, Graph,
    managed::{ManagedAttach, ManagedBuffer},
};
use cuda_sim::Fault;
use cuda_sys::CUDA_ERROR_INVALID_VALUE;
use support::one_stream;

use super::nccl::{devices, parted};
use super::{clean, device, primary};

/// A graph with other operations does not need what a refused operation would have used.
#[test]
fn l_the_host_looks_at_managed_memory_that_a_graph_was_refused() {
    clean(|session| {
        let (context, stream) = one_stream()?;
        let mut managed = ManagedBuffer::<u32>::zeroed(&context, 64)?;
        let mut y = stream.alloc_zeroed::<u32>(64)?;
        let graph = Graph::capture(&context, |stream| {
            session.inject(Fault::new(CUDA_ERROR_INVALID_VALUE).function("cuMemsetD32Async"));
            assert!(stream.fill(&mut managed, 1).is_err());
            stream.fill(&mut y, 3)
        })?;
        graph.instantiate()?.launch(&stream)?;
        assert_eq!(managed.as_slice()?, [0; 64]);
        Ok(())
    });
}

#[test]
fn s11_host_access_waits_for_all_that_a_device_does() {
    clean(|session| {
        session.set_concurrent_managed_access(false);
        let stream = device().create_stream()?;
        let mut values = ManagedBuffer::<u32>::new(&primary(), 64)?;
        let mut unrelated = stream.alloc_zeroed::<u8>(64)?;
        stream.fill(&mut unrelated, 1)?;
        // One wait per context of the device, including contexts that other tests left.
        let waits = || session.calls("cuCtxSynchronize");
        // Another thread could enqueue work while the host reads.
        for refused in [values.as_slice().err(), values.as_mut_slice().err()] {
            assert!(matches!(refused, Some(Error::Unsupported { .. })), "{refused:?}");
        }
        assert_eq!(waits(), 0);
        // SAFETY: nothing is enqueued while the slice lives.
        unsafe { values.as_mut_slice_while_idle() }?.fill(2);
        let before = waits();
        assert!(before >= 1);
        stream.fill(&mut unrelated, 1)?;
        // SAFETY: nothing is enqueued while the slice lives.
        assert_eq!(unsafe { values.as_slice_while_idle() }?, [2; 64]);
        let settled = waits();
        assert!(settled > before);
        // The host may access memory attached to it, whatever the device does.
        // SAFETY: the device does not use the memory.
        unsafe { values.attach(&stream, ManagedAttach::Host) }?;
        stream.fill(&mut unrelated, 1)?;
        assert_eq!(values.as_slice()?, [2; 64]);
        // SAFETY: no device uses the memory.
        let mut own = unsafe { ManagedBuffer::<u32>::new_attached_to_host(&primary(), 64) }?;
        own.as_mut_slice()?.fill(3);
        assert_eq!(waits(), settled);
        // SAFETY: from here on, only this stream uses the memory.
        unsafe { values.attach(&stream, ManagedAttach::Single) }?;
        assert!(values.as_slice().is_err());
        // Streams of other devices do not use it either.
        let other = Device::get(1)?.create_stream()?;
        let refused = other.fill(&mut values, 1);
        assert!(matches!(refused, Err(Error::WrongDevice(_))), "{refused:?}");
        // Without managed memory there is nothing to wait for.
        assert_eq!(ManagedBuffer::<u32>::new(&primary(), 0)?.as_slice()?, [0u32; 0]);
        assert_eq!(waits(), settled);
        session.set_concurrent_managed_access(true);
        let values = ManagedBuffer::<u32>::new(&primary(), 64)?;
        values.as_slice()?;
        assert_eq!(waits(), settled, "beside the host");
        Ok(())
    });
}

#[test]
fn s11_managed_memory_is_waited_for() {
    clean(|_| {
        let (one, two) = (device().create_stream()?, device().create_stream()?);
        let mut values = ManagedBuffer::<u32>::new(&primary(), 64)?;
        for round in 0..3 {
            one.fill(&mut values, round)?;
            two.fill(values.slice_mut(..32)?, round + 10)?;
            let seen = values.as_slice()?;
            assert_eq!((seen[0], seen[63]), (round + 10, round));
        }
        one.fill(&mut values, 9)?;
        values.as_mut_slice()?[0] = 1;
        assert_eq!(values.as_slice()?[..2], [1, 9]);
        two.fill(&mut values, 3)?;
        drop((one, two));
        Ok(())
    });
}

/// NCCL may write the memory after the event that an access waits for.
#[test]
fn k_nccl_the_host_does_not_access_what_an_aborted_call_may_use() {
    clean(|_| {
        let (contexts, streams) = devices()?;
        let options = CommunicatorOptions::new().blocking(false).limit(Duration::from_millis(200));
        let ranks = Ranks::init_all_with(&contexts, &options)?;
        let mut sums = vec![streams[0].alloc_zeroed::<u32>(9)?, streams[1].alloc_zeroed(9)?];
        let graph = Graph::capture([&contexts[0], &contexts[1]], |captured| {
            ranks.on(captured)?.all_reduce_in_place(&mut sums, Reduction::Sum)
        })?;
        let mut memory = ManagedBuffer::<u32>::zeroed(&contexts[1], 9)?;
        let pair = parted(ranks);
        pair[0].abort()?;
        // The abort of the last rank continues while the graph exists.
        pair[1].on(&streams[1])?.receive(&mut memory, 0).expect_err("no rank sends it");
        let refused = memory.as_slice().expect_err("NCCL may write it");
        assert!(matches!(refused, Error::NotCapturable { op: "as_slice", .. }), "{refused:?}");
        drop(graph);
        while memory.as_slice().is_err() {
            thread::yield_now();
        }
        Ok(())
    });
}
