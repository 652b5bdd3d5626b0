//! Ends of communicators that NCCL still uses: in a call in progress, or in graphs.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use cuda_core::interop::ShareableHandle;
use cuda_core::nccl::{Communicator, CommunicatorOptions, Ranks, Reduction};
use cuda_core::virtual_memory::{PhysicalMemory, VirtualBuffer};
use cuda_core::{
    Context, ContextFlags, Device, DeviceBuffer, Error, Graph, NcclError, Resource, Result, Signal,
    Stream, WaitValue, drops,
};
use cuda_sim::{Fault, Mode, Session};
use cuda_sys::{CUDA_ERROR_UNKNOWN, CUresult};
use support::{DropReports, OnDrop, judge};

use super::{clean, within};

pub(super) fn devices() -> Result<(Vec<Context>, Vec<Stream>)> {
    let contexts = Device::contexts([Device::get(0)?, Device::get(1)?])?;
    let streams = contexts.iter().map(Context::create_stream).collect::<Result<_>>()?;
    Ok((contexts, streams))
}

/// Splits `Ranks` into its communicators.
pub(super) fn parted(ranks: Ranks) -> Vec<Communicator> {
    // SAFETY: the tests enqueue operations at one rank alone only if they are aborted.
    unsafe { ranks.into_communicators() }
}

/// Aborts a call in progress. Returns whether its memory is freed, and its stream destroyed: first while the
/// captured graph still exists, and then once it is gone.
fn aborted_call(session: &Session, in_graphs: bool, abort_fails: bool) -> Result<[[bool; 2]; 2]> {
    let (contexts, streams) = devices()?;
    let options = CommunicatorOptions::new().blocking(false).limit(Duration::from_millis(200));
    let ranks = Ranks::init_all_with(&contexts, &options)?;
    let mut sums = vec![streams[0].alloc_zeroed::<u32>(9)?, streams[1].alloc_zeroed(9)?];
    let mut capture = || {
        Graph::capture([&contexts[0], &contexts[1]], |captured| {
            ranks.on(captured)?.all_reduce_in_place(&mut sums, Reduction::Sum)
        })
    };
    let graph = if in_graphs { Some(capture()?) } else { None };
    let memory = contexts[1].alloc::<u32>(9)?;
    let (freed, seen) = mpsc::channel::<()>();
    let (address, owner) = (memory.as_raw(), (memory, freed));
    // SAFETY: the owner keeps the memory, which nothing else uses.
    let memory = unsafe { DeviceBuffer::<u32>::from_raw(address, 9, &contexts[1], owner) }?;
    let stream = contexts[1].create_stream()?;
    let pair = parted(ranks);
    pair[0].abort()?;
    if abort_fails {
        session.inject(Fault::new(CUresult(3)).function("ncclCommAbort"));
    }
    // Only the abort of the last rank waits for the graph.
    pair[1].on(&stream)?.send(&memory, 0).expect_err("no rank receives it");
    let before = session.calls("cuStreamDestroy_v2");
    drop((memory, stream));
    let look = |wait| {
        drops::flush();
        let gone = match seen.recv_timeout(wait) {
            Err(mpsc::RecvTimeoutError::Disconnected) => true,
            nothing => {
                assert_eq!(nothing, Err(mpsc::RecvTimeoutError::Timeout));
                false
            }
        };
        [gone, session.calls("cuStreamDestroy_v2") > before]
    };
    let meanwhile = look(Duration::ZERO);
    drop(graph);
    let patience = if abort_fails { Duration::from_millis(10) } else { Duration::from_secs(10) };
    Ok([meanwhile, look(patience)])
}

#[test]
fn k_nccl_what_an_aborted_call_uses_stays_until_the_abort_is_over() {
    clean(|session| {
        let [meanwhile, then] = aborted_call(session, true, false)?;
        assert_eq!(meanwhile, [false; 2], "NCCL may use it");
        assert!(then[0], "NCCL has ended");
        Ok(())
    });
}

