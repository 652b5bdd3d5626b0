//! NCCL ranks that report an error because they have lost another rank.

use std::thread;
use std::time::Duration;

use cuda_core::nccl::{CommunicatorOptions, Ranks, Reduction, group};
use cuda_core::sys::{CUDA_ERROR_UNKNOWN, CUresult};
use cuda_core::virtual_memory::VirtualBuffer;
use cuda_core::{
    Context, Device, DeviceBuffer, DeviceGroup, Error, Graph, NcclError, Resource, Result, Stream,
    drops,
};
use cuda_sim::{Fault, Mode, Session};
use support::{DropReports, stall};

use super::nccl::{devices, parted};
use super::{clean, within};

/// `ncclRemoteError`.
const REMOTE: i32 = 6;

/// `ncclInvalidUsage`.
const INVALID_USAGE: i32 = 5;

#[track_caller]
fn failed(result: Result<()>, op: &str, rank: usize) {
    let Err(Error::Nccl(why)) = &result else { panic!("{op}: {result:?}") };
    let NcclError::Failed { op: by, code: REMOTE, rank: at, reason, .. } = &**why else {
        panic!("{op}: {why:?}");
    };
    assert_eq!((*by, *at), (op, Some(rank)));
    assert!(reason.contains("remote process exited"), "{reason}");
}

#[track_caller]
fn aborted<T: std::fmt::Debug>(result: Result<T>) {
    assert!(
        matches!(result, Err(Error::Nccl(ref it)) if matches!(**it, NcclError::Aborted { .. })),
        "{result:?}"
    );
}

fn ones(streams: &[Stream]) -> Result<Vec<DeviceBuffer<u32>>> {
    streams.iter().map(|stream| stream.upload_new(&[1u32; 100])).collect()
}

/// Joins ranks whose calls do not block, with memory for each, and connects them by an all-reduce.
fn connected(contexts: &[Context], streams: &[Stream]) -> Result<(Ranks, Vec<DeviceBuffer<u32>>)> {
    let options = CommunicatorOptions::new().blocking(false);
    let (ranks, mut sums) = (Ranks::init_all_with(contexts, &options)?, ones(streams)?);
    ranks.on(streams)?.all_reduce_in_place(&mut sums, Reduction::Sum)?;
    streams.iter().try_for_each(Stream::synchronize)?;
    Ok((ranks, sums))
}

/// Asserts that the devices and the memory can be used again, in a new communicator.
fn goes_on(streams: &[Stream], sums: &mut [DeviceBuffer<u32>]) -> Result<()> {
    let ranks = Ranks::init_all(streams.iter().map(Stream::context))?;
    for (stream, sums) in streams.iter().zip(&mut *sums) {
        stream.fill(sums, 7)?;
    }
    ranks.on(streams)?.all_reduce_in_place(&mut *sums, Reduction::Sum)?;
    for (stream, sums) in streams.iter().zip(sums) {
        assert_eq!(stream.download_vec(sums)?, [14; 100]);
    }
    Ok(())
}

#[test]
fn k_nccl_a_rank_that_has_failed_says_so_until_it_is_aborted() {
    clean(|session| {
        let (contexts, streams) = devices()?;
        let (ranks, mut sums) = connected(&contexts, &streams)?;
        let pair = parted(ranks);
        let (rank, stream) = (&pair[0], &streams[0]);
        // The other rank does not come, which this one notices.
        rank.on(stream)?.all_reduce_in_place(&mut sums[0], Reduction::Sum)?;
        assert_eq!(session.fail_rank(0, REMOTE), 1);
        failed(rank.wait(stream), "wait", 0);
        failed(rank.async_error(), "ncclCommGetAsyncError", 0);
        let mut other = stream.upload_new(&[1u32])?;
        let reduced = rank.on(stream)?.all_reduce_in_place(&mut other, Reduction::Sum);
        failed(reduced, "ncclAllReduce", 0);
        let sent = group(|group| group.on(rank, stream)?.send(&other, 1));
        failed(sent, "ncclGroupEnd", 0);
        failed(rank.split(Some(0), 0).map(drop), "ncclCommSplit", 0);
        failed(rank.finalize(), "ncclCommFinalize", 0);
        // The error persists, since nothing has ended the communicator.
        failed(rank.wait(stream), "wait", 0);
        pair[1].async_error()?;
        rank.abort()?;
        aborted(rank.wait(stream));
        aborted(rank.async_error());
        stream.synchronize()?;
        drop(pair);
        goes_on(&streams, &mut sums)
    });
}

