//! Ends: ranks that are lost, communicators that are dropped or aborted.

use std::time::Instant;

use cuda_core::drops::DropFailure;
use cuda_core::nccl::{Communicator, CommunicatorOptions, Ranks, Reduction, UniqueId};
use cuda_core::{Context, DeviceBuffer, Error, Graph, NcclError, Result, Stream};
use support::{DropReports, expect_drop_failures, gpu_test, refusal, stall};

use super::{Apart, SHORT, apart, buffers, connected, devices, impatience, values};

/// Joins ranks whose calls may take only a moment, or as long as real ranks take to join.
fn impatient(contexts: &[Context]) -> Result<Ranks> {
    Ranks::init_all_with(contexts, &impatience())
}

/// Connects two ranks, which NCCL does at their first operation.
fn together(
    pair: &[Communicator],
    streams: &[Stream],
    sums: &mut [DeviceBuffer<u32>],
) -> Result<()> {
    std::thread::scope(|scope| {
        let reduce = |rank: usize, buffer| {
            pair[rank].on(&streams[rank])?.all_reduce_in_place(buffer, Reduction::Sum)
        };
        let (first, second) = sums.split_at_mut(1);
        let one = scope.spawn(move || reduce(1, &mut second[0]));
        reduce(0, &mut first[0]).and(one.join().expect("no panic"))
    })?;
    assert_eq!(values(streams, sums)?, vec![vec![2; 100]; 2]);
    Ok(())
}

gpu_test! {
    needs 1, nccl;
    fn k_nccl_a_rank_that_does_not_join_is_not_waited_for() -> Result<()> {
        let (contexts, _) = devices(1)?;
        let (id, options) = (UniqueId::new()?, CommunicatorOptions::new().limit(SHORT));
        // SAFETY: nothing is enqueued.
        let alone = unsafe { Communicator::init_rank_with(&contexts[0], id, 0, 2, &options) };
        let expected = matches!(
            alone, Err(Error::Nccl(ref it)) if matches!(**it, NcclError::TimedOut { rank: 0, after: SHORT, .. })
        );
        assert!(expected, "{alone:?}");
        Ok(())
    }
}

gpu_test! {
    needs 2, nccl;
    fn k_nccl_a_lost_rank_is_noticed_and_done_without() -> Result<()> {
        let (contexts, streams) = devices(2)?;
        let pair = apart(&contexts)?;
        let mut sums = buffers(&streams, |_| vec![1u32; 100])?;
        together(&pair, &streams, &mut sums)?;
        // The other rank does not come.
        pair[0].on(&streams[0])?.all_reduce_in_place(&mut sums[0], Reduction::Sum)?;
        let waited = pair[0].wait_for(&streams[0], SHORT);
        let expected = matches!(
            waited, Err(Error::Nccl(ref it)) if matches!(**it, NcclError::TimedOut { op: "wait", rank: 0, .. })
        );
        assert!(expected, "{waited:?}");
        pair[0].abort()?;
        // The stream continues.
        streams[0].fill(&mut sums[0], 7)?;
        assert_eq!(streams[0].download_vec(&sums[0])?, [7; 100]);
        // So do the devices, in a new communicator.
        drop(pair);
        let ranks = Ranks::init_all(&contexts)?;
        ranks.on(&streams)?.broadcast_in_place(&mut sums, 0)?;
        assert_eq!(values(&streams, &sums)?, vec![vec![7; 100]; 2]);
        let stalled = stall(streams[1].as_raw());
        let waited = ranks.wait_for(&streams, SHORT);
        assert!(
            matches!(waited, Err(Error::Nccl(ref it)) if matches!(**it, NcclError::TimedOut { rank: 1, after: SHORT, .. })),
            "{waited:?}"
        );
        stalled.release();
        ranks.wait(&streams)?;
        Ok(())
    }
}

gpu_test! {
    needs 2, nccl;
    fn k_nccl_goes_on_without_a_lost_rank_in_the_same_call() -> Result<()> {
        let (contexts, streams) = devices(2)?;
        let pair = apart(&contexts)?;
        let mut sums = buffers(&streams, |_| vec![1u32; 100])?;
        together(&pair, &streams, &mut sums)?;
        // The other rank does not come.
        pair[1].on(&streams[1])?.all_reduce_in_place(&mut sums[1], Reduction::Sum)?;
        let waited = pair[1].wait_for(&streams[1], SHORT);
        assert!(matches!(waited, Err(Error::Nccl(ref it)) if matches!(**it, NcclError::TimedOut { .. })), "{waited:?}");
        let left = pair[1].shrink_after_loss(&[0])?;
        assert_eq!((left.rank(), left.size()), (0, 1));
        // The stream continues.
        streams[1].fill(&mut sums[1], 7)?;
        left.on(&streams[1])?.all_reduce_in_place(&mut sums[1], Reduction::Sum)?;
        assert_eq!(streams[1].download_vec(&sums[1])?, [7; 100]);
        assert!(pair[1].as_raw().is_null(), "it was aborted");
        Ok(())
    }
}

