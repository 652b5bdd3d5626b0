//! Disabled nodes, which launches leave out.

use cuda_core::{Graph, GraphNode, PinnedBuffer, Result};
use support::{gpu_test, kernels, one_stream, refusal, stall, two_streams};

use super::{add_one, raw_fill};

gpu_test! {
    needs 1;
    fn l_nodes_are_left_out() -> Result<()> {
        let (context, stream) = one_stream()?;
        let mut x = stream.alloc_zeroed::<u32>(100)?;
        let graph = Graph::capture(&context, |stream| {
            stream.fill(&mut x, 1)?;
            stream.fill(&mut x, 2)
        })?;
        let second = graph.nodes()?[1].id();
        let mut exec = graph.instantiate()?;
        assert!(exec.is_enabled(second)?);
        exec.set_enabled(second, false)?;
        assert!(!exec.is_enabled(second)? && exec.is_enabled(graph.nodes()?[0].id())?);
        exec.launch(&stream)?;
        assert_eq!(stream.download_vec(&x)?, [1; 100]);
        exec.set_enabled(second, true)?;
        assert!(exec.is_enabled(second)?);
        exec.launch(&stream)?;
        assert_eq!(stream.download_vec(&x)?, [2; 100]);
        Ok(())
    }
}

gpu_test! {
    needs 1, asynchronous;
    fn l_a_node_that_is_left_out_uses_no_memory() -> Result<()> {
        let (context, stream, other) = two_streams()?;
        let x = stream.alloc_zeroed::<u32>(100)?;
        let mut y = stream.alloc_zeroed::<u32>(100)?;
        let mut host = PinnedBuffer::from_slice(&context, &[7u32; 100])?;
        let graph = Graph::capture(&context, |stream| {
            stream.fill(&mut y, 1)?;
            stream.download(&x, &mut host)?;
            stream.fill(&mut y, 2)
        })?;
        let [first, download, second] = [0, 1, 2].map(|at| graph.nodes().map(|all| all[at].id()));
        let (first, download, second) = (first?, download?, second?);
        let mut exec = graph.instantiate()?;
        exec.set_enabled(download, false)?;
        exec.launch(&stream)?;
        assert_eq!(host.as_slice()?, [7; 100]);
        // The launch is ordered after another stream's work while some node uses the memory.
        exec.set_enabled(first, false)?;
        for left_out in [false, true] {
            exec.set_enabled(second, !left_out)?;
            stream.synchronize()?;
            let stalled = stall(other.as_raw());
            other.fill(&mut y, 3)?;
            exec.launch(&stream)?;
            match left_out {
                true => stream.synchronize()?,
                false => assert!(!stream.query()?, "it waits for the other stream"),
            }
            stalled.release();
            let expected = if left_out { 3 } else { 2 };
            assert_eq!(stream.download_vec(&y)?, [expected; 100]);
        }
        // Changed while disabled, it still uses no memory.
        exec.set_fill(second, &mut y, 4)?;
        let stalled = stall(other.as_raw());
        other.fill(&mut y, 3)?;
        exec.launch(&stream)?;
        stream.synchronize()?;
        stalled.release();
        for node in [first, download, second] {
            exec.set_enabled(node, true)?;
        }
        assert!(refusal(exec.launch(&stream)).contains("`lend_mut`"));
        let stalled = stall(other.as_raw());
        other.fill(&mut y, 3)?;
        exec.lend_mut(&mut host).launch(&stream)?;
        assert!(host.try_as_slice()?.is_none(), "the launch is pending");
        stalled.release();
        assert_eq!(host.as_slice()?, [0; 100]);
        assert_eq!(stream.download_vec(&y)?, [4; 100]);
        Ok(())
    }
}

gpu_test! {
    needs 1, asynchronous;
    fn l_a_node_that_is_left_out_keeps_its_memory() -> Result<()> {
        let (context, stream) = one_stream()?;
        let mut x = stream.alloc_zeroed::<u32>(100)?;
        let host = PinnedBuffer::from_slice(&context, &[7u32; 100])?;
        let graph = Graph::capture(&context, |stream| stream.upload(&host, &mut x))?;
        let upload = graph.nodes()?[0].id();
        let mut exec = graph.instantiate()?;
        exec.set_enabled(upload, false)?;
        drop((host, graph));
        exec.launch(&stream)?;
        assert_eq!(stream.download_vec(&x)?, [0; 100]);
        exec.set_enabled(upload, true)?;
        assert!(refusal(exec.launch(&stream)).contains("was dropped: keep it"));
        let host = PinnedBuffer::from_slice(&context, &[8u32; 100])?;
        exec.set_copy(upload, &host, &mut x)?;
        exec.lend(&host).launch(&stream)?;
        assert_eq!(stream.download_vec(&x)?, [8; 100]);
        Ok(())
    }
}

