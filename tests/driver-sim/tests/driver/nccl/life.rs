//! How communicators begin and end.

use std::ffi::CStr;
use std::ptr::{null, null_mut};

use cuda_sim::{Fault, LeakKind, ViolationKind};
use cuda_sys::*;

use super::*;

#[test]
fn a_rank_has_joined_when_all_have_and_it_was_polled() {
    let session = begin();
    let (id, mut a, mut b) = (unique(), null_mut(), null_mut());
    bind(0);
    gives!(IN_PROGRESS, ncclCommInitRankConfig(&mut a, 2, id, 0, &config(false)));
    assert!((0..10).all(|_| state_of(a) == IN_PROGRESS));
    bind(1);
    gives!(IN_PROGRESS, ncclCommInitRankConfig(&mut b, 2, id, 1, &config(false)));
    for comm in [a, b] {
        assert_eq!(state_of(comm), IN_PROGRESS, "not at the first poll");
        assert_eq!(settled(comm), SUCCESS);
        done!(ncclCommDestroy(comm));
    }
    session.assert_clean();
}

#[test]
fn ranks_that_block_meet_from_their_threads() {
    let session = begin();
    let id = unique();
    std::thread::scope(|scope| {
        for rank in 0..3 {
            scope.spawn(move || {
                let mut comm = null_mut();
                bind(rank);
                done!(ncclCommInitRankConfig(&mut comm, 3, id, rank, &config(true)));
                assert_eq!(state_of(comm), SUCCESS);
                done!(ncclCommFinalize(comm));
                done!(ncclCommDestroy(comm));
            });
        }
    });
    session.assert_clean();
}

#[test]
fn all_ranks_of_a_process_at_once() {
    let session = begin();
    let (mut comms, devices) = ([null_mut(); 2], [3, 1]);
    done!(ncclCommInitAll(comms.as_mut_ptr(), 2, devices.as_ptr()));
    for (comm, device) in comms.into_iter().zip(devices) {
        let mut own = -1;
        done!(ncclCommCuDevice(comm, &mut own));
        assert_eq!(own, device);
        done!(ncclCommDestroy(comm));
    }
    session.assert_clean();
}

#[test]
fn two_ranks_on_one_device_fail() {
    let session = begin();
    let (id, mut comms) = (unique(), [null_mut(); 2]);
    bind(0);
    for (rank, comm) in comms.iter_mut().enumerate() {
        let rank = rank as c_int;
        gives!(IN_PROGRESS, ncclCommInitRankConfig(comm, 2, id, rank, &config(false)));
    }
    for comm in comms {
        assert_eq!(settled(comm), INVALID_USAGE);
        done!(ncclCommAbort(comm));
    }
    session.assert_clean();
}

#[test]
fn what_no_rank_can_join_with() {
    let session = begin();
    let (id, mut comm) = (unique(), null_mut());
    bind(0);
    let config = &config(false);
    gives!(INVALID_ARGUMENT, ncclCommInitRankConfig(&mut comm, 0, id, 0, config));
    gives!(INVALID_ARGUMENT, ncclCommInitRankConfig(&mut comm, 2, id, 2, config));
    gives!(INVALID_ARGUMENT, ncclCommInitRankConfig(&mut comm, 2, id, -1, config));
    gives!(INVALID_ARGUMENT, ncclCommInitRankConfig(null_mut(), 2, id, 0, config));
    let (mut magic, mut answer) = (super::config(false), super::config(false));
    (magic.magic, answer.blocking) = (0, 2);
    gives!(INVALID_ARGUMENT, ncclCommInitRankConfig(&mut comm, 1, id, 0, &magic));
    gives!(INVALID_ARGUMENT, ncclCommInitRankConfig(&mut comm, 1, id, 0, &answer));
    gives!(INVALID_ARGUMENT, ncclCommInitRankScalable(&mut comm, 1, 0, 0, &id, config));
    gives!(INVALID_ARGUMENT, ncclCommInitRankScalable(&mut comm, 1, 0, 2, &id, config));
    gives!(INVALID_ARGUMENT, ncclCommInitRankScalable(&mut comm, 1, 0, 1, null(), config));
    // The id is of a process that cannot be reached.
    gives!(
        SYSTEM_ERROR,
        ncclCommInitRankConfig(&mut comm, 2, UniqueId { internal: [1; 128] }, 0, config)
    );
    session.assert_clean();
}