#[test]
fn k_nccl_what_a_call_uses_whose_abort_failed_is_left() {
    for in_graphs in [true, false] {
        let session = support::simulator();
        let failures = DropReports::listen();
        within(|| {
            let seen = aborted_call(&session, in_graphs, true).expect("only the abort fails");
            assert_eq!(seen, [[false; 2]; 2], "NCCL may use it");
        });
        assert_eq!(failures.reported(Resource::UsedByWork), 1);
        cuda_core::staging::trim().expect("no fault is left");
        let (reported, leaks) = (failures.end(), session.leaks());
        judge::leaked_unsaid(&leaks, &reported, |_| false).expect("what is left is reported");
        judge::take_away(&session, leaks);
    }
}

/// Returns one rank, and a graph of the second rank, which was aborted. NCCL frees both with the first rank,
/// and only when no graph of either exists.
fn graph_of_the_other() -> Result<(Communicator, Graph)> {
    let (contexts, streams) = devices()?;
    let ranks = Ranks::init_all(&contexts)?;
    let mut sums = vec![streams[0].alloc_zeroed::<u32>(9)?, streams[1].alloc_zeroed(9)?];
    ranks.on(&streams)?.all_reduce_in_place(&mut sums, Reduction::Sum)?;
    streams.iter().try_for_each(Stream::synchronize)?;
    let mut pair = parted(ranks);
    let other = pair.pop().expect("two ranks");
    let graph = Graph::capture(&contexts[1], |captured| {
        other.on(captured)?.all_reduce_in_place(&mut sums[1], Reduction::Sum)
    })?;
    other.abort()?;
    Ok((pair.pop().expect("one is left"), graph))
}

#[test]
fn k_nccl_an_abort_does_not_wait_for_the_graphs_of_another_rank() {
    clean(|_| {
        let (rank, graph) = graph_of_the_other()?;
        rank.abort()?;
        drop(graph);
        Ok(())
    });
}

#[test]
fn k_nccl_a_drop_does_not_wait_for_the_graphs_of_another_rank() {
    clean(|_| {
        let (rank, graph) = graph_of_the_other()?;
        drop(rank);
        drop(graph);
        Ok(())
    });
    clean(|_| {
        let dropped = graph_of_the_other()?;
        let stream = Device::get(0)?.create_stream()?;
        stream.launch_host_func(move || drop(dropped))?;
        stream.synchronize()
    });
}

/// The time after which a call of one thread that has not returned counts as waiting for that of another.
const WAITS: Duration = Duration::from_millis(50);

/// Otherwise one rank could enqueue the launch's operation before the call's, and another rank after it.
#[test]
fn k_nccl_calls_and_launches_of_all_ranks_take_turns() {
    clean(|session| {
        let (contexts, streams) = devices()?;
        let ranks = Ranks::init_all(&contexts)?;
        let mut sums = [streams[0].alloc_zeroed::<u32>(9)?, streams[1].alloc_zeroed(9)?];
        let mut others = [streams[0].alloc_zeroed::<u32>(9)?, streams[1].alloc_zeroed(9)?];
        let graph = Graph::capture([&contexts[0], &contexts[1]], |captured| {
            ranks.on(captured)?.all_reduce_in_place(&mut sums, Reduction::Sum)
        })?;
        let mut exec = graph.instantiate()?;
        thread::scope(|scope| {
            let held = session.hold("ncclGroupEnd");
            let reduces = scope
                .spawn(|| ranks.on(&streams)?.all_reduce_in_place(&mut others, Reduction::Sum));
            held.await_call();
            let (done, launched) = mpsc::channel();
            let launches = scope.spawn({
                let (exec, streams) = (&mut exec, &streams);
                move || {
                    let result = exec.launch(&streams[0]);
                    let _ = done.send(());
                    result
                }
            });
            launched.recv_timeout(WAITS).expect_err("the launch waits for the call");
            assert_eq!(session.calls("cuGraphLaunch"), 0);
            drop(held);
            reduces.join().expect("no panic")?;
            launches.join().expect("no panic")
        })?;
        streams.iter().try_for_each(Stream::synchronize)
    });
}

