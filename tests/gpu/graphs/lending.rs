//! Host-visible memory in graphs, lent to launches.

use std::sync::Arc;
use std::task::Poll;

use cuda_core::managed::ManagedBuffer;
use cuda_core::pinned::RegisterFlags;
use cuda_core::{
    Condition, DeviceAttribute, Graph, PinnedBuffer, Registered, Result, drops, is_pinned, sys,
};
use support::{Alarm, gpu_test, one_stream, refusal, stall};

use super::not_captured;

gpu_test! {
    needs 1;
    fn s50_pinned_memory_is_lent_at_each_launch() -> Result<()> {
        let (context, stream) = one_stream()?;
        let mut input = PinnedBuffer::<u32>::new(&context, 100)?;
        let mut output = PinnedBuffer::<u32>::new(&context, 100)?;
        let mut x = stream.alloc::<u32>(100)?;
        let graph = Graph::capture(&context, |stream| {
            stream.upload(&input, &mut x)?;
            stream.download(&x, &mut output)
        })?;
        let mut exec = graph.instantiate()?;
        assert!(refusal(exec.launch(&stream)).contains("`lend`"));
        assert!(refusal(exec.lend(&input).launch(&stream)).contains("`lend_mut`"));
        assert!(refusal(exec.lend(&input).lend(&output).launch(&stream)).contains("`lend_mut`"));
        let part = refusal(exec.lend(&input).lend_mut(output.slice_mut(..50)?).launch(&stream));
        assert!(part.contains("0..400"), "{part}");
        for step in 0..5 {
            input.as_mut_slice()?.fill(step);
            exec.lend(&input).lend_mut(&mut output).launch(&stream)?;
            assert_eq!(output.as_slice()?, [step; 100]);
        }
        Ok(())
    }
}

