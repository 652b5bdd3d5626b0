//! What this crate keeps for a thread, and what becomes of it when the thread ends.
//!
//! Thread-local values are destroyed in no reliable order, and a destroyed one cannot be used by
//! destructors that run later. So there are two: one without a destructor, which can be used as
//! long as the thread runs; and a second one that holds nothing, and whose destructor ends what the
//! first holds, in a fixed order.

use std::cell::{Cell, RefCell};
use std::mem::ManuallyDrop;

use crate::context::{context_local, current};

/// Each list is borrowed only for moments in which no foreign code runs.
pub(crate) struct Thread {
    /// Values of [`ContextLocal`](crate::ContextLocal)s, of all slots.
    pub(crate) values: RefCell<Vec<context_local::ThreadValue>>,
    /// Reference-counted contexts that this crate left on the thread's context stack, each once.
    pub(crate) contexts: RefCell<Vec<current::OnStack>>,
    /// How often this crate failed to restore what was current.
    pub(crate) strays: Cell<u32>,
    /// The thread is ending: no new values are kept for it. Contexts on its stack still are.
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

/// Runs `f` on this thread's data. It has no destructor, so it exists for as long as the thread
/// runs.
#[inline]
pub(crate) fn with<R>(f: impl FnOnce(&Thread) -> R) -> R {
    THREAD.with(|thread| f(thread))
}

impl Thread {
    /// Makes sure that what is kept from now on is dropped when the thread ends; false if that is
    /// past.
    pub(crate) fn is_ended_with(&self) -> bool {
        !self.ended.get() && END.try_with(|_| ()).is_ok()
    }
}

struct AtThreadEnd;

impl Drop for AtThreadEnd {
    fn drop(&mut self) {
        with(|thread| thread.ended.set(true));
        // Values first: their destructors use the driver with their contexts current.
        while let Some(value) = with(|thread| thread.values.borrow_mut().pop()) {
            drop(value);
        }
        with(|thread| thread.values.take());
        current::end();
    }
}
