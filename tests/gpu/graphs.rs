//! Graphs: captured, kept alive, ordered, launched (chapter L).

use std::thread;

use cuda_core::{
    Context, Device, DeviceBuffer, Error, Event, EventFlags, Graph, PinnedBuffer, Result, Stream,
};
use support::{gpu_test, kernels, one_stream, refusal, stall, two_streams};

use crate::capture;

mod access;
mod alone;
mod between;
mod build;
mod change;
mod conditions;
mod cublas;
mod devices;
mod dimensions;
mod ends;
mod events;
mod extend;
mod kinds;
mod left_out;
mod lending;
mod memory;
mod order;
mod owned;
mod programs;
mod raw;
mod refused;
mod resources;
mod rows;
mod signals;
mod streams;
mod textures;
mod waits;

pub(crate) fn context() -> Result<Context> {
    Device::get(0)?.context()
}

/// Asserts that a capture refused the operation of this name.
#[track_caller]
pub(crate) fn not_captured<R>(done: Result<R>, name: &str) {
    match done {
        Err(Error::NotCapturable { op, .. }) => assert_eq!(op, name),
        Err(other) => panic!("{name}: {other}"),
        Ok(_) => panic!("{name}: done in a capture"),
    }
}

/// Fills a buffer by a raw call, as another library does.
pub(crate) fn raw_fill(stream: &Stream, x: &mut DeviceBuffer<u32>, value: u32) -> Result<()> {
    let (address, len) = (x.as_raw(), x.len());
    let fill = |stream| {
        // SAFETY: the buffer has `len` elements; the stream is live.
        unsafe { cuda_sys::cuMemsetD32Async(address, value, len, stream) }
    };
    // SAFETY: the call fills the named buffer, on the stream that it is given.
    let filled = unsafe { stream.work().write(x).enqueue(fill) }?;
    support::check("cuMemsetD32Async", filled);
    Ok(())
}

/// Adds one to each element by a kernel.
pub(crate) fn add_one(
    stream: &Stream,
    function: &cuda_core::Function,
    x: &mut cuda_core::DeviceBuffer<u32>,
) -> Result<()> {
    let n = x.len();
    // SAFETY: add_one(u32 *x, u32 n) reads and writes `n` elements.
    unsafe { stream.kernel(function).elements(n).arg(x).arg(n as u32).launch() }
}