#[test]
fn a_split_by_color_and_key() {
    let session = begin();
    let ranks = ranks::<4>();
    let mut children = [null_mut(); 4];
    // The last rank takes no part; the key reverses the order of the others.
    for (rank, (own, child)) in ranks.iter().zip(&mut children).enumerate() {
        let color = if rank == 3 { -1 } else { 7 };
        let code = nccl!(ncclCommSplit(own.comm, color, -(rank as c_int), child, null_mut()));
        assert_eq!(code, SUCCESS);
        assert_eq!(state_of(own.comm) == IN_PROGRESS, rank < 3);
    }
    // The handles are written when the split has completed.
    ranks.iter().for_each(|own| assert_eq!(settled(own.comm), SUCCESS));
    for (rank, child) in children.into_iter().enumerate() {
        if rank == 3 {
            assert!(child.is_null());
            continue;
        }
        let (mut new, mut count) = (-1, -1);
        assert_eq!(settled(child), SUCCESS);
        done!(ncclCommUserRank(child, &mut new));
        done!(ncclCommCount(child, &mut count));
        assert_eq!((new, count), (2 - rank as c_int, 3));
        done!(ncclCommDestroy(child));
    }
    release(&session, ranks);
}

#[test]
fn a_communicator_shrinks_to_the_ranks_that_are_left() {
    let session = begin();
    let ranks = ranks::<3>();
    let mut children = [null_mut(); 3];
    for rank in [2, 0] {
        let (own, child) = (&ranks[rank], &mut children[rank]);
        let mut excluded = [1];
        let mut shrink = |excluded: &mut [c_int], flags| {
            let count = excluded.len() as c_int;
            let (list, new) = (excluded.as_mut_ptr(), &raw mut *child);
            nccl!(ncclCommShrink(own.comm, list, count, new, null_mut(), flags))
        };
        for bad in [&mut [][..], &mut [1, 1], &mut [3], &mut [rank as c_int]] {
            assert_eq!(shrink(bad, 0), INVALID_ARGUMENT, "{bad:?}");
        }
        assert_eq!(shrink(&mut excluded, 2), INVALID_ARGUMENT);
        assert_eq!(shrink(&mut excluded, 0), SUCCESS);
    }
    for rank in [0, 2] {
        assert_eq!(settled(ranks[rank].comm), SUCCESS);
        let (child, mut new, mut count) = (children[rank], -1, -1);
        assert_eq!(settled(child), SUCCESS);
        done!(ncclCommUserRank(child, &mut new));
        done!(ncclCommCount(child, &mut count));
        assert_eq!((new, count), (rank as c_int / 2, 2));
        done!(ncclCommDestroy(child));
    }
    release(&session, ranks);
}

#[test]
fn a_communicator_grows_by_ranks_that_know_its_id() {
    let session = begin();
    let (first, config) = (unique(), &config(false));
    let (mut pair, mut grown) = ([null_mut(); 2], [null_mut(); 3]);
    for (rank, comm) in pair.iter_mut().enumerate() {
        bind(rank as c_int);
        gives!(IN_PROGRESS, ncclCommInitRankConfig(comm, 2, first, rank as c_int, config));
    }
    assert!(pair.iter().all(|comm| settled(*comm) == SUCCESS));
    let mut id = UniqueId { internal: [0; 128] };
    let again = &mut id.clone();
    done!(ncclCommGetUniqueId(pair[1], &mut id));
    gives!(INVALID_USAGE, ncclCommGetUniqueId(pair[0], again));
    gives!(INVALID_ARGUMENT, ncclCommGrow(pair[0], 2, null(), -1, &mut grown[0], config));
    gives!(INVALID_ARGUMENT, ncclCommGrow(pair[0], 3, null(), 0, &mut grown[0], config));
    gives!(INVALID_ARGUMENT, ncclCommGrow(null_mut(), 3, null(), 2, &mut grown[2], config));
    for (rank, comm) in pair.into_iter().enumerate() {
        bind(rank as c_int);
        gives!(IN_PROGRESS, ncclCommGrow(comm, 3, null(), -1, &mut grown[rank], config));
        assert_eq!((state_of(comm), state_of(grown[rank])), (SUCCESS, IN_PROGRESS));
    }
    bind(2);
    gives!(IN_PROGRESS, ncclCommGrow(null_mut(), 3, &id, 2, &mut grown[2], config));
    for (rank, comm) in grown.into_iter().enumerate() {
        let (mut new, mut count) = (-1, -1);
        assert_eq!(settled(comm), SUCCESS);
        done!(ncclCommUserRank(comm, &mut new));
        done!(ncclCommCount(comm, &mut count));
        assert_eq!((new, count), (rank as c_int, 3));
        done!(ncclCommDestroy(comm));
    }
    // The id is used up, so another can be made.
    done!(ncclCommGetUniqueId(pair[0], again));
    pair.into_iter().for_each(|comm| done!(ncclCommDestroy(comm)));
    session.assert_clean();
}