#[test]
fn k_nccl_ranks_of_a_process_name_the_one_that_has_failed() {
    for lost in [0, 1] {
        clean(|session| {
            let (contexts, streams) = devices()?;
            let ranks = Ranks::init_all(&contexts)?;
            let mut sums = ones(&streams)?;
            ranks.on(&streams)?.all_reduce_in_place(&mut sums, Reduction::Sum)?;
            ranks.async_error()?;
            assert_eq!(session.fail_rank(lost, REMOTE), 1);
            failed(ranks.async_error(), "ncclCommGetAsyncError", lost);
            // So does the other rank's work, which is not complete, although its rank knows of no error.
            failed(ranks.wait(&streams), "wait", lost);
            let reduced = ranks.on(&streams)?.all_reduce_in_place(&mut sums, Reduction::Sum);
            failed(reduced, "ncclGroupEnd", lost);
            // All ranks are aborted, since the others would wait for this one.
            assert!(ranks.as_raw().all(|raw| raw.is_null()));
            aborted(ranks.async_error());
            aborted(ranks.wait(&streams));
            aborted(ranks.on(&streams)?.all_reduce_in_place(&mut sums, Reduction::Sum));
            goes_on(&streams, &mut sums)
        });
    }
}

/// Making a reduction with a factor is no operation, so its failure alone does not make the group fail.
#[test]
fn k_nccl_a_group_with_a_refused_factor_enqueues_nothing() {
    clean(|session| {
        let (contexts, streams) = devices()?;
        let ranks = Ranks::init_all(&contexts)?;
        let mut sums = ones(&streams)?;
        let refused = Fault::new(CUresult(REMOTE as u32)).function("ncclRedOpCreatePreMulSum");
        session.inject(refused.nth(2));
        let reduced = ranks.on(&streams)?.all_reduce_in_place(&mut sums, Reduction::ScaledSum(2));
        let said = reduced.as_ref().expect_err("a fault was injected").to_string();
        assert!(!said.contains("ncclAllReduce"), "what failed first: {said}");
        failed(reduced, "ncclGroupEnd", 1);
        for (stream, sums) in streams.iter().zip(&sums) {
            assert_eq!(stream.download_vec(sums)?, [1; 100]);
        }
        drop(ranks);
        goes_on(&streams, &mut sums)
    });
}

/// If no rank reports an error, the end of a group says nothing about a rank.
#[test]
fn k_nccl_a_group_that_fails_as_a_whole_names_no_rank() {
    clean(|session| {
        let (contexts, streams) = devices()?;
        let ranks = Ranks::init_all(&contexts)?;
        let mut sums = ones(&streams)?;
        session.inject(Fault::new(CUresult(REMOTE as u32)).function("ncclGroupEnd"));
        let reduced = ranks.on(&streams)?.all_reduce_in_place(&mut sums, Reduction::Sum);
        let Err(Error::Nccl(why)) = &reduced else { panic!("{reduced:?}") };
        assert!(matches!(**why, NcclError::Failed { rank: None, .. }), "{why:?}");
        drop(ranks);
        goes_on(&streams, &mut sums)
    });
}

/// The work completes once the abort has begun; the abort then lasts while the graph exists.
#[test]
fn k_nccl_a_wait_ends_with_the_abort_of_another_thread_also_if_that_takes_long() {
    clean(|session| {
        let (contexts, streams) = devices()?;
        let (ranks, mut sums) = connected(&contexts, &streams)?;
        let graph = Graph::capture([&contexts[0], &contexts[1]], |captured| {
            ranks.on(captured)?.all_reduce_in_place(&mut sums, Reduction::Sum)
        })?;
        let pair = parted(ranks);
        let (rank, stream) = (&pair[0], &streams[0]);
        rank.on(stream)?.all_reduce_in_place(&mut sums[0], Reduction::Sum)?;
        // Only the abort of the last rank waits for the graph.
        pair[1].abort()?;
        thread::scope(|scope| {
            let before = session.calls("cuEventQuery");
            let waiting = scope.spawn(|| rank.wait(stream));
            let synchronizing = scope.spawn(|| stream.synchronize());
            session.await_calls("cuEventQuery", before + 2);
            let aborting = scope.spawn(|| rank.abort());
            aborted(waiting.join().expect("no panic"));
            // The stream continues.
            synchronizing.join().expect("no panic")?;
            drop(graph);
            aborting.join().expect("no panic")
        })?;
        goes_on(&streams, &mut sums)
    });
}

