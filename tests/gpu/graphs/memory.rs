//! Memory that graphs allocate and free while they run.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use cuda_core::{
    Access, Allocator, Condition, Context, Device, DeviceBuffer, Error, Graph, Result, Stream,
};
use support::{gpu_test, kernels, one_stream, refusal, stall, two_devices, two_streams};

use super::{add_one, context, not_captured};

const LEN: usize = 1000;

/// The text with which uses of the memory outside the graph are refused.
const ELSEWHERE: &str = "exists only while its graph runs";

/// Returns the texts of a graph's nodes, sorted.
fn texts(graph: &Graph) -> Result<Vec<String>> {
    let mut texts: Vec<String> = graph.nodes()?.iter().map(ToString::to_string).collect();
    texts.sort();
    Ok(texts)
}

/// Captures a graph that copies `x` to `y` through memory of its own, to which it adds one.
fn through_scratch(
    context: &Context,
    x: &DeviceBuffer<u32>,
    y: &mut DeviceBuffer<u32>,
) -> Result<Graph> {
    let function = kernels::get(context, "add_one")?;
    Graph::capture(context, |stream| {
        let mut scratch = stream.alloc_in_graph::<u32>(LEN)?;
        stream.copy(x, &mut scratch)?;
        add_one(stream, &function, &mut scratch)?;
        stream.copy(&scratch, y)
    })
}

