//! Results of collectives, and when they run.

use std::ptr::null_mut;

use cuda_sim::Mode;
use cuda_sys::*;

use super::*;

#[test]
fn an_all_reduce_of_one_process() {
    let session = begin();
    let ranks = ranks::<3>();
    for (rank, own) in ranks.iter().enumerate() {
        own.fill(&[1 + rank as u8; 8]);
    }
    all_reduce(&ranks, 8);
    for rank in &ranks {
        assert_eq!(rank.read(8), [6; 8]);
    }
    release(&session, ranks);
}

#[test]
fn a_rank_waits_for_all_others() {
    let session = begin();
    let ranks = ranks::<2>();
    ranks.iter().for_each(|rank| rank.fill(&[5; 4]));
    let [a, b] = &ranks;
    goes!(a.comm, ncclAllReduce(a.source(), a.target(), 4, U8, SUM, a.comm, a.stream));
    for _ in 0..10 {
        fails!(CUDA_ERROR_NOT_READY, cuStreamQuery(a.stream));
    }
    std::thread::scope(|scope| {
        scope.spawn(|| {
            ok!(cuCtxSetCurrent(b.context));
            goes!(b.comm, ncclAllReduce(b.source(), b.target(), 4, U8, SUM, b.comm, b.stream));
        });
        assert_eq!(a.read(4), [10; 4]);
    });
    assert_eq!(b.read(4), [10; 4]);
    release(&session, ranks);
}

#[test]
fn each_rank_writes_its_result_when_its_stream_goes_on() {
    let session = begin();
    let ranks = ranks::<2>();
    ranks.iter().for_each(|rank| rank.fill(&[1; 4]));
    all_reduce(&ranks, 4);
    let before = session.pending_ops();
    ranks[0].wait();
    assert_eq!(session.pending_ops(), before - 1, "the other rank's is as late as it can be");
    release(&session, ranks);
}

#[test]
fn every_kind() {
    let session = begin();
    let ranks = ranks::<2>();
    let each = |call: &dyn Fn(&Rank)| {
        for (rank, own) in ranks.iter().enumerate() {
            own.fill(&bytes(&[1.0 + rank as f32, 10.0 + rank as f32]));
        }
        done!(ncclGroupStart());
        ranks.iter().for_each(call);
        goes!(ranks[0].comm, ncclGroupEnd());
        [0, 1].map(|rank: usize| floats(&ranks[rank].read(16)))
    };
    let gathered = each(&|r| {
        done!(ncclAllGather(r.source(), r.target(), 2, F32, r.comm, r.stream));
    });
    assert_eq!(gathered, [[1.0, 10.0, 2.0, 11.0], [1.0, 10.0, 2.0, 11.0]]);
    let scattered = each(&|r| {
        done!(ncclReduceScatter(r.source(), r.target(), 1, F32, SUM, r.comm, r.stream));
    });
    assert_eq!(scattered, [[3.0, 10.0, 2.0, 11.0], [21.0, 10.0, 2.0, 11.0]]);
    let sent = each(&|r| {
        done!(ncclBroadcast(r.source(), r.target(), 2, F32, 1, r.comm, r.stream));
    });
    assert_eq!(sent.map(|values| values[..2].to_vec()), [[2.0, 11.0], [2.0, 11.0]]);
    let reduced = each(&|r| {
        let to = if std::ptr::eq(r, &raw const ranks[1]) { r.target() } else { null_mut() };
        done!(ncclReduce(r.source(), to, 2, F32, MAX, 1, r.comm, r.stream));
    });
    assert_eq!(reduced.map(|values| values[..2].to_vec()), [[2.0, 11.0], [2.0, 11.0]]);
    let mean = each(&|r| {
        done!(ncclAllReduce(r.source(), r.target(), 2, F32, AVG, r.comm, r.stream));
    });
    assert_eq!(mean.map(|values| values[..2].to_vec()), [[1.5, 10.5], [1.5, 10.5]]);
    release(&session, ranks);
}