/// Returns what is reported when ranks are dropped whose work waits for a failed rank.
fn reported(
    body: impl FnOnce(&Session, Ranks, &[Stream], &mut [DeviceBuffer<u32>]) -> Result<()> + Send,
) -> Vec<(Resource, Option<Error>)> {
    let session = support::simulator_in(Mode::Lazy);
    let mut reports = DropReports::listen();
    within(|| {
        let body = || -> Result<()> {
            let (contexts, streams) = devices()?;
            let (ranks, mut sums) = connected(&contexts, &streams)?;
            body(&session, ranks, &streams, &mut sums)?;
            goes_on(&streams, &mut sums)
        };
        body().expect("no operation of the test fails");
    });
    drops::flush();
    session.settle();
    cuda_core::staging::trim().expect("idle chunks can be freed");
    session.assert_clean();
    reports.take().into_iter().map(|failure| (failure.resource, failure.error)).collect()
}

#[test]
fn k_nccl_a_rank_that_has_failed_is_aborted_when_it_is_dropped() {
    let reports = reported(|session, ranks, streams, sums| {
        let mut pair = parted(ranks);
        pair[0].on(&streams[0])?.all_reduce_in_place(&mut sums[0], Reduction::Sum)?;
        session.fail_rank(0, REMOTE);
        drop(pair.remove(0));
        // It does not take ten minutes, the limit.
        streams[0].synchronize()
    });
    let [(Resource::Communicator, Some(error))] = &reports[..] else {
        panic!("{reports:?}");
    };
    failed(Err(error.clone()), "drop", 0);
}

#[test]
fn k_nccl_ranks_that_cannot_all_be_finalised_are_aborted() {
    for refused in ["ncclCommFinalize", "ncclCommGetAsyncError"] {
        let reports = reported(|session, ranks, streams, sums| {
            // The work does not complete before the finalisation, which waits for it.
            ranks.on(streams)?.all_reduce_in_place(&mut *sums, Reduction::Sum)?;
            session.fail_nth(Some(refused), 1, CUresult(REMOTE as u32));
            // Fails for the rank whose communicator comes first in memory.
            let finalized = ranks.finalize();
            let is_refused = |error: &Error| matches!(error, Error::Nccl(it) if matches!(**it, NcclError::Failed { op: "ncclCommFinalize", .. }));
            assert!(finalized.as_ref().is_err_and(is_refused), "{finalized:?}");
            assert!(ranks.as_raw().all(|raw| raw.is_null()));
            aborted(ranks.on(streams)?.all_reduce_in_place(&mut *sums, Reduction::Sum));
            streams.iter().try_for_each(Stream::synchronize)
        });
        assert_eq!(reports, []);
    }
}

#[test]
fn k_nccl_ranks_whose_abort_could_not_begin_are_aborted_when_they_are_dropped() {
    let reports = reported(|session, ranks, streams, sums| {
        ranks.on(streams)?.all_reduce_in_place(&mut *sums, Reduction::Sum)?;
        session.fail_nth(Some("cuCtxGetCurrent"), 1, CUDA_ERROR_UNKNOWN);
        assert_eq!(ranks.abort().map_err(|error| error.code()), Err(Some(CUDA_ERROR_UNKNOWN)));
        drop(ranks);
        // It does not take ten minutes, the limit.
        streams.iter().try_for_each(Stream::synchronize)
    });
    assert_eq!(reports, []);
}

