//! What this crate keeps for a thread, and how it is dropped when the thread ends.
//!
//! Thread-local values are destroyed in no reliable order, and a destroyed one cannot be used by destructors
//! that run later. So there are two. The first has no destructor, and can be used while the thread runs. The
//! second holds nothing; its destructor drops what the first holds, in a fixed order.

use std::cell::{Cell, RefCell};
use std::mem::ManuallyDrop;

use crate::context::{context_local, current};

/// A thread's data. Each list is borrowed only while no foreign code runs.
pub(crate) struct Thread {
    /// Values of [`ContextLocal`](crate::ContextLocal)s, of all slots.
    pub(crate) values: RefCell<Vec<context_local::ThreadValue>>,
    /// Reference-counted contexts that this crate left on the thread's context stack, each once.
    pub(crate) contexts: RefCell<Vec<current::OnStack>>,
    /// How often this crate failed to restore what was current.
    pub(crate) strays: Cell<u32>,
    /// Whether the thread is ending. No new values are kept then; contexts on its stack still are.
    ended: Cell<bool>,
}

thread_local! {
    static THREAD: ManuallyDrop<Thread> = const {
        ManuallyDrop::new(Thread {
            values: RefCell::new(Vec::new()),
            contexts: RefCell::new(Vec::new()),
            strays: Cell::new(0),
            ended: Cell::new(false),
        })
    };

    static END: AtThreadEnd = const { AtThreadEnd };
}

/// Runs `f` on this thread's data, which has no destructor and so exists while the thread runs.
#[inline]
pub(crate) fn with<R>(f: impl FnOnce(&Thread) -> R) -> R {
    THREAD.with(|thread| f(thread))
}

impl Thread {
    /// Registers this thread's destructor, so that everything kept from now on is dropped when the thread
    /// ends. Returns false if the destructor has already run.
    pub(crate) fn is_ended_with(&self) -> bool {
        !self.ended.get() && END.try_with(|_| ()).is_ok()
    }
}

struct AtThreadEnd;

impl Drop for AtThreadEnd {
    fn drop(&mut self) {
        with(|thread| thread.ended.set(true));
        // Drops values first: their destructors use the driver with their contexts current.
        while let Some(value) = with(|thread| thread.values.borrow_mut().pop()) {
            drop(value);
        }
        with(|thread| thread.values.take());
        current::end();
    }
}