gpu_test! {
    needs 2, nccl;
    fn k_nccl_a_communicator_of_the_only_rank_left() -> Result<()> {
        let (contexts, streams) = devices(2)?;
        let pair = apart(&contexts)?;
        let left = pair[1].shrink(&[0])?;
        let mut sum = streams[1].upload_new(&[5u32; 100])?;
        left.on(&streams[1])?.all_reduce_in_place(&mut sum, Reduction::Sum)?;
        left.wait(&streams[1])?;
        assert_eq!(streams[1].download_vec(&sum)?, [5; 100]);
        left.finalize()
    }
}

gpu_test! {
    needs 4, nccl;
    fn k_nccl_communicators_without_some_ranks() -> Result<()> {
        let (contexts, streams) = devices(4)?;
        let ranks = apart(&contexts)?;
        let mut sums = buffers(&streams, |rank| vec![1u32 << rank; 100])?;
        // Shrinks twice, the second time a communicator that the first has made.
        let shrunk = alongside([0, 2, 3], |rank| ranks[rank].shrink(&[1, 1]))?;
        assert_eq!(shrunk.iter().map(|it| (it.rank(), it.size())).collect::<Vec<_>>(), [
            (0, 3), (1, 3), (2, 3),
        ]);
        let pair = alongside([0, 2], |rank| shrunk[rank].shrink(&[1]))?;
        let (first, last) = sums.split_at_mut(3);
        let both = [(0, &mut first[0]), (1, &mut last[0])];
        std::thread::scope(|scope| {
            let calls = both.map(|(rank, sum)| {
                let (communicator, stream) = (&pair[rank], &streams[3 * rank]);
                scope.spawn(move || communicator.on(stream)?.all_reduce_in_place(sum, Reduction::Sum))
            });
            calls.into_iter().try_for_each(|call| call.join().expect("no panic"))
        })?;
        let sums = values(&streams, &sums)?;
        assert_eq!(sums.iter().map(|sum| sum[0]).collect::<Vec<_>>(), [9, 2, 4, 9]);
        // All ranks are still there.
        let halves = alongside([0, 1, 2, 3], |rank| ranks[rank].split(Some(rank as u32 / 2), 0))?;
        assert!(halves.iter().flatten().map(Communicator::size).eq([2; 4]));
        Ok(())
    }
}

/// Calls the function for each of these ranks on a thread of its own, and returns the results.
fn alongside<R: Send, const N: usize>(
    ranks: [usize; N],
    call: impl Fn(usize) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    std::thread::scope(|scope| {
        let calls = ranks.map(|rank| {
            scope.spawn({
                let call = &call;
                move || call(rank)
            })
        });
        calls.into_iter().map(|call| call.join().expect("no panic")).collect()
    })
}

gpu_test! {
    needs 2, nccl;
    fn k_nccl_another_thread_aborts_a_call_in_progress() -> Result<()> {
        let (contexts, _) = devices(2)?;
        let pair = apart(&contexts)?;
        std::thread::scope(|scope| {
            // The call waits for the other rank, which does not split.
            let split = scope.spawn(|| pair[0].split(Some(0), 0).map(drop));
            while !split.is_finished() {
                // At first there may be nothing to abort; then the call is refused.
                pair[0].abort()?;
            }
            let split = split.join().expect("no panic");
            assert!(matches!(split, Err(Error::Nccl(ref it)) if matches!(**it, NcclError::Aborted { .. })), "{split:?}");
            Ok(())
        })
    }
}

gpu_test! {
    needs 2, nccl, asynchronous;
    fn k_nccl_a_call_in_progress_ends_with_its_limit() -> Result<()> {
        let (contexts, _) = devices(2)?;
        // SAFETY: nothing is enqueued.
        let pair = Apart(unsafe { impatient(&contexts)?.into_communicators() });
        let since = Instant::now();
        let split = pair[0].split(Some(0), 0);
        let expected = matches!(
            split, Err(Error::Nccl(ref it)) if matches!(**it, NcclError::TimedOut { op: "ncclCommSplit", rank: 0, .. })
        );
        assert!(expected && since.elapsed() >= SHORT, "{split:?}");
        // It was aborted.
        let again = pair[0].split(Some(0), 0);
        assert!(matches!(again, Err(Error::Nccl(ref it)) if matches!(**it, NcclError::Aborted { .. })), "{again:?}");
        Ok(())
    }
}

