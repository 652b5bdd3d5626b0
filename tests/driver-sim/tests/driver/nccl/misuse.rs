//! Misuse that the simulator reports.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;

use cuda_sim::LeakKind;
use cuda_sim::ViolationKind::{self, *};
use cuda_sys::*;

use super::*;
use crate::mapped;

/// Runs `body` with two ranks, and checks that exactly these violations are found.
fn two(expected: &[ViolationKind], body: impl FnOnce(&Session, &Rank, &Rank)) {
    let session = begin();
    let ranks = ranks::<2>();
    body(&session, &ranks[0], &ranks[1]);
    assert_eq!(violations(&session), expected);
    release(&session, ranks);
}

#[test]
fn another_operation() {
    two(&[Mismatch], |_, a, b| {
        goes!(a.comm, ncclAllReduce(a.source(), a.target(), 4, U8, SUM, a.comm, a.stream));
        goes!(b.comm, ncclBroadcast(b.source(), b.target(), 4, U8, 0, b.comm, b.stream));
    });
}

#[test]
fn another_count_type_or_reduction() {
    for (count, number, op) in [(8, U8, SUM), (4, U32, SUM), (4, U8, MAX)] {
        two(&[Mismatch], |_, a, b| {
            [a, b].iter().for_each(|rank| rank.fill(&[1; 32]));
            goes!(a.comm, ncclAllReduce(a.source(), a.target(), 4, U8, SUM, a.comm, a.stream));
            let (from, to) = (b.source(), b.target());
            goes!(b.comm, ncclAllReduce(from, to, count, number, op, b.comm, b.stream));
            // The results mean nothing.
            assert_ne!(a.read(4), [2; 4]);
        });
    }
}

#[test]
fn another_root() {
    two(&[Mismatch], |_, a, b| {
        goes!(a.comm, ncclBroadcast(a.source(), a.target(), 4, U8, 0, a.comm, a.stream));
        goes!(b.comm, ncclBroadcast(b.source(), b.target(), 4, U8, 1, b.comm, b.stream));
    });
}

#[test]
fn what_is_after_a_mismatch_is_not_reported() {
    two(&[Mismatch], |_, a, b| {
        goes!(a.comm, ncclAllReduce(a.source(), a.target(), 4, U8, SUM, a.comm, a.stream));
        goes!(b.comm, ncclAllReduce(b.source(), b.target(), 4, U8, MAX, b.comm, b.stream));
        [a, b].iter().for_each(|rank| rank.fill(&[1; 4]));
        goes!(a.comm, ncclAllReduce(a.source(), a.target(), 4, U8, SUM, a.comm, a.stream));
        goes!(b.comm, ncclAllReduce(b.source(), b.target(), 4, U8, SUM, b.comm, b.stream));
        assert_eq!(a.read(4), [2; 4]);
    });
}

#[test]
fn memory_or_a_stream_of_another_device() {
    two(&[WrongDevice, WrongDevice, WrongDevice], |_, a, b| {
        let mut handle = null_mut();
        for (to, stream) in [(b.target(), a.stream), (a.target(), b.stream)] {
            gives!(INVALID_ARGUMENT, ncclAllReduce(a.source(), to, 4, U8, SUM, a.comm, stream));
        }
        gives!(INVALID_ARGUMENT, ncclCommRegister(a.comm, b.source(), 4, &mut handle));
    });
}

#[test]
fn memory_that_is_freed_or_too_small() {
    two(&[UseAfterFree, OutOfRange], |_, a, _| {
        ok!(cuCtxSetCurrent(a.context));
        let gone = alloc(4);
        ok!(cuMemFree_v2(gone));
        let gone = std::ptr::without_provenance_mut(gone as usize);
        gives!(INVALID_ARGUMENT, ncclAllReduce(gone, a.target(), 4, U8, SUM, a.comm, a.stream));
        let (from, to) = (a.source(), a.target());
        // Each rank passes as many bytes as it has for all ranks.
        gives!(INVALID_ARGUMENT, ncclAllGather(from, to, ROOM, U8, a.comm, a.stream));
    });
}

