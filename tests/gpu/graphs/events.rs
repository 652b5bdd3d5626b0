//! Events that graphs record and wait for.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cuda_core::{
    Condition, Context, ContextFlags, Error, Event, EventFlags, Graph, Result, Stream, sys,
};
use support::{gpu_test, kernels, one_stream, stall, two_streams};

use super::{add_one, context, not_captured};

fn event(context: &Context, flags: EventFlags) -> Result<Arc<Event>> {
    Event::new(context, flags).map(Arc::new)
}

gpu_test! {
    needs 1, asynchronous;
    fn l_events_are_recorded_and_awaited_at_each_launch() -> Result<()> {
        let (context, stream, other) = two_streams()?;
        let function = kernels::get(&context, "add_one")?;
        let mut x = stream.alloc_zeroed::<u32>(100)?;
        let mut y = stream.alloc_zeroed::<u32>(100)?;
        let (start, end) = (event(&context, EventFlags::DEFAULT)?, event(&context, EventFlags::DEFAULT)?);
        let gate = event(&context, EventFlags::DISABLE_TIMING)?;
        let graph = Graph::capture(&context, |stream| {
            start.record_each(stream)?;
            add_one(stream, &function, &mut x)?;
            end.record_each(stream)?;
            stream.wait_event_each(&gate)?;
            stream.copy(&x, &mut y)
        })?;
        assert!(end.query()?, "not recorded before a launch");
        let mut exec = graph.instantiate()?;
        drop(graph);
        exec.upload(&stream)?;
        for launch in 1..3 {
            stream.synchronize()?;
            let stalled = stall(other.as_raw());
            gate.record(&other)?;
            let begun = Instant::now();
            exec.launch(&stream)?;
            end.synchronize()?; // not for the gate
            let between = end.elapsed_since(&start)?;
            assert!(between <= begun.elapsed() + Duration::from_millis(1), "{between:?}");
            assert!(!stream.query()?, "the graph waits");
            stalled.release();
            assert_eq!(stream.download_vec(&y)?, [launch; 100]);
        }
        // The executable keeps the events.
        drop((start, end, gate));
        exec.launch(&stream)?;
        assert_eq!(stream.download_vec(&y)?, [3; 100]);
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn l_events_of_a_graph_have_their_place() -> Result<()> {
        let (context, stream) = one_stream()?;
        let (mut x, mut y) = (stream.alloc_zeroed::<u32>(100)?, stream.alloc_zeroed::<u32>(100)?);
        let one = event(&context, EventFlags::DISABLE_TIMING)?;
        // By access: records after all, waits before all.
        let flow = Graph::capture_by_access(&context, |stream| {
            stream.fill(&mut x, 1)?;
            one.record_each(stream)?;
            stream.fill(&mut y, 2)
        })?;
        assert_eq!(flow.edges()?, [(0, 1), (1, 2)]);
        // In a step, they are after the named operations.
        let built = Graph::build(&context, |builder| {
            let fill = builder.add(|stream| stream.fill(&mut x, 3))?;
            builder.add_after(&[fill], |stream| one.record_each(stream))?;
            builder.add_after(&[], |stream| stream.wait_event_each(&one))?;
            builder.add(|stream| stream.fill(&mut y, 4))?;
            Ok(())
        })?;
        assert_eq!(built.edges()?, [(0, 1)]);
        let kinds: Vec<_> = built.nodes()?.iter().map(|node| node.kind()).collect();
        for kind in [sys::CU_GRAPH_NODE_TYPE_EVENT_RECORD, sys::CU_GRAPH_NODE_TYPE_WAIT_EVENT] {
            assert!(kinds.contains(&kind), "{kinds:?}");
        }
        let twice = Graph::capture(&context, |stream| {
            flow.include(stream)?;
            built.include(stream)
        })?;
        drop((flow, built));
        twice.instantiate()?.launch(&stream)?;
        one.synchronize()?;
        assert_eq!(stream.download_vec(&x)?, [3; 100]);
        assert_eq!(stream.download_vec(&y)?, [4; 100]);
        // Outside of graphs, the calls with "each" act like those without.
        one.record_each(&stream)?;
        stream.wait_event_each(&one)?;
        stream.synchronize()
    }
}

gpu_test! {
    needs 1, cuda_12_4;
    fn l_events_that_a_graph_cannot_record() -> Result<()> {
        let (context, stream) = one_stream()?;
        let mut x = stream.alloc_zeroed::<u32>(100)?;
        let elsewhere = Context::new(context.device(), ContextFlags::default())?;
        let (near, far) = (event(&context, EventFlags::DEFAULT)?, event(&elsewhere, EventFlags::DEFAULT)?);
        let graph = Graph::capture(&context, |stream: &Stream| {
            assert!(matches!(far.record_each(stream), Err(Error::WrongContext(_))));
            let condition = Condition::new(stream, 1)?;
            condition.if_then(stream, |body| {
                not_captured(near.record_each(body), "cuEventRecordWithFlags");
                not_captured(body.wait_event_each(&near), "cuStreamWaitEvent");
                body.fill(&mut x, 1)
            })
        })?;
        graph.instantiate()?.launch(&stream)?;
        assert_eq!(stream.download_vec(&x)?, [1; 100]);
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn l_an_event_that_launches_record_is_outside_of_captures() -> Result<()> {
        let (context, stream, other) = two_streams()?;
        let mut x = stream.alloc_zeroed::<u32>(100)?;
        let done = event(&context, EventFlags::DISABLE_TIMING)?;
        let graph = Graph::capture(&context, |stream| {
            done.record(stream)?; // a point of the capture
            stream.fill(&mut x, 1)?;
            done.record_each(stream)
        })?;
        graph.instantiate()?.launch(&stream)?;
        other.wait_event(&done)?;
        done.synchronize()?;
        assert!(done.query()?);
        Ok(())
    }
}

gpu_test! {
    needs 1, cuda_12_4;
    fn l_a_refused_record_each_leaves_the_event_as_it_was() -> Result<()> {
        let context = context()?;
        let event = event(&context, EventFlags::DISABLE_TIMING)?;
        let (mut x, mut y) = (context.alloc::<u32>(4)?, context.alloc::<u32>(4)?);
        let graph = Graph::capture([&context, &context], |[one, two]| {
            one.fill(&mut y, 1)?;
            event.record(one)?;
            Condition::new(one, 1)?.if_then(one, |body| {
                not_captured(event.record_each(body), "cuEventRecordWithFlags");
                body.fill(&mut x, 1)
            })?;
            // The event is still that of the capture.
            two.wait_event(&event)
        })?;
        not_captured(event.query(), "cuEventQuery");
        drop(graph);
        Ok(())
    }
}