gpu_test! {
    needs 2, nccl, asynchronous;
    fn k_nccl_work_in_flight_keeps_what_was_dropped() -> Result<()> {
        let (contexts, streams) = devices(2)?;
        let (ranks, mut sums) = connected(&contexts, &streams)?;
        let stalled = stall(streams[1].as_raw());
        ranks.on(&streams)?.all_reduce_in_place(&mut sums, Reduction::Sum)?;
        drop(ranks); // returns at once
        assert!(!streams[1].query()?);
        stalled.release();
        assert_eq!(values(&streams, &sums)?, vec![vec![4; 1000]; 2]);
        cuda_core::drops::flush();
        Ok(())
    }
}

/// Returns two connected ranks, the first of which has enqueued an operation that the other has not.
fn left_alone(
    ranks: Ranks,
    streams: &[Stream],
    sums: &mut [DeviceBuffer<u32>],
) -> Result<Vec<Communicator>> {
    ranks.on(streams)?.all_reduce_in_place(&mut *sums, Reduction::Sum)?;
    // SAFETY: the second rank enqueues the same, or the first is dropped, which ends what it waits for.
    let pair = unsafe { ranks.into_communicators() };
    pair[0].on(&streams[0])?.all_reduce_in_place(&mut sums[0], Reduction::Sum)?;
    Ok(pair)
}

gpu_test! {
    needs 2, nccl, asynchronous;
    fn k_nccl_a_drop_does_not_wait_for_a_rank_that_comes_late() -> Result<()> {
        let (contexts, streams) = devices(2)?;
        let mut sums = buffers(&streams, |_| vec![1u32; 100])?;
        let mut pair = left_alone(Ranks::init_all(&contexts)?, &streams, &mut sums)?;
        drop(pair.remove(0));
        assert!(!streams[0].query()?);
        // Its work continues when the other rank comes.
        pair[0].on(&streams[1])?.all_reduce_in_place(&mut sums[1], Reduction::Sum)?;
        assert_eq!(values(&streams, &sums)?, vec![vec![4; 100]; 2]);
        drop(pair);
        cuda_core::drops::flush();
        Ok(())
    }
}

gpu_test! {
    needs 2, nccl, asynchronous;
    fn k_nccl_a_drop_ends_work_that_waits_beyond_its_limit() -> Result<()> {
        let (contexts, streams) = devices(2)?;
        let mut sums = buffers(&streams, |_| vec![1u32; 100])?;
        let failures = DropReports::listen();
        let mut pair = left_alone(impatient(&contexts)?, &streams, &mut sums)?;
        drop(pair.remove(0));
        // The other rank does not come. The stream continues, and its memory is usable.
        streams[0].synchronize()?;
        streams[0].fill(&mut sums[0], 7)?;
        assert_eq!(streams[0].download_vec(&sums[0])?, [7; 100]);
        streams[1].synchronize()?;
        drop(pair);
        cuda_core::drops::flush();
        expect_drop_failures(1);
        let reported = failures.end().failures;
        let late = |failure: &DropFailure| matches!(
            failure.error, Some(Error::Nccl(ref it)) if matches!(**it, NcclError::TimedOut { op: "drop", rank: 0, .. })
        );
        assert!(reported.len() == 1 && late(&reported[0]), "{reported:?}");
        // So is the device, in a new communicator.
        let ranks = Ranks::init_all(&contexts)?;
        ranks.on(&streams)?.broadcast_in_place(&mut sums, 0)?;
        assert_eq!(values(&streams, &sums)?, vec![vec![7; 100]; 2]);
        // The same holds for all ranks of a process.
        let ranks = impatient(&contexts)?;
        ranks.on(&streams)?.all_reduce_in_place(&mut sums, Reduction::Sum)?;
        streams.iter().try_for_each(|stream| stream.synchronize())?;
        let stalled = stall(streams[1].as_raw());
        ranks.on(&streams)?.all_reduce_in_place(&mut sums, Reduction::Sum)?;
        drop(ranks);
        streams[0].synchronize()?;
        stalled.release();
        cuda_core::drops::flush();
        expect_drop_failures(3);
        Ok(())
    }
}

gpu_test! {
    needs 2, nccl;
    fn k_nccl_leaves_what_is_current() -> Result<()> {
        let (contexts, streams) = devices(2)?;
        let work = || -> Result<()> {
            let ranks = Ranks::init_all(&contexts)?;
            let mut sums = buffers(&streams, |_| vec![1u32; 10])?;
            ranks.on(&streams)?.all_reduce_in_place(&mut sums, Reduction::Sum)?;
            let alone = apart(&contexts[1..])?;
            let rank = &alone[0];
            rank.on(&streams[1])?.all_reduce_in_place(&mut sums[1], Reduction::Sum)?;
            rank.split(Some(0), 0)?;
            rank.wait(&streams[1])?;
            rank.abort()?;
            assert!(rank.on(&streams[1])?.all_reduce_in_place(&mut sums[1], Reduction::Sum).is_err());
            ranks.wait(&streams)?;
            ranks.finalize()
        };
        for current in [None, Some(&contexts[0]), Some(&contexts[1])] {
            let guard = current.map(Context::enter).transpose()?;
            let before = support::context::current();
            work()?;
            assert_eq!(support::context::current(), before);
            drop(guard);
        }
        Ok(())
    }
}

