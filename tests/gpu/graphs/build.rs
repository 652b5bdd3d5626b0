//! Graphs that are built, nested, extended and inspected.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use cuda_core::{Batch, Event, EventFlags, Graph, Result, sys};
use support::{OnDrop, gpu_test, kernels, one_stream, refusal};

use super::{add_one, not_captured};

gpu_test! {
    needs 1;
    fn l_steps_have_the_dependencies_that_are_named() -> Result<()> {
        let (context, stream) = one_stream()?;
        let mut x = stream.alloc_zeroed::<u32>(100)?;
        let mut y = stream.alloc_zeroed::<u32>(100)?;
        let calls = Arc::new(AtomicUsize::new(0));
        let graph = Graph::build(&context, |builder| {
            let count = || {
                let calls = calls.clone();
                move || assert!(calls.fetch_add(1, Ordering::SeqCst) < 1000)
            };
            let one = builder.add(|stream| stream.fill(&mut x, 1))?;
            let free = builder.add_after(&[], |stream| stream.launch_host_func_each(count()))?;
            let both = builder.add_after(&[one, free], |_| Ok(()))?;
            let two = builder.add_after(&[both], |stream| {
                stream.fill(&mut y, 2)?;
                stream.launch_host_func_each(count())
            })?;
            assert!(one != free && both != two);
            let last = builder.add(|stream| stream.copy(&x, &mut y))?;
            assert_ne!(last, two);
            Ok(())
        })?;
        let kinds: Vec<_> = graph.nodes()?.iter().map(|node| node.kind()).collect();
        let count = |kind| kinds.iter().filter(|known| **known == kind).count();
        assert_eq!(count(sys::CU_GRAPH_NODE_TYPE_HOST), 2);
        assert_eq!(count(sys::CU_GRAPH_NODE_TYPE_EMPTY), 2, "where a step is not one operation");
        assert_eq!(count(sys::CU_GRAPH_NODE_TYPE_MEMSET), 2);
        // The copy depends on the fills of `x` and `y`.
        let edges = graph.edges()?;
        let copy = kinds.iter().position(|kind| *kind == sys::CU_GRAPH_NODE_TYPE_MEMCPY).expect("one");
        assert_eq!(edges.iter().filter(|(_, to)| *to == copy).count(), 2);
        let mut exec = graph.instantiate()?;
        exec.launch(&stream)?;
        exec.launch(&stream)?;
        assert_eq!(stream.download_vec(&y)?, [1; 100]);
        assert_eq!(calls.load(Ordering::SeqCst), 4);
        let other = Graph::capture(&context, |stream| stream.fill(&mut x, 1))?;
        let foreign = other.nodes()?[0].id();
        let refused = Graph::build(&context, |builder| {
            builder.add_after(&[foreign], |_| Ok(()))?;
            Ok(())
        });
        assert!(refusal(refused).contains("another graph"));
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn l_a_step_of_several_nodes_is_an_empty_one() -> Result<()> {
        let (context, stream) = one_stream()?;
        let ones = stream.upload_new(&[1u32; 100])?;
        let mut wide = stream.alloc_zeroed::<[u32; 2]>(1)?;
        let (mut a, mut b) = (stream.alloc_zeroed::<u32>(100)?, stream.alloc_zeroed::<u32>(100)?);
        let mut c = stream.alloc_zeroed::<u32>(100)?;
        let (mut steps, mut one) = (Vec::new(), None);
        let graph = Graph::build(&context, |builder| {
            steps.push(builder.add(|stream| stream.fill(&mut wide, [1, 2]))?);
            steps.push(builder.add(|stream| {
                let mut batch = Batch::new();
                batch.copy(&ones, &mut a)?;
                batch.copy(&ones, &mut b)?;
                stream.enqueue(batch)
            })?);
            one = Some(builder.add_after(&steps, |stream| stream.fill(&mut c, 1))?);
            Ok(())
        })?;
        let kind = |id| {
            let nodes = graph.nodes().expect("a list");
            nodes.iter().find(|node| node.id() == id).expect("a node of the graph").kind()
        };
        assert_eq!(kind(one.expect("added")), sys::CU_GRAPH_NODE_TYPE_MEMSET);
        let mut exec = graph.instantiate()?;
        for step in steps {
            assert_eq!(kind(step), sys::CU_GRAPH_NODE_TYPE_EMPTY);
            exec.set_enabled(step, false).expect_err("the node has no operation");
            exec.set_copy(step, &ones, &mut c).expect_err("the node is no copy");
            exec.set_fill(step, &mut c, 2).expect_err("the node is no fill");
        }
        exec.launch(&stream)?;
        assert_eq!(stream.download_vec(&wide)?, [[1, 2]]);
        assert_eq!([stream.download_vec(&a)?, stream.download_vec(&b)?], [[1; 100], [1; 100]]);
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn l_a_step_that_only_waits_has_a_node_of_its_own() -> Result<()> {
        let (context, stream) = one_stream()?;
        let mut x = stream.alloc_zeroed::<u32>(100)?;
        let event = Event::new(&context, EventFlags::DISABLE_TIMING)?;
        let (mut steps, mut first) = (Vec::new(), None);
        let graph = Graph::build([&context, &context], |[one, two]| {
            steps.push(one.add(|stream| {
                first = Some(stream.clone());
                stream.fill(&mut x, 1)?;
                event.record(stream)
            })?);
            steps.push(two.add(|stream| stream.wait_stream(first.as_ref().expect("kept")))?);
            steps.push(two.add(|stream| stream.wait_event(&event))?);
            // SAFETY: nothing is enqueued.
            steps.push(two.add(|stream| unsafe { stream.work().enqueue(|_| ()) })?);
            Ok(())
        })?;
        steps.sort_by_key(|step| format!("{step:?}"));
        steps.dedup();
        assert_eq!((steps.len(), graph.node_count()?), (4, 4), "{graph}");
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn l_a_step_ends_by_a_panic() -> Result<()> {
        let (context, stream) = one_stream()?;
        let mut x = stream.alloc_zeroed::<u32>(100)?;
        let graph = Graph::build(&context, |builder| {
            let panicked = catch_unwind(AssertUnwindSafe(|| {
                builder.add(|stream| {
                    stream.fill(&mut x, 1)?;
                    panic!("on purpose")
                })
            }));
            panicked.expect_err("the step panics");
            builder.add(|stream| stream.fill(&mut x, 2))?;
            Ok(())
        })?;
        assert_eq!((graph.node_count()?, graph.edge_count()?), (2, 1));
        graph.instantiate()?.launch(&stream)?;
        assert_eq!(stream.download_vec(&x)?, [2; 100]);
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn l_graphs_in_graphs() -> Result<()> {
        let (context, stream) = one_stream()?;
        let function = kernels::get(&context, "add_one")?;
        let mut x = stream.alloc_zeroed::<u32>(100)?;
        let step = Graph::capture(&context, |stream| add_one(stream, &function, &mut x))?;
        assert!(refusal(step.include(&stream)).contains("not captured"));
        let graph = Graph::capture(&context, |stream| {
            step.include(stream)?;
            add_one(stream, &function, &mut x)?;
            step.include(stream)
        })?;
        let flow = Graph::capture_by_access(&context, |stream| {
            step.include(stream)?;
            step.include(stream)
        })?;
        assert_eq!((flow.node_count()?, flow.edge_count()?), (2, 1), "both use the same memory");
        drop((step, function));
        graph.instantiate()?.launch(&stream)?;
        flow.instantiate()?.launch(&stream)?;
        assert_eq!(stream.download_vec(&x)?, [5; 100]);
        drop(x);
        graph.instantiate()?.launch(&stream)?; // the child's memory is kept
        stream.synchronize()
    }
}

gpu_test! {
    needs 1, cuda_12_4;
    fn l_a_graph_is_extended() -> Result<()> {
        let (context, stream) = one_stream()?;
        let mut x = stream.alloc_zeroed::<u32>(100)?;
        let mut y = stream.alloc_zeroed::<u32>(100)?;
        let mut graph = Graph::capture(&context, |stream| stream.fill(&mut x, 3))?;
        graph.extend(|stream| stream.copy(&x, &mut y))?;
        assert_eq!((graph.node_count()?, graph.edge_count()?), (2, 1));
        let mut exec = graph.instantiate()?;
        let refused = graph.extend(|stream| stream.fill(&mut y, 4));
        assert!(refusal(refused).contains("executable"));
        exec.launch(&stream)?;
        assert_eq!(stream.download_vec(&y)?, [3; 100]);
        drop(exec);
        let failed = graph.extend(|stream| stream.synchronize());
        not_captured(failed, "cuStreamSynchronize");
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            graph.extend(|_| panic!("on purpose"))
        }));
        assert!(panicked.is_err());
        drop((x, y));
        graph.instantiate()?.launch(&stream)?;
        stream.synchronize()
    }
}

gpu_test! {
    needs 1;
    fn l_a_graph_of_other_code() -> Result<()> {
        let (context, stream) = one_stream()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the call writes one handle, to a local that outlives it.
        support::check("cuGraphCreate", unsafe { cuda_sys::cuGraphCreate(&mut raw, 0) });
        let dropped = Arc::new(AtomicUsize::new(0));
        let counter = dropped.clone();
        let owner = OnDrop(move || _ = counter.fetch_add(1, Ordering::SeqCst));
        // SAFETY: the graph was made above, and is not used elsewhere; it has no operation.
        let graph = unsafe { Graph::from_raw(raw, &context, owner) }?;
        assert_eq!(graph.as_raw(), raw);
        let mut exec = graph.instantiate()?;
        exec.launch(&stream)?;
        stream.synchronize()?;
        drop(graph);
        assert_eq!(dropped.load(Ordering::SeqCst), 0);
        drop(exec);
        cuda_core::drops::flush();
        assert_eq!(dropped.load(Ordering::SeqCst), 1);
        Ok(())
    }
}

gpu_test! {
    needs 1, cuda_12_4;
    fn l_what_a_graph_looks_like() -> Result<()> {
        let (context, stream) = one_stream()?;
        let function = kernels::get(&context, "add_one")?;
        let mut x = stream.alloc_zeroed::<u32>(64)?;
        let mut y = stream.alloc_zeroed::<u32>(64)?;
        let graph = Graph::capture(&context, |stream| {
            stream.fill(&mut x, 1)?;
            add_one(stream, &function, &mut x)?;
            stream.copy(&x, &mut y)
        })?;
        let nodes = graph.nodes()?;
        let text: Vec<String> = nodes.iter().map(ToString::to_string).collect();
        assert_eq!(text[0], "fill of 256 bytes");
        assert!(text[1].starts_with("add_one <<<1, "), "{}", text[1]);
        assert_eq!(text[2], "copy of 256 bytes");
        assert_eq!(graph.edges()?, [(0, 1), (1, 2)]);
        let summary = graph.to_string();
        assert!(summary.starts_with("3 nodes (fill x 1, kernel x 1, copy x 1), 2 dependencies, memory of 2"), "{summary}");
        let single = Graph::capture(&context, |stream| stream.fill(&mut x, 1))?.to_string();
        assert_eq!(single, "1 node (fill x 1), 0 dependencies, memory of 1 allocation");
        let picture = graph.to_svg()?;
        assert!(picture.contains("add_one &lt;&lt;&lt;1"), "{picture}");
        assert_eq!(picture.matches("url(#arrow)").count(), 2);
        assert!(picture.contains(">stream 0, device 0<"), "{picture}");
        assert!(picture.contains("copy of 256 bytes (stream 0, device 0)</title>"), "{picture}");
        assert!(!picture.contains("stream 1"), "{picture}");
        let picture = Graph::capture([&context, &context], |[one, two]| {
            two.fill(&mut x, 1)?;
            two.fill(stream.alloc::<u64>(1000)?.as_view_mut(), 1)?; // of several nodes
            one.fill(&mut y, 1)
        })?;
        let picture = picture.to_svg()?;
        let count = |number: u32| picture.matches(&format!("(stream {number}, device 0)")).count();
        assert!(count(0) == 1 && count(1) > 2, "{picture}");
        let file = std::env::temp_dir().join(format!("graph-{}.dot", std::process::id()));
        graph.debug_dot(&file)?;
        let dot = std::fs::read_to_string(&file).expect("the driver wrote it");
        assert!(dot.contains("digraph"), "{dot}");
        std::fs::remove_file(file).expect("it was there");
        #[cfg(target_os = "linux")]
        {
            use std::os::unix::ffi::OsStringExt;
            let name = [format!("graph-{}", std::process::id()).as_bytes(), b"\xff.dot"].concat();
            let file = std::env::temp_dir().join(std::ffi::OsString::from_vec(name));
            graph.debug_dot(&file)?;
            std::fs::remove_file(file).expect("the driver wrote it");
        }
        let refused = refusal(graph.debug_dot("/no/such/folder/graph.dot"));
        assert_eq!(refused, "the driver could not write \"/no/such/folder/graph.dot\"");
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn l_a_picture_with_long_edges_is_small() -> Result<()> {
        let (context, stream) = one_stream()?;
        let (mut x, mut y) = (stream.alloc_zeroed::<u32>(10)?, stream.alloc_zeroed::<u32>(10)?);
        let graph = Graph::capture_by_access(&context, |stream| {
            for _ in 0..500 {
                stream.copy(&x, &mut y)?; // a chain, by `y`
            }
            stream.fill(&mut x, 1) // behind all that read it
        })?;
        assert_eq!(graph.edge_count()?, 499 + 500);
        let bytes = graph.to_svg()?.len();
        assert!(bytes < 2_000_000, "{bytes}: it grows with the square of the nodes");
        Ok(())
    }
}
