//! What the simulator reports about a test or a program that fails.

use std::env;
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;

use cuda_sim::Session;
use cuda_sys::{CUDA_ERROR_INVALID_VALUE, CUstream};

use crate::support::*;

/// Returns the message of `body`'s panic.
fn panicked(body: impl FnOnce()) -> String {
    let payload = catch_unwind(AssertUnwindSafe(body)).expect_err("it panics");
    *payload.downcast::<String>().expect("a message")
}

#[test]
fn a_thread_has_one_session() {
    let first = begin();
    let why = panicked(|| drop(Session::begin()));
    assert!(why.contains("has a session already, begun at"), "{why}");
    drop(first);
    drop(begin());
}

// Not inlined: without debug information, a program names the function that it is inlined into.
#[inline(never)]
fn leaking() -> (*mut c_void, CUstream) {
    let (mut pinned, mut stream) = (null_mut(), null_mut());
    ok!(cuMemHostAlloc(&mut pinned, 8, 0));
    ok!(cuStreamCreateWithPriority(&mut stream, 0, 0));
    (pinned, stream)
}

#[test]
#[cfg_attr(miri, ignore = "Miri's backtraces are not resolved")]
fn a_leak_is_reported_with_its_place() {
    let session = begin();
    bind(0);
    let mut stream = null_mut();
    ok!(cuStreamCreate(&mut stream, 0));
    let why = panicked(|| session.assert_clean());
    let parts = ["0 misuses of the driver, 1 object not released", "leak: Stream", "keep_origins"];
    assert!(parts.iter().all(|part| why.contains(part)), "{why}");
    session.keep_origins();
    let (pinned, other) = leaking();
    ok!(cuStreamDestroy_v2(stream));
    let why = panicked(|| session.assert_clean());
    for call in ["cuMemHostAlloc, 8 bytes, at ", "cuStreamCreate, at "] {
        let (_, place) = why.split_once(call).unwrap_or_else(|| panic!("{call}: {why}"));
        // With debug information, the file and the line follow; without, the function has its path.
        let function = place.split(['(', '\n']).next().map(str::trim_end);
        assert!(function.is_some_and(|function| function.ends_with("leaking")), "{call}: {why}");
    }
    assert!(!why.contains("keep_origins"), "{why}");
    ok!(cuMemFreeHost(pinned));
    ok!(cuStreamDestroy_v2(other));
    session.assert_clean();
}

#[test]
fn misuse_that_a_test_does_not_look_at_fails_it() {
    let why = panicked(|| {
        let _session = begin();
        bind(0);
        fails!(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(0x12));
    });
    let parts = ["not looked at 1 misuse of the driver", "UnknownAddress in cuMemFree_v2"];
    assert!(parts.iter().all(|part| why.contains(part)), "{why}");
    let session = begin();
    bind(0);
    fails!(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(0x12));
    assert_eq!(session.violations().len(), 1, "and it was looked at");
}

#[test]
#[cfg_attr(
    not(all(target_os = "linux", target_arch = "x86_64", not(miri))),
    ignore = "needs a process of its own"
)]
fn misuse_outside_of_sessions_fails_the_program() {
    const CHILD: &str = "CUDA_SIM_TESTS_CHILD";
    if env::var_os(CHILD).is_some() {
        drop(begin());
        bind(0);
        fails!(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(0x12));
        return;
    }
    let mut child = again("sessions::misuse_outside_of_sessions_fails_the_program");
    let output = child.env(CHILD, "1").output().expect("it starts");
    let (printed, errors) = (output.stdout, String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(70), "{errors}");
    assert!(String::from_utf8_lossy(&printed).contains("1 passed"), "what was printed is not lost");
    assert!(errors.contains("violation: UnknownAddress in cuMemFree_v2"), "{errors}");
}