#[test]
fn memory_freed_before_it_is_read() {
    two(&[Race, Race, UseAfterFree], |_, a, b| {
        goes!(a.comm, ncclAllReduce(a.source(), a.target(), 4, U8, SUM, a.comm, a.stream));
        ok!(cuCtxSetCurrent(b.context));
        let (short, other) = (alloc_async(4, b.stream), stream());
        let there = std::ptr::without_provenance_mut(short as usize);
        goes!(b.comm, ncclAllReduce(there, b.target(), 4, U8, SUM, b.comm, b.stream));
        // Freed on a stream that is ordered after neither the allocation nor the collective.
        ok!(cuMemFreeAsync(short, other));
        ok!(cuStreamSynchronize(other));
        a.wait();
        ok!(cuStreamDestroy_v2(other));
    });
}

#[test]
fn other_streams_must_be_ordered() {
    two(&[Race, Race], |_, a, b| {
        ok!(cuCtxSetCurrent(a.context));
        let other = stream();
        all_reduce_of(a, b);
        // One copy reads what is being written; a fill overwrites what is being read.
        ok!(cuMemcpyDtoDAsync_v2(a.from + 32, a.to, 4, other));
        ok!(cuMemsetD8Async(a.from, 0, 4, other));
        ok!(cuStreamSynchronize(other));
        ok!(cuStreamDestroy_v2(other));
    });
}

fn all_reduce_of(a: &Rank, b: &Rank) {
    for rank in [a, b] {
        let (from, to) = (rank.source(), rank.target());
        goes!(rank.comm, ncclAllReduce(from, to, 4, U8, SUM, rank.comm, rank.stream));
    }
    ok!(cuCtxSetCurrent(a.context));
}

#[test]
fn what_overlaps_is_in_place_or_reported() {
    two(&[Overlap, Overlap], |_, a, _| {
        let (from, comm, stream) = (a.source(), a.comm, a.stream);
        done!(ncclGroupStart());
        done!(ncclAllReduce(from, from.wrapping_byte_add(1), 4, U8, SUM, comm, stream));
        done!(ncclAllGather(from, from.wrapping_byte_add(2), 4, U8, comm, stream));
        gives!(INVALID_ARGUMENT, ncclAllReduce(from, from, 4, 99, SUM, comm, stream));
        gives!(INVALID_ARGUMENT, ncclGroupEnd());
    });
}

#[test]
fn arguments_that_nccl_refuses() {
    two(&[DanglingHandle, DanglingHandle], |_, a, _| {
        let (from, to, comm, stream) = (a.source(), a.target(), a.comm, a.stream);
        gives!(INVALID_ARGUMENT, ncclAllReduce(from, to, 4, 10, SUM, comm, stream));
        gives!(INVALID_ARGUMENT, ncclAllReduce(from, to, usize::MAX, U32, SUM, comm, stream));
        gives!(INVALID_ARGUMENT, ncclBroadcast(from, to, 4, U8, 2, comm, stream));
        gives!(INVALID_ARGUMENT, ncclSend(from, 4, U8, -1, comm, stream));
        // The reduction was never created.
        gives!(INVALID_ARGUMENT, ncclAllReduce(from, to, 4, U8, 5, comm, stream));
        gives!(INVALID_ARGUMENT, ncclRedOpDestroy(5, comm));
        // Without numbers there is nothing to do, whatever the other ranks do.
        done!(ncclAllReduce(null_mut(), null_mut(), 0, U8, SUM, comm, stream));
    });
}

#[test]
fn a_communicator_that_is_gone() {
    two(&[DanglingHandle; 4], |_, a, _| {
        let mut gone = null_mut();
        done!(ncclCommInitAll(&mut gone, 1, null_mut()));
        done!(ncclCommDestroy(gone));
        gives!(INVALID_ARGUMENT, ncclCommDestroy(gone));
        gives!(INVALID_ARGUMENT, ncclCommAbort(gone));
        gives!(INVALID_ARGUMENT, ncclCommGetAsyncError(gone, &mut 0));
        gives!(INVALID_ARGUMENT, ncclAllReduce(a.source(), a.target(), 4, U8, SUM, gone, a.stream));
    });
}

#[test]
fn destroyed_while_its_work_is_in_flight() {
    let session = begin();
    let ranks = ranks::<2>();
    all_reduce(&ranks, 4);
    let [a, b] = &ranks;
    a.wait();
    done!(ncclCommDestroy(a.comm));
    assert_eq!(violations(&session), []);
    done!(ncclCommDestroy(b.comm));
    assert_eq!(violations(&session), [InFlight]);
    ranks.iter().for_each(discard);
    session.assert_clean();
}

