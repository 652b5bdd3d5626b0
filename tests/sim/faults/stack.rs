//! Reads the thread's whole context stack, not only its top.

use support::context;

/// Returns the addresses of the contexts on the thread's stack, from the top down.
pub(crate) fn snapshot() -> Vec<usize> {
    let stack: Vec<_> = std::iter::from_fn(context::pop).collect();
    stack.iter().rev().copied().for_each(context::push);
    addresses(&stack)
}

/// Empties the thread's stack and returns its former entries.
pub(crate) fn unwind() -> Vec<usize> {
    addresses(&std::iter::from_fn(context::pop).collect::<Vec<_>>())
}

fn addresses(stack: &[cuda_sys::CUcontext]) -> Vec<usize> {
    stack.iter().map(|context| context.addr()).collect()
}
