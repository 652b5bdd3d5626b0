//! S45: captures that begin or end while the library records an event or waits; and operations that a capture
//! in the end does not contain.

use std::ptr;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use cuda_core::pinned::RegisterFlags;
use cuda_core::{
    Condition, Context, ContextFlags, Device, Error, Event, EventFlags, Graph, PinnedBuffer,
    Registered, Result, Signal, Stream, WaitValue, drops,
};
use cuda_sim::Fault;
use cuda_sys::{
    CU_STREAM_CAPTURE_MODE_RELAXED, CU_STREAM_CAPTURE_STATUS_NONE, CUDA_ERROR_INVALID_VALUE,
    CUDA_ERROR_UNKNOWN, CUDA_SUCCESS, CUresult, CUstream, cuGraphDestroy, cuStreamBeginCapture_v2,
    cuStreamEndCapture, cuStreamIsCapturing,
};
use support::{WatchedHost, kernels, one_stream, refusal};

use super::{clean, device, primary};

/// Calls `cuStreamBeginCapture`, like another library that has the handle. Any thread may end the capture.
pub(super) fn begin(captured: &Stream) {
    // SAFETY: the stream is live, and the library makes no call on it at this time.
    let code =
        unsafe { cuStreamBeginCapture_v2(captured.as_raw(), CU_STREAM_CAPTURE_MODE_RELAXED) };
    assert_eq!(code, CUDA_SUCCESS);
}

pub(super) fn end(captured: &Stream) -> CUresult {
    end_of(captured.as_raw())
}

fn end_of(stream: CUstream) -> CUresult {
    let mut graph = ptr::null_mut();
    // SAFETY: the stream is live; the call writes one handle, to a local.
    let code = unsafe { cuStreamEndCapture(stream, &mut graph) };
    if !graph.is_null() {
        // SAFETY: no other code uses the graph.
        assert_eq!(unsafe { cuGraphDestroy(graph) }, CUDA_SUCCESS);
    }
    code
}

fn is_captured(stream: &Stream) -> bool {
    let mut status = CU_STREAM_CAPTURE_STATUS_NONE;
    // SAFETY: the stream is live; the call writes one status, to a local.
    let code = unsafe { cuStreamIsCapturing(stream.as_raw(), &mut status) };
    assert_eq!(code, CUDA_SUCCESS);
    status != CU_STREAM_CAPTURE_STATUS_NONE
}

#[track_caller]
fn refused<R>(done: Result<R>) {
    assert!(matches!(done, Err(Error::Capturing { .. })), "{:?}", done.err());
}

/// The capture begins after the library has checked the stream, and before it records the event.
#[test]
fn s45_a_capture_that_begins_before_the_record() {
    clean(|session| {
        let (outside, captured) = (device().create_stream()?, device().create_stream()?);
        let mut buffer = outside.alloc_zeroed::<u32>(64)?;
        captured.fill(&mut buffer, 1)?;
        captured.as_raw();
        thread::scope(|scope| {
            let record = session.hold("cuEventRecord");
            let filling = scope.spawn(|| outside.fill(&mut buffer, 2));
            record.await_call();
            begin(&captured);
            drop(record);
            refused(filling.join().expect("no panic"));
        });
        assert!(!is_captured(&outside), "it waits for an event of the capture");
        // The record in the capture does not count as a record of the event.
        refused(outside.fill(&mut buffer, 2));
        refused(buffer.synchronize());
        assert_eq!(end(&captured), CUDA_SUCCESS);
        outside.fill(&mut buffer, 3)?;
        assert_eq!(outside.download_vec(&buffer)?, [3; 64]);
        Ok(())
    });
}

/// The whole capture lies between two queries: the library takes the record in the capture for a valid one.
#[test]
fn s45_a_capture_between_two_queries() {
    clean(|session| {
        for waits_on_the_host in [false, true] {
            let (outside, captured) = (device().create_stream()?, device().create_stream()?);
            let mut buffer = outside.alloc_zeroed::<u32>(64)?;
            captured.fill(&mut buffer, 1)?;
            captured.as_raw();
            thread::scope(|scope| {
                let record = session.hold("cuEventRecord");
                let waiting = scope.spawn(|| match waits_on_the_host {
                    true => buffer.synchronize(),
                    false => outside.fill(&mut buffer, 2),
                });
                record.await_call();
                begin(&captured);
                // Replaces the hold on the record, which then continues.
                let asked = session.hold("cuStreamIsCapturing");
                asked.await_call();
                assert_eq!(end(&captured), CUDA_SUCCESS);
                drop((asked, record));
                refused(waiting.join().expect("no panic"));
            });
            // The library records the event again.
            outside.fill(&mut buffer, 3)?;
            assert_eq!(outside.download_vec(&buffer)?, [3; 64]);
        }
        Ok(())
    });
}