#[test]
fn used_before_all_ranks_have_joined() {
    let session = begin();
    bind(0);
    let (id, s, memory, mut comm) = (unique(), stream(), alloc(4), null_mut());
    gives!(IN_PROGRESS, ncclCommInitRankConfig(&mut comm, 2, id, 0, &config(false)));
    let there = std::ptr::without_provenance_mut(memory as usize);
    gives!(INVALID_ARGUMENT, ncclAllReduce(there, there, 4, U8, SUM, comm, s));
    gives!(INVALID_ARGUMENT, ncclCommDestroy(comm));
    assert_eq!(violations(&session), [NotReady, NotReady]);
    done!(ncclCommAbort(comm));
    ok!(cuMemFree_v2(memory));
    ok!(cuStreamDestroy_v2(s));
    session.assert_clean();
}

#[test]
fn used_before_a_group_is_enqueued() {
    let session = begin();
    let ranks = ranks::<1>();
    let [a] = &ranks;
    let call = || nccl!(ncclAllReduce(a.source(), a.target(), 4, U8, SUM, a.comm, a.stream));
    let waits = (0..32).find(|_| call() == IN_PROGRESS);
    assert!(waits.is_some(), "some are enqueued later");
    assert_eq!((call(), violations(&session)), (INVALID_ARGUMENT, vec![NotReady]));
    assert_eq!(settled(a.comm), SUCCESS);
    release(&session, ranks);
}

#[test]
fn a_stream_destroyed_before_nccl_has_used_it() {
    let session = begin();
    let ranks = ranks::<1>();
    let [a] = &ranks;
    let found = (0..32).any(|_| {
        let s = stream();
        let code = nccl!(ncclAllReduce(a.source(), a.target(), 4, U8, SUM, a.comm, s));
        a.wait();
        ok!(cuStreamDestroy_v2(s));
        code == IN_PROGRESS
    });
    assert!(found, "some are enqueued later");
    assert_eq!(settled(a.comm), UNHANDLED_CUDA_ERROR);
    assert_eq!(violations(&session), [NotReady]);
    done!(ncclCommAbort(a.comm));
    ranks.iter().for_each(discard);
    session.assert_clean();
}

#[test]
fn ranks_that_do_not_fit() {
    let session = begin();
    let (id, mut comm, mut other) = (unique(), null_mut(), null_mut());
    bind(0);
    gives!(IN_PROGRESS, ncclCommInitRankConfig(&mut comm, 2, id, 0, &config(false)));
    gives!(INVALID_ARGUMENT, ncclCommInitRankConfig(&mut other, 2, id, 0, &config(false)));
    gives!(INVALID_ARGUMENT, ncclCommInitRankConfig(&mut other, 3, id, 1, &config(false)));
    assert_eq!(violations(&session), [Mismatch, Mismatch]);
    done!(ncclCommAbort(comm));
    session.assert_clean();
}

#[test]
fn a_rank_without_a_current_context() {
    let session = begin();
    let mut comm = null_mut();
    gives!(INVALID_ARGUMENT, ncclCommInitRank(&mut comm, 1, unique(), 0));
    assert_eq!(violations(&session), [WrongDevice]);
    session.assert_clean();
}

#[test]
fn two_threads_in_one_communicator() {
    two(&[ConcurrentCalls, ConcurrentCalls], |session, a, _| {
        let held = session.hold("ncclCommRegister");
        std::thread::scope(|scope| {
            let inside = scope.spawn(|| {
                let mut handle = null_mut();
                done!(ncclCommRegister(a.comm, a.source(), 4, &mut handle));
                done!(ncclCommDeregister(a.comm, handle));
            });
            held.await_call();
            // These calls are allowed meanwhile.
            assert_eq!(state_of(a.comm), SUCCESS);
            gives!(INVALID_ARGUMENT, ncclCommDeregister(a.comm, null_mut()));
            drop(held);
            inside.join().expect("the call ends");
            // The group belongs to another thread.
            done!(ncclGroupStart());
            done!(ncclAllReduce(a.source(), a.target(), 4, U8, SUM, a.comm, a.stream));
            let other = scope.spawn(|| {
                let mut handle = null_mut();
                done!(ncclCommRegister(a.comm, a.source(), 4, &mut handle));
            });
            other.join().expect("the call ends");
        });
        gives!(INVALID_ARGUMENT, ncclAllReduce(null_mut(), null_mut(), 1, 99, 0, a.comm, a.stream));
        gives!(INVALID_ARGUMENT, ncclGroupEnd());
    });
}

