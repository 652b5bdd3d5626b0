//! What this crate keeps for a thread, and what becomes of it when the thread ends.
//!
//! Thread-local values are destroyed in no order that could be relied on, and one that is destroyed
//! cannot be used by the destructors that come later. So there is one, which has no destructor and can
//! be used as long as the thread runs; and a second, which holds nothing, and whose destructor ends what
//! the first has, each thing in its turn.

use std::cell::{Cell, RefCell};
use std::mem::ManuallyDrop;

use crate::context::guard::Guard;
use crate::context::{Context, context_local, current};

/// Each list is borrowed for moments in which no foreign code runs.
pub(crate) struct Thread {
    /// Values of [`ContextLocal`](crate::ContextLocal)s, of all slots.
    pub(crate) values: RefCell<Vec<context_local::Kept>>,
    /// Reference-counted contexts that this crate left on the thread's stack, from its bottom to its
    /// top. An entry may outlast the stack's, where others popped it, never the other way round.
    pub(crate) contexts: RefCell<Vec<Context>>,
    /// Guards that were dropped in a function of this crate that the driver called on this thread.
    /// Another thread could not end their scopes.
    pub(crate) guards: RefCell<Vec<Guard>>,
    /// How often this crate failed to bring back what was current.
    pub(crate) strays: Cell<u32>,
    /// The thread is ending, or about to: nothing new is kept for it.
    ended: Cell<bool>,
}

thread_local! {
    static THREAD: ManuallyDrop<Thread> = const {
        ManuallyDrop::new(Thread {
            values: RefCell::new(Vec::new()),
            contexts: RefCell::new(Vec::new()),
            guards: RefCell::new(Vec::new()),
            strays: Cell::new(0),
            ended: Cell::new(false),
        })
    };

    static END: End = const { End };
}

/// This thread's. Without a destructor it is there for as long as the thread runs.
#[inline]
pub(crate) fn with<R>(f: impl FnOnce(&Thread) -> R) -> R {
    THREAD.with(|thread| f(thread))
}

impl Thread {
    /// Has what is kept from now on ended with the thread; false if the thread is past that already.
    pub(crate) fn is_ended_with(&self) -> bool {
        !self.ended.get() && END.try_with(|_| ()).is_ok()
    }
}

struct End;

impl Drop for End {
    fn drop(&mut self) {
        with(|thread| thread.ended.set(true));
        // Values first, whose destructors use the driver with their contexts current.
        while let Some(value) = with(|thread| thread.values.borrow_mut().pop()) {
            drop(value);
        }
        with(|thread| thread.values.take());
        current::end();
    }
}
