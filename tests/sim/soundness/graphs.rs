//! Graphs whose launches fail, run late, or meet other work at a bad moment.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};

use cuda_core::{
    Condition, DeviceBuffer, Event, EventFlags, Function, Graph, PinnedBuffer, Result, Stream,
    drops,
};
use cuda_sim::{Fault, Session};
use support::{OnDrop, kernels, one_stream, refusal, stall, two_streams};

use super::{clean, primary};

fn add_one(stream: &Stream, function: &Function, x: &mut DeviceBuffer<u32>) -> Result<()> {
    let n = x.len();
    // SAFETY: add_one(u32 *x, u32 n) reads and writes `n` elements.
    unsafe { stream.kernel(function).elements(n).arg(x).arg(n as u32).launch() }
}

/// Makes the next launch of a graph fail.
fn fail_a_launch(session: &Session) {
    session.inject(Fault::new(cuda_sys::CUDA_ERROR_OUT_OF_MEMORY).function("cuGraphLaunch"));
}

#[test]
fn s50_a_launch_that_fails_elsewhere_is_not_taken_for_one_behind_the_last() {
    clean(|session| {
        let (context, one, two) = two_streams()?;
        let mut output = PinnedBuffer::<u32>::new(&context, 100)?;
        output.as_mut_slice()?.fill(0);
        let mut x = one.alloc_zeroed::<u32>(100)?;
        let graph = Graph::capture(&context, |stream| {
            stream.fill(&mut x, 9)?;
            stream.download(&x, &mut output)
        })?;
        let mut exec = graph.instantiate()?;
        one.synchronize()?; // or the other stream would wait for all that is on this one
        let stalled = stall(one.as_raw());
        exec.lend_mut(&mut output).launch(&one)?;
        fail_a_launch(session);
        exec.lend_mut(&mut output).launch(&two).expect_err("it was made to fail");
        // Whatever is asked about the other stream: it is idle, which it reports after some queries.
        for _ in 0..20 {
            assert!(output.try_as_slice()?.is_none(), "the first launch is pending");
        }
        stalled.release();
        assert_eq!(output.as_slice()?, [9; 100]);
        Ok(())
    });
}

#[test]
fn s16_a_launch_that_fails_elsewhere_frees_no_function() {
    clean(|session| {
        let (context, one, two) = two_streams()?;
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = calls.clone();
        let graph = Graph::capture(&context, |stream| {
            stream.launch_host_func_each(move || {
                counted.fetch_add(1, Ordering::SeqCst);
            })
        })?;
        let mut exec = graph.instantiate()?;
        let stalled = stall(one.as_raw());
        exec.launch(&one)?;
        fail_a_launch(session);
        exec.launch(&two).expect_err("it was made to fail");
        drop((exec, graph));
        two.synchronize()?;
        assert_eq!(Arc::strong_count(&calls), 2, "the first launch is pending");
        stalled.release();
        one.synchronize()?;
        drops::flush();
        assert_eq!((calls.load(Ordering::SeqCst), Arc::strong_count(&calls)), (1, 1));
        Ok(())
    });
}

#[test]
fn s03_what_a_replaced_kernel_uses_is_waited_for() {
    clean(|_session| {
        let (context, one, two) = two_streams()?;
        let function = kernels::get(&context, "add_one")?;
        let mut x = one.alloc_zeroed::<u32>(100)?;
        let mut y = two.alloc_zeroed::<u32>(100)?;
        let mut z = two.alloc_zeroed::<u32>(100)?;
        let graph = Graph::capture(&context, |stream| add_one(stream, &function, &mut x))?;
        let node = graph.nodes()?[0].id();
        let mut exec = graph.instantiate()?;
        exec.launch(&one)?;
        let mut launch = one.kernel(&function).elements(100).arg(&mut y).arg(100u32);
        // SAFETY: `y` has 100 elements.
        unsafe { exec.set_kernel(node, &mut launch) }?;
        let copies = Graph::capture(&context, |stream| stream.copy(&y, &mut z))?;
        let mut copies = copies.instantiate()?;
        exec.launch(&one)?;
        copies.launch(&two)?; // after the launch on the other stream
        assert_eq!(two.download_vec(&z)?, [1; 100]);
        Ok(())
    });
}

