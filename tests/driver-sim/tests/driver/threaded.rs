//! Threaded mode: schedules drawn from a seed; host memory moves while the program continues.

use std::collections::BTreeSet;
use std::sync::mpsc::channel;

use cuda_sim::ViolationKind::{Race, UseAfterFree};
use cuda_sim::{Mode, Session};
use cuda_sys::{CUDA_SUCCESS, CUdeviceptr, CUresult, CUstream};

use crate::support::*;

const SEEDS: u64 = if cfg!(miri) { 4 } else { 64 };

/// Copies up and down again beside other work. Returns the answers of queries meanwhile, and the resulting
/// bytes.
fn program(session: &Session) -> (Vec<CUresult>, Vec<u8>) {
    bind(0);
    let (s, t, e) = (stream(), stream(), event());
    let (d, other) = (alloc(16), alloc(16));
    let (up, down) = (Pinned::new(&[7; 16]), Pinned::new(&[0; 16]));
    let mut answers = Vec::new();
    let mut ask = || answers.extend([call!(cuStreamQuery(s)), call!(cuStreamQuery(t))]);
    ok!(cuMemsetD8Async(other, 1, 16, t));
    ok!(cuMemcpyHtoDAsync_v2(d, up.0, 16, s));
    ask();
    ok!(cuMemsetD8Async(d, 9, 8, s));
    ok!(cuEventRecord(e, s));
    ask();
    ok!(cuStreamWaitEvent(t, e, 0));
    ok!(cuMemcpyDtoHAsync_v2(down.0, d, 16, t));
    ask();
    ok!(cuStreamSynchronize(t));
    let bytes = down.read();
    for stream in [s, t] {
        ok!(cuStreamSynchronize(stream));
        ok!(cuStreamDestroy_v2(stream));
    }
    ok!(cuEventDestroy_v2(e));
    for block in [d, other] {
        ok!(cuMemFree_v2(block));
    }
    drop((up, down));
    session.assert_clean();
    (answers, bytes)
}

#[test]
fn a_seed_is_a_schedule() {
    let run = |seed| {
        let session = begin();
        session.set_mode(Mode::Threaded { seed });
        program(&session)
    };
    let mut schedules = BTreeSet::new();
    for seed in 0..SEEDS {
        let (answers, bytes) = run(seed);
        assert_eq!(bytes, [[9; 8], [7; 8]].concat(), "seed {seed}");
        assert_eq!(run(seed), (answers.clone(), bytes), "seed {seed}");
        schedules.insert(answers.iter().map(|answer| answer.0).collect::<Vec<_>>());
    }
    assert!(schedules.len() > 1, "all seeds are the same schedule");
}

/// Polling alone completes the work, whatever the seed.
#[test]
fn queries_end() {
    for seed in 0..SEEDS {
        let session = begin();
        session.set_mode(Mode::Threaded { seed });
        bind(0);
        let (s, d) = (stream(), alloc(16));
        let p = Pinned::new(&[0; 16]);
        ok!(cuMemsetD8Async(d, 3, 16, s));
        ok!(cuMemcpyDtoHAsync_v2(p.0, d, 16, s));
        while call!(cuStreamQuery(s)) != CUDA_SUCCESS {}
        assert_eq!(p.read(), [3; 16]);
        drop(p);
        ok!(cuMemFree_v2(d));
        ok!(cuStreamDestroy_v2(s));
        session.assert_clean();
    }
}

/// The memory stays allocated until the thread that writes it has ended, and the free is reported.
#[test]
fn pinned_memory_given_back_under_a_copy() {
    let mut found = BTreeSet::new();
    for seed in 0..SEEDS {
        let session = begin();
        session.set_mode(Mode::Threaded { seed });
        bind(1);
        let (s, d) = (stream(), alloc(16));
        bind(0);
        let p = Pinned::new(&[0; 16]);
        ok!(cuMemcpyDtoHAsync_v2(p.0, d, 16, s));
        // Freeing waits for the memory's own device, not for the other device's stream.
        drop(p);
        ok!(cuStreamSynchronize(s));
        ok!(cuMemFree_v2(d));
        ok!(cuStreamDestroy_v2(s));
        let kinds = violations(&session);
        assert_eq!(kinds[0], Race, "{kinds:?}");
        assert!(kinds[1..].iter().all(|&kind| kind == UseAfterFree));
        found.insert(kinds.len());
        assert!(session.leaks().is_empty());
    }
    // The free came after the copy had run, or before.
    assert_eq!(found, BTreeSet::from([1, 2]));
}

/// Destroying a context during its copies ends them.
#[test]
fn a_context_destroyed_under_a_copy() {
    for seed in 0..SEEDS {
        let session = begin();
        session.set_mode(Mode::Threaded { seed });
        let mut context = std::ptr::null_mut();
        ok!(cuCtxCreate_v2(&mut context, 0, 0));
        let (s, d) = (stream(), alloc(16));
        let p = Pinned::new(&[4; 16]);
        ok!(cuMemcpyHtoDAsync_v2(d, p.0, 16, s));
        // Pinned memory is freed with its context.
        std::mem::forget(p);
        ok!(cuCtxDestroy_v2(context));
        session.assert_clean();
    }
}

struct Handles(CUstream, CUdeviceptr);
// SAFETY: any thread may use the driver's streams.
unsafe impl Send for Handles {}

/// Work that one thread has waited for is ordered before work of a thread that it signals, whatever the
/// schedule: the driver does not see the signal.
#[test]
fn a_wait_signalled_to_another_thread() {
    for seed in 0..SEEDS {
        let session = begin();
        session.set_mode(Mode::Threaded { seed });
        bind(0);
        let (s, t, d) = (stream(), stream(), alloc(16));
        let (tell, signalled) = channel();
        let (answer, done) = channel();
        let theirs = Handles(t, d);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let Handles(t, d) = { theirs };
                for () in signalled {
                    ok!(cuMemsetD8Async(d, 2, 16, t));
                    ok!(cuStreamSynchronize(t));
                    answer.send(()).expect("the other thread listens");
                }
            });
            for _ in 0..8 {
                ok!(cuMemsetD8Async(d, 1, 16, s));
                ok!(cuStreamSynchronize(s));
                tell.send(()).expect("the other thread listens");
                done.recv().expect("the other thread answers");
            }
            drop(tell);
        });
        ok!(cuMemFree_v2(d));
        ok!(cuStreamDestroy_v2(s));
        ok!(cuStreamDestroy_v2(t));
        session.assert_clean();
    }
}

#[test]
fn reports_name_the_seed() {
    let session = begin();
    session.set_mode(Mode::Threaded { seed: 41 });
    let report = session.finish().to_string();
    assert!(report.contains("CUDA_SIM_SEED=41"), "{report}");
    let session = begin();
    session.set_mode(Mode::Lazy);
    assert!(!session.finish().to_string().contains("SEED"));
}
