//! Calls of NCCL, and driver calls beside them.

use std::thread;
use std::time::Duration;

use cuda_core::nccl::{CommunicatorOptions, Ranks, Reduction};
use cuda_core::{Error, Graph, NcclError};
use cuda_sim::Fault;
use support::two_devices;

use super::*;

/// Called until no operation is in progress.
const POLL: &str = "ncclCommGetAsyncError";
const REDUCE: &str = "ncclAllReduce";

/// The calls of an operation under a guard, if no context is current.
fn guarded<const N: usize>(calls: [&'static str; N]) -> Vec<&'static str> {
    [&[GET, SET], &calls[..], &[GET, SET, GET]].concat()
}

/// Returns the calls of an operation without the polls, and the number of polls.
fn counted<R>(driver: &Counted, operation: impl FnOnce() -> R) -> (Vec<&'static str>, usize, R) {
    let mark = driver.session.mark();
    let result = operation();
    let mut names = driver.session.names_since(mark);
    let all = names.len();
    names.retain(|name| *name != POLL);
    let polls = all - names.len();
    (names, polls, result)
}

#[test]
fn an_all_reduce_costs_a_group() {
    Counted::run(|driver| {
        let (contexts, streams) = two_devices()?;
        streams.iter().try_for_each(warm)?;
        for blocking in [true, false] {
            let options = CommunicatorOptions::new().blocking(blocking);
            let ranks = Ranks::init_all_with(&contexts, &options)?;
            let zeroed = |stream: &Stream| stream.alloc_zeroed::<u32>(100);
            let mut sums = streams.iter().map(zeroed).collect::<Result<Vec<_>>>()?;
            let (names, polls, reduced) = counted(driver, || {
                ranks.on(&streams)?.all_reduce_in_place(&mut sums, Reduction::Sum)
            });
            reduced?;
            let group = ["ncclGroupStart", REDUCE, REDUCE, "ncclGroupEnd"];
            assert_eq!(names, guarded(group));
            // Each rank is polled once, and more often if it is in progress.
            assert!(if blocking { polls == 0 } else { polls >= 2 }, "{polls} polls");
            ranks.finalize()?;
        }
        Ok(())
    });
}

#[test]
fn an_all_reduce_of_one_rank_costs_one() {
    Counted::run(|driver| {
        let (context, stream, other) = two_streams()?;
        let ranks = Ranks::init_all([&context])?;
        // SAFETY: the only rank.
        let ranks = unsafe { ranks.into_communicators() };
        let mut sum = stream.alloc_zeroed::<u32>(100)?;
        let mut reduce =
            |on: &Stream| ranks[0].on(on)?.all_reduce_in_place(&mut sum, Reduction::Sum);
        let (names, polls, reduced) = counted(driver, || reduce(&stream));
        reduced?;
        assert_eq!((names, polls), (guarded([REDUCE]), 0));
        let (names, _, reduced) = counted(driver, || reduce(&other));
        reduced?;
        assert_eq!(names, guarded([RECORD, WAIT, REDUCE]));
        let _entered = context.enter()?;
        let (names, _, reduced) = counted(driver, || reduce(&other));
        reduced?;
        assert_eq!(names, [GET, REDUCE]);
        drop(sum);
        [stream, other].iter().try_for_each(|stream| stream.synchronize())
    });
}

#[test]
fn a_thread_that_calls_the_ranks_one_by_one_gets_an_error_within_the_limit() {
    Counted::run(|driver| {
        let (contexts, streams) = two_devices()?;
        // Under an interpreter, joining alone takes longer.
        let limit = Duration::from_millis(if cfg!(miri) { 5000 } else { 500 });
        let options = CommunicatorOptions::new().blocking(false).limit(limit);
        let ranks = Ranks::init_all_with(&contexts, &options)?;
        // SAFETY: the first operation fails, and none follows it.
        let ranks = unsafe { ranks.into_communicators() };
        let mut sum = streams[0].alloc_zeroed::<u32>(100)?;
        let alone = ranks[0].on(&streams[0])?.all_reduce_in_place(&mut sum, Reduction::Sum);
        let timed_out = matches!(&alone, Err(Error::Nccl(it)) if matches!(**it, NcclError::TimedOut { rank: 0, .. }));
        assert!(timed_out, "{alone:?}");
        assert_eq!(driver.session.calls("ncclCommAbort"), 1);
        // No work was left on the stream.
        streams[0].synchronize()
    });
}

#[test]
fn a_graph_is_not_launched_after_a_call_that_took_too_long() {
    Counted::run(|driver| {
        let (contexts, streams) = two_devices()?;
        // An interpreter takes long for the ranks' first collective.
        let limit = Duration::from_millis(if cfg!(miri) { 2000 } else { 500 });
        let options = CommunicatorOptions::new().blocking(false).limit(limit);
        let ranks = Ranks::init_all_with(&contexts, &options)?;
        let zeroed = |stream: &Stream| stream.alloc_zeroed::<u32>(100);
        let mut sums = streams.iter().map(zeroed).collect::<Result<Vec<_>>>()?;
        ranks.on(&streams)?.all_reduce_in_place(&mut sums, Reduction::Sum)?;
        streams.iter().try_for_each(|stream| stream.synchronize())?;
        // SAFETY: the captured operation is not launched, and the other rank is not used.
        let ranks = unsafe { ranks.into_communicators() };
        let graph = Graph::capture(&contexts[0], |captured| {
            ranks[0].on(captured)?.all_reduce_in_place(&mut sums[0], Reduction::Sum)
        })?;
        let mut exec = graph.instantiate()?;
        // The other rank does not split, so the communicator is aborted.
        let split = ranks[0].split(Some(0), 0);
        assert!(
            matches!(split, Err(Error::Nccl(ref it)) if matches!(**it, NcclError::TimedOut { .. })),
            "{split:?}"
        );
        let (names, _, refused) = counted(driver, || exec.launch(&streams[0]));
        let expected = matches!(refused, Err(Error::Nccl(ref it)) if matches!(**it, NcclError::Aborted { rank: 0, .. }));
        assert!(expected, "{refused:?}");
        assert!(names.is_empty(), "{names:?}");
        Ok(())
    });
}

#[test]
fn ranks_that_cannot_all_join_are_freed_after_the_group() {
    const JOIN: &str = "ncclCommInitRankConfig";
    Counted::run(|driver| {
        let contexts = Device::contexts([Device::get(0)?, Device::get(1)?])?;
        let other = Context::new(Device::get(1)?, Default::default())?;
        let (names, _, refused) =
            counted(driver, || Ranks::init_all([&contexts[0], &other]).map(drop));
        assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
        assert!(!names.contains(&"ncclGroupStart"), "not even begun: {names:?}");
        // The second rank is refused, or joins with an error.
        let refuses = || Fault::new(cuda_sys::CUDA_ERROR_UNKNOWN).function(JOIN).nth(2);
        let faults = [(refuses(), 1), (refuses().takes_effect(), 2)];
        for (blocking, (fault, freed)) in
            [true, false].into_iter().flat_map(|it| faults.clone().map(|fault| (it, fault)))
        {
            driver.session.inject(fault);
            let mark = driver.session.mark();
            let options = CommunicatorOptions::new().blocking(blocking);
            let refused = Ranks::init_all_with(&contexts, &options).map(drop);
            assert!(matches!(refused, Err(Error::Nccl(_))), "{refused:?}");
            // Other threads abort the ranks.
            let names = driver.session.since(mark).into_iter().map(|call| call.name);
            let of_nccl = names.filter(|name| {
                ["ncclGroupStart", JOIN, "ncclGroupEnd", "ncclCommAbort"].contains(name)
            });
            let mut expected = vec!["ncclGroupStart", JOIN, JOIN, "ncclGroupEnd"];
            expected.extend(std::iter::repeat_n("ncclCommAbort", freed));
            assert_eq!(of_nccl.collect::<Vec<_>>(), expected);
        }
        // The end of the group does not wait for a rank whose context cannot be entered.
        driver.session.fail_nth(Some(SET), 2, cuda_sys::CUDA_ERROR_UNKNOWN);
        let refused = Ranks::init_all(&contexts).map(drop);
        assert!(matches!(refused, Err(Error::Driver { .. })), "{refused:?}");
        Ok(())
    });
}

/// Two threads that lock the same ranks in different orders would wait for each other.
#[test]
fn finalizing_beside_an_operation_of_another_thread_ends() {
    Counted::run(|driver| {
        // In this mode each rank is polled once.
        driver.session.set_mode(Mode::Eager);
        let contexts = Device::contexts((0..3).map(Device::get).collect::<Result<Vec<_>>>()?)?;
        let streams = contexts.iter().map(Context::create_stream).collect::<Result<Vec<_>>>()?;
        let zeroed = |stream: &Stream| stream.alloc_zeroed::<u32>(100);
        let mut sums = streams.iter().map(zeroed).collect::<Result<Vec<_>>>()?;
        let orders = [[1, 3, 5], [5, 3, 1], [1, 5, 3], [3, 1, 5], [3, 5, 1], [5, 1, 3]];
        for order in &orders[..if cfg!(miri) { 2 } else { orders.len() }] {
            // The heap returns blocks in the order in which they were freed, or in the reverse order: in each
            // round the ranks lie in memory in a different order.
            let alone = |_| Ranks::init_all(&contexts[..1]).map(Some);
            let mut others = (0..7).map(alone).collect::<Result<Vec<_>>>()?;
            order.iter().for_each(|at| drop(others[*at].take()));
            let ranks = Ranks::init_all(&contexts)?;
            let mut reduce = || ranks.on(&streams)?.all_reduce_in_place(&mut sums, Reduction::Sum);
            reduce()?;
            streams.iter().try_for_each(|stream| stream.synchronize())?;
            let before = driver.session.calls(SET);
            // Waits until that many more threads have entered a context, and then reach a lock.
            let entered = |threads: u64| {
                while driver.session.calls(SET) < before + threads {
                    thread::yield_now();
                }
                (0..100).for_each(|_| thread::yield_now());
            };
            let (first, polls) = (driver.session.hold(POLL), driver.session.calls(POLL));
            thread::scope(|scope| {
                let waiting = scope.spawn(|| ranks.wait(&streams));
                first.await_call();
                let second = driver.session.hold(POLL);
                second.await_call();
                let third = driver.session.hold(POLL);
                third.await_call();
                assert_eq!(driver.session.calls(POLL), polls + 3, "the last rank is locked");
                let reducing = scope.spawn(reduce);
                entered(1);
                let finalizing = scope.spawn(|| ranks.finalize());
                entered(2);
                drop((first, second, third));
                let [waited, reduced] = [waiting, reducing].map(|it| it.join().expect("no panic"));
                // The operation may come too late; then the ranks are aborted.
                for result in [waited, reduced] {
                    assert!(matches!(result, Ok(()) | Err(Error::Nccl(_))), "{result:?}");
                }
                finalizing.join().expect("no panic")
            })?;
        }
        Ok(())
    });
}