/// The memory is free when the call begins, and used when the call has its turn.
#[test]
fn k_nccl_a_call_that_waits_for_the_turn_of_a_launch_comes_after_it() {
    clean(|session| {
        let (contexts, streams) = devices()?;
        let third = contexts[0].create_stream()?;
        let ranks = Ranks::init_all(&contexts)?;
        let mut sums = [streams[0].alloc_zeroed::<u32>(9)?, streams[1].alloc_zeroed(9)?];
        let graph = Graph::capture([&contexts[0], &contexts[1]], |captured| {
            ranks.on(captured)?.all_reduce_in_place(&mut sums, Reduction::Sum)
        })?;
        let mut exec = graph.instantiate()?;
        thread::scope(|scope| {
            let held = session.hold("cuGraphLaunch");
            let launches = scope.spawn(|| exec.launch(&third));
            held.await_call();
            let (done, reduced) = mpsc::channel();
            let reduces = scope.spawn({
                let (ranks, streams, sums) = (&ranks, &streams, &mut sums);
                move || {
                    let result = ranks.on(streams)?.all_reduce_in_place(sums, Reduction::Sum);
                    let _ = done.send(());
                    result
                }
            });
            reduced.recv_timeout(WAITS).expect_err("the call waits for the launch");
            drop(held);
            launches.join().expect("no panic")?;
            reduces.join().expect("no panic")
        })?;
        streams.iter().try_for_each(Stream::synchronize)
    });
}

/// NCCL gives itself access to the memory of peers; with `NCCL_CUMEM_ENABLE=0` it enables the access of
/// contexts to each other.
#[test]
fn k_nccl_a_graph_that_is_captured_as_its_ranks_are_finalised_is_seen() {
    clean(|session| {
        let (contexts, streams) = devices()?;
        let options = CommunicatorOptions::new().limit(Duration::from_millis(200));
        let ranks = Ranks::init_all_with(&contexts, &options)?;
        let mut sums = vec![streams[0].alloc_zeroed::<u32>(9)?, streams[1].alloc_zeroed(9)?];
        let held = session.hold("cuThreadExchangeStreamCaptureMode");
        let (finalized, graph) = thread::scope(|scope| {
            let finalizing = scope.spawn(|| ranks.finalize());
            held.await_call();
            let graph = Graph::capture([&contexts[0], &contexts[1]], |captured| {
                ranks.on(captured)?.all_reduce_in_place(&mut sums, Reduction::Sum)
            });
            drop(held);
            (finalizing.join().expect("no panic"), graph)
        });
        let _graph = graph?;
        let timed_out = matches!(finalized, Err(Error::Nccl(ref it)) if matches!(**it, NcclError::TimedOut { .. }));
        assert!(timed_out, "NCCL would wait for the graph without a limit: {finalized:?}");
        Ok(())
    });
}

/// When it is dropped, the graph removes its memory from a rank's registrations.
#[test]
fn k_nccl_ranks_are_finalised_beside_the_drop_of_a_graph_with_registered_memory() {
    clean(|session| {
        let (contexts, _) = devices()?;
        let options = CommunicatorOptions::new().limit(Duration::from_secs(10));
        let ranks = Ranks::init_all_with(&contexts, &options)?;
        let registered = |context| -> Result<_> {
            let mut memory = VirtualBuffer::<u32>::new(context, 9)?;
            memory.append(PhysicalMemory::new(context, 36, ShareableHandle::PosixFd)?)?;
            Ok(ranks.register(memory)?)
        };
        let mut sums = contexts.iter().map(registered).collect::<Result<Vec<_>>>()?;
        let graph = Graph::capture([&contexts[0], &contexts[1]], |captured| {
            ranks.on(captured)?.all_reduce_in_place(&mut sums, Reduction::Sum)
        })?;
        drop(sums);
        let held = session.hold("ncclCommGetAsyncError");
        thread::scope(|scope| {
            let finalizing = scope.spawn(|| ranks.finalize());
            held.await_call();
            scope.spawn(move || drop(graph));
            drop(held);
            finalizing.join().expect("no panic")
        })
    });
}