/// Returns two blocking ranks. The first operation of each waits for that of the other.
fn blocking() -> [Rank; 2] {
    let mut comms = [null_mut(); 2];
    done!(ncclCommInitAll(comms.as_mut_ptr(), 2, null_mut()));
    [0, 1].map(|device| {
        let context = bind(device);
        let (stream, from, to) = (stream(), alloc(ROOM), alloc(ROOM));
        Rank { comm: comms[device as usize], context, stream, from, to }
    })
}

fn reduce(own: &Rank) {
    ok!(cuCtxSetCurrent(own.context));
    done!(ncclAllReduce(own.source(), own.target(), 4, U8, SUM, own.comm, own.stream));
}

#[test]
fn a_thread_stays_in_a_communicator_that_another_leaves() {
    let session = begin();
    let ranks = blocking();
    let [a, b] = &ranks;
    let held = session.hold("ncclCommRegister");
    std::thread::scope(|scope| {
        let first = scope.spawn(|| {
            done!(ncclCommRegister(a.comm, a.source(), 4, &mut null_mut()));
        });
        held.await_call();
        let second = scope.spawn(|| reduce(a));
        session.await_calls("ncclAllReduce", 1);
        drop(held);
        first.join().expect("the call ends");
        gives!(INVALID_ARGUMENT, ncclCommDeregister(a.comm, null_mut()));
        reduce(b);
        second.join().expect("the call ends");
    });
    assert_eq!(violations(&session), [ConcurrentCalls, ConcurrentCalls]);
    release(&session, ranks);
}

#[test]
fn a_group_uses_its_communicators_until_its_end_returns() {
    let session = begin();
    let ranks = blocking();
    let [a, b] = &ranks;
    std::thread::scope(|scope| {
        let group = scope.spawn(|| {
            done!(ncclGroupStart());
            reduce(a);
            done!(ncclGroupEnd());
        });
        session.await_calls("ncclGroupEnd", 1);
        gives!(INVALID_ARGUMENT, ncclCommDeregister(a.comm, null_mut()));
        reduce(b);
        group.join().expect("the call ends");
    });
    assert_eq!(violations(&session), [ConcurrentCalls]);
    release(&session, ranks);
}

#[test]
fn freed_while_registered() {
    two(&[UseAfterFree], |_, a, _| {
        let mut handle = null_mut();
        ok!(cuCtxSetCurrent(a.context));
        let memory = alloc(4);
        let there = std::ptr::without_provenance_mut(memory as usize);
        done!(ncclCommRegister(a.comm, there, 4, &mut handle));
        ok!(cuMemFree_v2(memory));
        done!(ncclCommDeregister(a.comm, handle));
    });
}

#[test]
fn unmapped_while_registered() {
    two(&[UseAfterFree], |_, a, _| {
        let mut handle = null_mut();
        ok!(cuCtxSetCurrent(a.context));
        let step = mapped::step();
        let (address, memory) = (mapped::reserve(step), mapped::create(step));
        ok!(cuMemMap(address, step, 0, memory, 0));
        ok!(cuMemSetAccess(address, step, &mapped::access(3), 1));
        let there = std::ptr::without_provenance_mut(address as usize);
        done!(ncclCommRegister(a.comm, there, step, &mut handle));
        ok!(cuMemUnmap(address, step));
        done!(ncclCommDeregister(a.comm, handle));
        ok!(cuMemRelease(memory));
        ok!(cuMemAddressFree(address, step));
    });
}

#[test]
fn registered_where_nothing_is_and_deregistered_twice() {
    two(&[UnknownAddress, DanglingHandle], |session, a, b| {
        let (mut handle, nowhere) = (null_mut(), std::ptr::without_provenance_mut(0x1234));
        gives!(INVALID_ARGUMENT, ncclCommRegister(a.comm, nowhere, 4, &mut handle));
        done!(ncclCommRegister(a.comm, a.source(), 4, &mut handle));
        let left = session.leaks();
        assert!(left.iter().any(|it| it.kind == LeakKind::Registration && it.bytes == 4));
        gives!(INVALID_ARGUMENT, ncclCommDeregister(b.comm, handle));
        done!(ncclCommDeregister(a.comm, handle));
        gives!(INVALID_ARGUMENT, ncclCommDeregister(a.comm, handle));
        assert!(session.leaks().iter().all(|it| it.kind != LeakKind::Registration));
    });
}

