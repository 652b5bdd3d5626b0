//! What a session says of a test that goes wrong.

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;

use cuda_sim::Session;

use crate::support::*;

/// The message of a panic.
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
    let mut other: *mut c_void = null_mut();
    ok!(cuMemHostAlloc(&mut other, 8, 0));
    ok!(cuStreamDestroy_v2(stream));
    let why = panicked(|| session.assert_clean());
    // In a program without debug information, the function has its path, and no line.
    let places =
        ["at a_leak_is_reported_with_its_place (", "::a_leak_is_reported_with_its_place\n"];
    let leak = why.split_inclusive('\n').find(|line| line.contains("cuMemHostAlloc, 8 bytes, at "));
    assert!(leak.is_some_and(|line| places.iter().any(|place| line.contains(place))), "{why}");
    assert!(!why.contains("keep_origins"), "{why}");
    ok!(cuMemFreeHost(other));
    session.assert_clean();
}