#[test]
fn a_sum_with_a_factor_of_each_rank() {
    let session = begin();
    let ranks = ranks::<2>();
    let factor = alloc(4);
    ranks.iter().for_each(|rank| rank.fill(&bytes(&[3.0])));
    let [a, b] = &ranks;
    // One factor on the host, read now; one on the device, read when the collective runs.
    let (mut two, mut ops) = (2.0_f32, [0; 2]);
    done!(ncclRedOpCreatePreMulSum(&mut ops[0], (&raw mut two).cast(), F32, 1, a.comm));
    two = 0.0;
    let there = std::ptr::without_provenance_mut(factor as usize);
    done!(ncclRedOpCreatePreMulSum(&mut ops[1], there, F32, 0, b.comm));
    ok!(cuMemsetD32Async(factor, 10.0_f32.to_bits(), 1, b.stream));
    done!(ncclGroupStart());
    done!(ncclAllReduce(a.source(), a.target(), 1, F32, ops[0], a.comm, a.stream));
    done!(ncclAllReduce(b.source(), b.target(), 1, F32, ops[1], b.comm, b.stream));
    done!(ncclRedOpDestroy(ops[0], a.comm));
    done!(ncclRedOpDestroy(ops[1], b.comm));
    goes!(a.comm, ncclGroupEnd());
    assert_eq!(two, 0.0);
    assert_eq!([a, b].map(|rank| floats(&rank.read(4))), [[36.0], [36.0]]);
    ok!(cuMemFree_v2(factor));
    release(&session, ranks);
}

#[test]
fn every_schedule() {
    for seed in 0..if cfg!(miri) { 2 } else { 64 } {
        let session = begin();
        session.set_mode(Mode::Threaded { seed });
        let ranks = ranks::<3>();
        for round in 1..4 {
            ranks.iter().for_each(|rank| rank.fill(&[round; 8]));
            all_reduce(&ranks, 8);
            all_reduce(&ranks, 8);
            ranks.iter().for_each(|rank| assert_eq!(rank.read(8), [3 * round; 8], "{seed}"));
        }
        release(&session, ranks);
    }
}

#[test]
fn in_place() {
    let session = begin();
    let ranks = ranks::<2>();
    for (rank, own) in ranks.iter().enumerate() {
        own.fill(&[1 + rank as u8, 3 + rank as u8]);
    }
    done!(ncclGroupStart());
    for (rank, own) in ranks.iter().enumerate() {
        let part = own.source().wrapping_byte_add(rank);
        done!(ncclAllReduce(own.source(), own.source(), 2, U8, SUM, own.comm, own.stream));
        done!(ncclReduceScatter(own.source(), part, 1, U8, SUM, own.comm, own.stream));
        done!(ncclAllGather(part, own.source(), 1, U8, own.comm, own.stream));
        ok!(cuCtxSetCurrent(own.context));
    }
    goes!(ranks[0].comm, ncclGroupEnd());
    for own in &ranks {
        ok!(cuCtxSetCurrent(own.context));
        ok!(cuMemcpyDtoDAsync_v2(own.to, own.from, 2, own.stream));
        assert_eq!(own.read(2), [6, 14]);
    }
    release(&session, ranks);
}

#[test]
fn a_captured_collective_is_another_one_at_each_launch() {
    let session = begin();
    let ranks = ranks::<2>();
    let execs: Vec<_> = ranks.iter().map(|rank| (rank, captured(rank))).collect();
    for value in [1, 2] {
        ranks.iter().for_each(|rank| rank.fill(&[value; 4]));
        for (rank, exec) in &execs {
            ok!(cuGraphLaunch(*exec, rank.stream));
        }
        for rank in &ranks {
            assert_eq!(rank.read(4), [2 * value; 4]);
        }
    }
    execs.into_iter().for_each(|(_, exec)| ok!(cuGraphExecDestroy(exec)));
    release(&session, ranks);
}

fn captured(rank: &Rank) -> CUgraphExec {
    let (mut graph, mut exec) = (null_mut(), null_mut());
    ok!(cuCtxSetCurrent(rank.context));
    ok!(cuStreamBeginCapture_v2(rank.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    done!(ncclAllReduce(rank.source(), rank.target(), 4, U8, SUM, rank.comm, rank.stream));
    ok!(cuStreamEndCapture(rank.stream, &mut graph));
    let mut kind = CUgraphNodeType(!0);
    let (mut node, mut one) = (null_mut(), 1);
    ok!(cuGraphGetNodes(graph, &mut node, &mut one));
    ok!(cuGraphNodeGetType(node, &mut kind));
    assert_eq!((one, kind), (1, CU_GRAPH_NODE_TYPE_KERNEL));
    ok!(cuGraphInstantiateWithFlags(&mut exec, graph, 0));
    ok!(cuGraphDestroy(graph));
    exec
}