#[test]
fn deregistered_before_its_work_is_done() {
    two(&[Race], |_, a, b| {
        let mut handle = null_mut();
        done!(ncclCommRegister(a.comm, a.source(), 4, &mut handle));
        all_reduce_of(a, b);
        done!(ncclCommDeregister(a.comm, handle));
        // Ending the communicator also ends its registrations.
        done!(ncclCommRegister(a.comm, a.source(), 4, &mut handle));
        a.wait();
        b.wait();
    });
}

#[test]
fn communicators_in_different_orders() {
    let session = begin();
    let (first, second) = (ranks::<2>(), ranks::<2>());
    let enqueue = |of: &[Rank; 2], rank: usize| {
        let (own, on) = (&of[rank], first[rank].stream);
        goes!(own.comm, ncclAllReduce(own.source(), own.target(), 4, U8, SUM, own.comm, on));
    };
    enqueue(&first, 0);
    enqueue(&second, 0);
    enqueue(&second, 1);
    enqueue(&first, 1);
    for _ in 0..10 {
        fails!(CUDA_ERROR_NOT_READY, cuStreamQuery(first[0].stream));
    }
    assert_eq!(violations(&session), [Deadlock]);
    for rank in first.iter().chain(&second) {
        done!(ncclCommAbort(rank.comm));
    }
    first.iter().chain(&second).for_each(discard);
    let left = session.finish();
    assert!(
        left.violations.iter().all(|it| it.kind == Deadlock) && left.leaks.is_empty(),
        "{left}"
    );
}

/// Returns what a session reports that ends after only the first rank has begun something.
fn ends_without_the_other(
    ranks: [Rank; 2],
    begin: impl FnOnce(&Rank),
    session: &Session,
) -> String {
    let [a, b] = &ranks;
    begin(a);
    let ends = || session.assert_clean();
    let report = catch_unwind(AssertUnwindSafe(ends)).expect_err("a rank is missing");
    assert_eq!(violations(session), [MissingRank]);
    // Reported only once.
    assert!(session.violations().is_empty());
    for rank in [a, b] {
        done!(ncclCommAbort(rank.comm));
        discard(rank);
    }
    session.assert_clean();
    *report.downcast().expect("a text")
}

#[test]
fn a_rank_that_is_missing_when_the_session_ends() {
    let session = begin();
    let reduce = |a: &Rank| {
        goes!(a.comm, ncclAllReduce(a.source(), a.target(), 4, U8, SUM, a.comm, a.stream));
        // What comes after it is not reported.
        goes!(a.comm, ncclBroadcast(a.source(), a.target(), 4, U8, 0, a.comm, a.stream));
    };
    let what = "AllReduce of 4 U8, Sum, of 2 ranks: rank 1 is missing";
    let report = ends_without_the_other(ranks(), reduce, &session);
    assert!(report.contains(&format!("MissingRank in ncclAllReduce: {what}")), "{report}");
    // The first operation, in which the ranks connect, is not even enqueued.
    let first = |a: &Rank| {
        nccl!(ncclAllReduce(a.source(), a.target(), 4, U8, SUM, a.comm, a.stream));
    };
    let report = ends_without_the_other(joined(), first, &session);
    assert!(report.contains(what), "{report}");
    let send = |a: &Rank| goes!(a.comm, ncclSend(a.source(), 4, U8, 1, a.comm, a.stream));
    let what = "rank 0 sends 4 U8 to rank 1, which does not receive";
    let report = ends_without_the_other(ranks(), send, &session);
    assert!(report.contains(&format!("MissingRank in ncclSend: {what}")), "{report}");
    let receive = |a: &Rank| {
        nccl!(ncclRecv(a.source(), 4, U8, 1, a.comm, a.stream));
    };
    let report = ends_without_the_other(joined(), receive, &session);
    assert!(report.contains("rank 0 receives 4 U8 from rank 1, which does not send"), "{report}");
}

#[test]
fn a_host_function_calls_nothing() {
    let session = begin();
    let ranks = ranks::<1>();
    let [a] = &ranks;
    unsafe extern "C" fn poll(comm: Comm) {
        gives!(UNHANDLED_CUDA_ERROR, ncclCommGetAsyncError(comm, &mut 0));
    }
    ok!(cuLaunchHostFunc(a.stream, Some(poll), a.comm));
    a.wait();
    assert_eq!(violations(&session), [CallInCallback]);
    release(&session, ranks);
}