/// A wait for one context asks whether its streams are captured; it refers to no stream of another context.
#[test]
fn s45_a_context_is_closed_while_another_is_synchronised() {
    clean(|session| {
        let new = || Context::new(Device::get(0)?, ContextFlags::default());
        let (waited, closed) = (new()?, new()?);
        let (exposed, stream) = (waited.create_stream()?, closed.create_stream()?);
        exposed.as_raw();
        thread::scope(|scope| {
            let mut asked = session.hold("cuStreamIsCapturing");
            let waiting = scope.spawn(|| waited.synchronize());
            // The default streams are asked first. Each hold replaces the one before, whose call continues.
            for _ in 0..2 {
                asked.await_call();
                asked = session.hold("cuStreamIsCapturing");
            }
            asked.await_call();
            drop(stream);
            closed.close().map_err(Error::from)?;
            drop(asked);
            waiting.join().expect("no panic")
        })
    });
}

/// A flush may try a drop again, which runs code that itself flushes.
#[test]
fn s45_an_owner_that_flushes_goes_when_the_capture_has_ended() {
    clean(|_session| {
        let captured = device().create_stream()?;
        let mut buffer = captured.alloc_zeroed::<u32>(64)?;
        let flags = RegisterFlags::PORTABLE;
        let flushes = WatchedHost::new(vec![1_u32; 64], |_| drops::flush());
        let owner = Registered::new(captured.context(), flushes, flags);
        let owner = owner.map_err(Error::from)?;
        captured.upload(&owner, &mut buffer)?;
        captured.as_raw();
        begin(&captured);
        drop(owner);
        assert_eq!(end(&captured), CUDA_SUCCESS);
        cuda_core::drops::flush();
        assert_eq!(captured.download_vec(&buffer)?, [1; 64]);
        Ok(())
    });
}

/// The capture needs the stream, and so does any wait for its work.
#[test]
fn s45_a_stream_is_destroyed_when_its_capture_has_ended() {
    clean(|session| {
        let (outside, captured) = (device().create_stream()?, device().create_stream()?);
        let mut buffer = outside.alloc_zeroed::<u32>(64)?;
        captured.fill(&mut buffer, 1)?;
        let handle = captured.as_raw();
        begin(&captured);
        drop(captured);
        cuda_core::drops::flush();
        assert_eq!(session.calls("cuStreamDestroy_v2"), 0);
        refused(outside.fill(&mut buffer, 2));
        assert_eq!(end_of(handle), CUDA_SUCCESS);
        outside.fill(&mut buffer, 3)?;
        cuda_core::drops::flush();
        assert_eq!(session.calls("cuStreamDestroy_v2"), 1);
        assert_eq!(outside.download_vec(&buffer)?, [3; 64]);
        Ok(())
    });
}

/// S33: a drop while a capture is locked calls a hook, which uses the capture.
#[test]
fn s33_a_hook_about_a_captured_event_uses_the_capture() {
    let session = support::simulator();
    let (done, is_done) = mpsc::channel();
    session.fail_nth(Some("cuEventRecord"), 1, CUDA_ERROR_UNKNOWN);
    session.fail_nth(Some("cuEventDestroy_v2"), 1, CUDA_ERROR_UNKNOWN);
    thread::spawn(move || {
        let made = Graph::capture(&primary(), |stream| {
            let event = Event::new(&primary(), EventFlags::DISABLE_TIMING)?;
            let captured = stream.clone();
            drops::set_hook(move |_| drop(captured.wait_stream(&captured)));
            event.record(stream).expect_err("it is refused");
            drop(drops::take_hook());
            Ok(())
        });
        drop(made);
        let _ = done.send(());
    });
    is_done.recv_timeout(Duration::from_secs(10)).expect("no thread waits for itself");
    cuda_core::staging::trim().expect("no fault is left");
    support::judge::take_away(&session, session.leaks());
}

/// The driver is about to wait for the context when another thread begins a capture, which the wait ends.
#[test]
fn s45_a_capture_that_begins_as_the_context_is_waited_for_is_reported() {
    clean(|session| {
        let context = primary();
        let mut x = context.create_stream()?.alloc_zeroed::<u32>(64)?;
        let captured = thread::scope(|scope| {
            let held = session.hold("cuCtxSynchronize");
            let waiting = scope.spawn(|| primary().synchronize());
            held.await_call();
            Graph::capture(&context, |stream| {
                drop(held);
                refused(waiting.join().expect("no panic"));
                stream.fill(&mut x, 1)
            })
        });
        assert!(captured.is_err(), "{captured:?}");
        primary().synchronize()
    });
}