#[test]
fn k_nccl_ranks_of_a_process_are_aborted_when_they_are_dropped_and_one_has_failed() {
    let reports = reported(|session, ranks, streams, sums| {
        let stalled = stall(streams[1].as_raw());
        ranks.on(streams)?.all_reduce_in_place(&mut *sums, Reduction::Sum)?;
        session.fail_rank(1, REMOTE);
        drop(ranks);
        // Rank 0 knows of no error.
        streams[0].synchronize()?;
        stalled.release();
        Ok(())
    });
    let [(Resource::Communicator, Some(error))] = &reports[..] else {
        panic!("{reports:?}");
    };
    failed(Err(error.clone()), "drop", 1);
    // A communicator that is already aborted is not a failure.
    let reports = reported(|_, ranks, streams, sums| {
        let stalled = stall(streams[1].as_raw());
        ranks.on(streams)?.all_reduce_in_place(&mut *sums, Reduction::Sum)?;
        ranks.abort()?;
        drop(ranks);
        stalled.release();
        Ok(())
    });
    assert_eq!(reports, []);
}

#[test]
fn k_nccl_memory_that_is_registered_despite_an_error_is_deregistered() {
    clean(|session| {
        let (contexts, _) = devices()?;
        let ranks = Ranks::init_all(&contexts)?;
        let refused = |and_then: Option<Fault>| -> Result<_> {
            let mut memory = VirtualBuffer::<u8>::new(&contexts[0], 2 << 20)?;
            memory.grow_to(2 << 20)?;
            let fault = Fault::new(CUresult(REMOTE as u32)).function("ncclCommRegister");
            session.inject(fault.takes_effect());
            and_then.into_iter().for_each(|fault| session.inject(fault));
            let refused = ranks.register(memory).map(drop).map_err(|refused| refused.value);
            Ok(refused.expect_err("a fault was injected"))
        };
        let deregistered = || session.calls("ncclCommDeregister");
        let mut memory = refused(None)?;
        assert_eq!(deregistered(), 1);
        memory.shrink_to(0)?; // NCCL must not have its pages
        // Memory whose deregistration fails here is deregistered before it is freed.
        let fails = Fault::new(CUresult(REMOTE as u32)).function("ncclCommDeregister");
        let mut memory = refused(Some(fails))?;
        assert_eq!(deregistered(), 2);
        assert!(matches!(memory.shrink_to(0), Err(Error::Invalid(_))), "NCCL has its pages");
        drop(memory);
        assert_eq!(deregistered(), 3);
        Ok(())
    });
}

#[test]
fn k_nccl_a_communicator_is_aborted_before_the_one_that_it_failed_to_make() {
    clean(|session| {
        let (contexts, _) = devices()?;
        let options = CommunicatorOptions::new().blocking(false);
        let pair = parted(Ranks::init_all_with(&contexts, &options)?);
        let before = session.calls("ncclCommAbort");
        thread::scope(|scope| {
            // The other rank does not split: it is lost, after NCCL has created a communicator.
            let held = session.hold("ncclCommGetAsyncError");
            let split = scope.spawn(|| pair[0].split(Some(0), 0).map(drop));
            held.await_call();
            // The rank's communicator, and the new one.
            assert_eq!(session.fail_rank(0, REMOTE), 2);
            drop(held);
            failed(split.join().expect("no panic"), "ncclCommSplit", 0);
        });
        // The new one is freed after it; otherwise the simulated NCCL would report a use of freed memory.
        assert!(pair[0].as_raw().is_null());
        drops::flush();
        assert_eq!(session.calls("ncclCommAbort") - before, 2);
        pair[1].abort()
    });
}

/// Without a limit, such a call is not given up.
#[test]
fn k_nccl_an_abort_waits_for_a_call_that_blocks() {
    clean(|session| {
        let (contexts, streams) = devices()?;
        let (ranks, mut sums) = (Ranks::init_all(&contexts)?, ones(&streams)?);
        thread::scope(|scope| {
            let held = session.hold("ncclGroupEnd");
            let reduce =
                scope.spawn(|| ranks.on(&streams)?.all_reduce_in_place(&mut sums, Reduction::Sum));
            held.await_call();
            let abort = scope.spawn(|| ranks.abort());
            while !ranks.async_error().is_err_and(|error| error.to_string().contains("aborted")) {
                thread::yield_now();
            }
            assert_eq!(session.calls("ncclCommAbort"), 0);
            drop(held);
            reduce.join().expect("no panic")?;
            abort.join().expect("no panic")
        })?;
        drops::flush();
        assert_eq!(session.calls("ncclCommAbort"), 2);
        goes_on(&streams, &mut sums)
    });
}

