//! Changes of executables.

use cuda_core::{
    Allocator, Context, ContextFlags, DeviceBuffer, Error, Function, Graph, GraphNode,
    PinnedBuffer, Result, Stream, sys,
};
use support::{freed_behind_a_stall, gpu_test, kernels, one_stream, refusal, stall, two_streams};

/// Prepares a launch of `copy_words(u32 *to, const u32 *from, u32 n)`.
macro_rules! copy_words {
    ($stream:expr, $function:expr, $to:expr, $from:expr) => {
        $stream.kernel($function).block(100).arg($to).arg($from).arg(100u32)
    };
}

fn buffers(stream: &Stream) -> Result<[DeviceBuffer<u32>; 3]> {
    filled(stream, || freed_behind_a_stall(|| stream.alloc(100)))
}

fn buffers_of(stream: &Stream, allocator: &Allocator) -> Result<[DeviceBuffer<u32>; 3]> {
    filled(stream, || stream.alloc_with(allocator, 100))
}

fn filled(
    stream: &Stream,
    alloc: impl Fn() -> Result<DeviceBuffer<u32>>,
) -> Result<[DeviceBuffer<u32>; 3]> {
    let mut buffers = [alloc()?, alloc()?, alloc()?];
    for (buffer, value) in buffers.iter_mut().zip(10..) {
        stream.fill(buffer, value)?;
    }
    Ok(buffers)
}

/// Captures a graph of one kernel, which copies `from`.
fn copying(
    context: &Context,
    function: &Function,
    from: &DeviceBuffer<u32>,
    to: &mut DeviceBuffer<u32>,
) -> Result<Graph> {
    Graph::capture(context, |stream| {
        let mut launch = copy_words!(stream, function, &mut *to, from);
        // SAFETY: both have 100 elements, one for each thread.
        unsafe { launch.launch() }
    })
}

gpu_test! {
    needs 1, cuda_12_0, asynchronous;
    fn l_an_executable_is_updated() -> Result<()> {
        let (context, stream) = one_stream()?;
        let [mut x, mut y, _] = buffers(&stream)?;
        let first = Graph::capture(&context, |stream| stream.fill(&mut x, 1))?;
        let second = Graph::capture(&context, |stream| stream.fill(&mut y, 2))?;
        let different = Graph::capture(&context, |stream| {
            stream.fill(&mut x, 1)?;
            stream.copy(&x, &mut y)
        })?;
        let mut exec = first.instantiate()?;
        exec.launch(&stream)?;
        match exec.update(&different) {
            Err(Error::GraphUpdate(_)) => {}
            other => panic!("{other:?}"),
        }
        exec.launch(&stream)?;
        exec.update(&second)?;
        drop((first, second, different));
        let stalled = stall(stream.as_raw());
        exec.launch(&stream)?;
        drop(x); // the executable does not use it any more
        stalled.release();
        assert_eq!(stream.download_vec(&y)?, [2; 100]);
        drop(y);
        exec.launch(&stream)?; // it keeps this one
        stream.synchronize()
    }
}

gpu_test! {
    needs 1, cuda_12_0;
    fn l_an_update_says_what_differs() -> Result<()> {
        let (context, stream) = one_stream()?;
        let [mut x, mut y, mut z] = buffers(&stream)?;
        let host = PinnedBuffer::from_slice(&context, &[5u32; 100])?;
        let graph = Graph::capture(&context, |stream| {
            stream.fill(&mut y, 1)?;
            stream.copy(&y, &mut z)
        })?;
        let mut exec = graph.instantiate()?;
        let shorter = Graph::capture(&context, |stream| stream.fill(&mut y, 2))?;
        let beside = Graph::capture_by_access(&context, |stream| {
            stream.fill(&mut x, 2)?;
            stream.copy(&y, &mut z)
        })?;
        let kernel = kernels::get(&context, "copy_words")?;
        let kinds = Graph::capture(&context, |stream| {
            stream.fill(&mut y, 2)?;
            // SAFETY: both have 100 elements, one for each thread.
            unsafe { copy_words!(stream, &kernel, &mut z, &y).launch() }
        })?;
        let parameters = Graph::capture(&context, |stream| {
            stream.fill(&mut y, 2)?;
            stream.upload(&host, &mut z)
        })?;
        for (other, expected, second) in [
            (&shorter, sys::CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, None),
            (&beside, sys::CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, None),
            (&kinds, sys::CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED, Some("<<<1, 100>>>")),
            (&parameters, sys::CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED, Some("copy of 400 bytes")),
        ] {
            match exec.update(other) {
                Err(Error::GraphUpdate(it)) => {
                    assert_eq!(it.why, expected, "{other}");
                    if let Some(second) = second {
                        assert_eq!(it.node, Some(1), "{other}");
                        assert!(it.operation.is_some_and(|it| it.ends_with(second)), "{other}");
                    }
                }
                done => panic!("{done:?}, {other}"),
            }
            // The executable is unchanged, and needs no memory lent.
            stream.fill(&mut z, 0)?;
            exec.launch(&stream)?;
            assert_eq!(stream.download_vec(&z)?, [1; 100]);
        }
        Ok(())
    }
}