#[test]
fn s30_a_destructor_that_panics_in_an_update_stays_there() {
    clean(|_session| {
        let (context, stream) = one_stream()?;
        let function = kernels::get(&context, "add_one")?;
        let mut x = stream.alloc_zeroed::<u32>(100)?;
        let mut pinned = PinnedBuffer::<u32>::zeroed(&context, 100)?;
        let bomb = OnDrop(|| panic!("on purpose"));
        let first = Graph::capture(&context, |stream| {
            add_one(stream, &function, &mut x)?;
            stream.launch_host_func_each(move || {
                let _bomb = &bomb;
            })
        })?;
        let second = Graph::capture(&context, |stream| {
            let mut launch = stream.kernel(&function).elements(100).arg(&mut pinned).arg(100u32);
            // SAFETY: `pinned` has 100 elements.
            unsafe { launch.launch() }?;
            stream.launch_host_func_each(|| ())
        })?;
        let mut exec = first.instantiate()?;
        drop(first);
        let updated = catch_unwind(AssertUnwindSafe(|| exec.update(&second)));
        updated.expect("a panic of a destructor ends where it is dropped")?;
        assert!(refusal(exec.launch(&stream)).contains("`lend_mut`"));
        exec.lend_mut(&mut pinned).launch(&stream)?;
        assert_eq!(pinned.as_slice()?, [1; 100]);
        Ok(())
    });
}

#[test]
fn s41_what_came_before_a_graph_with_a_host_function_does_not_wait_for_it() {
    clean(|_session| {
        let (context, stream) = one_stream()?;
        let mut x = stream.alloc_zeroed::<u32>(100)?;
        let (go, gone) = mpsc::channel::<()>();
        let gone = Mutex::new(gone);
        let graph = Graph::capture(&context, |stream| {
            stream.launch_host_func_each(move || {
                let gone = gone.lock().expect("it is locked here alone");
                gone.recv().expect("the test sends");
            })
        })?;
        let outer = Graph::capture(&context, |stream| graph.include(stream))?;
        for graph in [graph, outer] {
            let mut exec = graph.instantiate()?;
            stream.fill(&mut x, 1)?;
            exec.launch(&stream)?;
            x.synchronize()?; // would wait for ever after the function
            go.send(()).expect("the function receives");
            stream.synchronize()?;
        }
        Ok(())
    });
}

#[test]
fn s41_what_came_before_a_graph_that_waits_for_an_event_does_not_wait_for_it() {
    clean(|_session| {
        let (context, stream, other) = two_streams()?;
        let mut x = stream.alloc_zeroed::<u32>(100)?;
        let event = Arc::new(Event::new(&context, EventFlags::DISABLE_TIMING)?);
        let graph = Graph::capture(&context, |stream| stream.wait_event_each(&event))?;
        let outer = Graph::capture(&context, |stream| graph.include(stream))?;
        for graph in [graph, outer] {
            let mut exec = graph.instantiate()?;
            let stalled = stall(other.as_raw());
            event.record(&other)?;
            stream.fill(&mut x, 1)?;
            exec.launch(&stream)?;
            x.synchronize()?; // would wait for ever after the stall
            assert!(!stream.query()?);
            stalled.release();
            stream.synchronize()?;
        }
        Ok(())
    });
}

#[test]
fn s41_what_came_before_a_wait_for_an_event_of_a_graph_does_not_wait_for_it() {
    clean(|_session| {
        let (context, one, two) = two_streams()?;
        let mut x = two.alloc_zeroed::<u32>(100)?;
        let event = Arc::new(Event::new(&context, EventFlags::DISABLE_TIMING)?);
        let (go, gone) = mpsc::channel::<()>();
        let gone = Mutex::new(gone);
        let graph = Graph::capture(&context, |stream| {
            stream.launch_host_func_each(move || {
                let gone = gone.lock().expect("it is locked here alone");
                gone.recv().expect("the test sends");
            })?;
            event.record_each(stream)
        })?;
        let mut exec = graph.instantiate()?;
        two.fill(&mut x, 1)?;
        exec.launch(&one)?;
        two.wait_event(&event)?;
        x.synchronize()?; // would wait for ever after the function
        go.send(()).expect("the function receives");
        two.synchronize()?;
        Ok(())
    });
}

#[test]
fn l20_an_executable_goes_without_waiting_for_its_memory() {
    clean(|_session| {
        let (context, stream) = one_stream()?;
        let mut x = context.alloc::<u32>(100)?; // `cuMemFree` would wait
        let graph = Graph::capture(&context, |stream| stream.fill(&mut x, 1))?;
        let mut exec = graph.instantiate()?;
        drop((graph, x));
        let stalled = stall(stream.as_raw());
        exec.launch(&stream)?;
        drop(exec); // the launch, and the free after it, are pending
        stalled.release();
        stream.synchronize()?;
        drops::flush();
        Ok(())
    });
}

#[test]
fn l_steps_are_added_one_after_the_other() {
    clean(|_session| {
        let context = primary();
        let graph = Graph::build(&context, |builder| {
            let mut inner = None;
            let one = builder.add(|_stream| {
                inner = Some(refusal(builder.add(|_stream| Ok(()))));
                Ok(())
            })?;
            assert!(inner.is_some_and(|why| why.contains("a step is being added")));
            builder.add_after(&[one], |_stream| Ok(()))?;
            Ok(())
        })?;
        assert_eq!((graph.node_count()?, graph.edge_count()?), (2, 1));
        let failed = Graph::build(&context, |builder| {
            let failed = builder.add(|stream| stream.synchronize());
            builder.add(|_stream| Ok(()))?; // the step before is over
            failed.map(drop)
        });
        assert!(failed.is_err());
        Ok(())
    });
}

