//! The order of launches and of their nodes.

use cuda_sim::{Mode, ViolationKind};

use super::*;
use crate::support::*;

#[test]
fn launches_of_one_exec_follow_each_other() {
    scene(4, |session, [s, t, u], d| {
        let graph = capture(s, || ok!(cuMemsetD8Async(d, 1, 4, s)));
        let (exec, other) = (instantiate(graph), instantiate(graph));
        ok!(cuGraphLaunch(exec, s));
        ok!(cuGraphLaunch(exec, t));
        assert_eq!(violations(session), []);
        ok!(cuStreamSynchronize(t));
        assert_eq!(session.pending_ops(), 0, "the launch before was run as well");
        ok!(cuGraphLaunch(exec, s));
        ok!(cuGraphLaunch(other, u));
        assert_eq!(violations(session), [ViolationKind::Race], "another exec has no such order");
        for stream in [s, u] {
            ok!(cuStreamSynchronize(stream));
        }
        ok!(cuGraphExecDestroy(other));
        destroy(graph, exec);
    });
}

#[test]
fn a_launch_is_behind_and_before_the_work_of_its_stream() {
    scene(8, |session, [s, t], d| {
        let graph = capture(s, || ok!(cuMemcpyDtoDAsync_v2(d + 4, d, 4, s)));
        let exec = instantiate(graph);
        ok!(cuMemsetD8Async(d, 5, 4, s));
        ok!(cuGraphLaunch(exec, s));
        ok!(cuMemsetD8Async(d, 6, 4, s));
        ok!(cuStreamSynchronize(s));
        assert_eq!(read(d, 8), [6, 6, 6, 6, 5, 5, 5, 5]);
        assert_eq!(violations(session), []);
        // Another stream must wait for the launch.
        ok!(cuGraphLaunch(exec, s));
        ok!(cuMemsetD8Async(d, 7, 4, t));
        assert_eq!(violations(session), [ViolationKind::Race]);
        ok!(cuStreamSynchronize(t));
        join(s, t);
        ok!(cuMemsetD8Async(d, 7, 4, t));
        assert_eq!(violations(session), []);
        ok!(cuStreamSynchronize(t));
        destroy(graph, exec);
    });
}

#[test]
fn branches_are_not_ordered() {
    scene(8, |session, [s, t], d| {
        let apart = fork(
            s,
            t,
            || ok!(cuMemsetD8Async(d, 1, 8, s)),
            || ok!(cuMemsetD8Async(d, 2, 4, t)),
            || ok!(cuMemsetD8Async(d + 4, 3, 4, s)),
        );
        let exec = instantiate(apart);
        ok!(cuGraphLaunch(exec, t));
        ok!(cuMemsetD8Async(d + 7, 4, 1, t));
        assert_eq!(violations(session), []);
        ok!(cuStreamSynchronize(t));
        assert_eq!(read(d, 8), [2, 2, 2, 2, 3, 3, 3, 4]);
        destroy(apart, exec);
        // The branches use the same bytes: reported at every launch, whatever order is drawn.
        let same = fork(
            s,
            t,
            || {},
            || ok!(cuMemsetD8Async(d, 2, 4, t)),
            || ok!(cuMemsetD8Async(d + 3, 3, 4, s)),
        );
        let exec = instantiate(same);
        for _ in 0..8 {
            ok!(cuGraphLaunch(exec, s));
            assert_eq!(violations(session), [ViolationKind::Race]);
            ok!(cuStreamSynchronize(s));
        }
        destroy(same, exec);
        // Both branches may read.
        let read = fork(
            s,
            t,
            || {},
            || ok!(cuMemcpyDtoDAsync_v2(d + 4, d, 2, t)),
            || ok!(cuMemcpyDtoDAsync_v2(d + 6, d, 2, s)),
        );
        let exec = instantiate(read);
        ok!(cuGraphLaunch(exec, s));
        assert_eq!(violations(session), []);
        ok!(cuStreamSynchronize(s));
        destroy(read, exec);
    });
}

#[test]
fn the_order_of_branches_is_drawn() {
    scene(1, |session, [s, t], d| {
        let graph = fork(
            s,
            t,
            || {},
            || ok!(cuMemsetD8Async(d, 2, 1, t)),
            || ok!(cuMemsetD8Async(d, 3, 1, s)),
        );
        let exec = instantiate(graph);
        for mode in [Mode::Lazy, Mode::Eager, Mode::Threaded { seed: 4 }] {
            session.set_mode(mode);
            let last = || {
                ok!(cuGraphLaunch(exec, s));
                ok!(cuStreamSynchronize(s));
                read(d, 1)[0]
            };
            let all: Vec<u8> = (0..32).map(|_| last()).collect();
            assert!(all.contains(&2) && all.contains(&3), "{mode}: {all:?}");
            session.set_mode(mode);
            let again: Vec<u8> = (0..32).map(|_| last()).collect();
            assert_eq!(all, again, "{mode}");
        }
        assert!(violations(session).iter().all(|kind| *kind == ViolationKind::Race));
        destroy(graph, exec);
    });
}

#[test]
fn many_launches_stay_in_order() {
    scene(4, |session, [s], d| {
        let graph = capture(s, || ok!(cuMemsetD8Async(d, 1, 4, s)));
        let execs = [(); 48].map(|()| instantiate(graph));
        for _ in 0..2 {
            for exec in execs {
                ok!(cuGraphLaunch(exec, s));
            }
            ok!(cuMemsetD8Async(d, 2, 4, s));
            assert_eq!(violations(session), []);
            ok!(cuStreamSynchronize(s));
        }
        for exec in execs {
            ok!(cuGraphExecDestroy(exec));
        }
        ok!(cuGraphDestroy(graph));
    });
}

#[test]
fn an_upload_comes_after_earlier_launches_and_before_later_ones() {
    scene(8, |session, [s, t], d| {
        let graph = capture(s, || ok!(cuMemsetD8Async(d, 1, 8, s)));
        let exec = instantiate(graph);
        ok!(cuGraphUpload(exec, s));
        ok!(cuGraphLaunch(exec, t));
        assert_eq!(session.pending_ops(), 2);
        ok!(cuStreamSynchronize(t));
        assert_eq!(session.pending_ops(), 0);
        ok!(cuGraphLaunch(exec, t));
        ok!(cuGraphUpload(exec, s));
        ok!(cuStreamSynchronize(s));
        assert_eq!(session.pending_ops(), 0);
        ok!(cuStreamSynchronize(t));
        // The order is not documented, so the checker does not assume it.
        ok!(cuMemsetD8Async(d, 2, 8, s));
        ok!(cuGraphUpload(exec, s));
        ok!(cuGraphLaunch(exec, t));
        ok!(cuStreamSynchronize(t));
        assert_eq!(violations(session), [ViolationKind::Race]);
        ok!(cuStreamSynchronize(s));
        destroy(graph, exec);
    });
}