#[test]
fn finalising_waits_for_work_and_for_all_ranks() {
    let session = begin();
    let ranks = ranks::<2>();
    all_reduce(&ranks, 4);
    let [a, b] = &ranks;
    gives!(IN_PROGRESS, ncclCommFinalize(a.comm));
    assert!((0..10).all(|_| state_of(a.comm) == IN_PROGRESS));
    gives!(IN_PROGRESS, ncclCommFinalize(b.comm));
    assert_eq!((settled(a.comm), settled(b.comm)), (SUCCESS, SUCCESS));
    assert_eq!(session.pending_ops(), 0);
    gives!(INVALID_USAGE, ncclAllReduce(a.source(), a.target(), 4, U8, SUM, a.comm, a.stream));
    // No wait for the streams is needed.
    for rank in &ranks {
        done!(ncclCommDestroy(rank.comm));
    }
    ranks.iter().for_each(discard);
    session.assert_clean();
}

#[test]
fn an_abort_releases_the_rank_and_no_other() {
    let session = begin();
    let ranks = ranks::<2>();
    let [a, b] = &ranks;
    a.fill(&[1; 32]);
    goes!(a.comm, ncclAllReduce(a.source(), a.target(), 32, U8, SUM, a.comm, a.stream));
    done!(ncclCommAbort(a.comm));
    // The operation continues with meaningless results, as late as any work.
    assert_eq!(session.pending_ops(), 1);
    assert_ne!(a.read(32), [1; 32]);
    goes!(b.comm, ncclAllReduce(b.source(), b.target(), 32, U8, SUM, b.comm, b.stream));
    for _ in 0..10 {
        fails!(CUDA_ERROR_NOT_READY, cuStreamQuery(b.stream));
    }
    done!(ncclCommAbort(b.comm));
    ranks.iter().for_each(discard);
    session.assert_clean();
}

#[test]
fn an_abort_from_another_thread_ends_a_wait() {
    let session = begin();
    let ranks = ranks::<2>();
    let [a, b] = &ranks;
    goes!(a.comm, ncclAllReduce(a.source(), a.target(), 4, U8, SUM, a.comm, a.stream));
    std::thread::scope(|scope| {
        let held = session.hold("cuStreamSynchronize");
        let waits = scope.spawn(|| a.wait());
        held.await_call();
        drop(held);
        done!(ncclCommAbort(a.comm));
        waits.join().expect("the wait ends");
    });
    done!(ncclCommAbort(b.comm));
    ranks.iter().for_each(discard);
    session.assert_clean();
}

#[test]
fn a_rank_whose_process_died() {
    let session = begin();
    let ranks = ranks::<2>();
    all_reduce(&ranks, 4);
    assert_eq!(session.fail_rank(1, REMOTE_ERROR), 1);
    let [a, b] = &ranks;
    assert_eq!((state_of(a.comm), state_of(b.comm)), (SUCCESS, REMOTE_ERROR));
    gives!(REMOTE_ERROR, ncclAllReduce(b.source(), b.target(), 4, U8, SUM, b.comm, b.stream));
    for rank in &ranks {
        ok!(cuCtxSetCurrent(rank.context));
        for _ in 0..10 {
            fails!(CUDA_ERROR_NOT_READY, cuStreamQuery(rank.stream));
        }
    }
    for rank in &ranks {
        done!(ncclCommAbort(rank.comm));
    }
    ranks.iter().for_each(discard);
    session.assert_clean();
}

#[test]
fn what_is_not_destroyed_is_a_leak() {
    let session = begin();
    let ranks = ranks::<1>();
    let [leak] = &session
        .leaks()
        .into_iter()
        .filter(|it| it.kind == LeakKind::Communicator)
        .collect::<Vec<_>>()[..]
    else {
        panic!("one communicator is left");
    };
    assert_eq!((leak.handle, leak.call), (ranks[0].comm.addr() as u64, "ncclCommInitRankConfig"));
    release(&session, ranks);
}

