//! Communicators whose calls block.

use cuda_core::nccl::{CommunicatorOptions, Ranks, Reduction, group};
use cuda_core::{Error, Graph, NcclError, Result};
use support::{gpu_test, refusal, stall};

use super::{SHORT, buffers, devices, unblocked, values};

gpu_test! {
    needs 2, nccl;
    fn k_nccl_communicators_that_block() -> Result<()> {
        let (contexts, streams) = devices(2)?;
        let ranks = Ranks::init_all(&contexts)?;
        let mut sums = buffers(&streams, |rank| vec![rank as u32 + 1; 1000])?;
        ranks.on(&streams)?.all_reduce_in_place(&mut sums, Reduction::Sum)?;
        ranks.wait(&streams)?;
        assert_eq!(values(&streams, &sums)?, vec![vec![3; 1000]; 2]);
        // Used beside ranks that do not block.
        let others = unblocked(&contexts)?;
        let mut own = buffers(&streams, |_| vec![1u32; 10])?;
        let mixed = group(|group| {
            group.on_ranks(&ranks, &streams)?.all_reduce_in_place(&mut sums, Reduction::Sum)?;
            group.on_ranks(&others, &streams)?.all_reduce_in_place(&mut own, Reduction::Sum)
        });
        assert!(refusal(mixed).contains("block"));
        // NCCL lets each rank wait for the others.
        Ranks::init_all(&contexts)?.finalize()?;
        // SAFETY: the communicator has no other rank.
        let alone = unsafe { Ranks::init_all(&contexts[..1])?.into_communicators() };
        alone[0].finalize()?;
        let again = alone[0].finalize();
        assert!(matches!(again, Err(Error::Nccl(ref it)) if matches!(**it, NcclError::Finalized { .. })), "{again:?}");
        assert!(!alone[0].as_raw().is_null(), "it is not aborted for that");
        // Dropped without finalising, no rank waits for another.
        let dropped = Ranks::init_all(&contexts)?;
        dropped.on(&streams)?.all_reduce_in_place(&mut sums, Reduction::Sum)?;
        drop(dropped);
        assert_eq!(values(&streams, &sums)?, vec![vec![6; 1000]; 2]);
        cuda_core::drops::flush();
        ranks.abort()?;
        let again = ranks.on(&streams)?.all_reduce_in_place(&mut sums, Reduction::Sum);
        assert!(matches!(again, Err(Error::Nccl(ref it)) if matches!(**it, NcclError::Aborted { .. })), "{again:?}");
        Ok(())
    }
}

/// Asserts that finalising is refused: NCCL would wait for the graph, and for the work, without a limit.
#[track_caller]
fn cannot_be_finalized(ranks: &Ranks) {
    let finalized = ranks.finalize();
    let timed_out = matches!(
        finalized, Err(Error::Nccl(ref it)) if matches!(**it, NcclError::TimedOut { op: "ncclCommFinalize", after: SHORT, .. })
    );
    assert!(timed_out && ranks.as_raw().all(|raw| raw.is_null()), "{finalized:?}");
}

gpu_test! {
    needs 2, nccl;
    fn k_nccl_ranks_in_a_graph_are_not_finalised() -> Result<()> {
        let (contexts, streams) = devices(2)?;
        let ranks = Ranks::init_all_with(&contexts, &CommunicatorOptions::new().limit(SHORT))?;
        let mut sums = buffers(&streams, |_| vec![1u32; 1000])?;
        ranks.on(&streams)?.all_reduce_in_place(&mut sums, Reduction::Sum)?;
        let graph = Graph::capture([&contexts[0], &contexts[1]], |captured| {
            ranks.on(captured)?.all_reduce_in_place(&mut sums, Reduction::Sum)
        })?;
        cannot_be_finalized(&ranks);
        drop(graph);
        let again = Ranks::init_all_with(&contexts, &CommunicatorOptions::new().limit(SHORT))?;
        let captured = Graph::capture([&contexts[0], &contexts[1]], |captured| {
            again.on(captured)?.all_reduce_in_place(&mut sums, Reduction::Sum)
        });
        drop(captured?.instantiate()?);
        again.finalize()
    }
}

gpu_test! {
    needs 2, nccl, asynchronous;
    fn k_nccl_ranks_whose_work_does_not_end_are_not_finalised() -> Result<()> {
        let (contexts, streams) = devices(2)?;
        let ranks = Ranks::init_all_with(&contexts, &CommunicatorOptions::new().limit(SHORT))?;
        let mut sums = buffers(&streams, |_| vec![1u32; 1000])?;
        ranks.on(&streams)?.all_reduce_in_place(&mut sums, Reduction::Sum)?;
        streams.iter().try_for_each(|stream| stream.synchronize())?;
        let stalled = stall(streams[1].as_raw());
        ranks.on(&streams)?.all_reduce_in_place(&mut sums, Reduction::Sum)?;
        cannot_be_finalized(&ranks);
        stalled.release();
        streams.iter().try_for_each(|stream| stream.synchronize())
    }
}

gpu_test! {
    needs 2, nccl;
    fn k_nccl_threads_group_the_operations_of_their_ranks() -> Result<()> {
        let (contexts, streams) = devices(2)?;
        // SAFETY: each rank sends what the other receives.
        let pair = unsafe { Ranks::init_all(&contexts)?.into_communicators() };
        let sources = buffers(&streams, |rank| vec![rank as u32; 1000])?;
        let mut received = buffers(&streams, |_| vec![7u32; 1000])?;
        // At the first operation, each rank waits for the other at the end of its group.
        std::thread::scope(|scope| {
            let memory = sources.iter().zip(&mut received);
            let threads: Vec<_> = pair.iter().zip(&streams).zip(memory).map(|((rank, stream), (from, to))| {
                scope.spawn(move || {
                    let other = 1 - rank.rank();
                    group(|group| {
                        group.on(rank, stream)?.send(from, other)?;
                        group.on(rank, stream)?.receive(to, other)
                    })
                })
            }).collect();
            threads.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
        })?;
        assert_eq!(values(&streams, &received)?, [[1; 1000], [0; 1000]]);
        // Communicators made from them may have ranks in other processes, so their calls do not block.
        let mut halves = std::thread::scope(|scope| {
            let split = |rank: usize| pair[rank].split(Some(0), 0);
            let other = scope.spawn(move || split(1));
            Ok::<_, Error>([split(0)?, other.join().expect("no panic")?])
        })?;
        let (half, ranks) = (halves[0].take().expect("of this colour"), Ranks::init_all(&contexts)?);
        let (mut one, mut all) = (streams[0].alloc_zeroed::<u32>(1)?, received);
        let mixed = group(|group| {
            group.on_ranks(&ranks, &streams)?.all_reduce_in_place(&mut all, Reduction::Sum)?;
            group.on(&half, &streams[0])?.all_reduce_in_place(&mut one, Reduction::Sum)
        });
        assert!(refusal(mixed).contains("block"));
        Ok(())
    }
}
