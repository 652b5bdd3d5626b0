//! Whether the process and the thread may call the driver at all. Below the errors, which ask before they
//! have the driver name a code.

use std::cell::Cell;
use std::sync::atomic::{AtomicU8, Ordering};

pub(crate) const COLD: u8 = 0;
pub(crate) const READY: u8 = 1;
pub(crate) const FORKED: u8 = 2;
pub(crate) const EXITING: u8 = 3;
/// A thread initialises the driver, and the others wait for it.
pub(crate) const STARTING: u8 = 4;

pub(crate) static STATE: AtomicU8 = AtomicU8::new(COLD);

thread_local! {
    static IN_CALLBACK: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread is running a host function of a stream.
#[inline]
pub(crate) fn in_callback() -> bool {
    // A thread whose thread-locals are destroyed is exiting, which the driver's callback thread
    // does not do while it runs a host function.
    IN_CALLBACK.try_with(Cell::get).unwrap_or(false)
}

/// Marks this thread as the driver's callback thread for as long as the value lives.
pub(crate) struct CallbackScope(());

impl CallbackScope {
    pub(crate) fn enter() -> Self {
        let _ = IN_CALLBACK.try_with(|flag| flag.set(true));
        Self(())
    }
}

impl Drop for CallbackScope {
    fn drop(&mut self) {
        let _ = IN_CALLBACK.try_with(|flag| flag.set(false));
    }
}

/// Whether the driver is permanently unreachable: the process exits, or is a fork's child.
#[inline]
pub(crate) fn is_gone() -> bool {
    matches!(STATE.load(Ordering::Acquire), FORKED | EXITING)
}
