//! Calls on graphs in which the driver would wait.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;

use cuda_core::drops::{self, DropFailure};
use cuda_core::{
    Condition, Context, Device, DeviceBuffer, Error, Graph, GraphExec, Result, staging,
};
use cuda_sim::Fault;
use cuda_sys::{CUDA_ERROR_NOT_SUPPORTED, CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_UNKNOWN};
use support::{judge, one_stream, stall, two_streams};

use super::captures::{begin, end};
use super::{clean, primary, within};

/// Captures a graph that fills `x` on a condition, and instantiates it.
fn conditional(context: &Context, x: &mut DeviceBuffer<u32>) -> Result<(Graph, GraphExec)> {
    let graph = Graph::capture(context, |stream| {
        Condition::new(stream, 1)?.if_then(stream, |body| body.fill(x, 5))
    })?;
    let exec = graph.instantiate()?;
    Ok((graph, exec))
}

/// Otherwise the driver would wait in its call.
#[test]
fn s41_a_launch_elsewhere_of_a_graph_that_allocates_waits_before_its_call() {
    clean(|session| {
        let (context, stream, other) = two_streams()?;
        let mut x = stream.alloc_zeroed::<u32>(100)?;
        let graph = Graph::capture(&context, |stream| {
            let mut scratch = stream.alloc_in_graph::<u32>(100)?;
            stream.fill(&mut scratch, 5)?;
            stream.copy(&scratch, &mut x)
        })?;
        let mut exec = graph.instantiate()?;
        for upload in [false, true] {
            let (launches, uploads) =
                (session.calls("cuGraphLaunch"), session.calls("cuGraphUpload"));
            let stalled = stall(stream.as_raw());
            exec.launch(&stream)?;
            let waits = session.calls("cuEventSynchronize");
            thread::scope(|scope| {
                let call = || if upload { exec.upload(&other) } else { exec.launch(&other) };
                let waiting = scope.spawn(call);
                session.await_calls("cuEventSynchronize", waits + 1);
                assert_eq!(session.calls("cuGraphLaunch"), launches + 1);
                assert_eq!(session.calls("cuGraphUpload"), uploads);
                stalled.release();
                waiting.join().expect("the call does not panic")
            })?;
            assert_eq!(other.download_vec(&x)?, [5; 100]);
        }
        Ok(())
    });
}

/// Otherwise the driver would wait in its call, holding a lock that other calls need.
#[test]
fn l_closing_an_executable_with_conditions_waits_before_the_call() {
    clean(|session| {
        let (context, stream) = one_stream()?;
        let mut x = stream.alloc_zeroed::<u32>(100)?;
        let (graph, mut exec) = conditional(&context, &mut x)?;
        let stalled = stall(stream.as_raw());
        exec.launch(&stream)?;
        let waits = session.calls("cuEventSynchronize");
        thread::scope(|scope| {
            let closing = scope.spawn(|| exec.close());
            session.await_calls("cuEventSynchronize", waits + 1);
            assert_eq!(session.calls("cuGraphExecDestroy"), 0);
            stalled.release();
            closing.join().expect("the call does not panic").map_err(Error::from)
        })?;
        assert_eq!(stream.download_vec(&x)?, [5; 100]);
        // A dropped executable is waited for by the next, since there may be only one at a time.
        let mut exec = graph.instantiate()?;
        let stalled = stall(stream.as_raw());
        exec.launch(&stream)?;
        drop(exec);
        let mark = session.calls("cuGraphInstantiateWithFlags");
        thread::scope(|scope| {
            let next = scope.spawn(|| graph.instantiate());
            session.await_calls("cuGraphInstantiateWithFlags", mark + 1);
            stalled.release();
            next.join().expect("the call does not panic")
        })?
        .launch(&stream)
    });
}

/// Not even if the library cannot be notified of the end of the launch.
#[test]
fn l_dropping_an_executable_with_conditions_never_waits() {
    clean(|session| {
        let (context, stream) = one_stream()?;
        let mut x = stream.alloc_zeroed::<u32>(100)?;
        let (_graph, mut exec) = conditional(&context, &mut x)?;
        stream.synchronize()?;
        let stalled = stall(stream.as_raw());
        exec.launch(&stream)?;
        let no_event = Fault::new(CUDA_ERROR_OUT_OF_MEMORY).function("cuEventCreate");
        session.inject(no_event.from_then_on());
        drop(exec);
        assert!(session.fault_fired());
        session.clear_faults();
        stalled.release();
        assert_eq!(stream.download_vec(&x)?, [5; 100]);
        drops::flush();
        assert_eq!(session.calls("cuGraphExecDestroy"), 1);
        Ok(())
    });
}