#[test]
fn memory_of_nccl() {
    let session = begin();
    let ranks = ranks::<1>();
    let [a] = &ranks;
    let (mut address, mut handle) = (null_mut(), null_mut());
    done!(ncclMemAlloc(&mut address, 100));
    done!(ncclCommRegister(a.comm, address, 100, &mut handle));
    goes!(a.comm, ncclAllReduce(a.source(), address, 4, U8, SUM, a.comm, a.stream));
    a.wait();
    done!(ncclCommDeregister(a.comm, handle));
    // The memory belongs to NCCL.
    fails!(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(address.addr() as CUdeviceptr));
    assert_eq!(violations(&session), [ViolationKind::UnknownAddress]);
    done!(ncclMemFree(address));
    gives!(INVALID_ARGUMENT, ncclMemFree(a.source()));
    assert_eq!(violations(&session), [ViolationKind::UnknownAddress]);
    release(&session, ranks);
}

#[test]
fn calls_are_counted_and_fail() {
    let session = begin();
    let ranks = ranks::<1>();
    let [a] = &ranks;
    let before = session.calls("ncclCommCount");
    // The faults return one of NCCL's codes, then one of CUDA's.
    session.inject(Fault::new(CUresult(3)).function("ncclCommCount"));
    session.inject(Fault::new(CUDA_ERROR_UNKNOWN).function("ncclCommCount").nth(2));
    gives!(3, ncclCommCount(a.comm, &mut 0));
    gives!(UNHANDLED_CUDA_ERROR, ncclCommCount(a.comm, &mut 0));
    done!(ncclCommCount(a.comm, &mut 0));
    assert_eq!(session.calls("ncclCommCount"), before + 3);
    let text = nccl!(ncclGetLastError(a.comm));
    // SAFETY: NCCL returns a text, which no call replaces meanwhile.
    let text = unsafe { CStr::from_ptr(text) };
    assert!(text.to_bytes().starts_with(b"ncclCommCount: unhandled cuda error"), "{text:?}");
    let text = nccl!(ncclGetErrorString(SUCCESS));
    // SAFETY: NCCL returns a constant.
    let text = unsafe { CStr::from_ptr(text) };
    assert_eq!(text, c"no error");
    let taken = Fault::new(CUDA_ERROR_UNKNOWN).function("ncclAllReduce").takes_effect();
    session.inject(taken);
    let code = nccl!(ncclAllReduce(a.source(), a.target(), 4, U8, SUM, a.comm, a.stream));
    assert_eq!((code, settled(a.comm)), (UNHANDLED_CUDA_ERROR, SUCCESS));
    assert_eq!(session.pending_ops(), 1);
    release(&session, ranks);
}

#[test]
fn the_version_and_the_symbols() {
    let session = begin();
    let mut version = 0;
    done!(ncclGetVersion(&mut version));
    assert_eq!(version, 22903);
    session.set_nccl_version(21706);
    done!(ncclGetVersion(&mut version));
    assert_eq!(version, 21706);
    assert!(!cuda_sim::symbol(c"ncclAllReduce").is_null());
    assert!(!cuda_sim::symbol(c"ncclGetErrorString").is_null());
    assert!(cuda_sim::symbol(c"ncclNothing").is_null());
    session.assert_clean();
}

#[test]
fn a_communicator_whose_split_is_in_progress_is_no_leak() {
    let session = begin();
    let ranks = ranks::<2>();
    let left = || {
        let leaks = session.leaks();
        leaks.iter().filter(|leak| leak.kind == LeakKind::Communicator).count()
    };
    let mut children = [null_mut(); 2];
    for (own, child) in ranks.iter().zip(&mut children) {
        assert_eq!(left(), 2, "the program has no other handle");
        done!(ncclCommSplit(own.comm, 0, 0, child, null_mut()));
    }
    ranks.iter().for_each(|own| assert_eq!(settled(own.comm), SUCCESS));
    assert_eq!(left(), 4, "it has been given those of the children");
    children.into_iter().for_each(|child| done!(ncclCommAbort(child)));
    let mut child = null_mut();
    done!(ncclCommSplit(ranks[0].comm, 0, 0, &mut child, null_mut()));
    // The child ends with its parent.
    done!(ncclCommAbort(ranks[0].comm));
    assert_eq!(left(), 1);
    done!(ncclCommAbort(ranks[1].comm));
    assert_eq!(left(), 0);
}