gpu_test! {
    needs 1, cuda_12_0, asynchronous;
    fn l_a_kernels_arguments_are_replaced() -> Result<()> {
        let (context, stream, other) = two_streams()?;
        let function = kernels::get(&context, "copy_words")?;
        let [x, mut y, z] = buffers(&stream)?;
        let graph = copying(&context, &function, &x, &mut y)?;
        let copy = graph.nodes()?[0].id();
        let mut exec = graph.instantiate()?;
        exec.launch(&stream)?;
        assert_eq!(stream.download_vec(&y)?, [10; 100]);
        // SAFETY: as above.
        unsafe { exec.set_kernel(copy, &mut copy_words!(stream, &function, &mut y, &z)) }?;
        drop((graph, function));
        // The new argument is ordered and kept alive like the old one.
        let mut z = z;
        let stalled = stall(other.as_raw());
        other.fill(&mut z, 77)?;
        exec.launch(&stream)?;
        stalled.release();
        drop(z);
        assert_eq!(stream.download_vec(&y)?, [77; 100]);
        let mut poison = stream.alloc::<u32>(100)?;
        stream.fill(&mut poison, 5)?;
        exec.launch(&stream)?;
        assert_eq!(stream.download_vec(&y)?, [77; 100]);
        Ok(())
    }
}

gpu_test! {
    needs 1, cuda_12_4;
    fn l_a_node_is_found_by_its_kernel() -> Result<()> {
        let (context, stream) = one_stream()?;
        let module = kernels::load(&context)?;
        let (one, copy) = (module.function("add_one")?, module.function("copy_words")?);
        let [x, mut y, z] = buffers(&stream)?;
        let graph = Graph::capture(&context, |stream| {
            stream.fill(&mut y, 1)?;
            // SAFETY: the buffer has 100 elements, one for each thread.
            unsafe { stream.kernel(&one).block(100).arg(&mut y).arg(100u32).launch() }?;
            // SAFETY: as above.
            unsafe { copy_words!(stream, &copy, &mut y, &x).launch() }
        })?;
        let nodes = graph.nodes()?;
        let names: Vec<_> = nodes.iter().map(GraphNode::kernel_name).collect();
        assert_eq!(names, [None, Some("add_one".into()), Some("copy_words".into())]);
        let node = nodes.iter().find(|node| node.kernel_name().as_deref() == Some(copy.name()));
        let mut exec = graph.instantiate()?;
        let node = node.expect("the third").id();
        // SAFETY: as above.
        unsafe { exec.set_kernel(node, &mut copy_words!(stream, &copy, &mut y, &z)) }?;
        exec.launch(&stream)?;
        assert_eq!(stream.download_vec(&y)?, [12; 100]);
        Ok(())
    }
}

gpu_test! {
    needs 1, cuda_12_0;
    fn l_replaced_arguments_are_let_go_again() -> Result<()> {
        let (context, stream) = one_stream()?;
        let function = kernels::get(&context, "copy_words")?;
        let [x, mut y, z] = buffers(&stream)?;
        let graph = copying(&context, &function, &x, &mut y)?;
        let copy = graph.nodes()?[0].id();
        let mut exec = graph.instantiate()?;
        // SAFETY: as above.
        unsafe { exec.set_kernel(copy, &mut copy_words!(stream, &function, &mut y, &z)) }?;
        exec.launch(&stream)?;
        let rejected = z.close().expect_err("the executable uses it");
        // SAFETY: as above.
        unsafe { exec.set_kernel(copy, &mut copy_words!(stream, &function, &mut y, &x)) }?;
        rejected.value.close()?;
        exec.launch(&stream)?;
        assert_eq!(stream.download_vec(&y)?, [10; 100]);
        Ok(())
    }
}