gpu_test! {
    needs 1;
    fn l_memory_is_allocated_and_freed_at_each_launch() -> Result<()> {
        let (context, stream) = one_stream()?;
        let (mut x, mut y) = (stream.alloc::<u32>(LEN)?, stream.alloc::<u32>(LEN)?);
        let graph = through_scratch(&context, &x, &mut y)?;
        let nodes: Vec<String> = graph.nodes()?.iter().map(ToString::to_string).collect();
        let [first, .., last] = &nodes[..] else { panic!("{nodes:?}") };
        assert_eq!((&**first, &**last, nodes.len()), ("allocation", "free", 5));
        let mut exec = graph.instantiate()?;
        for step in 0..4 {
            stream.upload(&[step; LEN], &mut x)?;
            exec.launch(&stream)?;
            assert_eq!(stream.download_vec(&y)?, [step + 1; LEN]);
        }
        // Memory reserved for it can be released, and is reserved again.
        stream.synchronize()?;
        context.device().trim_graph_memory()?;
        exec.launch(&stream)?;
        assert_eq!(stream.download_vec(&y)?, [4; LEN]);
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn l_steps_allocate_and_free() -> Result<()> {
        let (context, stream) = one_stream()?;
        let x = stream.alloc_zeroed::<u32>(LEN)?;
        let mut parts = [stream.alloc_zeroed::<u32>(LEN)?, stream.alloc_zeroed::<u32>(LEN)?];
        let graph = Graph::build(&context, |builder| {
            for (part, value) in parts.iter_mut().zip(1..) {
                let mut scratch = builder.alloc::<u32>(LEN)?;
                builder.add(|stream| stream.copy(&x, &mut scratch))?;
                builder.add(|stream| stream.fill(scratch.slice_mut(..500)?, value))?;
                builder.add(|stream| stream.copy(&scratch, part))?;
                builder.free(scratch)?;
            }
            // Freed at the end, though nothing uses it and the buffer is dropped before.
            drop(builder.alloc::<u32>(LEN)?);
            assert!(refusal(builder.free(stream.alloc::<u32>(LEN)?)).contains("not allocated by the graph"));
            assert_eq!(builder.alloc::<u32>(0)?.len(), 0);
            Ok(())
        })?;
        let texts = texts(&graph)?;
        let count = |text: &str| texts.iter().filter(|known| *known == text).count();
        assert_eq!((count("allocation"), count("free"), count("copy of 4000 bytes")), (3, 3, 4));
        // In parallel: each of the two copies goes through its own memory, and there is the third.
        let empty = count("empty node");
        assert_eq!((graph.node_count()? - empty, graph.edge_count()?), (12, 15), "{texts:?}");
        let mut exec = graph.instantiate()?;
        for _ in 0..4 {
            exec.launch(&stream)?;
            for (part, value) in parts.iter().zip(1..) {
                let expected = [[value; 500], [0; 500]].concat();
                assert_eq!(stream.download_vec(part)?, expected);
            }
        }
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn l_memory_of_a_graph_is_of_no_use_elsewhere() -> Result<()> {
        let (context, stream) = one_stream()?;
        let function = kernels::get(&context, "add_one")?;
        let mut x = stream.alloc_zeroed::<u32>(LEN)?;
        assert!(refusal(stream.alloc_in_graph::<u32>(1)).contains("not captured"));
        let mut kept = None;
        let graph = Graph::capture(&context, |stream| {
            let mut scratch = stream.alloc_in_graph::<u32>(LEN)?;
            stream.fill(&mut scratch, 3)?;
            stream.copy(&scratch, &mut x)?;
            kept = Some(scratch);
            Ok(())
        })?;
        let mut kept = kept.expect("it was captured");
        let refused = |done: Result<()>| {
            let why = refusal(done);
            assert!(why.contains(ELSEWHERE), "{why}");
        };
        let elsewhere = |stream: &Stream, kept: &mut DeviceBuffer<u32>, x: &mut DeviceBuffer<u32>| {
            refused(stream.fill(&mut *kept, 1));
            refused(stream.copy(&*kept, &mut *x));
            refused(stream.copy(&*x, &mut *kept));
            refused(add_one(stream, &function, kept));
            // SAFETY: nothing is enqueued.
            refused(unsafe { kept.note_use(stream, Access::Read) });
        };
        elsewhere(&stream, &mut kept, &mut x);
        refused(stream.download_vec(&kept).map(drop));
        let other = Graph::capture(&context, |stream| {
            elsewhere(stream, &mut kept, &mut x);
            stream.fill(&mut x, 4)
        })?;
        assert_eq!(other.node_count()?, 1, "the capture goes on");
        let (mut exec, copy) = (other.instantiate()?, other.nodes()?[0].id());
        let why = refusal(exec.set_fill(copy, &mut kept, 1));
        assert!(why.contains("a graph allocates"), "{why}");
        exec.launch(&stream)?;
        let mut exec = graph.instantiate()?;
        exec.launch(&stream)?;
        assert_eq!(stream.download_vec(&x)?, [3; LEN]);
        drop((exec, graph));
        refused(stream.fill(&mut kept, 1));
        kept.close().map_err(|rejected| rejected.error)
    }
}

gpu_test! {
    needs 1;
    fn l_a_graph_that_allocates_has_one_executable() -> Result<()> {
        let (context, stream) = one_stream()?;
        let (x, mut y) = (stream.alloc_zeroed::<u32>(LEN)?, stream.alloc::<u32>(LEN)?);
        let graph = through_scratch(&context, &x, &mut y)?;
        let other = through_scratch(&context, &x, &mut y)?;
        let mut exec = graph.instantiate()?;
        assert!(refusal(graph.instantiate()).contains("one executable"));
        assert!(refusal(exec.update(&other)).contains("its own executable"));
        let whole = Graph::capture(&context, |stream| {
            assert!(refusal(graph.include(stream)).contains("no part of another"));
            Ok(())
        })?;
        assert_eq!(whole.node_count()?, 0);
        exec.launch(&stream)?;
        stream.synchronize()?;
        drop(exec);
        let mut exec = graph.instantiate()?;
        stream.fill(&mut y, 0)?;
        exec.launch(&stream)?;
        assert_eq!(stream.download_vec(&y)?, [1; LEN]);
        Ok(())
    }
}

gpu_test! {
    needs 1, asynchronous;
    fn s41_a_launch_does_not_wait_in_the_driver_for_that_of_an_executable_that_was_dropped() -> Result<()> {
        let (context, one, two) = two_streams()?;
        let (x, mut y) = (one.alloc_zeroed::<u32>(LEN)?, one.alloc::<u32>(LEN)?);
        let graph = through_scratch(&context, &x, &mut y)?;
        let mut exec = graph.instantiate()?;
        let stalled = stall(one.as_raw());
        exec.launch(&one)?;
        drop(exec);
        let (launched, seen) = mpsc::channel::<()>();
        // Ends the stall, so that a launch that waits returns.
        let releases = thread::spawn(move || {
            let waits = seen.recv_timeout(Duration::from_secs(10)) == Err(RecvTimeoutError::Timeout);
            stalled.release();
            waits
        });
        let mut exec = graph.instantiate()?;
        exec.launch(&two)?;
        drop(launched);
        assert!(!releases.join().expect("it does not panic"), "the call waited for the first launch");
        assert_eq!(two.download_vec(&y)?, [1; LEN]);
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn l_a_capture_that_allocates_fails() -> Result<()> {
        let (context, stream) = one_stream()?;
        let mut kept = None;
        let failed = Graph::capture(&context, |stream| {
            let mut scratch = stream.alloc_in_graph::<u32>(LEN)?;
            stream.fill(&mut scratch, 1)?;
            kept = Some(scratch);
            stream.synchronize()
        });
        not_captured(failed, "cuStreamSynchronize");
        let mut kept = kept.expect("it was captured");
        assert!(refusal(stream.fill(&mut kept, 1)).contains(ELSEWHERE));
        let free = Graph::capture(&context, |stream| {
            stream.free_in_graph(kept)
        });
        assert!(refusal(free).contains("not allocated by the graph"));
        stream.synchronize()
    }
}

gpu_test! {
    needs 1;
    fn l_what_is_left_of_a_truncated_buffer_is_freed_where_it_is_captured() -> Result<()> {
        let context = context()?;
        let graph = Graph::capture(&context, |stream| {
            let mut scratch = stream.alloc_in_graph::<u32>(LEN)?;
            scratch.truncate(0);
            stream.free_in_graph(scratch)?;
            let mut other = stream.alloc_in_graph::<u32>(LEN)?;
            stream.fill(&mut other, 1)
        })?;
        let frees = graph.nodes()?.iter().position(|node| node.kind() == cuda_sys::CU_GRAPH_NODE_TYPE_MEM_FREE);
        assert_eq!(frees, Some(1), "{:?}", graph.nodes()?);
        Ok(())
    }
}

gpu_test! {
    needs 1, cuda_12_4;
    fn l_a_graph_is_extended_by_what_allocates() -> Result<()> {
        let (context, stream) = one_stream()?;
        let mut x = stream.alloc_zeroed::<u32>(LEN)?;
        let mut graph = Graph::capture(&context, |stream| stream.fill(&mut x, 7))?;
        let mut y = stream.alloc_zeroed::<u32>(LEN)?;
        graph.extend(|stream| {
            let mut scratch = stream.alloc_in_graph::<u32>(LEN)?;
            stream.copy(&x, &mut scratch)?;
            stream.copy(&scratch, &mut y)
        })?;
        assert_eq!((graph.node_count()?, graph.edge_count()?), (5, 4));
        let mut exec = graph.instantiate()?;
        for _ in 0..3 {
            exec.launch(&stream)?;
        }
        assert_eq!(stream.download_vec(&y)?, [7; LEN]);
        let refused = Graph::capture(&context, |stream| {
            let condition = Condition::new(stream, 1)?;
            condition.if_then(stream, |body| {
                not_captured(body.alloc_in_graph::<u32>(LEN), "cuMemAllocAsync");
                body.fill(&mut y, 8)
            })
        })?;
        refused.instantiate()?.launch(&stream)?;
        assert_eq!(stream.download_vec(&y)?, [8; LEN]);
        Ok(())
    }
}

gpu_test! {
    needs 2;
    fn l_memory_of_a_graph_is_copied_to_another_device() -> Result<()> {
        let (contexts, streams) = two_devices()?;
        let mut far = streams[1].alloc_with::<u32>(&Allocator::cache(), LEN)?;
        streams[1].fill(&mut far, 0)?;
        let graph = Graph::capture([&contexts[0], &contexts[1]], |[here, there]| {
            let mut scratch = here.alloc_in_graph::<u32>(LEN)?;
            here.fill(&mut scratch, 5)?;
            let why = refusal(there.copy(&scratch, &mut far));
            assert!(why.contains("device 1 needs access to the pool on device 0"), "{why}");
            here.copy(&scratch, &mut far)
        })?;
        graph.instantiate()?.launch(&streams[0])?;
        assert_eq!(streams[1].download_vec(&far)?, [5; LEN]);
        Ok(())
    }
}

gpu_test! {
    needs 2;
    fn l_memory_of_a_graph_is_refused_to_kernels_of_another_device() -> Result<()> {
        let contexts = [Device::get(0)?.context()?, Device::get(1)?.context()?];
        let function = kernels::get(&contexts[1], "add_one")?;
        let has_peer = Device::get(1)?.can_access_peer(Device::get(0)?)?;
        let graph = Graph::capture([&contexts[0], &contexts[1]], |[here, there]| {
            let mut scratch = here.alloc_in_graph::<u32>(LEN)?;
            here.fill(&mut scratch, 1)?;
            let refused = add_one(there, &function, &mut scratch);
            assert!(matches!(refused, Err(Error::WrongDevice(_))), "{refused:?}");
            // CUDA makes the memory accessible only to devices that had access when the allocation was
            // captured.
            if has_peer {
                contexts[1].enable_peer_access(&contexts[0])?;
                let refused = add_one(there, &function, &mut scratch);
                assert!(matches!(refused, Err(Error::WrongDevice(_))), "{refused:?}");
            }
            Ok(())
        })?;
        if has_peer {
            contexts[1].disable_peer_access(&contexts[0])?;
        }
        graph.instantiate()?.launch(&contexts[0].create_stream()?)
    }
}