/// Waits for an upload, and for a launch before one that failed on another stream.
#[test]
fn l_an_executable_with_conditions_goes_after_all_that_is_pending() {
    clean(|session| {
        let (context, stream, other) = two_streams()?;
        let mut x = stream.alloc_zeroed::<u32>(100)?;
        for upload in [false, true] {
            let (_graph, mut exec) = conditional(&context, &mut x)?;
            stream.synchronize()?;
            let destroyed = session.calls("cuGraphExecDestroy");
            let stalled = stall(stream.as_raw());
            if upload {
                exec.upload(&stream)?;
            } else {
                exec.launch(&stream)?;
                session.inject(Fault::new(CUDA_ERROR_OUT_OF_MEMORY).function("cuGraphLaunch"));
                exec.launch(&other).expect_err("it is made to fail");
            }
            drop(exec);
            other.synchronize()?;
            assert_eq!(session.calls("cuGraphExecDestroy"), destroyed);
            stalled.release();
            stream.synchronize()?;
            drops::flush();
            assert_eq!(session.calls("cuGraphExecDestroy"), destroyed + 1);
        }
        Ok(())
    });
}

#[test]
fn l_a_graph_is_free_once_the_launch_of_a_dropped_executable_is_over() {
    clean(|_session| {
        let (context, stream) = one_stream()?;
        let mut x = stream.alloc_zeroed::<u32>(100)?;
        for _ in 0..if cfg!(miri) { 5 } else { 20 } {
            let (mut graph, mut exec) = conditional(&context, &mut x)?;
            exec.launch(&stream)?;
            drop(exec);
            stream.synchronize()?;
            graph.extend(|_| Ok(()))?;
        }
        Ok(())
    });
}

#[test]
fn l_instantiating_behind_a_launch_on_a_stream_that_other_code_captures_is_refused() {
    clean(|_session| {
        let (context, stream) = one_stream()?;
        let mut x = stream.alloc_zeroed::<u32>(100)?;
        let (graph, mut exec) = conditional(&context, &mut x)?;
        exec.launch(&stream)?;
        begin(&stream);
        drop(exec);
        let refused = graph.instantiate().map(drop);
        assert!(matches!(refused, Err(Error::Capturing { .. })), "{refused:?}");
        assert_eq!(end(&stream), cuda_sys::CUDA_SUCCESS);
        graph.instantiate()?.launch(&stream)?;
        assert_eq!(stream.download_vec(&x)?, [5; 100]);
        Ok(())
    });
}

#[test]
fn l_each_of_several_threads_waits_for_an_executable_that_was_dropped() {
    clean(|session| {
        let (context, stream) = one_stream()?;
        let mut x = stream.alloc_zeroed::<u32>(100)?;
        let (graph, mut exec) = conditional(&context, &mut x)?;
        let stalled = stall(stream.as_raw());
        exec.launch(&stream)?;
        let until = |waits| session.await_calls("cuEventSynchronize", waits);
        let before = session.calls("cuEventSynchronize");
        drop(exec);
        // A thread of the library waits for the launch.
        until(before + 1);
        thread::scope(|scope| {
            let threads = [0, 1].map(|_| scope.spawn(|| graph.instantiate().map(drop)));
            until(before + 3);
            stalled.release();
            // One thread may find the other's executable.
            let made = threads.map(|thread| thread.join().expect("no panic").is_ok());
            assert!(made.contains(&true));
        });
        Ok(())
    });
}

#[test]
fn l_a_hook_that_is_told_of_an_executable_may_instantiate_its_graph() {
    let session = support::simulator();
    within(|| {
        let context = primary();
        let stream = context.create_stream().expect("no fault is set");
        let mut x = stream.alloc_zeroed::<u32>(100).expect("no fault is set");
        let (graph, mut exec) = conditional(&context, &mut x).expect("no fault is set");
        let (tell, told) = mpsc::channel();
        let hook = move |_: &DropFailure| {
            let _ = tell.send(graph.instantiate().map(drop));
        };
        drops::set_hook(hook);
        let stalled = stall(stream.as_raw());
        exec.launch(&stream).expect("no fault is set");
        session.inject(Fault::new(CUDA_ERROR_UNKNOWN).function("cuGraphExecDestroy"));
        drop(exec);
        stalled.release();
        let made = told.recv().expect("the hook sends");
        let refused = made.expect_err("there may be one executable, and it could not be destroyed");
        assert_eq!(refused.code(), Some(CUDA_ERROR_NOT_SUPPORTED));
        drop(drops::take_hook());
    });
    drops::flush();
    session.settle();
    staging::trim().expect("no fault is left");
    judge::take_away(&session, session.leaks());
}