#[test]
fn k_nccl_a_graph_keeps_what_a_call_uses_that_failed_as_it_was_captured() {
    clean(|session| {
        let (contexts, streams) = devices()?;
        let ranks = Ranks::init_all(&contexts)?;
        let mut sums = vec![streams[0].alloc_zeroed::<u32>(9)?, streams[1].alloc_zeroed(9)?];
        ranks.on(&streams)?.all_reduce_in_place(&mut sums, Reduction::Sum)?;
        let pair = parted(ranks);
        let memory = contexts[0].alloc::<u32>(9)?;
        let (freed, seen) = mpsc::channel::<()>();
        let (address, owner) = (memory.as_raw(), (memory, freed));
        // SAFETY: the owner keeps the memory, which nothing else uses.
        let mut memory = unsafe { DeviceBuffer::<u32>::from_raw(address, 9, &contexts[0], owner) }?;
        session.inject(Fault::new(CUresult(3)).function("ncclAllReduce"));
        let graph = Graph::capture(&contexts[0], |captured| {
            let failed = pair[0].on(captured)?.all_reduce_in_place(&mut memory, Reduction::Sum);
            failed.expect_err("the fault");
            Ok(())
        })?;
        drop(memory);
        drops::flush();
        assert_eq!(seen.try_recv(), Err(mpsc::TryRecvError::Empty), "NCCL may capture it yet");
        drop(graph);
        drops::flush();
        assert_eq!(seen.try_recv(), Err(mpsc::TryRecvError::Disconnected));
        Ok(())
    });
}

#[test]
fn k_nccl_access_between_the_devices_of_ranks_is_not_revoked() {
    clean(|session| {
        let (contexts, _) = devices()?;
        let [one, two] = [&contexts[0], &contexts[1]];
        one.enable_peer_access(two)?;
        let refused = |why: &str| {
            let revoked = session.calls("cuCtxDisablePeerAccess");
            let error = one.disable_peer_access(two).expect_err(why);
            assert!(error.to_string().contains("NCCL has ranks on both"), "{error}");
            assert_eq!(session.calls("cuCtxDisablePeerAccess"), revoked, "{why}");
        };
        let mut ranks = parted(Ranks::init_all(&contexts)?);
        refused("there are ranks");
        // NCCL works in primary contexts.
        let created = Context::new(two.device(), ContextFlags::default())?;
        created.enable_peer_access(one)?;
        created.disable_peer_access(one)?;
        for rank in &ranks {
            rank.abort()?;
            refused("an aborted rank has an owner");
        }
        drop(ranks.pop());
        one.disable_peer_access(two)
    });
}

/// The call may enqueue its work later, behind what is recorded now.
#[test]
fn k_nccl_a_call_is_ended_if_nccl_refuses_to_say_how_far_it_is() {
    clean(|session| {
        let (contexts, streams) = devices()?;
        // Not `Ranks`, which abort all ranks after any error.
        let options = CommunicatorOptions::new().blocking(false);
        let rank = parted(Ranks::init_all_with(&contexts[..1], &options)?).remove(0);
        let mut sum = streams[0].alloc_zeroed::<u32>(9)?;
        session.inject(Fault::new(CUresult(3)).function("ncclCommGetAsyncError"));
        let refused = rank.on(&streams[0])?.all_reduce_in_place(&mut sum, Reduction::Sum);
        let refused = refused.expect_err("NCCL does not say what has become of it").to_string();
        assert!(refused.contains("internal error"), "{refused}");
        assert_eq!(session.calls("ncclCommAbort"), 1);
        let after = rank.on(&streams[0])?.all_reduce_in_place(&mut sum, Reduction::Sum);
        assert!(after.expect_err("it was aborted").to_string().contains("aborted"));
        Ok(())
    });
}

