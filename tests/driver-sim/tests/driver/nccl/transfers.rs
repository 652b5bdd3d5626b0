//! Sends and receives.

use cuda_sim::ViolationKind;
use cuda_sys::*;

use super::*;

#[test]
fn all_to_all_in_a_group() {
    let session = begin();
    let ranks = ranks::<3>();
    for (rank, own) in ranks.iter().enumerate() {
        own.fill(&[0, 1, 2].map(|peer| 10 * rank as u8 + peer));
    }
    done!(ncclGroupStart());
    for own in &ranks {
        for peer in 0..3 {
            let (from, to) = (own.source(), own.target());
            let (from, to) = (from.wrapping_byte_add(peer), to.wrapping_byte_add(peer));
            done!(ncclSend(from, 1, U8, peer as c_int, own.comm, own.stream));
            done!(ncclRecv(to, 1, U8, peer as c_int, own.comm, own.stream));
        }
    }
    goes!(ranks[0].comm, ncclGroupEnd());
    for (rank, own) in ranks.iter().enumerate() {
        assert_eq!(own.read(3), [0, 10, 20].map(|from| from + rank as u8));
    }
    release(&session, ranks);
}

#[test]
fn a_pair_meets_in_the_order_of_its_calls() {
    let session = begin();
    let ranks = ranks::<2>();
    let [a, b] = &ranks;
    a.fill(&[1, 2]);
    goes!(a.comm, ncclSend(a.source(), 1, U8, 1, a.comm, a.stream));
    goes!(a.comm, ncclSend(a.source().wrapping_byte_add(1), 1, U8, 1, a.comm, a.stream));
    fails!(CUDA_ERROR_NOT_READY, cuStreamQuery(a.stream));
    goes!(b.comm, ncclRecv(b.target().wrapping_byte_add(1), 1, U8, 0, b.comm, b.stream));
    goes!(b.comm, ncclRecv(b.target(), 1, U8, 0, b.comm, b.stream));
    // The sender ends first, and overwrites what it sent.
    a.wait();
    a.fill(&[9, 9]);
    assert_eq!(b.read(2), [2, 1]);
    release(&session, ranks);
}

#[test]
fn one_pair_of_a_group_goes_on_while_another_waits() {
    let session = begin();
    let ranks = ranks::<3>();
    let [a, b, c] = &ranks;
    a.fill(&[7, 8]);
    done!(ncclGroupStart());
    done!(ncclSend(a.source(), 1, U8, 1, a.comm, a.stream));
    done!(ncclSend(a.source().wrapping_byte_add(1), 1, U8, 2, a.comm, a.stream));
    goes!(a.comm, ncclGroupEnd());
    goes!(b.comm, ncclRecv(b.target(), 1, U8, 0, b.comm, b.stream));
    assert_eq!(b.read(1), [7]);
    ok!(cuCtxSetCurrent(a.context));
    fails!(CUDA_ERROR_NOT_READY, cuStreamQuery(a.stream));
    goes!(c.comm, ncclRecv(c.target(), 1, U8, 0, c.comm, c.stream));
    assert_eq!(c.read(1), [8]);
    release(&session, ranks);
}

#[test]
fn a_group_on_two_streams_is_on_both() {
    let session = begin();
    let ranks = ranks::<1>();
    let [a] = &ranks;
    let other = stream();
    a.fill(&[3; 4]);
    ok!(cuMemsetD8Async(a.from, 4, 4, other));
    done!(ncclGroupStart());
    done!(ncclSend(a.source(), 4, U8, 0, a.comm, other));
    done!(ncclRecv(a.target(), 4, U8, 0, a.comm, a.stream));
    goes!(a.comm, ncclGroupEnd());
    // Work behind the group on either stream is ordered after it.
    ok!(cuMemsetD8Async(a.to, 5, 1, other));
    ok!(cuStreamSynchronize(other));
    assert_eq!(a.read(4), [5, 4, 4, 4]);
    ok!(cuStreamDestroy_v2(other));
    release(&session, ranks);
}

#[test]
fn a_receive_of_another_count_or_type() {
    for (count, number) in [(2, U8), (1, U32)] {
        let session = begin();
        let ranks = ranks::<2>();
        let [a, b] = &ranks;
        a.fill(&[1; 4]);
        goes!(a.comm, ncclSend(a.source(), 1, U8, 1, a.comm, a.stream));
        goes!(b.comm, ncclRecv(b.target(), count, number, 0, b.comm, b.stream));
        assert_eq!(violations(&session), [ViolationKind::Mismatch]);
        release(&session, ranks);
    }
}