gpu_test! {
    needs 1, asynchronous;
    fn l_a_node_that_is_changed_while_it_is_left_out_uses_the_new_memory() -> Result<()> {
        let (context, stream, other) = two_streams()?;
        let mut x = stream.alloc_zeroed::<u32>(100)?;
        let mut y = stream.alloc_zeroed::<u32>(100)?;
        let graph = Graph::capture(&context, |stream| {
            stream.fill(x.slice_mut(..10)?, 1)?;
            stream.fill(x.slice_mut(10..20)?, 2)
        })?;
        let [first, second] = [0, 1].map(|at| graph.nodes().map(|all| all[at].id()));
        let (first, second) = (first?, second?);
        let mut exec = graph.instantiate()?;
        exec.set_enabled(first, false)?;
        // Only the second node is known to use these elements; it then uses other memory.
        exec.set_fill(second, x.slice_mut(50..60)?, 3)?;
        exec.set_fill(first, x.slice_mut(50..60)?, 4)?;
        exec.set_fill(second, &mut y, 5)?;
        exec.set_enabled(first, true)?;
        let stalled = stall(other.as_raw());
        other.fill(x.slice_mut(50..60)?, 6)?;
        exec.launch(&stream)?;
        assert!(!stream.query()?, "it waits for the other stream");
        stalled.release();
        assert_eq!(stream.download_vec(x.slice(50..60)?)?, [4; 10]);
        Ok(())
    }
}

gpu_test! {
    needs 1, cuda_12_0;
    fn l_a_node_that_is_changed_while_it_is_left_out_stays_left_out() -> Result<()> {
        let (context, stream) = one_stream()?;
        let function = kernels::get(&context, "add_one")?;
        let mut all = [0; 7].map(|_| stream.alloc_zeroed::<u32>(100)).into_iter().collect::<Result<Vec<_>>>()?;
        let mut seventh = all.pop().expect("there are seven");
        let [a, b, c, d, e, f] = &mut all[..] else { unreachable!("six are left") };
        stream.fill(&mut *a, 5)?;
        let graph = Graph::capture(&context, |stream| {
            stream.fill(&mut *b, 1)?;
            stream.copy(&*a, &mut *c)?;
            add_one(stream, &function, &mut *d)
        })?;
        let nodes: Vec<_> = graph.nodes()?.iter().map(|node| node.id()).collect();
        let mut exec = graph.instantiate()?;
        nodes.iter().try_for_each(|node| exec.set_enabled(*node, false))?;
        exec.set_fill(nodes[0], &mut *e, 2)?;
        exec.set_copy(nodes[1], &*a, &mut *f)?;
        let mut launch = stream.kernel(&function).elements(100).arg(&mut seventh).arg(100u32);
        // SAFETY: add_one(u32 *x, u32 n) reads and writes `n` elements.
        unsafe { exec.set_kernel(nodes[2], &mut launch) }?;
        drop(launch);
        for node in &nodes {
            assert!(!exec.is_enabled(*node)?);
        }
        exec.launch(&stream)?;
        for untouched in [b, c, d, e, f, &mut seventh] {
            assert_eq!(stream.download_vec(untouched)?, [0; 100]);
        }
        Ok(())
    }
}

gpu_test! {
    needs 1, cuda_12_0;
    fn s07_an_update_replaces_the_memory_of_a_node_that_is_left_out() -> Result<()> {
        let (context, stream) = one_stream()?;
        let [mut x, mut y] = [stream.alloc_zeroed::<u32>(100)?, stream.alloc_zeroed::<u32>(100)?];
        let first = Graph::capture(&context, |stream| stream.fill(&mut x, 1))?;
        let second = Graph::capture(&context, |stream| stream.fill(&mut y, 2))?;
        let fill = first.nodes()?[0].id();
        let mut exec = first.instantiate()?;
        exec.set_enabled(fill, false)?;
        exec.update(&second)?;
        exec.set_enabled(fill, true)?;
        exec.launch(&stream)?;
        // The executable no longer keeps the memory of the first.
        assert_eq!(stream.download_vec(&x)?, [0; 100]);
        assert_eq!(stream.download_vec(&y)?, [2; 100]);
        Ok(())
    }
}

