//! Graphs whose operations belong to several contexts.

use cuda_core::{Context, ContextFlags, Device, Graph, drops};
use support::{one_stream, stall};

use super::clean;

#[test]
fn s51_an_included_graph_keeps_its_context() {
    clean(|session| {
        let near = Device::get(0)?.context()?;
        let own = Context::new(near.device(), ContextFlags::default())?;
        let stream = near.create_stream()?;
        let mut x = stream.alloc::<u32>(100)?;
        let child = Graph::capture(&own, |stream| stream.fill(&mut x, 7))?;
        let graph = Graph::capture(&near, |stream| child.include(stream))?;
        drop((child, own));
        assert_eq!(session.calls("cuCtxDestroy_v2"), 0);
        graph.instantiate()?.launch(&stream)?;
        assert_eq!(stream.download_vec(&x)?, [7; 100]);
        drop(graph);
        drops::flush();
        assert_eq!(session.calls("cuCtxDestroy_v2"), 1);
        Ok(())
    });
}

#[test]
fn s51_a_pending_launch_keeps_the_contexts_of_its_nodes() {
    clean(|session| {
        let (near, stream) = one_stream()?;
        let mut x = stream.alloc::<u32>(100)?;
        stream.synchronize()?;
        let stalled = stall(stream.as_raw());
        for on_two in [false, true] {
            let own = Context::new(near.device(), ContextFlags::default())?;
            let contexts = if on_two { vec![&near, &own] } else { vec![&own] };
            let graph = Graph::capture(contexts, |streams| {
                streams.last().expect("one or two").fill(&mut x, 7)
            })?;
            graph.instantiate()?.launch(&stream)?;
            drop((graph, own));
            assert_eq!(session.calls("cuCtxDestroy_v2"), 0);
        }
        stalled.release();
        assert_eq!(stream.download_vec(&x)?, [7; 100]);
        drops::flush();
        assert_eq!(session.calls("cuCtxDestroy_v2"), 2);
        Ok(())
    });
}
