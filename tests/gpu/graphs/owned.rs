//! Host functions in graphs: how often they run, and when and on which thread what they own is dropped.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, ThreadId};

use cuda_core::{DeviceBuffer, Graph, Result, drops};
use support::{OnDrop, gpu_test, one_stream, stall};

gpu_test! {
    needs 1;
    fn l04_host_functions_run_at_each_launch() -> Result<()> {
        let (context, stream) = one_stream()?;
        let (calls, drops) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (counter, called) = (drops.clone(), calls.clone());
        let counted = OnDrop(move || _ = counter.fetch_add(1, Ordering::SeqCst));
        let graph = Graph::capture(&context, |stream| {
            stream.launch_host_func_each(move || {
                let _counted = &counted;
                called.fetch_add(1, Ordering::SeqCst);
            })
        })?;
        let mut exec = graph.instantiate()?;
        assert_eq!(calls.load(Ordering::SeqCst), 0, "captured, not called");
        exec.launch(&stream)?;
        exec.launch(&stream)?;
        stream.synchronize()?;
        assert_eq!(calls.load(Ordering::SeqCst), 2);
        drop(graph);
        assert_eq!(drops.load(Ordering::SeqCst), 0, "the executable owns it");
        drop(exec);
        drops::flush();
        assert_eq!(drops.load(Ordering::SeqCst), 1);
        Ok(())
    }
}

/// Records the thread on which it is dropped.
struct Probe {
    dropped: Arc<Mutex<Vec<ThreadId>>>,
    // Freed after the probe's drop; in a host function, the simulated driver would report that.
    memory: DeviceBuffer<u32>,
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.dropped.lock().unwrap_or_else(PoisonError::into_inner).push(thread::current().id());
    }
}

gpu_test! {
    needs 1, asynchronous;
    fn l23_what_a_function_owns_is_dropped_on_a_safe_thread() -> Result<()> {
        let (context, stream) = one_stream()?;
        for is_pending in [false, true] {
            let (dropped, called) = (Arc::default(), Arc::new(Mutex::new(Vec::new())));
            let memory = stream.alloc_zeroed::<u32>(1000)?;
            let probe = Probe { dropped: Arc::clone(&dropped), memory };
            let calls = called.clone();
            let graph = Graph::capture(&context, |stream| {
                stream.launch_host_func_each(move || {
                    assert_eq!(probe.memory.len(), 1000);
                    calls.lock().unwrap_or_else(PoisonError::into_inner).push(thread::current().id());
                })
            })?;
            let dropped = || dropped.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let mut exec = graph.instantiate()?;
            drop(graph);
            exec.launch(&stream)?;
            stream.synchronize()?;
            assert_eq!(dropped(), [], "the executable owns it");
            let stalled = stall(stream.as_raw());
            exec.launch(&stream)?;
            if is_pending {
                drop(exec);
                assert_eq!(dropped(), [], "the launch is pending");
                stalled.release();
                stream.synchronize()?;
            } else {
                stalled.release();
                stream.synchronize()?;
                assert_eq!(dropped(), [], "the executable owns it");
                drop(exec);
            }
            drops::flush();
            let called = called.lock().unwrap_or_else(PoisonError::into_inner).clone();
            assert_eq!(called.len(), 2);
            let dropped: Vec<ThreadId> = dropped();
            assert_eq!(dropped.len(), 1, "dropped once, with the executable");
            assert!(!called.contains(&dropped[0]), "dropped by the driver's thread");
        }
        Ok(())
    }
}