gpu_test! {
    needs 1, cuda_12_0;
    fn l_operations_of_other_code_are_neither_changed_nor_left_out() -> Result<()> {
        let (context, stream) = one_stream()?;
        let mut buffers = [stream.alloc_zeroed(100)?, stream.alloc(100)?, stream.alloc_zeroed(100)?];
        let mut capture = || {
            let [x, y, z] = &mut buffers;
            Graph::capture(&context, |stream| {
                stream.fill(x, 1)?;
                for value in [2, 3] {
                    raw_fill(stream, y, value)?;
                }
                stream.fill(z, 4)
            })
        };
        let (graph, same) = (capture()?, capture()?);
        let ids: Vec<_> = graph.nodes()?.iter().map(GraphNode::id).collect();
        let [x, y, z] = &mut buffers;
        let mut exec = graph.instantiate()?;
        for id in [ids[1], ids[2]] {
            assert!(refusal(exec.set_enabled(id, false)).contains("another library"));
            refusal(exec.set_fill(id, &mut *x, 9));
        }
        exec.set_fill(ids[3], &mut *z, 8)?;
        exec.set_enabled(ids[0], false)?;
        exec.launch(&stream)?;
        let values = [&*x, &*y, &*z].map(|buffer| stream.download_vec(buffer));
        for (values, expected) in values.into_iter().zip([0, 3, 8]) {
            assert_eq!(values?, [expected; 100]);
        }
        // The operation that was left out may be the library's in the other graph.
        exec.set_enabled(ids[0], true)?;
        assert!(refusal(exec.update(&same)).contains("leaves out"));
        // So may any operation of an executable that was updated.
        let mut updated = graph.instantiate()?;
        updated.update(&same)?;
        refusal(updated.set_enabled(ids[0], false));
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn l_a_step_of_other_code_is_neither_changed_nor_left_out() -> Result<()> {
        let (context, stream) = one_stream()?;
        let mut x = stream.alloc_zeroed::<u32>(100)?;
        let mut y = stream.alloc_zeroed::<u32>(100)?;
        let (mut own, mut foreign) = (None, Vec::new());
        let graph = Graph::build(&context, |step| {
            let first = step.add(|stream| stream.fill(&mut x, 1))?;
            foreign.push(step.add(|stream| raw_fill(stream, &mut x, 2))?);
            foreign.push(step.add_after(&[first], |stream| raw_fill(stream, &mut y, 3))?);
            own = Some(first);
            Ok(())
        })?;
        let mut exec = graph.instantiate()?;
        for node in foreign {
            refusal(exec.set_enabled(node, false));
            refusal(exec.set_fill(node, &mut x, 9));
        }
        exec.set_enabled(own.expect("was added"), false)?;
        exec.launch(&stream)?;
        assert_eq!(stream.download_vec(&x)?, [2; 100]);
        assert_eq!(stream.download_vec(&y)?, [3; 100]);
        Ok(())
    }
}

// A library may have the stream's handle, and note nothing.
gpu_test! {
    needs 1;
    fn l_operations_that_were_not_noted_are_neither_changed_nor_left_out() -> Result<()> {
        let (context, stream) = one_stream()?;
        let mut x = stream.alloc_zeroed::<u32>(100)?;
        let mut y = stream.alloc_zeroed::<u32>(100)?;
        let graph = Graph::capture(&context, |stream| {
            stream.fill(&mut x, 1)?;
            // SAFETY: the buffer has as many elements, and the graph keeps it for the copy, which follows on
            // the same stream.
            let filled =
                unsafe { cuda_sys::cuMemsetD32Async(x.as_raw(), 2, x.len(), stream.as_raw()) };
            support::check("cuMemsetD32Async", filled);
            stream.copy(&x, &mut y)
        })?;
        let ids: Vec<_> = graph.nodes()?.iter().map(GraphNode::id).collect();
        let mut exec = graph.instantiate()?;
        refusal(exec.set_enabled(ids[1], false));
        refusal(exec.set_fill(ids[1], &mut x, 9));
        exec.set_enabled(ids[0], false)?;
        exec.launch(&stream)?;
        assert_eq!(stream.download_vec(&y)?, [2; 100]);
        Ok(())
    }
}
