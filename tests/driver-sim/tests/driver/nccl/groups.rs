//! Groups, and when they enqueue.

use std::ptr::null_mut;

use cuda_sim::{Fault, Mode, ViolationKind};
use cuda_sys::*;

use super::*;

#[test]
fn nothing_is_enqueued_before_the_outermost_end() {
    let session = begin();
    let ranks = ranks::<2>();
    ranks.iter().for_each(|rank| rank.fill(&[1; 4]));
    done!(ncclGroupStart());
    all_reduce_inside(&ranks);
    assert_eq!(session.pending_ops(), 0);
    goes!(ranks[0].comm, ncclGroupEnd());
    assert_eq!(session.pending_ops(), 2);
    ranks.iter().for_each(|rank| assert_eq!(rank.read(4), [2; 4]));
    release(&session, ranks);
}

fn all_reduce_inside(ranks: &[Rank]) {
    done!(ncclGroupStart());
    for rank in ranks {
        done!(ncclAllReduce(rank.source(), rank.target(), 4, U8, SUM, rank.comm, rank.stream));
    }
    done!(ncclGroupEnd());
}

/// Returns how many operations are pending before each poll, after a group was ended.
fn polled(session: &Session, rank: &Rank) -> Vec<u64> {
    done!(ncclGroupStart());
    done!(ncclAllReduce(rank.source(), rank.target(), 4, U8, SUM, rank.comm, rank.stream));
    let mut pending = Vec::new();
    let mut code = nccl!(ncclGroupEnd());
    while code == IN_PROGRESS {
        pending.push(session.pending_ops());
        code = state_of(rank.comm);
    }
    assert_eq!((code, session.pending_ops()), (SUCCESS, 1));
    rank.wait();
    pending
}

#[test]
fn some_groups_enqueue_at_a_later_poll() {
    let session = begin();
    let ranks = ranks::<1>();
    let all: Vec<Vec<u64>> = (0..32).map(|_| polled(&session, &ranks[0])).collect();
    assert!(all.iter().flatten().all(|pending| *pending == 0));
    for polls in 0..4 {
        assert_eq!(all.iter().any(|pending| pending.len() == polls), polls != 1, "{polls}");
    }
    session.set_mode(Mode::Eager);
    done!(ncclGroupStart());
    let [a] = &ranks;
    done!(ncclAllReduce(a.source(), a.target(), 4, U8, SUM, a.comm, a.stream));
    done!(ncclGroupEnd());
    release(&session, ranks);
}

#[test]
fn a_call_that_waits_lets_a_group_go_on() {
    let session = begin();
    let ranks = ranks::<2>();
    let [a, b] = &ranks;
    for _ in 0..8 {
        ranks.iter().for_each(|rank| rank.fill(&[1; 4]));
        // Not polled: NCCL's own thread enqueues the operation at some time.
        nccl!(ncclAllReduce(a.source(), a.target(), 4, U8, SUM, a.comm, a.stream));
        goes!(b.comm, ncclAllReduce(b.source(), b.target(), 4, U8, SUM, b.comm, b.stream));
        assert_eq!(b.read(4), [2; 4]);
        assert_eq!((settled(a.comm), a.read(4)), (SUCCESS, vec![2; 4]));
    }
    release(&session, ranks);
}

#[test]
fn an_event_recorded_too_early_does_not_wait() {
    let session = begin();
    let ranks = ranks::<1>();
    let [a] = &ranks;
    let e = event();
    let mut early = 0;
    for value in 0..8 {
        a.fill(&[value; 4]);
        ok!(cuMemsetD8Async(a.to, 99, 4, a.stream));
        let code = nccl!(ncclAllReduce(a.source(), a.target(), 4, U8, SUM, a.comm, a.stream));
        ok!(cuEventRecord(e, a.stream));
        ok!(cuEventSynchronize(e));
        early += u32::from(code == IN_PROGRESS && state_of(a.comm) == IN_PROGRESS);
        assert_eq!(settled(a.comm), SUCCESS);
        a.wait();
    }
    assert!(early > 0, "the event came before the operation");
    ok!(cuEventDestroy_v2(e));
    release(&session, ranks);
}

#[test]
fn a_failed_call_fails_its_group() {
    let session = begin();
    let ranks = ranks::<1>();
    let [a] = &ranks;
    done!(ncclGroupStart());
    done!(ncclAllReduce(a.source(), a.target(), 4, U8, SUM, a.comm, a.stream));
    gives!(INVALID_ARGUMENT, ncclAllReduce(a.source(), a.target(), 4, 77, SUM, a.comm, a.stream));
    gives!(INVALID_ARGUMENT, ncclGroupEnd());
    assert_eq!(session.pending_ops(), 0);
    // The thread is in no group.
    gives!(INVALID_USAGE, ncclGroupEnd());
    assert_eq!(violations(&session), [ViolationKind::NotReady]);
    release(&session, ranks);
}

#[test]
fn an_end_that_fails_closes_its_group() {
    let session = begin();
    let ranks = ranks::<1>();
    let [a] = &ranks;
    session.inject(Fault::new(CUDA_ERROR_UNKNOWN).function("ncclGroupEnd"));
    done!(ncclGroupStart());
    done!(ncclAllReduce(a.source(), a.target(), 4, U8, SUM, a.comm, a.stream));
    gives!(UNHANDLED_CUDA_ERROR, ncclGroupEnd());
    assert_eq!(session.pending_ops(), 0);
    goes!(a.comm, ncclAllReduce(a.source(), a.target(), 4, U8, SUM, a.comm, a.stream));
    assert_eq!(session.pending_ops(), 1);
    release(&session, ranks);
}

#[test]
fn ranks_of_one_thread_join_in_a_group() {
    let session = begin();
    let (id, mut comms) = (unique(), [null_mut(); 2]);
    done!(ncclGroupStart());
    for (rank, comm) in comms.iter_mut().enumerate() {
        bind(rank as c_int);
        done!(ncclCommInitRank(comm, 2, id, rank as c_int));
    }
    // With blocking communicators, the end of the group waits for all ranks.
    done!(ncclGroupEnd());
    for (rank, comm) in comms.into_iter().enumerate() {
        let (mut own, mut count, mut device) = (-1, -1, -1);
        done!(ncclCommUserRank(comm, &mut own));
        done!(ncclCommCount(comm, &mut count));
        done!(ncclCommCuDevice(comm, &mut device));
        assert_eq!((own, count, device), (rank as c_int, 2, rank as c_int));
        done!(ncclCommDestroy(comm));
    }
    session.assert_clean();
}

#[test]
fn communicators_that_block_and_others_are_not_mixed() {
    let session = begin();
    let ranks = ranks::<1>();
    let mut other = null_mut();
    done!(ncclCommInitAll(&mut other, 1, null_mut()));
    let [a] = &ranks;
    done!(ncclGroupStart());
    done!(ncclAllReduce(a.source(), a.target(), 4, U8, SUM, a.comm, a.stream));
    done!(ncclAllReduce(a.source(), a.target(), 4, U8, SUM, other, a.stream));
    gives!(INVALID_ARGUMENT, ncclGroupEnd());
    done!(ncclCommDestroy(other));
    release(&session, ranks);
}