gpu_test! {
    needs 1, cuda_12_0;
    fn l_replaced_arguments_are_checked() -> Result<()> {
        let (context, stream) = one_stream()?;
        let function = kernels::get(&context, "copy_words")?;
        let [x, mut y, _] = buffers(&stream)?;
        let (one, two) = (copying(&context, &function, &x, &mut y)?, copying(&context, &function, &x, &mut y)?);
        let mut exec = one.instantiate()?;
        let foreign = two.nodes()?[0].id();
        // SAFETY: both have 100 elements, one for each thread.
        let refused = unsafe { exec.set_kernel(foreign, &mut copy_words!(stream, &function, &mut y, &x)) };
        assert!(refusal(refused).contains("another graph"));
        assert!(refusal(exec.set_enabled(foreign, false)).contains("another graph"));
        assert!(refusal(exec.is_enabled(foreign)).contains("another graph"));
        // From then on, pinned memory must be lent.
        let host = PinnedBuffer::from_slice(&context, &[33u32; 100])?;
        let copy = one.nodes()?[0].id();
        // SAFETY: both have 100 elements, one for each thread.
        unsafe { exec.set_kernel(copy, &mut copy_words!(stream, &function, &mut y, &host)) }?;
        assert!(refusal(exec.launch(&stream)).contains("`lend`"));
        exec.lend(&host).launch(&stream)?;
        assert_eq!(stream.download_vec(&y)?, [33; 100]);
        Ok(())
    }
}

gpu_test! {
    needs 1, asynchronous;
    fn l_a_node_is_changed_a_hundred_times_among_others() -> Result<()> {
        let (context, stream, other) = two_streams()?;
        let [mut x, mut y, _] = buffers(&stream)?;
        let mut fill = None;
        let graph = Graph::build(&context, |builder| {
            fill = Some(builder.add(|stream| stream.fill(x.slice_mut(..1)?, 1))?);
            builder.add(|stream| stream.copy(x.slice(50..60)?, y.slice_mut(50..60)?))?;
            Ok(())
        })?;
        let (mut exec, fill) = (graph.instantiate()?, fill.expect("added above"));
        for at in 0..100 {
            exec.set_fill(fill, x.slice_mut(at..at + 1)?, 1)?;
        }
        exec.launch(&stream)?;
        assert_eq!(stream.download_vec(&x)?, [vec![10; 99], vec![1]].concat());
        // The accesses of the fill are still known and waited for: the last range, and one of those merged
        // before.
        for at in [99, 10] {
            exec.set_fill(fill, x.slice_mut(at..at + 1)?, 1)?;
            let stalled = stall(other.as_raw());
            other.fill(x.slice_mut(at..at + 1)?, 3)?;
            exec.launch(&stream)?;
            stalled.release();
            assert_eq!(stream.download_vec(x.slice(at..at + 1)?)?, [1]);
            let stalled = stall(stream.as_raw());
            exec.launch(&stream)?;
            other.fill(x.slice_mut(at..at + 1)?, 3)?; // after the launch
            stalled.release();
            assert_eq!(stream.download_vec(x.slice(at..at + 1)?)?, [3]);
        }
        Ok(())
    }
}

gpu_test! {
    needs 1, asynchronous;
    fn l_a_copys_ends_are_replaced() -> Result<()> {
        let (context, stream, other) = two_streams()?;
        let [x, mut y, mut z] = buffers(&stream)?;
        let graph = Graph::capture(&context, |stream| stream.copy(&x, &mut y))?;
        let node = graph.nodes()?[0].id();
        let mut exec = graph.instantiate()?;
        // The new end is ordered and kept alive like the old one.
        exec.set_copy(node, z.slice(..50)?, y.slice_mut(50..)?)?;
        drop(graph);
        let stalled = stall(other.as_raw());
        other.fill(&mut z, 77)?;
        exec.launch(&stream)?;
        stalled.release();
        let rejected = z.close().expect_err("the executable uses it");
        assert_eq!(stream.download_vec(&y)?, [vec![11; 50], vec![77; 50]].concat());
        drop(rejected.value);
        let mut poison = stream.alloc::<u32>(100)?;
        stream.fill(&mut poison, 5)?;
        stream.fill(&mut y, 0)?;
        exec.launch(&stream)?;
        assert_eq!(stream.download_vec(&y)?, [vec![0; 50], vec![77; 50]].concat());
        // The executable also lets go of the memory of `z`.
        exec.set_copy(node, &x, &mut y)?;
        exec.launch(&stream)?;
        assert_eq!(stream.download_vec(&y)?, [10; 100]);
        assert!(refusal(exec.set_copy(node, x.slice(..1)?, &mut y)).contains("different lengths"));
        assert!(refusal(exec.set_copy(node, x.slice(..0)?, y.slice_mut(..0)?)).contains("nothing"));
        Ok(())
    }
}

