//! Streams of one capture, ordered by the program, and memory that enters and leaves the capture.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use cuda_core::{DeviceBuffer, Event, EventFlags, Graph, Result};
use support::{freed_behind_a_stall, gpu_test, kernels, one_stream};

use super::{add_one, not_captured};
use crate::capture;

gpu_test! {
    needs 1;
    fn l05_events_order_the_streams_of_a_capture() -> Result<()> {
        let (context, stream) = one_stream()?;
        // Only events order the fills. Each has its own size, by which its node is found.
        let alloc = |len| stream.alloc_zeroed::<u32>(len);
        let mut parts = [alloc(1)?, alloc(2)?, alloc(3)?, alloc(4)?];
        let event = Event::new(&context, EventFlags::DISABLE_TIMING)?;
        let mut left = None;
        let graph = Graph::capture([&context, &context], |[one, two]| {
            assert!(one.is_capturing()? && two.is_capturing()?);
            left = Some([one.clone(), two.clone()]);
            let [first, second, third, last] = &mut parts;
            one.fill(first, 10)?;
            event.record(one)?;
            two.wait_event(&event)?;
            two.fill(second, 20)?; // after the first
            one.fill(third, 30)?; // beside the second
            one.wait_stream(two)?;
            one.fill(last, 40) // after both
        })?;
        let left = left.expect("they were captured");
        assert!(left.iter().all(|stream| !capture::is_capturing(stream.as_raw())));
        let texts: Vec<String> = graph.nodes()?.iter().map(ToString::to_string).collect();
        let named = |node: usize| texts[node].trim_start_matches("fill of ").to_owned();
        let edges: BTreeSet<_> =
            graph.edges()?.into_iter().map(|(from, to)| (named(from), named(to))).collect();
        let expected = [(4, 8), (4, 12), (8, 16), (12, 16)];
        let expected = expected.map(|(from, to)| (format!("{from} bytes"), format!("{to} bytes")));
        assert_eq!(edges, expected.into());
        let mut exec = graph.instantiate()?;
        for _ in 0..3 {
            for part in &mut parts {
                stream.fill(part, 0)?;
            }
            exec.launch(&stream)?;
            for (part, value) in parts.iter().zip([10, 20, 30, 40]) {
                assert_eq!(stream.download_vec(part)?, vec![value; part.len()]);
            }
        }
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn l_the_current_stream_may_be_the_captured_one() -> Result<()> {
        let (context, stream) = one_stream()?;
        let mut x = stream.alloc_zeroed::<u32>(10)?;
        let graph = Graph::capture(&context, |captured| {
            let _guard = captured.enter()?;
            context.current_stream()?.fill(&mut x, 7)
        })?;
        assert_eq!(stream.download_vec(&x)?, [0; 10]);
        graph.instantiate()?.launch(&stream)?;
        assert_eq!(stream.download_vec(&x)?, [7; 10]);
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn l05_a_hundred_streams_of_a_capture_share_memory() -> Result<()> {
        const STREAMS: usize = 100;
        let (context, stream) = one_stream()?;
        let source = stream.alloc_zeroed::<u32>(64)?;
        let copies = (0..STREAMS).map(|_| stream.alloc::<u32>(64)).collect::<Result<Vec<_>>>();
        let (mut copies, mut last) = (copies?, stream.alloc::<u32>(64)?);
        let graph = Graph::capture(vec![&context; STREAMS], |captured| {
            for (other, copy) in captured.iter().zip(&mut copies) {
                other.copy(&source, &mut *copy)?; // one reader more
                captured[0].copy(copy, &mut last)?; // after it
            }
            Ok(())
        })?;
        let mut exec = graph.instantiate()?;
        exec.launch(&stream)?;
        assert_eq!(stream.download_vec(&last)?, [0; 64]);
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn l05_replays_keep_the_order_of_events() -> Result<()> {
        let (context, stream) = one_stream()?;
        let ran = Arc::new(Mutex::new(Vec::new()));
        let note = |number: u32| {
            let ran = ran.clone();
            move || ran.lock().unwrap_or_else(PoisonError::into_inner).push(number)
        };
        let event = Event::new(&context, EventFlags::DISABLE_TIMING)?;
        let graph = Graph::capture([&context, &context], |[one, two]| {
            one.launch_host_func_each(note(1))?;
            event.record(one)?;
            two.wait_event(&event)?;
            two.launch_host_func_each(note(2))?;
            one.wait_stream(two)?;
            one.launch_host_func_each(note(3))
        })?;
        let mut exec = graph.instantiate()?;
        for _ in 0..8 {
            exec.launch(&stream)?;
        }
        stream.synchronize()?;
        assert_eq!(*ran.lock().unwrap_or_else(PoisonError::into_inner), [1, 2, 3].repeat(8));
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn l21_memory_is_the_same_inside_and_outside_of_captures() -> Result<()> {
        let (context, stream) = one_stream()?;
        let function = kernels::get(&context, "add_one")?;
        let mut outside = freed_behind_a_stall(|| stream.alloc::<u32>(1000))?;
        stream.fill(&mut outside, 5)?;
        let mut inside: Option<DeviceBuffer<u32>> = None;
        let graph = Graph::capture(&context, |captured| {
            let mut made = captured.alloc::<u32>(1000)?;
            captured.copy(&outside, &mut made)?;
            add_one(captured, &function, &mut made)?;
            inside = Some(made);
            Ok(())
        })?;
        let mut inside = inside.expect("it was captured");
        // Before a launch, memory that was allocated in the capture can be used like any other.
        stream.fill(&mut inside, 1)?;
        assert_eq!(stream.download_vec(&inside)?, [1; 1000]);
        let mut exec = graph.instantiate()?;
        drop(graph);
        exec.launch(&stream)?;
        assert_eq!(stream.download_vec(&inside)?, [6; 1000]);
        stream.fill(&mut outside, 8)?;
        exec.launch(&stream)?;
        assert_eq!(stream.download_vec(&inside)?, [9; 1000]);
        // The memory outlives the graph, and is then used and closed like any other.
        drop(exec);
        add_one(&stream, &function, &mut inside)?;
        assert_eq!(stream.download_vec(&inside)?, [10; 1000]);
        inside.close().map_err(|rejected| rejected.error)?;
        outside.close().map_err(|rejected| rejected.error)
    }
}

gpu_test! {
    needs 1;
    fn s40_streams_made_in_a_capture_stay_outside_of_it() -> Result<()> {
        let (context, stream) = one_stream()?;
        let (mut x, mut y) = (stream.alloc_zeroed::<u32>(10)?, stream.alloc_zeroed::<u32>(10)?);
        let mut made = None;
        let graph = Graph::capture(&context, |captured| {
            let side = captured.context().create_stream()?;
            captured.fill(&mut x, 1)?;
            // The program does not join either stream to the other.
            not_captured(side.wait_stream(captured), "cuStreamWaitEvent");
            not_captured(captured.wait_stream(&side), "cuStreamWaitEvent");
            let event = Event::new(&context, EventFlags::DISABLE_TIMING)?;
            event.record(captured)?;
            not_captured(side.wait_event(&event), "Stream::wait_event");
            assert!(!side.is_capturing()?);
            // Work on it runs now, and is not captured.
            side.fill(&mut y, 2)?;
            assert_eq!(side.download_vec(&y)?, [2; 10]);
            assert_eq!(side.download_vec(&x)?, [0; 10], "captured, and not done");
            captured.copy(&y, &mut x)?;
            made = Some(side);
            Ok(())
        })?;
        assert_eq!((graph.node_count()?, graph.edge_count()?), (2, 1));
        let side = made.expect("it was captured");
        side.fill(&mut y, 3)?;
        graph.instantiate()?.launch(&stream)?; // after it
        assert_eq!(side.download_vec(&x)?, [3; 10]);
        Ok(())
    }
}
