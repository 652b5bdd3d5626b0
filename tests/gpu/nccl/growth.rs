//! Communicators that grow, from NCCL 2.29 on; an older NCCL is refused, naming the function.

use std::time::Duration;

use cuda_core::nccl::{self, Communicator, CommunicatorOptions, Reduction, UniqueId};
use cuda_core::{Context, Error, NcclError, Result, Version};
use support::{gpu_test, refusal};

use super::{apart, buffers, devices, impatience, values};

/// Returns the id by which a rank joins this communicator; [`None`] if NCCL is too old, as its error says.
fn id(communicator: &Communicator) -> Result<Option<UniqueId>> {
    let id = communicator.growth_id();
    if nccl::version()? >= Version::new(2, 29) {
        return id.map(Some);
    }
    let missing = |it: &NcclError| matches!(it, NcclError::Missing { .. });
    assert!(matches!(&id, Err(Error::Nccl(it)) if missing(it)), "{id:?}");
    let grown = communicator.grow(communicator.size() + 1);
    assert!(matches!(&grown, Err(Error::Nccl(it)) if missing(it)), "{grown:?}");
    Ok(None)
}

/// Joins as the last of `size` ranks.
fn join(context: &Context, id: UniqueId, size: usize) -> Result<Communicator> {
    let options = CommunicatorOptions::new().limit(Duration::from_secs(60));
    // SAFETY: the tests enqueue the same operations at all.
    unsafe { Communicator::join_grown(context, id, size - 1, size, &options) }
}

gpu_test! {
    needs 4, nccl;
    fn k_nccl_ranks_join_a_communicator_that_grows() -> Result<()> {
        let (contexts, streams) = devices(4)?;
        let pair = apart(&contexts[..2])?;
        let mut sums = buffers(&streams, |rank| vec![1u32 << rank; 100])?;
        let Some(first) = id(&pair[1])? else {
            return Ok(());
        };
        let three = std::thread::scope(|scope| {
            let [a, b] = [0, 1].map(|rank| scope.spawn({ let own = &pair[rank]; move || own.grow(3) }));
            let c = join(&contexts[2], first, 3)?;
            let [a, b] = [a, b].map(|it| it.join().expect("no panic"));
            Ok::<_, Error>([a?, b?, c])
        })?;
        drop(pair);
        // Grows again, by an id from the rank that has joined.
        let Some(second) = id(&three[2])? else { panic!("it had one before") };
        let four = std::thread::scope(|scope| {
            let calls = [0, 1, 2].map(|rank| scope.spawn({ let own = &three[rank]; move || own.grow(4) }));
            let last = join(&contexts[3], second, 4)?;
            let mut all = calls.into_iter().map(|it| it.join().expect("no panic")).collect::<Result<Vec<_>>>()?;
            all.push(last);
            Ok::<_, Error>(all)
        })?;
        let places: Vec<_> = four.iter().map(|it| (it.rank(), it.size())).collect();
        assert_eq!(places, [(0, 4), (1, 4), (2, 4), (3, 4)]);
        std::thread::scope(|scope| {
            let calls: Vec<_> = four.iter().zip(&streams).zip(&mut sums).map(|((rank, stream), sum)| {
                scope.spawn(move || rank.on(stream)?.all_reduce_in_place(sum, Reduction::Sum))
            }).collect();
            calls.into_iter().try_for_each(|it| it.join().expect("no panic"))
        })?;
        assert_eq!(values(&streams, &sums)?, vec![vec![15; 100]; 4]);
        Ok(())
    }
}

gpu_test! {
    needs 1, nccl, asynchronous;
    fn k_nccl_a_rank_that_does_not_join_a_growth_is_not_waited_for() -> Result<()> {
        let (contexts, streams) = devices(1)?;
        let options = impatience();
        // SAFETY: the only rank.
        let alone = unsafe { Communicator::init_rank_with(&contexts[0], UniqueId::new()?, 0, 1, &options) }?;
        if id(&alone)?.is_none() {
            return Ok(());
        }
        let grown = alone.grow(2);
        let late = |error: &Error| matches!(
            error, Error::Nccl(it) if matches!(**it, NcclError::TimedOut { op: "ncclCommGrow", .. })
        );
        assert!(grown.as_ref().is_err_and(late), "{grown:?}");
        // The communicator can still be used.
        let mut sum = streams[0].upload_new(&[5u32; 10])?;
        alone.on(&streams[0])?.all_reduce_in_place(&mut sum, Reduction::Sum)?;
        alone.wait(&streams[0])?;
        assert_eq!(streams[0].download_vec(&sum)?, [5; 10]);
        Ok(())
    }
}

gpu_test! {
    needs 1, nccl;
    fn k_nccl_another_thread_aborts_a_growth() -> Result<()> {
        let (contexts, _) = devices(1)?;
        let alone = apart(&contexts)?;
        if id(&alone[0])?.is_none() {
            return Ok(());
        }
        std::thread::scope(|scope| {
            // The call waits for the other rank, which does not join.
            let grown = scope.spawn(|| alone[0].grow(2).map(drop));
            while !grown.is_finished() {
                // At first there may be nothing to abort; then the call is refused.
                alone[0].abort()?;
            }
            let grown = grown.join().expect("no panic");
            assert!(matches!(grown, Err(Error::Nccl(ref it)) if matches!(**it, NcclError::Aborted { .. })), "{grown:?}");
            Ok(())
        })
    }
}

gpu_test! {
    needs 1, nccl;
    fn k_nccl_refuses_growth_by_wrong_numbers() -> Result<()> {
        let (contexts, _) = devices(1)?;
        let alone = apart(&contexts)?;
        let Some(id) = id(&alone[0])? else {
            return Ok(());
        };
        assert_eq!(alone[0].growth_id()?, id, "until it grows");
        for size in [0, 1] {
            assert!(refusal(alone[0].grow(size).map(drop)).contains("no more than the 1 that there are"));
        }
        let beyond = alone[0].grow(1 << 31);
        assert!(matches!(beyond, Err(Error::SizeOverflow { .. })), "{beyond:?}");
        // SAFETY: nothing is enqueued.
        let outside = unsafe { Communicator::join_grown(&contexts[0], id, 2, 2, &CommunicatorOptions::new()) };
        assert!(refusal(outside.map(drop)).contains("there is no rank 2 among 2"));
        alone[0].abort()?;
        let again = alone[0].growth_id();
        assert!(matches!(again, Err(Error::Nccl(ref it)) if matches!(**it, NcclError::Aborted { .. })), "{again:?}");
        Ok(())
    }
}
