//! The first operations between ranks, in which they connect.

use std::ptr::{null, null_mut};

use super::*;

const INTERNAL_ERROR: c_int = 3;

fn stays_in_progress(comm: Comm) -> bool {
    (0..20).all(|_| state_of(comm) == IN_PROGRESS)
}

#[test]
fn the_first_collective_waits_for_that_of_all_ranks() {
    let session = begin();
    let ranks = joined::<2>();
    ranks.iter().for_each(|rank| rank.fill(&[5; 4]));
    let [a, b] = &ranks;
    let reduce = |own: &Rank| {
        nccl!(ncclAllReduce(own.source(), own.target(), 4, U8, SUM, own.comm, own.stream))
    };
    assert_eq!(reduce(a), IN_PROGRESS);
    assert!(stays_in_progress(a.comm));
    // Nothing is enqueued, however long a call waits.
    a.wait();
    assert_eq!(session.pending_ops(), 0);
    reduce(b);
    assert_eq!((settled(a.comm), settled(b.comm)), (SUCCESS, SUCCESS));
    ranks.iter().for_each(|own| assert_eq!(own.read(4), [10; 4]));
    // From now on each rank proceeds alone.
    goes!(a.comm, ncclAllReduce(a.source(), a.target(), 4, U8, SUM, a.comm, a.stream));
    goes!(b.comm, ncclAllReduce(b.source(), b.target(), 4, U8, SUM, b.comm, b.stream));
    release(&session, ranks);
}

#[test]
fn the_first_message_waits_for_its_other_end() {
    let session = begin();
    let ranks = joined::<2>();
    ranks.iter().for_each(|rank| rank.fill(&[5; 4]));
    let pairs = [[&ranks[0], &ranks[1]], [&ranks[1], &ranks[0]]];
    for (rank, [a, b]) in pairs.into_iter().enumerate() {
        let (own, peer) = (rank as c_int, 1 - rank as c_int);
        assert_eq!(nccl!(ncclSend(a.source(), 4, U8, peer, a.comm, a.stream)), IN_PROGRESS);
        assert!(stays_in_progress(a.comm));
        nccl!(ncclRecv(b.target(), 4, U8, own, b.comm, b.stream));
        assert_eq!((settled(a.comm), settled(b.comm)), (SUCCESS, SUCCESS));
        assert_eq!(b.read(4), [5; 4]);
        // From now on the sender proceeds alone in this direction.
        goes!(a.comm, ncclSend(a.source(), 4, U8, peer, a.comm, a.stream));
        goes!(b.comm, ncclRecv(b.target(), 4, U8, own, b.comm, b.stream));
    }
    release(&session, ranks);
}

#[test]
fn a_thread_that_blocks_needs_a_group_or_another_thread() {
    for aborts in [true, false] {
        let session = begin();
        let mut comms = [null_mut(); 2];
        let parts = [0, 1].map(|device| (bind(device), stream(), alloc(ROOM), alloc(ROOM)));
        done!(ncclCommInitAll(comms.as_mut_ptr(), 2, null()));
        let mut at = comms.into_iter().zip(parts).map(|(comm, (context, stream, from, to))| {
            ok!(cuMemsetD8Async(from, 5, 4, stream));
            Rank { comm, context, stream, from, to }
        });
        let ranks = [(); 2].map(|()| at.next().expect("two"));
        let reduce = |own: &Rank| {
            ok!(cuCtxSetCurrent(own.context));
            nccl!(ncclAllReduce(own.source(), own.target(), 4, U8, SUM, own.comm, own.stream))
        };
        std::thread::scope(|scope| {
            let first = scope.spawn(|| reduce(&ranks[0]));
            session.await_calls("ncclAllReduce", 1);
            let code = if aborts {
                done!(ncclCommAbort(ranks[0].comm));
                INTERNAL_ERROR
            } else {
                assert_eq!(reduce(&ranks[1]), SUCCESS);
                SUCCESS
            };
            assert_eq!(first.join().expect("no panic"), code);
        });
        for (own, comm) in ranks.iter().zip(comms).skip(usize::from(aborts)) {
            own.wait();
            done!(ncclCommDestroy(comm));
        }
        ranks.iter().for_each(discard);
        session.assert_clean();
    }
}
