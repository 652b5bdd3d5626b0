//! Graphs captured by access.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use cuda_core::{Access, DeviceBuffer, Graph, PinnedBuffer, Result, Stream};
use support::{gpu_test, one_stream, refusal, stall, two_streams};

use super::raw_fill;

const LEN: usize = 64;

fn buffers(stream: &Stream) -> Result<Vec<DeviceBuffer<u32>>> {
    (0..4).map(|_| stream.alloc_zeroed::<u32>(LEN)).collect()
}

gpu_test! {
    needs 1;
    fn l_independent_operations_do_not_depend_on_each_other() -> Result<()> {
        let (context, stream) = one_stream()?;
        let mut parts = buffers(&stream)?;
        let mut whole = stream.alloc_zeroed::<u32>(4 * LEN)?;
        let graph = Graph::capture_by_access(&context, |stream| {
            for part in &mut parts {
                stream.fill(part, 3)?;
            }
            for (part, to) in parts.iter().zip(whole.chunks_mut(LEN)?) {
                stream.copy(part, to)?;
            }
            Ok(())
        })?;
        assert_eq!(graph.node_count()?, 8);
        assert_eq!(graph.edge_count()?, 4, "each copy after one fill");
        graph.instantiate()?.launch(&stream)?;
        assert_eq!(stream.download_vec(&whole)?, [3; 4 * LEN]);
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn l_host_functions_are_barriers() -> Result<()> {
        let (context, stream) = one_stream()?;
        let mut parts = buffers(&stream)?;
        let graph = Graph::capture_by_access(&context, |stream| {
            for part in &mut parts {
                stream.fill(part, 1)?;
            }
            stream.launch_host_func_each(|| ())?;
            for part in &mut parts {
                stream.fill(part, 2)?;
            }
            Ok(())
        })?;
        assert_eq!((graph.node_count()?, graph.edge_count()?), (9, 8));
        graph.instantiate()?.launch(&stream)?;
        assert_eq!(stream.download_vec(&parts[3])?, [2; LEN]);
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn l_host_functions_that_name_memory_are_no_barriers() -> Result<()> {
        let (context, stream) = one_stream()?;
        let mut parts = buffers(&stream)?;
        let mut host = PinnedBuffer::<u32>::zeroed(&context, LEN)?;
        let calls = Arc::new(AtomicUsize::new(0));
        let called = || {
            let calls = calls.clone();
            move || assert!(calls.fetch_add(1, Ordering::SeqCst) < 1000)
        };
        let graph = Graph::capture_by_access(&context, |stream| {
            let [first, second, third, _] = &mut parts[..] else { panic!("four") };
            stream.fill(&mut *first, 1)?;
            stream.fill(&mut *second, 2)?;
            stream.download(&*first, &mut host)?;
            stream.work().read(&host).launch_host_func_each(called())?; // after the download
            stream.work().read(&host).write(second.slice_mut(..8)?).launch_host_func_each(called())?; // and a fill
            stream.fill(&mut *third, 3)?;
            stream.copy(&*second, third) // after the second function and two fills
        })?;
        let edges = graph.edges()?;
        let behind = |node: usize| edges.iter().filter(|(_, to)| *to == node).count();
        assert_eq!((0..7).map(behind).collect::<Vec<_>>(), [0, 0, 1, 1, 2, 0, 3], "{edges:?}");
        let mut exec = graph.instantiate()?;
        assert!(refusal(exec.launch(&stream)).contains("`lend_mut`"));
        for step in 1..4 {
            exec.lend_mut(&mut host).launch(&stream)?;
            assert_eq!(host.as_slice()?, [1; LEN]);
            assert_eq!(stream.download_vec(&parts[2])?, [2; LEN]);
            assert_eq!(calls.load(Ordering::SeqCst), 2 * step);
        }
        Ok(())
    }
}

gpu_test! {
    needs 1, asynchronous;
    fn c_host_functions_are_ordered_by_the_memory_that_they_name() -> Result<()> {
        let (context, stream, other) = two_streams()?;
        let mut host = PinnedBuffer::<u32>::zeroed(&context, LEN)?;
        let x = other.alloc_zeroed::<u32>(LEN)?;
        let called = Arc::new(AtomicBool::new(false));
        let call = || {
            let called = called.clone();
            move || called.store(true, Ordering::SeqCst)
        };
        context.synchronize()?;
        let stalled = stall(other.as_raw());
        other.download(&x, &mut host)?;
        stream.work().read(&host).launch_host_func(call())?;
        assert!(!stream.query()? && !called.load(Ordering::SeqCst), "it waits for the download");
        stalled.release();
        assert_eq!(host.as_mut_slice()?.len(), LEN);
        assert!(called.swap(false, Ordering::SeqCst), "the host waited for it");
        let stalled = stall(stream.as_raw());
        stream.work().write(&mut host).launch_host_func_each(call())?;
        other.download(&x, &mut host)?;
        assert!(!other.query()? && !called.load(Ordering::SeqCst), "the download waits for it");
        stalled.release();
        other.synchronize()?;
        assert!(called.load(Ordering::SeqCst));
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn l_noted_work_of_other_code_is_ordered() -> Result<()> {
        let (context, stream) = one_stream()?;
        let mut x = stream.alloc_zeroed::<u32>(LEN)?;
        let y = stream.alloc_zeroed::<u32>(LEN)?;
        let mut z = stream.alloc_zeroed::<u32>(LEN)?;
        let graph = Graph::capture_by_access(&context, |stream| {
            stream.fill(&mut z, 1)?;
            stream.fill(&mut x, 4)?;
            let (from, to) = (x.as_raw(), y.as_raw());
            // SAFETY: nothing else uses the two buffers until both uses are noted again.
            unsafe { x.note_use(stream, Access::Read) }?;
            // SAFETY: as above.
            unsafe { y.note_use(stream, Access::Write) }?;
            // SAFETY: both buffers have `LEN` elements, which the graph keeps.
            let code = unsafe { cuda_sys::cuMemcpyDtoDAsync_v2(to, from, LEN * 4, stream.as_raw()) };
            support::check("cuMemcpyDtoDAsync", code);
            // SAFETY: as above.
            unsafe { x.note_use(stream, Access::Read) }?;
            // SAFETY: as above.
            unsafe { y.note_use(stream, Access::Write) }?;
            stream.copy(&y, &mut z)
        })?;
        let mut exec = graph.instantiate()?;
        for _ in 0..8 {
            exec.launch(&stream)?;
            assert_eq!(stream.download_vec(&z)?, [4; LEN]);
        }
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn l_a_graph_with_a_host_function_is_a_barrier() -> Result<()> {
        let (context, stream) = one_stream()?;
        let mut parts = buffers(&stream)?;
        let [before, inside, after, _] = &mut parts[..] else { panic!("four") };
        let child = Graph::capture(&context, |stream| {
            stream.fill(&mut *inside, 1)?;
            stream.launch_host_func_each(|| ())
        })?;
        let graph = Graph::capture_by_access(&context, |stream| {
            stream.fill(&mut *before, 1)?;
            child.include(stream)?; // after the fill, for its host function
            stream.fill(&mut *after, 1)
        })?;
        assert_eq!(graph.edges()?, [(0, 1), (1, 2)]);
        Ok(())
    }
}

// A library may have memory of its own that all its work on a stream shares.
gpu_test! {
    needs 1;
    fn l_work_of_other_code_runs_in_the_order_of_the_calls() -> Result<()> {
        let (context, stream) = one_stream()?;
        let mut parts = buffers(&stream)?;
        let graph = Graph::capture_by_access(&context, |stream| {
            let [first, second, third, beside] = &mut *parts else { unreachable!("there are four") };
            raw_fill(stream, first, 5)?;
            stream.fill(beside, 5)?;
            raw_fill(stream, second, 5)?;
            stream.fill(&mut *third, 4)?;
            raw_fill(stream, third, 5)
        })?;
        // The last one comes after the one before, and after the fill of the same memory.
        assert_eq!((graph.node_count()?, graph.edge_count()?), (5, 3));
        graph.instantiate()?.launch(&stream)?;
        for part in &parts {
            assert_eq!(stream.download_vec(part)?, [5; LEN]);
        }
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn l_work_of_other_code_that_is_noted_by_hand_runs_in_the_order_of_the_calls() -> Result<()> {
        let (context, stream) = one_stream()?;
        let mut parts = buffers(&stream)?;
        let graph = Graph::capture_by_access(&context, |stream| {
            let [first, second, beside, _] = &mut *parts else { unreachable!("there are four") };
            let fill = |part: &DeviceBuffer<u32>| {
                // SAFETY: the buffer has as many elements, and its use is noted before and after.
                unsafe { cuda_sys::cuMemsetD32Async(part.as_raw(), 5, LEN, stream.as_raw()) }
            };
            for (number, part) in [first, second].into_iter().enumerate() {
                // SAFETY: the stream's fill of another buffer is all that comes between the two notes.
                unsafe { part.note_use(stream, Access::Write) }?;
                if number == 1 {
                    stream.fill(&mut *beside, 5)?;
                }
                support::check("cuMemsetD32Async", fill(part));
                // SAFETY: as above.
                unsafe { part.note_use(stream, Access::Write) }?;
            }
            Ok(())
        })?;
        let edges = graph.edges()?;
        assert_eq!(graph.node_count()?, 3);
        assert!(edges.contains(&(0, 1)) && edges.contains(&(1, 2)), "{edges:?}: one after another");
        graph.instantiate()?.launch(&stream)?;
        for part in &parts[..3] {
            assert_eq!(stream.download_vec(part)?, [5; LEN]);
        }
        Ok(())
    }
}