gpu_test! {
    needs 1;
    fn l_static_inputs() -> Result<()> {
        let (context, stream) = one_stream()?;
        let function = kernels::get(&context, "add_one")?;
        let mut x = stream.alloc::<u32>(1000)?;
        let mut y = stream.alloc::<u32>(1000)?;
        let graph = Graph::capture(&context, |stream| {
            add_one(stream, &function, &mut x)?;
            stream.copy(&x, &mut y)
        })?;
        assert_eq!(graph.node_count()?, 2);
        drop(function); // the graph keeps its module
        let mut exec = graph.instantiate()?;
        drop(graph);
        for step in 0..5 {
            stream.upload(&[step; 1000], &mut x)?;
            exec.launch(&stream)?;
            assert_eq!(stream.download_vec(&y)?, [step + 1; 1000]);
        }
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn l_ordinary_code_is_captured() -> Result<()> {
        fn work(stream: &Stream, x: &mut cuda_core::DeviceBuffer<u32>) -> Result<()> {
            stream.fill(&mut *x, 7)?;
            stream.fill_bytes(x.slice_mut(..8)?, 0xFF)?;
            let mut y = stream.alloc::<u32>(64)?;
            let mut batch = cuda_core::Batch::new();
            let (low, high) = y.split_at_mut(32)?;
            batch.copy(x.slice(..32)?, low)?;
            batch.copy(x.slice(32..64)?, high)?;
            stream.enqueue(batch)?;
            stream.copy_within(&mut y, 0..8, 32)?;
            let event = Event::new(stream.context(), EventFlags::DISABLE_TIMING)?;
            event.record(stream)?;
            stream.wait_event(&event)?;
            stream.wait_stream(stream)?;
            stream.copy(&y, x)
        }
        let (context, stream) = one_stream()?;
        let mut x = stream.alloc::<u32>(64)?;
        work(&stream, &mut x)?;
        let expected = stream.download_vec(&x)?;
        let graph = Graph::capture(&context, |stream| work(stream, &mut x))?;
        let mut exec = graph.instantiate()?;
        for _ in 0..3 {
            stream.fill(&mut x, 0)?;
            exec.launch(&stream)?;
            assert_eq!(stream.download_vec(&x)?, expected);
        }
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn l03_is_capturing() -> Result<()> {
        let (context, outside) = one_stream()?;
        let mut kept = None;
        Graph::capture(&context, |stream| {
            assert!(capture::is_capturing(stream.as_raw()));
            assert!(!capture::is_capturing(outside.as_raw()));
            assert!(stream.is_capturing()? && !outside.is_capturing()?);
            kept = Some(stream.clone());
            Ok(())
        })?;
        let kept = kept.expect("it was captured");
        assert!(!capture::is_capturing(kept.as_raw()) && !kept.is_capturing()?);
        let mut x = outside.alloc::<u32>(1)?;
        for done in [kept.fill(&mut x, 1), kept.synchronize(), kept.launch_host_func(|| ())] {
            let why = "the capture that this stream was made for has ended: enqueue on another stream";
            assert_eq!(refusal(done), why);
        }
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn s40_other_threads_work_stays_out() -> Result<()> {
        let (context, stream) = one_stream()?;
        let mut x = stream.alloc_zeroed::<u32>(100)?;
        let mut theirs = stream.alloc_zeroed::<u32>(100)?;
        let graph = Graph::capture(&context, |captured| {
            captured.fill(&mut x, 1)?;
            thread::scope(|scope| {
                let other = scope.spawn(|| {
                    stream.upload(&[7; 100], &mut theirs)?;
                    context.default_stream()?.fill(&mut theirs, 8)?;
                    let fresh = context.create_stream()?.alloc_zeroed::<u32>(1 << 16)?;
                    stream.synchronize()?;
                    assert_eq!(stream.download_vec(&theirs)?, [8; 100], "it ran at once");
                    fresh.close().map_err(|rejected| rejected.error)
                });
                other.join().expect("the thread ends")
            })?;
            captured.fill(&mut x, 2)
        })?;
        assert_eq!(graph.node_count()?, 2);
        stream.fill(&mut theirs, 0)?;
        graph.instantiate()?.launch(&stream)?;
        assert_eq!(stream.download_vec(&theirs)?, [0; 100]);
        assert_eq!(stream.download_vec(&x)?, [2; 100]);
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn l05_streams_of_a_capture_fork_and_join() -> Result<()> {
        let (context, stream) = one_stream()?;
        let function = kernels::get(&context, "add_one")?;
        let mut parts = [stream.alloc::<u32>(100)?, stream.alloc::<u32>(100)?];
        let mut both = stream.alloc::<u32>(200)?;
        let graph = Graph::capture([&context, &context], |[one, two]| {
            let [first, second] = &mut parts;
            one.fill(&mut *first, 1)?;
            two.fill(&mut *second, 10)?;
            add_one(two, &function, second)?;
            add_one(one, &function, first)?;
            let (low, high) = both.split_at_mut(100)?;
            one.copy(&*second, high)?; // after the other stream's kernel
            two.copy(&*first, low) // after this one's
        })?;
        let mut exec = graph.instantiate()?;
        for _ in 0..3 {
            stream.fill(&mut both, 0)?;
            exec.launch(&stream)?;
            let sum: u32 = stream.download_vec(&both)?.iter().sum();
            assert_eq!(sum, 100 * 2 + 100 * 11);
        }
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn l08_what_cannot_be_captured_is_refused_and_the_capture_survives() -> Result<()> {
        let (context, stream) = one_stream()?;
        let mut x = stream.alloc_zeroed::<u32>(100)?;
        let outside = Event::new(&context, EventFlags::DISABLE_TIMING)?;
        outside.record(&stream)?;
        let inside = Event::new(&context, EventFlags::DISABLE_TIMING)?;
        let says = |refused: Result<()>, text: &str| {
            let refused = refused.expect_err("a stream outside that waits");
            assert!(refused.to_string().contains(text), "{refused}");
        };
        let other = context.create_stream()?;
        let graph = Graph::capture(&context, |captured| {
            not_captured(captured.synchronize(), "cuStreamSynchronize");
            not_captured(captured.query(), "cuStreamQuery");
            not_captured(captured.upload(&[1; 100], &mut x), "cuMemcpyHtoDAsync");
            not_captured(captured.download(&x, &mut [0; 100]), "cuMemcpyDtoHAsync");
            not_captured(captured.download_vec(&x), "cuMemcpyDtoHAsync");
            not_captured(captured.upload_owned(vec![1; 100], &mut x).map_err(|r| r.error), "cuMemcpyHtoDAsync");
            not_captured(captured.wait_event(&outside), "cuStreamWaitEvent");
            not_captured(captured.wait_stream(&stream), "cuStreamWaitEvent");
            not_captured(captured.launch_host_func(|| ()), "cuLaunchHostFunc");
            not_captured(captured.checkpoint(), "cuEventRecord");
            inside.record(captured)?;
            not_captured(inside.synchronize(), "cuEventSynchronize");
            not_captured(inside.query(), "cuEventQuery");
            says(stream.wait_event(&inside), "`Graph::capture`");
            says(stream.wait_event(&inside), "the event was last recorded in a capture");
            says(stream.wait_stream(captured), "`Graph::capture`");
            captured.wait_event(&inside)?;
            inside.record(&stream)?;
            inside.synchronize()?;
            not_captured(captured.wait_event(&inside), "cuStreamWaitEvent");
            inside.record(captured)?;
            captured.fill(&mut x, 3)
        })?;
        says(stream.wait_event(&inside), "the event was last recorded in a capture");
        // The event can be used again.
        inside.record(&stream)?;
        inside.synchronize()?;
        graph.instantiate()?.launch(&stream)?;
        assert_eq!(stream.download_vec(&x)?, [3; 100]);
        other.synchronize()
    }
}

gpu_test! {
    needs 1;
    fn l13_s33_a_capture_ends_with_its_closure() -> Result<()> {
        let (context, stream) = one_stream()?;
        let mut x = stream.alloc_zeroed::<u32>(100)?;
        let failed = Graph::capture(&context, |captured| {
            captured.fill(&mut x, 1)?;
            captured.synchronize()
        });
        not_captured(failed, "cuStreamSynchronize");
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            Graph::capture(&context, |captured| {
                captured.fill(&mut x, 1)?;
                panic!("on purpose")
            })
        }));
        assert!(panicked.is_err());
        // The capture does not join these two streams.
        for panics in [false, true] {
            let on_both = || {
                Graph::capture([&context, &context], |[one, two]| {
                    one.fill(x.slice_mut(..50)?, 1)?;
                    two.fill(x.slice_mut(50..)?, 1)?;
                    assert!(!panics, "on purpose");
                    two.synchronize()
                })
            };
            match std::panic::catch_unwind(std::panic::AssertUnwindSafe(on_both)) {
                Ok(failed) => not_captured(failed, "cuStreamSynchronize"),
                Err(_) => assert!(panics),
            }
        }
        context.synchronize()?; // would end a capture, and is refused during one
        assert_eq!(stream.download_vec(&x)?, [0; 100], "nothing ran");
        let graph = Graph::capture([&context, &context], |[_, two]| two.fill(&mut x, 2))?;
        graph.instantiate()?.launch(&stream)?;
        assert_eq!(stream.download_vec(&x)?, [2; 100]);
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn l15_an_empty_graph() -> Result<()> {
        let (context, stream) = one_stream()?;
        let graph = Graph::capture(&context, |_| Ok(()))?;
        assert_eq!(graph.node_count()?, 0);
        let mut exec = graph.instantiate()?;
        exec.upload(&stream)?;
        exec.launch(&stream)?;
        stream.synchronize()?;
        exec.close()?;
        Ok(graph.close()?)
    }
}

gpu_test! {
    needs 1;
    fn l19_s07_a_graph_keeps_its_memory() -> Result<()> {
        let (context, stream) = one_stream()?;
        let mut x = stream.alloc::<u32>(1 << 16)?;
        let mut y = stream.alloc::<u32>(1 << 16)?;
        let mut sink = stream.alloc::<u32>(1 << 16)?;
        let address = x.as_raw();
        let graph = Graph::capture(&context, |stream| {
            stream.fill(&mut x, 5)?;
            stream.copy(&x, &mut y)?;
            stream.copy(&y, &mut sink)
        })?;
        drop((x, y));
        let mut exec = graph.instantiate()?;
        drop(graph);
        let mut poison = Vec::new();
        for _ in 0..8 {
            let mut taken = stream.alloc::<u32>(1 << 16)?;
            assert_ne!(taken.as_raw(), address, "the graph's memory was given away");
            stream.fill(&mut taken, 0xDEAD)?;
            poison.push(taken);
        }
        exec.launch(&stream)?;
        assert_eq!(stream.download_vec(&sink)?, vec![5; 1 << 16]);
        for taken in &poison {
            assert!(stream.download_vec(taken)?.iter().all(|word| *word == 0xDEAD));
        }
        drop(exec);
        Ok(())
    }
}

gpu_test! {
    needs 1, asynchronous;
    fn l20_dropped_while_running() -> Result<()> {
        let (context, stream) = one_stream()?;
        let function = kernels::get(&context, "add_one")?;
        let mut x = stream.alloc_zeroed::<u32>(1000)?;
        let graph = Graph::capture(&context, |stream| add_one(stream, &function, &mut x))?;
        let mut exec = graph.instantiate()?;
        let stalled = stall(stream.as_raw());
        exec.launch(&stream)?;
        drop((exec, graph, function));
        stalled.release();
        assert_eq!(stream.download_vec(&x)?, [1; 1000]);
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn l22_memory_allocated_and_freed_in_a_capture() -> Result<()> {
        let (context, stream, other) = two_streams()?;
        let mut y = stream.alloc::<u32>(1000)?;
        let mut used_elsewhere = other.alloc_zeroed::<u32>(1000)?;
        stream.fill(&mut used_elsewhere, 2)?;
        let graph = Graph::capture(&context, |captured| {
            let mut scratch = captured.alloc_zeroed::<u32>(1000)?;
            captured.copy(&used_elsewhere, &mut scratch)?;
            drop(used_elsewhere);
            captured.copy(&scratch, &mut y)
        })?;
        let mut exec = graph.instantiate()?;
        exec.launch(&other)?;
        assert_eq!(stream.download_vec(&y)?, [2; 1000]);
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn l_an_executable_is_moved_between_streams() -> Result<()> {
        let context = context()?;
        let streams = [context.create_stream()?, context.create_stream()?, context.create_stream()?];
        let function = kernels::get(&context, "add_one")?;
        let mut x = streams[0].alloc_zeroed::<u32>(1000)?;
        let graph = Graph::capture(&context, |stream| add_one(stream, &function, &mut x))?;
        let mut exec = graph.instantiate()?;
        let mut second = graph.instantiate()?;
        for stream in streams.iter().cycle().take(9) {
            exec.launch(stream)?;
            second.launch(stream)?;
        }
        assert_eq!(streams[1].download_vec(&x)?, [18; 1000]);
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn l_nothing_leaks_over_many_graphs() -> Result<()> {
        let (context, stream) = one_stream()?;
        let mut host = PinnedBuffer::<u32>::new(&context, 100)?;
        let mut x = stream.alloc_zeroed::<u32>(100)?;
        for round in 0..20 {
            let graph = Graph::capture(&context, |stream| {
                let mut y = stream.alloc::<u32>(100)?;
                stream.fill(&mut y, round)?;
                stream.copy(&y, &mut x)?;
                stream.download(&x, &mut host)
            })?;
            let mut exec = graph.instantiate()?;
            exec.lend_mut(&mut host).launch(&stream)?;
            assert_eq!(host.as_slice()?, [round; 100]);
        }
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn l_launches_on_default_streams() -> Result<()> {
        let (context, stream) = one_stream()?;
        let function = kernels::get(&context, "add_one")?;
        let mut x = stream.alloc_zeroed::<u32>(100)?;
        let graph = Graph::capture(&context, |stream| add_one(stream, &function, &mut x))?;
        let mut exec = graph.instantiate()?;
        exec.launch(&context.default_stream()?)?;
        exec.launch(&context.per_thread_stream()?)?;
        exec.launch(&stream)?;
        assert_eq!(stream.download_vec(&x)?, [3; 100]);
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn l_a_graph_is_closed_before_its_executables() -> Result<()> {
        let (context, stream) = one_stream()?;
        let mut x = stream.alloc_zeroed::<u32>(100)?;
        let graph = Graph::capture(&context, |stream| stream.fill(&mut x, 4))?;
        let mut exec = graph.instantiate()?;
        let node = graph.nodes()?[0].id();
        graph.close()?;
        exec.set_enabled(node, true)?;
        exec.launch(&stream)?;
        assert_eq!(stream.download_vec(&x)?, [4; 100]);
        Ok(exec.close()?)
    }
}

gpu_test! {
    needs 1;
    fn l_a_panic_in_a_graphs_function_stays_there() -> Result<()> {
        let (context, stream) = one_stream()?;
        let graph = Graph::capture(&context, |stream| {
            stream.launch_host_func_each(|| panic!("on purpose"))
        })?;
        let mut exec = graph.instantiate()?;
        support::expect_drop_failures(2);
        exec.launch(&stream)?;
        exec.launch(&stream)?;
        stream.synchronize()
    }
}