/// A graph contains the operations that the driver accepts, and needs what these use.
#[test]
fn l_an_operation_that_is_refused_leaves_nothing_in_the_graph() {
    clean(|session| {
        let (context, stream) = one_stream()?;
        let mut host = PinnedBuffer::from_slice(&context, &[7u32; 64])?;
        let (x, value) = (stream.alloc_zeroed::<u32>(64)?, context.alloc::<u32>(1)?);
        let mut y = stream.alloc_zeroed::<u32>(64)?;
        let (signal, alive) = (Signal::new(&context, 0u32)?, Arc::new(()));
        let event = Arc::new(Event::new(&context, EventFlags::DISABLE_TIMING)?);
        let mut refuse = |stream: &Stream| {
            let refuse = |name| session.inject(Fault::new(CUDA_ERROR_INVALID_VALUE).function(name));
            refuse("cuMemcpyDtoHAsync_v2");
            assert!(stream.download(&x, &mut host).is_err());
            stream.fill(&mut y, 3)?;
            refuse("cuMemcpyDtoHAsync_v2");
            assert!(stream.download(&y, &mut host).is_err());
            refuse("cuStreamWaitValue32_v2");
            assert!(stream.wait_value(&value, WaitValue::Eq(1)).is_err());
            refuse("cuStreamWriteValue32_v2");
            assert!(stream.write_signal(&signal, 1).is_err());
            refuse("cuEventRecordWithFlags");
            assert!(event.record_each(stream).is_err());
            refuse("cuStreamWaitEvent");
            assert!(stream.wait_event_each(&event).is_err());
            refuse("cuLaunchHostFunc");
            let dropped = Arc::clone(&alive);
            assert!(stream.launch_host_func_each(move || drop(dropped.clone())).is_err());
            assert_eq!(
                Arc::strong_count(&alive),
                1,
                "the graph keeps no function that it does not call"
            );
            Ok(())
        };
        let graphs = [
            Graph::capture(&context, &mut refuse)?,
            Graph::capture_by_access(&context, &mut refuse)?,
            Graph::capture([&context, &context], |[one, _]| refuse(one))?,
        ];
        for graph in graphs {
            assert_eq!(graph.node_count()?, 1);
            let mut exec = graph.instantiate()?;
            exec.launch(&stream)?; // nothing has to be lent
            // A body cannot wait for a value.
            let outer = Graph::capture(&context, |stream| {
                Condition::new(stream, 1)?.if_then(stream, |body| graph.include(body))
            })?;
            outer.instantiate()?.launch(&stream)?;
        }
        assert_eq!(stream.download_vec(&y)?, [3; 64]);
        Ok(())
    });
}

/// A refused operation needs no access: the graph can be launched without it.
#[test]
fn l_a_refused_operation_between_devices_needs_no_access() {
    clean(|_| {
        let [here, there] = [Device::get(0)?.context()?, Device::get(1)?.context()?];
        here.enable_peer_access(&there)?;
        let add_one = kernels::get(&here, "saxpy")?;
        let (stream, far_stream) = (here.create_stream()?, there.create_stream()?);
        let mut near = stream.alloc_zeroed::<f32>(64)?;
        let mut far = far_stream.alloc_zeroed::<f32>(64)?;
        far_stream.synchronize()?;
        let mut inner = None;
        let _other = Graph::capture(&here, |captured| {
            let mut scratch = captured.alloc_in_graph::<f32>(64)?;
            captured.fill(&mut scratch, 1.0)?;
            inner = Some(scratch);
            Ok(())
        })?;
        let of_another_graph = inner.expect("it was captured");
        let graph = Graph::capture(&here, |captured| {
            assert!(captured.copy(&of_another_graph, &mut far).is_err());
            let mut launch =
                captured.kernel(&add_one).elements(64).arg(1.0f32).arg(&of_another_graph);
            launch = launch.arg(&mut far).arg(64u32);
            // SAFETY: 64 elements of each.
            assert!(unsafe { launch.launch() }.is_err());
            captured.fill(&mut near, 7.0)
        })?;
        let mut exec = graph.instantiate()?;
        here.disable_peer_access(&there)?;
        exec.launch(&stream)?;
        graph.instantiate()?.launch(&stream)?;
        assert_eq!(stream.download_vec(&near)?, [7.0; 64]);
        Ok(())
    });
}