#[test]
fn l_entries_of_streams_that_are_gone_do_not_pile_up() {
    clean(|session| {
        let (context, stream) = one_stream()?;
        let mut x = stream.alloc_zeroed::<u32>(100)?;
        let graph = Graph::capture(&context, |stream| stream.fill(&mut x, 1))?;
        let mut waits = Vec::new();
        for _ in 0..if cfg!(miri) { 20 } else { 300 } {
            let before = session.calls("cuStreamWaitEvent");
            let passing = context.create_stream()?;
            let mut exec = graph.instantiate()?;
            exec.launch(&passing)?;
            drop(exec);
            passing.synchronize()?;
            waits.push(session.calls("cuStreamWaitEvent") - before);
        }
        assert_eq!(waits.iter().max(), Some(&1), "{waits:?}");
        Ok(())
    });
}

#[test]
fn l20_an_executable_goes_without_waiting_for_its_code() {
    clean(|_session| {
        let (context, stream) = one_stream()?;
        let functions = [kernels::get(&context, "add_one")?, kernels::get(&context, "add_one")?];
        let [first, second] = &functions;
        let mut x = stream.alloc_zeroed::<u32>(100)?;
        let graph = Graph::capture(&context, |stream| add_one(stream, first, &mut x))?;
        let node = graph.nodes()?[0].id();
        let mut exec = graph.instantiate()?;
        let mut launch = stream.kernel(second).elements(100).arg(&mut x).arg(100u32);
        // SAFETY: `x` has 100 elements.
        unsafe { exec.set_kernel(node, &mut launch) }?;
        drop((graph, launch));
        drop(functions); // the executable keeps both modules
        let stalled = stall(stream.as_raw());
        exec.launch(&stream)?;
        drop(exec); // the launch, and the end of the modules after it, are pending
        stalled.release();
        assert_eq!(stream.download_vec(&x)?, [1; 100]);
        drops::flush();
        Ok(())
    });
}

#[test]
fn s07_an_update_that_may_have_been_made_keeps_what_either_graph_uses() {
    clean(|session| {
        let (context, stream) = one_stream()?;
        let mut x = stream.alloc_zeroed::<u32>(100)?;
        let mut y = stream.alloc_zeroed::<u32>(100)?;
        let first = Graph::capture(&context, |stream| stream.fill(&mut x, 1))?;
        let second = Graph::capture(&context, |stream| stream.fill(&mut y, 2))?;
        let mut exec = first.instantiate()?;
        let earlier = Fault::new(cuda_sys::CUDA_ERROR_LAUNCH_FAILED);
        session.inject(earlier.function("cuGraphExecUpdate_v2").takes_effect());
        exec.update(&second).expect_err("it was made to fail");
        drop((first, second, y));
        let mut poison = stream.alloc::<u32>(100)?;
        stream.fill(&mut poison, 3)?;
        exec.launch(&stream)?;
        assert_eq!(stream.download_vec(&poison)?, [3; 100]);
        drop(exec);
        x.close().map_err(|rejected| rejected.error)
    });
}

#[test]
fn s07_an_update_that_may_have_failed_keeps_what_a_changed_operation_uses() {
    clean(|session| {
        let (context, stream) = one_stream()?;
        let mut buffers = [stream.alloc_zeroed::<u32>(100)?, stream.alloc_zeroed::<u32>(100)?];
        let mut z = stream.alloc_zeroed::<u32>(100)?;
        let [x, y] = &mut buffers;
        let first = Graph::capture(&context, |stream| stream.fill(x, 1))?;
        let second = Graph::capture(&context, |stream| stream.fill(y, 2))?;
        let mut exec = first.instantiate()?;
        exec.set_fill(first.nodes()?[0].id(), &mut z, 5)?;
        let earlier = Fault::new(cuda_sys::CUDA_ERROR_LAUNCH_FAILED);
        session.inject(earlier.function("cuGraphExecUpdate_v2")); // not made
        exec.update(&second).expect_err("it was made to fail");
        drop(z);
        let mut poison = stream.alloc::<u32>(100)?;
        stream.fill(&mut poison, 3)?;
        exec.launch(&stream)?; // fills what was `z`
        assert_eq!(stream.download_vec(&poison)?, [3; 100]);
        Ok(())
    });
}

