//! The queues of streams are finite.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use cuda_sim::{Session, ViolationKind};
use cuda_sys::*;

use crate::support::*;

/// Numbers that fit behind a wait for a value, on an H200 with driver 580.
const COMMANDS: u64 = 1020;
const CALLS: u64 = 56;

unsafe extern "C" fn nothing(_: *mut c_void) {}

/// Ends the stall, even if an assertion fails: freeing the memory would wait for the stream.
struct Go<'a>(&'a AtomicU32);

impl Drop for Go<'_> {
    fn drop(&mut self) {
        self.0.store(1, Ordering::Release);
    }
}

/// Runs `body` with a stream that waits for the value, and the address of the value.
fn stalled(body: impl FnOnce(&Session, CUstream, CUdeviceptr, &AtomicU32)) {
    let session = begin();
    bind(0);
    let (s, block, memory) = (stream(), alloc(64), Pinned::new(&[0; 4]));
    // SAFETY: pinned and aligned; host and device access it atomically from here on.
    let go = unsafe { AtomicU32::from_ptr(memory.0.cast()) };
    ok!(cuStreamWaitValue32_v2(s, memory.0.addr() as CUdeviceptr, 1, 0));
    let stall = Go(go);
    body(&session, s, block, go);
    drop(stall);
    ok!(cuStreamSynchronize(s));
    ok!(cuMemFree_v2(block));
    ok!(cuStreamDestroy_v2(s));
    drop(memory);
    session.assert_clean();
}

#[test]
#[cfg_attr(miri, ignore = "a thousand fills take a minute")]
fn a_full_queue_is_reported() {
    stalled(|session, s, block, _| {
        session.set_queue_patience(Duration::from_millis(20));
        for _ in 0..COMMANDS {
            ok!(cuMemsetD8Async(block, 0, 64, s));
        }
        assert_eq!(session.violations(), []);
        ok!(cuMemsetD8Async(block, 0, 64, s));
        assert_eq!(violations(session), [ViolationKind::QueueFull]);
    });
}

#[test]
fn host_functions_fill_it_sooner_if_they_follow_commands() {
    stalled(|session, s, block, _| {
        session.set_queue_patience(Duration::from_millis(20));
        let call = || ok!(cuLaunchHostFunc(s, Some(nothing), null_mut()));
        for _ in 0..CALLS {
            ok!(cuMemsetD8Async(block, 0, 64, s));
            ok!(cuMemsetD8Async(block, 1, 64, s));
            call();
            call();
        }
        assert_eq!(session.violations(), []);
        ok!(cuMemsetD8Async(block, 0, 64, s));
        call();
        assert_eq!(violations(session), [ViolationKind::QueueFull]);
    });
}

#[test]
fn events_and_host_functions_alone_never_fill_it() {
    stalled(|session, s, _, _| {
        session.set_queue_patience(Duration::ZERO);
        let event = event();
        for _ in 0..if cfg!(miri) { 2 * CALLS } else { 2 * COMMANDS } {
            ok!(cuEventRecord(event, s));
            ok!(cuLaunchHostFunc(s, Some(nothing), null_mut()));
        }
        ok!(cuEventDestroy_v2(event));
    });
}

#[test]
#[cfg_attr(miri, ignore = "a thousand fills take a minute")]
fn a_call_waits_until_another_thread_ends_the_stall() {
    stalled(|session, s, block, go| {
        session.set_queue_patience(Duration::from_secs(1000));
        for _ in 0..COMMANDS {
            ok!(cuMemsetD8Async(block, 0, 64, s));
        }
        thread::scope(|scope| {
            scope.spawn(|| {
                session.await_calls("cuMemsetD8Async", COMMANDS + 1);
                // The call has enqueued its work and released the lock on the driver: it waits.
                assert!(session.pending_ops() > COMMANDS);
                go.store(1, Ordering::Release);
            });
            ok!(cuMemsetD8Async(block, 0, 64, s));
        });
        assert!(session.pending_ops() <= COMMANDS + 1, "the stream has gone on");
    });
}

#[test]
#[cfg_attr(miri, ignore = "a thousand fills take a minute")]
fn without_a_stall_the_oldest_work_makes_room() {
    scene(64, |session, [s], block| {
        for _ in 0..COMMANDS + 10 {
            ok!(cuMemsetD8Async(block, 0, 64, s));
        }
        assert_eq!(session.pending_ops(), COMMANDS + 1);
        ok!(cuStreamSynchronize(s));
    });
}