/// A capture that began despite an error of earlier work is ended, and its graph destroyed.
#[test]
fn s45_a_capture_that_begins_with_an_error_ends() {
    clean(|session| {
        let context = primary();
        let mut x = context.create_stream()?.alloc_zeroed::<u32>(64)?;
        let mut graph = Graph::capture(&context, |stream| stream.fill(&mut x, 1))?;
        let late = |call| Fault::new(CUDA_ERROR_UNKNOWN).function(call).takes_effect();
        session.inject(late("cuStreamBeginCapture_v2"));
        assert!(Graph::capture(&context, |_| unreachable!("not begun")).is_err());
        session.inject(late("cuStreamBeginCaptureToGraph"));
        assert!(graph.extend(|_| unreachable!("not begun")).is_err());
        assert!(matches!(graph.instantiate(), Err(Error::GivenUp { .. })), "it may have anything");
        let graph = Graph::capture(&context, |stream| stream.fill(&mut x, 1))?;
        graph.instantiate()?.launch(&context.create_stream()?)
    });
}

/// The graph may have the condition's operation, but not what was to run on it: no graph is returned. If the
/// operation was refused, a graph without it is returned.
#[test]
fn s07_a_condition_that_may_have_been_added_makes_no_graph() {
    clean(|session| {
        let context = primary();
        let mut x = context.create_stream()?.alloc_zeroed::<u32>(64)?;
        for (code, is_refused) in [(CUDA_ERROR_UNKNOWN, false), (CUDA_ERROR_INVALID_VALUE, true)] {
            let graph = Graph::capture(&context, |stream| {
                let condition = Condition::new(stream, 1)?;
                session.inject(Fault::new(code).function("cuGraphAddNode_v2"));
                assert!(condition.while_loop(stream, |body| body.fill(&mut x, 1)).is_err());
                stream.fill(&mut x, 3)?;
                // CUDA requires that an operation uses the condition.
                if is_refused {
                    condition.if_then(stream, |body| body.fill(&mut x, 4))
                } else {
                    Ok(())
                }
            });
            match is_refused {
                true => assert_eq!(graph?.node_count()?, 2),
                false => assert!(refusal(graph).contains("an operation is not complete")),
            }
        }
        Ok(())
    });
}

/// The graph may have the child's node, whose place in the order is unknown: no graph is returned.
#[test]
fn s07_a_child_graph_that_may_have_been_included_makes_no_graph() {
    clean(|session| {
        let (context, stream) = one_stream()?;
        // By access, the dependencies are also set before the child is added.
        let update =
            || Fault::new(CUDA_ERROR_UNKNOWN).function("cuStreamUpdateCaptureDependencies");
        let add =
            || Fault::new(CUDA_ERROR_UNKNOWN).function("cuGraphAddChildGraphNode").takes_effect();
        let faults = [(false, add()), (false, update()), (true, add()), (true, update().nth(2))];
        for (by_access, fault) in faults {
            let (mut x, mut y) = (stream.alloc_zeroed::<u32>(64)?, stream.alloc_zeroed::<u32>(64)?);
            let child = Graph::capture(&context, |stream| stream.fill(&mut x, 1))?;
            let work = |stream: &Stream| {
                session.inject(fault);
                assert!(child.include(stream).is_err());
                stream.fill(&mut y, 3)
            };
            let graph = match by_access {
                false => Graph::capture(&context, work),
                true => Graph::capture_by_access(&context, work),
            };
            drop((child, x));
            // Unless it is refused, the launch uses freed memory.
            let launched = graph.and_then(|graph| graph.instantiate()?.launch(&stream));
            assert!(refusal(launched).contains("where in the graph it is"));
            stream.synchronize()?;
        }
        Ok(())
    });
}

/// While another thread captures a body, a step cannot end, and later operations would be a part of it.
#[test]
fn s07_a_step_that_does_not_end_makes_no_graph() {
    clean(|_session| {
        let context = primary();
        let mut x = context.create_stream()?.alloc_zeroed::<u32>(64)?;
        let graph = Graph::build(&context, |builder| {
            let condition = builder.condition(1)?;
            let (begun, begins) = mpsc::channel();
            let (go_on, goes_on) = mpsc::channel();
            thread::scope(|scope| {
                let step = builder.add(|stream| {
                    let stream = stream.clone();
                    scope.spawn(move || {
                        condition.if_then(&stream, |body| {
                            begun.send(()).expect("the step waits");
                            goes_on.recv().expect("the step ends");
                            body.fill(&mut x, 1)
                        })
                    });
                    begins.recv().expect("the body begins");
                    Ok(())
                });
                assert!(refusal(step).contains("is being captured"));
                go_on.send(()).expect("the body waits");
            });
            Ok(())
        });
        assert!(refusal(graph).contains("an operation is not complete"));
        Ok(())
    });
}
