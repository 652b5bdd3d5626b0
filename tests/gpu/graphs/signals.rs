//! Signals that graphs set, and wait for.

use cuda_core::{Condition, Graph, Result, Signal, WaitValue};
use support::gpu_test;

use super::{context, not_captured};

gpu_test! {
    needs 1, asynchronous;
    fn l_signals_are_set_and_awaited_at_each_launch() -> Result<()> {
        let context = context()?;
        let stream = context.create_stream()?;
        let mut x = stream.alloc_zeroed::<u32>(100)?;
        let (go, done) = (Signal::new(&context, 0u32)?, Signal::new(&context, 0u32)?);
        let graph = Graph::capture(&context, |stream| {
            stream.wait_signal(&go, WaitValue::Geq(1))?;
            stream.fill(&mut x, 7)?;
            stream.write_signal(&done, 5)
        })?;
        assert_eq!((graph.node_count()?, graph.edge_count()?), (3, 2));
        let mut exec = graph.instantiate()?;
        for _ in 0..3 {
            stream.fill(&mut x, 0)?;
            exec.launch(&stream)?;
            assert!(!stream.query()?, "it waits for the signal");
            assert_eq!(done.get(), 0);
            go.set(1);
            stream.synchronize()?;
            assert_eq!((done.get(), stream.download_vec(&x)?), (5, vec![7; 100]));
            go.set(0);
            done.set(0);
        }
        // They go on outside of the graph.
        stream.write_signal(&go, 6)?;
        stream.wait_signal(&go, WaitValue::Eq(6))?;
        stream.synchronize()
    }
}

gpu_test! {
    needs 1;
    fn l_a_graph_keeps_its_signals() -> Result<()> {
        let context = context()?;
        let stream = context.create_stream()?;
        let signal = Signal::new(&context, 1u64)?;
        let place = signal.as_raw();
        let graph = Graph::capture(&context, |stream| {
            stream.write_signal(&signal, 7)?;
            stream.wait_signal(&signal, WaitValue::Eq(7))
        })?;
        let mut exec = graph.instantiate()?;
        drop((signal, graph));
        // No other signal gets the place, which the launch writes.
        let others: Vec<_> = (0..64).map(|_| Signal::new(&context, 3u64)).collect::<Result<_>>()?;
        assert!(others.iter().all(|other| other.as_raw() != place));
        exec.launch(&stream)?;
        stream.synchronize()?;
        assert!(others.iter().all(|other| other.get() == 3));
        drop(exec);
        let more: Vec<_> = (0..64).map(|_| Signal::new(&context, 3u64)).collect::<Result<_>>()?;
        assert!(more.iter().any(|other| other.as_raw() == place), "the place is reused");
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn l_signals_are_barriers_by_data_flow() -> Result<()> {
        let context = context()?;
        let stream = context.create_stream()?;
        let signal = Signal::new(&context, 0u32)?;
        let [mut x, mut y] = [stream.alloc::<u32>(100)?, stream.alloc::<u32>(100)?];
        let [mut z, mut w] = [stream.alloc::<u32>(100)?, stream.alloc::<u32>(100)?];
        let graph = Graph::capture_by_access(&context, |stream| {
            stream.fill(&mut x, 1)?;
            stream.fill(&mut y, 1)?;
            stream.write_signal(&signal, 1)?;
            stream.fill(&mut z, 1)?;
            stream.fill(&mut w, 1)
        })?;
        assert_eq!((graph.node_count()?, graph.edge_count()?), (5, 4));
        graph.instantiate()?.launch(&stream)?;
        stream.synchronize()?;
        assert_eq!(signal.get(), 1);
        Ok(())
    }
}

gpu_test! {
    needs 1, cuda_12_8;
    fn l_a_condition_sets_no_signal() -> Result<()> {
        let context = context()?;
        let stream = context.create_stream()?;
        let signal = Signal::new(&context, 5u32)?;
        let mut x = stream.alloc::<u32>(1)?;
        let graph = Graph::capture(&context, |stream| {
            Condition::new(stream, 1)?.if_then(stream, |body| {
                not_captured(body.write_signal(&signal, 7), "cuStreamWriteValue32");
                not_captured(body.wait_signal(&signal, WaitValue::Eq(7)), "cuStreamWaitValue32");
                body.fill(&mut x, 2)
            })
        })?;
        graph.instantiate()?.launch(&stream)?;
        assert_eq!((stream.download_vec(&x)?[0], signal.get()), (2, 5));
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn l_values_are_not_captured() -> Result<()> {
        let context = context()?;
        let stream = context.create_stream()?;
        let mut x = context.alloc::<u32>(1)?;
        let graph = Graph::capture(&context, |captured| {
            let refused = captured.write_value(&mut x, 7).expect_err("in a graph");
            assert!(refused.to_string().contains("a `Signal` can"), "{refused}");
            not_captured(captured.write_value(&mut x, 7), "cuStreamWriteValue32");
            not_captured(captured.wait_value(&x, WaitValue::Eq(7)), "cuStreamWaitValue32");
            captured.fill(&mut x, 2)
        })?;
        assert_eq!(graph.node_count()?, 1);
        graph.instantiate()?.launch(&stream)?;
        assert_eq!(stream.download_vec(&x)?, [2]);
        Ok(())
    }
}

gpu_test! {
    needs 1, asynchronous;
    fn s41_what_came_before_a_launch_behind_an_upload_does_not_wait_for_it() -> Result<()> {
        let context = context()?;
        let (one, two) = (context.create_stream()?, context.create_stream()?);
        let (mut x, mut y) = (two.alloc_zeroed::<u32>(100)?, two.alloc_zeroed::<u32>(100)?);
        let graph = Graph::capture(&context, |stream| stream.fill(&mut y, 7))?;
        let mut exec = graph.instantiate()?;
        two.synchronize()?;
        let go = Signal::new(&context, 0u32)?;
        one.wait_signal(&go, WaitValue::Eq(1))?;
        exec.upload(&one)?;
        two.fill(&mut x, 1)?;
        exec.launch(&two)?;
        x.synchronize()?; // would wait for ever after the launch
        assert!(!two.query()?, "the launch waits for the upload");
        go.set(1);
        assert_eq!(two.download_vec(&y)?, [7; 100]);
        Ok(())
    }
}
