//! Memory that the host can see, in graphs.

use cuda_core::managed::ManagedBuffer;
use cuda_core::{DeviceAttribute, Graph, PinnedBuffer, Registered, Result, sys};
use support::{gpu_test, refusal, stall};

use super::{context, not_captured};

gpu_test! {
    needs 1;
    fn s50_pinned_memory_is_lent_at_each_launch() -> Result<()> {
        let context = context()?;
        let stream = context.create_stream()?;
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
        let context = context()?;
        let stream = context.create_stream()?;
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
    fn s50_managed_and_registered_memory() -> Result<()> {
        const MANAGED: DeviceAttribute = sys::CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS;
        let context = context()?;
        let stream = context.create_stream()?;
        let mut registered = Registered::new(&context, vec![0u32; 1000], Default::default())?;
        let mut x = stream.alloc_zeroed::<u32>(1000)?;
        let graph = Graph::capture(&context, |stream| {
            let refused = stream.upload(&registered, &mut x).expect_err("registered memory");
            assert!(refused.to_string().contains("registered memory"), "{refused}");
            not_captured(stream.download(&x, &mut registered), "registered memory");
            Ok(())
        })?;
        drop(graph);
        if context.device().attribute(MANAGED)? == 0 {
            return Ok(());
        }
        let mut managed = ManagedBuffer::<u32>::new(&context, 1000)?;
        managed.as_mut_slice()?.fill(1);
        let graph = Graph::capture(&context, |stream| stream.fill(managed.as_view_mut(), 2))?;
        assert!(refusal(managed.as_slice()).contains("graph"));
        assert!(refusal(managed.as_mut_slice()).contains("graph"));
        graph.instantiate()?.launch(&stream)?;
        drop(graph);
        assert_eq!(managed.as_slice()?, [2; 1000]);
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn l_memory_of_a_graph_is_not_closed() -> Result<()> {
        let context = context()?;
        let stream = context.create_stream()?;
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
        let context = context()?;
        let stream = context.create_stream()?;
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
        let context = context()?;
        let stream = context.create_stream()?;
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