gpu_test! {
    needs 1, nccl;
    fn k_nccl_graphs_are_not_launched_after_an_abort() -> Result<()> {
        let (contexts, streams) = devices(1)?;
        let ranks = Ranks::init_all(&contexts)?;
        let mut sums = buffers(&streams, |_| vec![3u32; 100])?;
        ranks.on(&streams)?.all_reduce_in_place(&mut sums, Reduction::Sum)?;
        let graph = Graph::capture(&contexts[0], |captured| {
            ranks.on([captured])?.all_reduce_in_place(&mut sums, Reduction::Sum)
        })?;
        let within = Graph::capture(&contexts[0], |captured| graph.include(captured))?;
        let mut execs = [graph.instantiate()?, within.instantiate()?];
        execs.iter_mut().try_for_each(|exec| exec.launch(&streams[0]))?;
        streams[0].synchronize()?;
        ranks.abort()?;
        for exec in &mut execs {
            let refused = exec.launch(&streams[0]);
            let expected = matches!(
                refused, Err(Error::Nccl(ref it)) if matches!(**it, NcclError::Aborted { op: "cuGraphLaunch", rank: 0, .. })
            );
            assert!(expected, "{refused:?}");
        }
        // The stream and the memory stay usable.
        streams[0].fill(&mut sums[0], 7)?;
        assert_eq!(streams[0].download_vec(&sums[0])?, [7; 100]);
        Ok(())
    }
}

gpu_test! {
    needs 2, nccl;
    fn k_nccl_a_launch_that_an_abort_overtakes_uses_nothing_freed() -> Result<()> {
        let (contexts, streams) = devices(2)?;
        let ranks = Ranks::init_all(&contexts)?;
        let mut sums = buffers(&streams, |_| vec![3u32; 100])?;
        ranks.on(&streams)?.all_reduce_in_place(&mut sums, Reduction::Sum)?;
        let graph = Graph::capture([&contexts[0], &contexts[1]], |captured| {
            ranks.on(captured)?.all_reduce_in_place(&mut sums, Reduction::Sum)
        })?;
        let exec = graph.instantiate()?;
        streams.iter().try_for_each(|stream| stream.synchronize())?;
        ranks.abort()?;
        // Acts like a launch that checked just before the abort that the ranks exist.
        // SAFETY: the executable and the stream are live; nothing else uses the memory before the wait.
        let code = unsafe { cuda_core::sys::cuGraphLaunch(exec.as_raw(), streams[0].as_raw()) };
        assert_eq!(code, cuda_core::sys::CUDA_SUCCESS);
        streams[0].synchronize()?;
        // The sums are meaningless, but the memory exists.
        streams[1].fill(&mut sums[1], 7)?;
        assert_eq!(streams[1].download_vec(&sums[1])?, [7; 100]);
        Ok(())
    }
}

gpu_test! {
    needs 2, nccl, cuda_12_0;
    fn k_nccl_no_part_of_a_collective_is_left_out() -> Result<()> {
        let (contexts, streams) = devices(2)?;
        let ranks = Ranks::init_all(&contexts)?;
        let mut sums = buffers(&streams, |_| vec![1u32; 100])?;
        ranks.on(&streams)?.all_reduce_in_place(&mut sums, Reduction::Sum)?;
        let ends = [&contexts[0], &contexts[1]];
        let reduce = Graph::capture(ends, |captured| {
            ranks.on(captured)?.all_reduce_in_place(&mut sums, Reduction::Sum)
        })?;
        let mut exec = reduce.instantiate()?;
        for node in reduce.nodes()? {
            assert!(refusal(exec.set_enabled(node.id(), false)).contains("NCCL"));
        }
        // Nor by an update of an executable with a disabled node.
        let fill = Graph::capture(ends, |captured| {
            captured.iter().zip(&mut sums).try_for_each(|(stream, sums)| stream.fill(sums, 5))
        })?;
        let mut other = fill.instantiate()?;
        other.set_enabled(fill.nodes()?[0].id(), false)?;
        assert!(refusal(other.update(&reduce)).contains("NCCL"));
        exec.update(&reduce)?;
        exec.launch(&streams[0])?;
        assert_eq!(values(&streams, &sums)?, vec![vec![4u32; 100]; 2]);
        Ok(())
    }
}