gpu_test! {
    needs 1, asynchronous;
    fn s50_the_host_waits_for_a_launch() -> Result<()> {
        let (context, stream) = one_stream()?;
        let mut output = PinnedBuffer::<u32>::new(&context, 100)?;
        output.as_mut_slice()?.fill(0);
        let mut x = stream.alloc::<u32>(100)?;
        let graph = Graph::capture(&context, |stream| {
            stream.fill(&mut x, 9)?;
            stream.download(&x, &mut output)
        })?;
        let mut exec = graph.instantiate()?;
        let stalled = stall(stream.as_raw());
        exec.lend_mut(&mut output).launch(&stream)?;
        assert!(output.try_as_slice()?.is_none(), "the launch is pending");
        drop(exec);
        assert!(output.try_as_slice()?.is_none(), "the launch is pending");
        stalled.release();
        assert_eq!(output.as_slice()?, [9; 100]);
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn l_the_host_waits_for_no_capture() -> Result<()> {
        let (context, stream) = one_stream()?;
        let mut input = PinnedBuffer::from_slice(&context, &[1u32; 100])?;
        let mut output = PinnedBuffer::from_slice(&context, &[0u32; 100])?;
        let mut x = stream.alloc::<u32>(100)?;
        let graph = Graph::capture(&context, |stream| {
            stream.upload(&input, &mut x)?;
            stream.download(x.slice(..50)?, output.slice_mut(..50)?)?;
            not_captured(input.as_mut_slice(), "as_mut_slice");
            not_captured(output.as_mut_slice(), "as_mut_slice");
            not_captured(output.as_slice(), "as_slice");
            not_captured(output.slice(49..)?.as_slice(), "as_slice");
            not_captured(output.try_as_slice(), "try_as_slice");
            let Poll::Ready(ready) = Alarm::new().poll(&mut output.ready()) else { panic!("it waits") };
            not_captured(ready, "ready");
            // Memory that it only reads can be read, and other bytes can be changed.
            assert_eq!(input.as_slice()?, [1; 100]);
            output.slice_mut(50..)?.as_mut_slice()?.fill(7);
            stream.fill(x.slice_mut(..25)?, 2)?;
            stream.download(x.slice(..25)?, output.slice_mut(..25)?)
        })?;
        assert_eq!((graph.node_count()?, graph.edge_count()?), (4, 3));
        assert_eq!(output.as_slice()?, [[0; 50], [7; 50]].concat());
        input.as_mut_slice()?.fill(3);
        let mut exec = graph.instantiate()?;
        exec.lend(&input).lend_mut(&mut output).launch(&stream)?;
        let expected = [vec![2; 25], vec![3; 25], vec![7; 50]].concat();
        assert_eq!(output.as_slice()?, expected);
        // A later capture, with an executable's memory, that fails.
        let failed = Graph::capture(&context, |stream| {
            stream.download(&x, &mut output)?;
            not_captured(output.as_slice(), "as_slice");
            stream.synchronize()
        });
        not_captured(failed, "cuStreamSynchronize");
        assert_eq!(output.as_slice()?, expected);
        Ok(())
    }
}

gpu_test! {
    needs 1, cuda_12_8;
    fn l_the_host_waits_for_no_body_of_a_condition() -> Result<()> {
        let (context, stream) = one_stream()?;
        let (x, mut y) = (stream.alloc_zeroed::<u32>(100)?, stream.alloc::<u32>(100)?);
        let mut output = PinnedBuffer::from_slice(&context, &[1u32; 100])?;
        let graph = Graph::capture(&context, |stream| {
            let once = Condition::new(stream, 1)?;
            once.if_else(stream, |is_set, body| {
                match is_set {
                    true => body.download(&x, &mut output)?,
                    false => body.fill(&mut y, 1)?,
                }
                // Refused even once that body is complete, since the capture is not.
                not_captured(output.as_slice(), "as_slice");
                Ok(())
            })?;
            not_captured(output.as_slice(), "as_slice");
            Ok(())
        })?;
        assert_eq!(output.as_slice()?, [1; 100]);
        graph.instantiate()?.lend_mut(&mut output).launch(&stream)?;
        assert_eq!(output.as_slice()?, [0; 100]);
        Ok(())
    }
}

gpu_test! {
    needs 1, asynchronous;
    fn s50_registered_memory_is_lent_at_each_launch() -> Result<()> {
        let (context, stream) = one_stream()?;
        let source: Arc<[u32]> = vec![3; 10_000].into();
        let input = Registered::new(&context, source.clone(), RegisterFlags::NONE)?;
        let mut output = Registered::new(&context, vec![0u32; 10_000], RegisterFlags::NONE)?;
        let mut x = stream.alloc::<u32>(10_000)?;
        let graph = Graph::capture(&context, |stream| {
            stream.upload(&input, &mut x)?;
            stream.download(&x, &mut output)?;
            not_captured(output.as_slice(), "as_slice");
            assert_eq!(input.as_slice()?[0], 3);
            Ok(())
        })?;
        let mut exec = graph.instantiate()?;
        assert!(refusal(exec.lend(&input).launch(&stream)).contains("`lend_mut`"));
        assert!(refusal(exec.lend_mut(&mut output).launch(&stream)).contains("`lend`"));
        let stalled = stall(stream.as_raw());
        exec.lend(&input).lend_mut(&mut output).launch(&stream)?;
        assert!(output.try_as_slice()?.is_none(), "the launch is pending");
        stalled.release();
        assert_eq!(output.as_slice()?, [3; 10_000]);
        let rejected = output.into_inner().expect_err("a graph uses it");
        assert!(refusal::<()>(Err(rejected.error)).contains("graph"));
        drop((exec, graph));
        assert_eq!(rejected.value.into_inner()?, [3; 10_000]);
        Ok(())
    }
}

gpu_test! {
    needs 1, asynchronous;
    fn s50_registered_memory_of_a_graph_is_dropped() -> Result<()> {
        let (context, stream) = one_stream()?;
        let mut x = stream.alloc::<u32>(10_000)?;
        for pending in [false, true] {
            let owner: Arc<[u32]> = vec![3; 10_000].into();
            let input = Registered::new(&context, owner.clone(), RegisterFlags::NONE)?;
            let graph = Graph::capture(&context, |stream| stream.upload(&input, &mut x))?;
            let mut exec = graph.instantiate()?;
            let stalled = pending.then(|| stall(stream.as_raw()));
            exec.lend(&input).launch(&stream)?;
            drop(input);
            assert_eq!(Arc::strong_count(&owner), 2, "the graphs keep it");
            assert!(refusal(exec.launch(&stream)).contains("was dropped: keep it"));
            assert!(refusal(graph.instantiate()).contains("was dropped: keep it"));
            drop((exec, graph));
            if let Some(stalled) = stalled {
                assert_eq!(Arc::strong_count(&owner), 2, "the launch is pending");
                stalled.release();
            }
            drops::flush();
            assert_eq!(Arc::strong_count(&owner), 1);
            assert!(!is_pinned(owner.as_ptr())?);
            assert_eq!(stream.download_vec(&x)?, [3; 10_000]);
        }
        Ok(())
    }
}

gpu_test! {
    needs 1, asynchronous;
    fn s50_managed_memory_is_lent_at_each_launch() -> Result<()> {
        const MANAGED: DeviceAttribute = sys::CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS;
        let (context, stream) = one_stream()?;
        let mut x = stream.alloc_zeroed::<u32>(1000)?;
        if context.device().attribute(MANAGED)? == 0 {
            return Ok(());
        }
        let mut managed = ManagedBuffer::<u32>::new(&context, 1000)?;
        managed.as_mut_slice()?.fill(1);
        let graph = Graph::capture(&context, |stream| {
            stream.copy(&managed, &mut x)?;
            stream.fill(managed.slice_mut(..500)?, 2)?;
            not_captured(managed.as_slice(), "as_slice");
            not_captured(managed.as_mut_slice(), "as_mut_slice");
            Ok(())
        })?;
        let mut exec = graph.instantiate()?;
        for step in 3..5 {
            managed.as_mut_slice()?.fill(step); // waits for the launch before
            assert!(refusal(exec.launch(&stream)).contains("`lend`"));
            assert!(refusal(exec.lend(&managed).launch(&stream)).contains("`lend_mut`"));
            let stalled = stall(stream.as_raw());
            exec.lend_mut(&mut managed).launch(&stream)?;
            assert!(Alarm::new().poll(&mut managed.ready()).is_pending(), "the launch is pending");
            stalled.release();
            assert_eq!(managed.as_slice()?, [[2; 500], [step; 500]].concat());
            assert_eq!(stream.download_vec(&x)?, [step; 1000]);
        }
        drop(managed);
        assert!(refusal(exec.launch(&stream)).contains("was dropped: keep it"));
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn l_memory_of_a_graph_is_not_closed() -> Result<()> {
        let (context, stream) = one_stream()?;
        let mut x = stream.alloc_zeroed::<u32>(1000)?;
        let graph = Graph::capture(&context, |stream| stream.fill(&mut x, 2))?;
        let rejected = x.close().expect_err("a graph uses it");
        assert!(rejected.error.to_string().contains("graph"));
        drop(graph);
        Ok(rejected.value.close()?)
    }
}

gpu_test! {
    needs 1;
    fn s50_pinned_memory_of_a_graph_is_dropped() -> Result<()> {
        let (context, stream) = one_stream()?;
        let mut x = stream.alloc_zeroed::<u32>(100)?;
        let host = PinnedBuffer::from_slice(&context, &[1u32; 100])?;
        let graph = Graph::capture(&context, |stream| stream.upload(&host, &mut x))?;
        let mut exec = graph.instantiate()?;
        exec.lend(&host).launch(&stream)?;
        drop(host);
        assert!(refusal(exec.launch(&stream)).contains("was dropped: keep it"));
        assert!(refusal(graph.instantiate()).contains("was dropped: keep it"));
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn s50_no_bytes_need_not_be_lent() -> Result<()> {
        let (context, stream) = one_stream()?;
        let host = PinnedBuffer::from_slice(&context, &[1u32; 100])?;
        let empty = PinnedBuffer::<u32>::new(&context, 0)?;
        let graph = Graph::capture(&context, |stream| {
            stream.work().read(host.slice(50..50)?).launch_host_func_each(|| ())?;
            stream.work().read(&empty).launch_host_func_each(|| ())
        })?;
        drop(empty);
        graph.instantiate()?.launch(&stream)?;
        stream.synchronize()
    }
}