gpu_test! {
    needs 1, cuda_12_0;
    fn l_a_copy_takes_other_pinned_memory() -> Result<()> {
        let (context, stream) = one_stream()?;
        let [mut x, _, _] = buffers(&stream)?;
        let one = PinnedBuffer::from_slice(&context, &[1u32; 100])?;
        let two = PinnedBuffer::from_slice(&context, &[2u32; 100])?;
        let graph = Graph::capture(&context, |stream| stream.upload(&one, &mut x))?;
        let mut exec = graph.instantiate()?;
        exec.set_copy(graph.nodes()?[0].id(), &two, &mut x)?;
        assert!(refusal(exec.lend(&one).launch(&stream)).contains("pass the buffer to `lend`"));
        exec.lend(&two).launch(&stream)?;
        assert_eq!(stream.download_vec(&x)?, [2; 100]);
        // The parts of a buffer, one after the other.
        for part in [0..50, 50..100] {
            let node = graph.nodes()?[0].id();
            exec.set_copy(node, one.slice(part.clone())?, x.slice_mut(part.clone())?)?;
            exec.lend(one.slice(part)?).launch(&stream)?;
        }
        assert_eq!(stream.download_vec(&x)?, [1; 100]);
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn l_what_no_operation_uses_any_more_is_let_go() -> Result<()> {
        let (context, stream) = one_stream()?;
        let [x, mut y, z] = buffers(&stream)?;
        let mut w = stream.alloc::<u32>(100)?;
        let graph = Graph::capture(&context, |stream| {
            stream.copy(&x, &mut y)?;
            stream.copy(&x, &mut w)
        })?;
        let [first, second] = [graph.nodes()?[0].id(), graph.nodes()?[1].id()];
        let mut exec = graph.instantiate()?;
        drop(graph);
        exec.launch(&stream)?;
        exec.set_copy(first, &z, &mut y)?;
        let x = x.close().expect_err("the second copy reads it").value;
        exec.set_copy(second, &z, &mut w)?;
        x.close()?;
        exec.launch(&stream)?;
        assert_eq!(stream.download_vec(&y)?, [12; 100]);
        assert_eq!(stream.download_vec(&w)?, [12; 100]);
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn l_what_is_behind_a_step_that_does_nothing_is_let_go() -> Result<()> {
        let (context, stream) = one_stream()?;
        let [x, mut y, z] = buffers(&stream)?;
        let mut copy = None;
        let graph = Graph::build(&context, |builder| {
            let nothing = builder.add(|_| Ok(()))?;
            copy = Some(builder.add_after(&[nothing], |stream| stream.copy(&x, &mut y))?);
            Ok(())
        })?;
        let mut exec = graph.instantiate()?;
        drop(graph);
        let x = x.close().expect_err("the copy reads it").value;
        exec.set_copy(copy.expect("added above"), &z, &mut y)?;
        x.close()?;
        exec.launch(&stream)?;
        assert_eq!(stream.download_vec(&y)?, [12; 100]);
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn s07_the_other_nodes_of_an_operation_go_on_using_its_memory() -> Result<()> {
        let (context, stream) = one_stream()?;
        let is_copy = |node: &&GraphNode<'_>| node.kind() == sys::CU_GRAPH_NODE_TYPE_MEMCPY;
        for allocator in [Allocator::cache(), Allocator::driver_pool()] {
            let alloc = || stream.alloc_with::<[u32; 2]>(&allocator, 1000);
            let mut wide = alloc()?;
            let [x, mut y, _] = buffers_of(&stream, &allocator)?;
            // The capture makes a memset for each half of the first values, and a copy of these to the
            // others.
            let graph = Graph::capture(&context, |stream| stream.fill(&mut wide, [1, 2]))?;
            let copy = graph.nodes()?.iter().find(is_copy).expect("it is among them").id();
            let mut exec = graph.instantiate()?;
            drop(graph);
            exec.set_copy(copy, &x, &mut y)?;
            drop(wide);
            let mut poison = alloc()?;
            stream.fill(&mut poison, [5, 5])?;
            exec.launch(&stream)?;
            assert_eq!(stream.download_vec(&poison)?, [[5, 5]; 1000]);
            assert_eq!(stream.download_vec(&y)?, [10; 100]);
        }
        Ok(())
    }
}

// Memory of the driver's pools belongs to no context, other memory does. The driver replaces neither by the
// other.
gpu_test! {
    needs 1;
    fn l_a_copy_stays_in_memory_of_its_kind() -> Result<()> {
        let (context, stream) = one_stream()?;
        let (cache, pool) = (Allocator::cache(), Allocator::driver_pool());
        for (own, others) in [(&cache, &pool), (&pool, &cache)] {
            let [x, mut y, _] = buffers_of(&stream, own)?;
            let [other, mut beside, _] = buffers_of(&stream, others)?;
            let graph = Graph::capture(&context, |stream| stream.copy(&x, &mut y))?;
            let copy = graph.nodes()?[0].id();
            let mut exec = graph.instantiate()?;
            let refused = exec.set_copy(copy, &other, &mut beside);
            let code = refused.err().and_then(|error| error.code());
            assert_eq!(code, Some(sys::CUDA_ERROR_INVALID_VALUE));
            exec.launch(&stream)?;
            assert_eq!(stream.download_vec(&y)?, [10; 100]);
        }
        Ok(())
    }
}

gpu_test! {
    needs 1, asynchronous;
    fn l_a_fill_is_replaced() -> Result<()> {
        let (context, stream, other) = two_streams()?;
        let [mut x, mut y, _] = buffers(&stream)?;
        let graph = Graph::capture(&context, |stream| stream.fill(&mut x, 1))?;
        let node = graph.nodes()?[0].id();
        let mut exec = graph.instantiate()?;
        exec.set_fill(node, y.slice_mut(10..)?, 0xAB_CDEF)?;
        let stalled = stall(other.as_raw());
        other.fill(&mut y, 3)?;
        exec.launch(&stream)?;
        stalled.release();
        assert_eq!(stream.download_vec(&y)?, [vec![3; 10], vec![0xAB_CDEF; 90]].concat());
        assert_eq!(stream.download_vec(&x)?, [10; 100]);
        let mut wide = stream.alloc::<[u64; 2]>(10)?;
        assert!(refusal(exec.set_fill(node, &mut wide, [1, 2])).contains("several fills"));
        let foreign = Graph::capture(&context, |stream| stream.fill(&mut x, 1))?.nodes()?[0].id();
        assert!(refusal(exec.set_fill(foreign, &mut x, 1)).contains("another graph"));
        let other = Context::new(context.device(), ContextFlags::default())?;
        let mut elsewhere = other.create_stream()?.alloc_with::<u32>(&Allocator::plain(), 100)?;
        let refused = exec.set_fill(node, &mut elsewhere, 1);
        assert!(matches!(refused, Err(Error::WrongContext(_))), "{refused:?}");
        let refused = exec.set_copy(node, &x, &mut y);
        assert_eq!(refusal(refused), "`set_copy` changes a copy, and the node is of another kind: fill");
        let copy = Graph::capture(&context, |stream| stream.copy(&x, &mut y))?;
        let refused = copy.instantiate()?.set_fill(copy.nodes()?[0].id(), &mut x, 1);
        assert_eq!(refusal(refused), "`set_fill` changes a fill, and the node is of another kind: copy");
        exec.launch(&stream)?; // as before
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn l_a_change_lets_go_behind_work_that_was_noted_by_hand() -> Result<()> {
        let (context, stream) = one_stream()?;
        let [mut x, y, z] = buffers(&stream)?;
        let host = PinnedBuffer::from_slice(&context, &[1u32; 100])?;
        let graph = Graph::capture(&context, |stream| {
            stream.upload(&host, &mut x)?;
            // SAFETY: nothing is enqueued. The note names the upload's node once more.
            unsafe { stream.work().read(&y).enqueue(|_stream| ()) }
        })?;
        let node = graph.nodes()?[0].id();
        let mut exec = graph.instantiate()?;
        let other = PinnedBuffer::from_slice(&context, &[2u32; 100])?;
        exec.set_copy(node, &other, &mut x)?;
        exec.lend(&other).launch(&stream)?; // and not `host`
        assert_eq!(stream.download_vec(&x)?, [2; 100]);
        drop(z);
        Ok(())
    }
}