#[test]
fn s07_what_was_changed_before_a_doubtful_update_is_let_go_once() {
    clean(|session| {
        let (context, stream) = one_stream()?;
        let mut x = stream.alloc_zeroed::<u32>(100)?;
        let (mut y, mut z) = (stream.alloc_zeroed::<u32>(100)?, stream.alloc_zeroed::<u32>(100)?);
        let fills = |to: &mut DeviceBuffer<u32>| {
            Graph::capture(&context, |stream| {
                stream.fill(to.slice_mut(..50)?, 1)?;
                stream.fill(to.slice_mut(50..)?, 2)
            })
        };
        let (graph, second) = (fills(&mut x)?, fills(&mut z)?);
        let first = graph.nodes()?[0].id();
        let mut exec = graph.instantiate()?;
        exec.set_fill(first, &mut y, 3)?;
        let earlier = Fault::new(cuda_sys::CUDA_ERROR_LAUNCH_FAILED);
        session.inject(earlier.function("cuGraphExecUpdate_v2")); // not made
        exec.update(&second).expect_err("it was made to fail");
        exec.set_fill(first, &mut z, 4)?;
        let other = context.create_stream()?;
        let stalled = stall(other.as_raw());
        other.fill(&mut x, 0)?;
        exec.launch(&stream)?; // the second fill comes after this one
        stalled.release();
        assert_eq!(stream.download_vec(&x)?, [vec![0; 50], vec![2; 50]].concat());
        Ok(())
    });
}

#[test]
fn s02_a_pending_launch_of_an_executable_that_is_gone_is_waited_for() {
    clean(|_session| {
        let (context, stream, other) = two_streams()?;
        let mut x = stream.alloc_zeroed::<u32>(100)?;
        let graph = Graph::capture(&context, |stream| stream.fill(&mut x, 1))?;
        let mut exec = graph.instantiate()?;
        stream.synchronize()?; // or the other one would wait for all that is on it
        let stalled = stall(stream.as_raw());
        exec.launch(&stream)?;
        drop((exec, graph));
        other.fill(&mut x, 2)?; // after the launch
        stalled.release();
        assert_eq!(other.download_vec(&x)?, [2; 100]);
        Ok(())
    });
}

#[test]
fn s01_by_access_a_copy_comes_behind_what_it_reads() {
    clean(|_session| {
        let (context, stream) = one_stream()?;
        let (mut x, mut y) = (stream.alloc_zeroed::<u32>(100)?, stream.alloc_zeroed::<u32>(100)?);
        let graph = Graph::capture_by_access(&context, |stream| {
            stream.fill(&mut x, 1)?;
            stream.copy(&x, &mut y)
        })?;
        assert_eq!(graph.edge_count()?, 1);
        graph.instantiate()?.launch(&stream)?;
        assert_eq!(stream.download_vec(&y)?, [1; 100]);
        Ok(())
    });
}

#[test]
fn s07_what_runs_on_a_condition_is_kept_and_waited_for() {
    clean(|_session| {
        let (context, stream, other) = two_streams()?;
        let (mut x, mut y) = (stream.alloc_zeroed::<u32>(100)?, stream.alloc_zeroed::<u32>(100)?);
        let graph = Graph::capture(&context, |stream| {
            Condition::new(stream, 1)?.if_then(stream, |body| body.copy(&x, &mut y))
        })?;
        let mut exec = graph.instantiate()?;
        let stalled = stall(other.as_raw());
        other.fill(&mut x, 3)?;
        exec.launch(&stream)?; // after the fill
        stalled.release();
        drop((graph, x));
        exec.launch(&stream)?;
        assert_eq!(stream.download_vec(&y)?, [3; 100]);
        Ok(())
    });
}

#[test]
fn s07_a_body_that_fails_makes_no_graph() {
    clean(|_session| {
        let (context, stream) = one_stream()?;
        let mut x = stream.alloc_zeroed::<u32>(100)?;
        let graph = Graph::capture(&context, |stream| {
            let failed = Condition::new(stream, 1)?.if_then(stream, |body| {
                body.fill(&mut x, 1)?;
                body.synchronize()
            });
            failed.expect_err("a body cannot wait");
            Ok(())
        });
        assert!(refusal(graph).contains("not complete"));
        Ok(())
    });
}

#[test]
fn s07_a_free_that_fails_makes_no_graph() {
    clean(|session| {
        let context = primary();
        let graph = Graph::capture(&context, |stream| {
            let mut scratch = stream.alloc_in_graph::<u32>(100)?;
            stream.fill(&mut scratch, 1)?;
            let relax = "cuThreadExchangeStreamCaptureMode";
            session.inject(Fault::new(cuda_sys::CUDA_ERROR_UNKNOWN).function(relax));
            stream.free_in_graph(scratch).expect_err("it was made to fail");
            Ok(())
        });
        assert!(refusal(graph).contains("not complete"));
        Ok(())
    });
}
