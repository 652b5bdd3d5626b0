//! Extensions of graphs.

use cuda_core::{Graph, PinnedBuffer, Result, drops};
use support::{gpu_test, one_stream, refusal, stall};

use super::not_captured;

gpu_test! {
    needs 1, cuda_12_4;
    fn l_an_extension_comes_after_all_that_the_graph_has() -> Result<()> {
        let (context, stream) = one_stream()?;
        let [mut x, mut y, mut z] =
            [stream.alloc::<u32>(100)?, stream.alloc::<u32>(100)?, stream.alloc::<u32>(200)?];
        let mut host = PinnedBuffer::<u32>::zeroed(&context, 200)?;
        let mut graph = Graph::capture_by_access(&context, |stream| {
            stream.fill(&mut x, 1)?;
            stream.fill(&mut y, 2)
        })?;
        assert_eq!(graph.edges()?, []);
        graph.extend(|stream| {
            stream.copy(&x, z.slice_mut(..100)?)?;
            stream.copy(&y, z.slice_mut(100..)?)
        })?;
        let mut edges = graph.edges()?;
        edges.sort_unstable();
        assert_eq!(edges, [(0, 2), (1, 2), (2, 3)]);
        // Extends an extension. Its memory is lent, and a refused operation leaves nothing in it.
        graph.extend(|stream| {
            not_captured(stream.synchronize(), "cuStreamSynchronize");
            stream.download(&z, &mut host)
        })?;
        assert_eq!((graph.node_count()?, graph.edge_count()?), (5, 4));
        let mut exec = graph.instantiate()?;
        // The graph keeps what both parts use.
        drop((x, y));
        assert!(refusal(exec.launch(&stream)).contains("`lend_mut`"));
        exec.lend_mut(&mut host).launch(&stream)?;
        assert_eq!(host.as_slice()?, [[1; 100], [2; 100]].concat());
        Ok(())
    }
}

gpu_test! {
    needs 1, cuda_12_4;
    fn l_an_extension_that_fails_keeps_what_it_has_enqueued() -> Result<()> {
        let (context, stream) = one_stream()?;
        let [mut x, mut y] = [stream.alloc_zeroed::<u32>(100)?, stream.alloc_zeroed::<u32>(100)?];
        let mut graph = Graph::capture(&context, |stream| stream.fill(&mut x, 1))?;
        let failed = graph.extend(|stream| {
            stream.fill(&mut y, 2)?;
            stream.synchronize()
        });
        not_captured(failed, "cuStreamSynchronize");
        assert_eq!((graph.node_count()?, graph.edge_count()?), (2, 1));
        // Later additions come after that, too.
        graph.extend(|stream| stream.copy(&y, &mut x))?;
        assert!(y.close().is_err(), "the graph keeps it");
        let mut exec = graph.instantiate()?;
        exec.launch(&stream)?;
        assert_eq!(stream.download_vec(&x)?, [2; 100]);
        Ok(())
    }
}

gpu_test! {
    needs 1, cuda_12_4, asynchronous;
    fn l_a_graph_of_a_pending_launch_is_not_extended() -> Result<()> {
        let (context, stream) = one_stream()?;
        let mut x = stream.alloc_zeroed::<u32>(100)?;
        let mut graph = Graph::capture(&context, |stream| {
            stream.fill(&mut x, 1)?;
            stream.launch_host_func_each(|| ()) // which the launch refers to
        })?;
        let mut exec = graph.instantiate()?;
        let stalled = stall(stream.as_raw());
        exec.launch(&stream)?;
        drop(exec);
        let refused = graph.extend(|_| unreachable!("a launch is pending"));
        assert!(refusal(refused).contains("a launch of one that was dropped"));
        stalled.release();
        stream.synchronize()?;
        drops::flush();
        graph.extend(|stream| stream.fill(&mut x, 2))?;
        assert_eq!(graph.node_count()?, 3);
        Ok(())
    }
}