/// Whether or not the closure passes the error on.
#[test]
fn k_nccl_a_group_of_devices_goes_on_after_a_failure() {
    clean(|session| {
        let group = DeviceGroup::new(Device::all()?)?;
        let mut sums = ones(group.streams())?;
        for passes_on in [true, false] {
            let done = group.on_ranks(|ranks| {
                session.inject(Fault::new(CUresult(REMOTE as u32)).function("ncclGroupEnd"));
                let refused = ranks.all_reduce_in_place(&mut sums, Reduction::Sum);
                assert!(refused.is_err(), "a fault was injected");
                if passes_on { refused } else { Ok(()) }
            });
            assert_eq!(done.is_err(), passes_on);
        }
        sums = ones(group.streams())?;
        group.all_reduce_in_place(&mut sums, Reduction::Sum)?;
        assert_eq!(group.streams()[0].download_vec(&sums[0])?, [group.len() as u32; 100]);
        Ok(())
    });
}

#[test]
fn k_nccl_a_growth_that_does_not_begin_keeps_its_id() {
    clean(|session| {
        let (contexts, _) = devices()?;
        let alone = parted(Ranks::init_all(&contexts[..1])?).remove(0);
        let id = alone.growth_id()?;
        let before = Fault::new(CUDA_ERROR_UNKNOWN).function("cuThreadExchangeStreamCaptureMode");
        // NCCL refuses it with another result than those after which this crate aborts.
        let refused = Fault::new(CUresult(INVALID_USAGE as u32)).function("ncclCommGrow");
        for fault in [before, refused] {
            session.inject(fault);
            assert!(alone.grow(2).is_err(), "a fault was injected");
            assert_eq!(alone.growth_id()?, id, "the new rank may have it");
        }
        Ok(())
    });
}

#[test]
fn k_nccl_what_grows_is_aborted_before_the_one_it_grows_from() {
    clean(|session| {
        let (contexts, _) = devices()?;
        let options = CommunicatorOptions::new().blocking(false).limit(Duration::from_secs(20));
        let pair = parted(Ranks::init_all_with(&contexts, &options)?);
        pair[1].growth_id()?;
        thread::scope(|scope| {
            let held = session.hold("ncclCommGrow");
            let grown = scope.spawn(|| pair[0].grow(3).map(drop));
            held.await_call();
            // Calls that an abort makes before it waits for the growth.
            let exchanges = || session.calls("cuThreadExchangeStreamCaptureMode");
            let before = exchanges();
            let abort = scope.spawn(|| pair[0].abort());
            while exchanges() == before {
                thread::yield_now();
            }
            drop(held);
            // The abort ends long before its limit. The simulated NCCL would report the other order.
            aborted(grown.join().expect("no panic"));
            abort.join().expect("no panic")
        })?;
        drops::flush();
        pair[1].abort()
    });
}

#[test]
fn k_nccl_what_is_cut_off_ends_when_its_stream_comes_to_it() {
    clean(|session| {
        let (contexts, streams) = devices()?;
        let (ranks, mut sums) = connected(&contexts, &streams)?;
        let pair = parted(ranks);
        let gate = stall(streams[1].as_raw());
        pair[1].on(&streams[1])?.all_reduce_in_place(&mut sums[1], Reduction::Sum)?;
        thread::scope(|scope| {
            let held = session.hold("ncclCommShrink");
            let shrunk = scope.spawn(|| pair[1].shrink_after_loss(&[0]));
            held.await_call();
            drop(held);
            assert!(!streams[1].query()?);
            drop(gate);
            let left = shrunk.join().expect("no panic")?;
            assert!(streams[1].query()?);
            // The communicator was aborted.
            aborted(pair[1].on(&streams[1])?.all_reduce_in_place(&mut sums[1], Reduction::Sum));
            aborted(pair[1].split(None, 0));
            left.on(&streams[1])?.all_reduce_in_place(&mut sums[1], Reduction::Sum)?;
            streams[1].synchronize()
        })?;
        pair[0].abort()
    });
}
