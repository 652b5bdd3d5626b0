//! The thread's whole context stack, not only its top.

use cuda_sys::CUcontext;
use support::context;

/// What is on the thread's stack, from the top down.
pub(crate) fn snapshot() -> Vec<CUcontext> {
    let stack = unwind();
    stack.iter().rev().copied().for_each(context::push);
    stack
}

/// Empties the thread's stack.
pub(crate) fn unwind() -> Vec<CUcontext> {
    std::iter::from_fn(context::pop).collect()
}