/// In the simulated driver, any call that waits enqueues the groups of non-blocking communicators. They come
/// after what their own thread has waited for.
#[test]
fn n_a_group_comes_after_what_its_thread_has_waited_for() {
    clean(|session| {
        session.set_mode(Mode::Threaded { seed: 5 });
        let (contexts, streams) = devices()?;
        let options = CommunicatorOptions::new().blocking(false);
        let ranks = Ranks::init_all_with(&contexts, &options)?;
        let (writer, held) = (contexts[0].create_stream()?, contexts[0].create_stream()?);
        let go = Signal::new(&contexts[0], 0u32)?;
        held.wait_signal(&go, WaitValue::Eq(1))?;
        let mut sums = [contexts[0].alloc::<u32>(4)?, contexts[1].alloc::<u32>(4)?];
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| held.synchronize());
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    contexts[0].memory_info().expect("the device is there");
                }
            });
            let _end = OnDrop(|| {
                stop.store(true, Ordering::Relaxed);
                go.set(1);
            });
            for _ in 0..if cfg!(miri) { 3 } else { 300 } {
                writer.fill(&mut sums[0], 1)?;
                streams[1].fill(&mut sums[1], 1)?;
                writer.synchronize()?;
                ranks.on(&streams)?.all_reduce_in_place(&mut sums, Reduction::Max)?;
                streams[0].synchronize()?;
            }
            Ok(())
        })
    });
}

/// A launch has the turn of its ranks.
#[test]
fn m15_a_hook_may_use_the_ranks_whose_graph_is_launched() {
    let session = support::simulator_in(Mode::Lazy);
    within(|| {
        let run = || -> Result<()> {
            let (contexts, streams) = devices()?;
            let ranks = Arc::new(Ranks::init_all(&contexts)?);
            let mut sums = vec![streams[0].alloc_zeroed::<u32>(9)?, streams[1].alloc_zeroed(9)?];
            let graph = Graph::capture(&contexts, |captured| {
                ranks.on(captured)?.all_reduce_in_place(&mut sums, Reduction::Sum)
            })?;
            let mut exec = graph.instantiate()?;
            // The launch has to record an event there.
            let other = contexts[0].create_stream()?;
            other.fill(&mut sums[0], 1)?;
            let seen = Arc::new(Mutex::new(Vec::new()));
            let own = streams.clone();
            let more = vec![streams[0].alloc_zeroed::<u32>(9)?, streams[1].alloc_zeroed(9)?];
            let (reduces, sees) = (ranks.clone(), seen.clone());
            let more = Mutex::new(more);
            drops::set_hook(move |failure| {
                let mut sums = more.lock().expect("no panic");
                let on = reduces.on(&own);
                let used = on.and_then(|on| on.all_reduce_in_place(&mut *sums, Reduction::Sum));
                sees.lock().expect("no panic").push((failure.resource, used.is_ok()));
            });
            // The previous context is not restored, not even at the second attempt.
            for nth in [2, 3] {
                session.inject(Fault::new(CUDA_ERROR_UNKNOWN).function("cuCtxSetCurrent").nth(nth));
            }
            exec.launch(&streams[0])?;
            drops::take_hook();
            session.clear_faults();
            assert_eq!(*seen.lock().expect("no panic"), [(Resource::Current, true)]);
            ranks.wait(&streams)
        };
        run().expect("nothing but the restoration fails");
    });
    cuda_core::staging::trim().expect("no fault is left");
    session.assert_clean();
}
