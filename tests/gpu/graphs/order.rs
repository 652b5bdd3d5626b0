//! The order of launches and other work on the same memory.

use cuda_core::{Graph, Result};
use support::{freed_behind_a_stall, gpu_test, stall, two_streams};

gpu_test! {
    needs 1, asynchronous;
    fn l_a_launch_waits_for_other_streams() -> Result<()> {
        let (context, stream, other) = two_streams()?;
        let mut x = other.alloc_zeroed::<u32>(1000)?;
        let mut y = stream.alloc_zeroed::<u32>(1000)?;
        let graph = Graph::capture(&context, |stream| stream.copy(&x, &mut y))?;
        let mut exec = graph.instantiate()?;
        for step in 1..4 {
            let stalled = stall(other.as_raw());
            other.fill(&mut x, step)?;
            exec.launch(&stream)?;
            stalled.release();
            assert_eq!(stream.download_vec(&y)?, [step; 1000]);
        }
        Ok(())
    }
}

gpu_test! {
    needs 1, asynchronous;
    fn l_a_launch_waits_for_a_stream_that_has_only_read_before() -> Result<()> {
        let (context, stream, other) = two_streams()?;
        let mut y = stream.alloc_zeroed::<u32>(1000)?;
        let mut x = stream.alloc_zeroed::<u32>(1000)?;
        stream.synchronize()?;
        let graph = Graph::capture(&context, |stream| stream.copy(&x, &mut y))?;
        let mut exec = graph.instantiate()?;
        for step in 1..4 {
            // Both only read, so neither waits.
            assert_eq!(other.download_vec(&x)?, [step - 1; 1000]);
            exec.launch(&stream)?;
            let stalled = stall(other.as_raw());
            other.fill(&mut x, step)?;
            exec.launch(&stream)?;
            stalled.release();
            assert_eq!(stream.download_vec(&y)?, [step; 1000]);
        }
        Ok(())
    }
}

gpu_test! {
    needs 1, asynchronous;
    fn l_other_streams_wait_for_a_launch() -> Result<()> {
        let (context, stream, other) = two_streams()?;
        let mut x = other.alloc_zeroed::<u32>(1000)?;
        let mut y = other.alloc_zeroed::<u32>(1000)?;
        let graph = Graph::capture(&context, |stream| stream.copy(&x, &mut y))?;
        let mut exec = graph.instantiate()?;
        for step in 1..4 {
            stream.fill(&mut x, step)?;
            let stalled = stall(stream.as_raw());
            exec.launch(&stream)?;
            other.fill(&mut x, 100)?; // not before the launch has read it
            stalled.release();
            assert_eq!(other.download_vec(&y)?, [step; 1000]);
        }
        Ok(())
    }
}

gpu_test! {
    needs 1, asynchronous;
    fn l_memory_freed_after_a_launch_is_not_reused_before_it() -> Result<()> {
        let (context, stream, other) = two_streams()?;
        let mut x = freed_behind_a_stall(|| other.alloc_zeroed::<u32>(1000))?;
        let mut y = stream.alloc_zeroed::<u32>(1000)?;
        let graph = Graph::capture(&context, |stream| {
            stream.fill(&mut x, 7)?;
            stream.copy(&x, &mut y)
        })?;
        let mut exec = graph.instantiate()?;
        let stalled = stall(stream.as_raw());
        exec.launch(&stream)?;
        // The block is freed while the launch is pending.
        drop((exec, graph, x));
        let mut again = other.alloc::<u32>(1000)?;
        other.fill(&mut again, 1)?;
        stalled.release();
        assert_eq!(stream.download_vec(&y)?, [7; 1000]);
        assert_eq!(other.download_vec(&again)?, [1; 1000]);
        Ok(())
    }
}

gpu_test! {
    needs 1, asynchronous;
    fn l_shared_readers_go_on_while_a_graph_uses_the_memory() -> Result<()> {
        let (context, stream, other) = two_streams()?;
        let x = stream.alloc_zeroed::<u32>(1000)?;
        let mut y = stream.alloc::<u32>(1000)?;
        let mut z = other.alloc::<u32>(1000)?;
        // Reads the memory before a graph uses it.
        other.copy(&x, &mut z)?;
        other.copy(&x, &mut z)?;
        let graph = Graph::capture(&context, |stream| stream.copy(&x, &mut y))?;
        let mut exec = graph.instantiate()?;
        exec.launch(&stream)?;
        other.copy(&x, &mut z)?;
        other.copy(&x, &mut z)?;
        let mut x = x;
        let stalled = stall(other.as_raw());
        other.copy(&x, &mut z)?;
        stream.fill(&mut x, 1)?; // after the reader
        stalled.release();
        assert_eq!(other.download_vec(&z)?, [0; 1000]);
        assert_eq!(other.download_vec(&x)?, [1; 1000]);
        Ok(())
    }
}
