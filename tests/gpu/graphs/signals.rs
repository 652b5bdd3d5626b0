//! Signals and values that graphs set and wait for.

use cuda_core::{Condition, Graph, Result, Signal, Stream, WaitValue};
use cuda_sys::{CUDA_SUCCESS, CUdeviceptr, symbol as cu};
use support::{gpu_test, one_stream, refusal, two_streams};

use super::{context, not_captured};

gpu_test! {
    needs 1, asynchronous;
    fn l_signals_are_set_and_awaited_at_each_launch() -> Result<()> {
        let (context, stream) = one_stream()?;
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
        // The signals can still be used outside the graph.
        stream.write_signal(&go, 6)?;
        stream.wait_signal(&go, WaitValue::Eq(6))?;
        stream.synchronize()
    }
}

gpu_test! {
    needs 1;
    fn l_a_graph_keeps_its_signals() -> Result<()> {
        let (context, stream) = one_stream()?;
        let signal = Signal::new(&context, 1u64)?;
        let place = signal.as_raw();
        let graph = Graph::capture(&context, |stream| {
            stream.write_signal(&signal, 7)?;
            stream.wait_signal(&signal, WaitValue::Eq(7))
        })?;
        let mut exec = graph.instantiate()?;
        drop((signal, graph));
        // No other signal gets the slot that the launch writes.
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
    fn l_signals_are_barriers_by_access() -> Result<()> {
        let (context, stream) = one_stream()?;
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
        let (context, stream) = one_stream()?;
        let signal = Signal::new(&context, 5u32)?;
        let mut value = context.alloc::<u64>(1)?;
        let mut x = stream.alloc::<u32>(1)?;
        let graph = Graph::capture(&context, |stream| {
            Condition::new(stream, 1)?.if_then(stream, |body| {
                not_captured(body.write_signal(&signal, 7), "cuStreamWriteValue32");
                not_captured(body.wait_signal(&signal, WaitValue::Eq(7)), "cuStreamWaitValue32");
                not_captured(body.write_value(&mut value, 7), "cuStreamWriteValue64");
                not_captured(body.wait_value(&value, WaitValue::Eq(7)), "cuStreamWaitValue64");
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
    fn l_a_refused_value_leaves_nothing_in_a_capture() -> Result<()> {
        let context = context()?;
        let mut x = context.alloc::<u32>(100)?;
        let graph = Graph::capture(&context, |stream| {
            let mut scratch = stream.alloc_in_graph::<u32>(1)?;
            for refused in [
                stream.write_value(&mut scratch, 1),
                stream.wait_value(&scratch, WaitValue::Eq(0)),
            ] {
                assert!(refusal(refused).contains("nor in a graph's"));
            }
            stream.fill(&mut x, 1)
        })?;
        assert_eq!(graph.node_count()?, 3, "memory, the fill, and the end of the memory");
        graph.instantiate()?.launch(&context.create_stream()?)
    }
}

/// Writes a value without this crate, like a network card.
fn write_from_outside(stream: &Stream, address: CUdeviceptr, value: u32) {
    // SAFETY: the stream is live, and the caller's element outlives the call that waits for it.
    let code = unsafe { cu::cuStreamWriteValue32_v2(stream.as_raw(), address, value, 0) };
    assert_eq!(code, CUDA_SUCCESS);
}

gpu_test! {
    needs 1, asynchronous;
    fn s41_values_are_written_and_awaited_at_each_launch() -> Result<()> {
        let (context, stream, outside) = two_streams()?;
        let [mut before, mut x] = [stream.alloc::<u32>(100)?, stream.alloc_zeroed::<u32>(100)?];
        let [mut arrived, mut done] = [context.alloc::<u32>(1)?, context.alloc::<u32>(1)?];
        stream.fill(&mut arrived, 0)?;
        let graph = Graph::capture(&context, |stream| {
            stream.wait_value(&arrived, WaitValue::Geq(1))?;
            stream.fill(&mut x, 7)?;
            stream.write_value(&mut done, 5)
        })?;
        assert_eq!((graph.node_count()?, graph.edge_count()?), (3, 2));
        let mut exec = graph.instantiate()?;
        for _ in 0..3 {
            stream.fill(&mut arrived, 0)?;
            stream.fill(&mut done, 0)?;
            stream.fill(&mut x, 0)?;
            stream.fill(&mut before, 1)?;
            exec.launch(&stream)?;
            before.synchronize()?; // the launch does not hold it up
            assert!(!stream.query()?, "the launch waits for the value");
            write_from_outside(&outside, arrived.as_raw(), 1);
            assert_eq!(outside.download_vec(&x)?, [7; 100]);
            assert_eq!(outside.download_vec(&done)?, [5]);
        }
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn l_a_graph_keeps_the_memory_of_its_values() -> Result<()> {
        let (context, stream) = one_stream()?;
        let mut x = context.alloc::<u64>(1)?;
        let graph = Graph::capture(&context, |stream| {
            stream.write_value(&mut x, 7)?;
            stream.wait_value(&x, WaitValue::Eq(7))
        })?;
        let mut exec = graph.instantiate()?;
        stream.write_value(&mut x, 1)?;
        exec.launch(&stream)?;
        assert_eq!(stream.download_vec(&x)?, [7]);
        drop(x);
        exec.launch(&stream)?;
        stream.synchronize()
    }
}

gpu_test! {
    needs 1;
    fn l_values_are_barriers_by_access() -> Result<()> {
        let (context, stream) = one_stream()?;
        let [mut x, mut y] = [stream.alloc::<u32>(100)?, stream.alloc::<u32>(100)?];
        let [mut z, mut w] = [stream.alloc::<u32>(100)?, stream.alloc::<u32>(100)?];
        let mut value = context.alloc::<u32>(2)?;
        let graph = Graph::capture_by_access(&context, |stream| {
            stream.fill(&mut x, 1)?;
            stream.fill(&mut y, 1)?;
            stream.write_value(value.slice_mut(..1)?, 1)?;
            stream.fill(&mut z, 1)?;
            stream.fill(value.slice_mut(1..)?, 1)?;
            stream.wait_value(value.slice(1..)?, WaitValue::Eq(1))?;
            stream.fill(&mut w, 1)
        })?;
        assert_eq!((graph.node_count()?, graph.edge_count()?), (7, 7));
        let again = Graph::capture_by_access(&context, |stream| {
            stream.fill(&mut x, 1)?;
            graph.include(stream)?;
            stream.fill(&mut y, 1)
        })?;
        assert_eq!(again.edge_count()?, 2, "it is a barrier as a part, too");
        again.instantiate()?.launch(&stream)?;
        assert_eq!(stream.download_vec(&value)?, [1, 1]);
        Ok(())
    }
}

gpu_test! {
    needs 1, asynchronous;
    fn s41_what_came_before_a_launch_behind_an_upload_does_not_wait_for_it() -> Result<()> {
        let (context, one, two) = two_streams()?;
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