#[test]
fn l_a_host_function_waits_for_no_executable() {
    clean(|_session| {
        let (context, stream, other) = two_streams()?;
        let mut x = stream.alloc_zeroed::<u32>(100)?;
        let (mut graph, mut exec) = conditional(&context, &mut x)?;
        let stalled = stall(stream.as_raw());
        exec.launch(&stream)?;
        stream.checkpoint()?; // the wait would need no other call
        let (tell, told) = mpsc::channel();
        other.launch_host_func(move || {
            let closed = exec.close().map_err(Error::from);
            let _ = tell.send([closed, graph.extend(|_| Ok(()))]);
        })?;
        other.synchronize()?;
        for refused in told.recv().expect("the function sends") {
            assert!(matches!(refused, Err(Error::InCallback)), "{refused:?}");
        }
        stalled.release();
        assert_eq!(stream.download_vec(&x)?, [5; 100]);
        Ok(())
    });
}

/// A value whose drop extends a graph.
struct Extends {
    graph: Arc<Mutex<Graph>>,
    extended: Arc<AtomicBool>,
}

impl Drop for Extends {
    fn drop(&mut self) {
        let extended = self.graph.lock().expect("no panic").extend(|_stream| Ok(()));
        self.extended.store(extended.is_ok(), Ordering::Relaxed);
    }
}

/// The thread that finds its launches complete drops what it kept, whose drop may use the graph.
#[test]
fn l_what_an_executable_with_conditions_kept_may_use_its_graph() {
    clean(|_session| {
        let (context, stream) = one_stream()?;
        let graph = |f: Box<dyn Fn() + Send + Sync>| {
            let mut x = stream.alloc_zeroed::<u32>(100)?;
            Graph::capture(&context, |stream| {
                Condition::new(stream, 1)?.if_then(stream, |body| body.fill(&mut x, 5))?;
                stream.launch_host_func_each(f)
            })
        };
        let extended = Arc::new(AtomicBool::new(false));
        let first = Arc::new(Mutex::new(graph(Box::new(|| ()))?));
        let extends = Extends { graph: first.clone(), extended: extended.clone() };
        let second = graph(Box::new(move || {
            let _kept = &extends;
        }))?;
        let mut exec = first.lock().expect("no panic").instantiate()?;
        exec.update(&second)?;
        drop(second);
        let stalled = stall(stream.as_raw());
        exec.launch(&stream)?;
        drop(exec); // which is the last to keep the function
        stalled.release();
        stream.synchronize()?;
        drops::flush();
        assert!(extended.load(Ordering::Relaxed));
        Ok(())
    });
}

/// A value whose drop revokes access between devices.
struct Revokes {
    contexts: [Context; 2],
    revoked: Arc<AtomicBool>,
}

impl Drop for Revokes {
    fn drop(&mut self) {
        let revoked = self.contexts[0].disable_peer_access(&self.contexts[1]);
        self.revoked.store(revoked.is_ok(), Ordering::Relaxed);
    }
}

/// Revoking waits for calls that rely on the access, of which instantiating is one.
#[test]
fn l_what_an_executable_kept_may_revoke_access_as_its_graph_is_instantiated() {
    clean(|_session| {
        let contexts = [primary(), Device::get(1)?.context()?];
        contexts[0].enable_peer_access(&contexts[1])?;
        let stream = contexts[0].create_stream()?;
        let mut to = contexts[1].alloc::<u32>(9)?;
        let mut x = stream.alloc_zeroed::<u32>(9)?;
        let mut graph = |f: Box<dyn Fn() + Send + Sync>| {
            Graph::capture(&contexts[0], |stream| {
                stream.copy(&x, &mut to)?;
                Condition::new(stream, 1)?.if_then(stream, |body| body.fill(&mut x, 5))?;
                stream.launch_host_func_each(f)
            })
        };
        let first = graph(Box::new(|| ()))?;
        let revoked = Arc::new(AtomicBool::new(false));
        let revokes = Revokes { contexts: contexts.clone(), revoked: revoked.clone() };
        let second = graph(Box::new(move || {
            let _kept = &revokes;
        }))?;
        let mut exec = first.instantiate()?;
        exec.update(&second)?;
        drop(second);
        exec.launch(&stream)?;
        // No thread of the library can wait for the launch.
        begin(&stream);
        drop(exec);
        assert_eq!(end(&stream), cuda_sys::CUDA_SUCCESS);
        let refused = first.instantiate().map(drop);
        assert!(revoked.load(Ordering::Relaxed));
        assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
        Ok(())
    });
}
