//! Inspects graphs and changes rows of them, with little data, so that Miri runs it too.

use cuda_core::{Condition, Graph, Result, Shape};
use cuda_sim::Fault;
use support::refusal;

use super::{clean, device, primary};

#[test]
fn l_graphs_and_their_bodies_are_walked() {
    clean(|session| {
        let stream = device().create_stream()?;
        let [mut x, mut y] = [stream.alloc_zeroed::<u32>(8)?, stream.alloc_zeroed::<u32>(8)?];
        let inner = Graph::capture(&primary(), |stream| stream.fill(&mut x, 1))?;
        let graph = Graph::capture(&primary(), |stream| {
            inner.include(stream)?;
            let (one, other) = (Condition::new(stream, 0)?, Condition::new(stream, 2)?);
            one.if_else(stream, |then, body| body.fill(&mut x, if then { 2 } else { 3 }))?;
            other.switch(stream, 3, |case, body| body.fill(&mut y, 10 + case))
        })?;
        assert_eq!(graph.edges()?, [(0, 1), (1, 2)]);
        let nodes = graph.nodes()?;
        let bodies =
            nodes.iter().map(|node| Ok(node.graphs()?.len())).collect::<Result<Vec<_>>>()?;
        assert_eq!(bodies, [1, 2, 3]);
        for node in &nodes {
            for body in node.graphs()? {
                assert_eq!(body.nodes()?[0].to_string(), "fill of 32 bytes");
                assert_eq!((body.node_count()?, body.edge_count()?), (1, 0));
                assert!(body.edges()?.is_empty());
            }
        }
        let picture = graph.to_svg()?;
        assert!(picture.contains("conditional node"), "{picture}");
        assert!(format!("{graph} {graph:?}").starts_with("3 nodes"));
        // Under Miri no file can be written.
        let fault = Fault::new(cuda_sys::CUDA_ERROR_OPERATING_SYSTEM);
        session.inject(fault.function("cuGraphDebugDotPrint"));
        assert!(refusal(graph.debug_dot("graph.dot")).contains("could not write"));
        graph.instantiate()?.launch(&stream)?;
        assert_eq!(stream.download_vec(&x)?, [3; 8]);
        assert_eq!(stream.download_vec(&y)?, [12; 8]);
        Ok(())
    });
}

#[test]
fn l_rows_of_an_executable_are_filled_with_another_value() {
    clean(|_session| {
        let stream = device().create_stream()?;
        let [mut x, mut y] = [stream.alloc_zeroed::<u32>(12)?, stream.alloc_zeroed::<u32>(12)?];
        let rows = Shape::plane(2, 3).with_pitch(16);
        let graph =
            Graph::capture(&primary(), |stream| stream.fill_pitched(x.pitched_mut(rows)?, 1))?;
        let mut exec = graph.instantiate()?;
        exec.set_fill_pitched(graph.nodes()?[0].id(), y.pitched_mut(rows)?, 2)?;
        exec.launch(&stream)?;
        assert_eq!(stream.download_vec(&y)?, [[2, 2, 0, 0]; 3].concat());
        assert_eq!(stream.download_vec(&x)?, [0; 12]);
        Ok(())
    });
}
