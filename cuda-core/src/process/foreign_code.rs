//! Spans of this crate's own calls, in which nobody else's code runs on the thread, but for a closure
//! that the driver calls and that therefore cannot call the driver.
//!
//! What is current is asked at the beginning of such a span and known until its end. A drop hook,
//! or the `Drop` of what keeps another library's context alive, may make something else current: what
//! comes up meanwhile waits for the end.

use std::marker::PhantomData;

use crate::context::thread;
use crate::process::drops::contain;

/// As long as one lives, what [`after`] is given waits.
pub(crate) struct Quiet {
    /// The thread's.
    _not_send: PhantomData<*const ()>,
}

#[derive(Clone, Copy)]
pub(crate) struct Spans {
    /// Spans that the thread is in.
    open: u32,
    /// There is something to do when the outermost ends.
    awaited: bool,
}

impl Spans {
    pub(crate) const NONE: Self = Self {
        open: 0,
        awaited: false,
    };

    #[inline]
    fn get() -> Self {
        thread::with(|thread| thread.spans.get())
    }

    #[inline]
    fn set(self) {
        thread::with(|thread| thread.spans.set(self));
    }
}

impl Quiet {
    #[inline]
    pub(crate) fn begin() -> Self {
        let mut spans = Spans::get();
        spans.open += 1;
        spans.set();
        Self {
            _not_send: PhantomData,
        }
    }
}

impl Drop for Quiet {
    #[inline]
    fn drop(&mut self) {
        let mut spans = Spans::get();
        spans.open -= 1;
        spans.set();
        if spans.awaited && spans.open == 0 {
            catch_up();
        }
    }
}

/// Does `job`, which is somebody else's code, when no span is open on the thread: now, as a rule.
pub(crate) fn after(job: impl FnOnce() + 'static) {
    let mut spans = Spans::get();
    if spans.open == 0 {
        return contain(job);
    }
    let job = Box::new(job);
    thread::with(|thread| thread.later.borrow_mut().push(job));
    spans.awaited = true;
    spans.set();
}

#[cold]
fn catch_up() {
    Spans::NONE.set();
    // What comes up meanwhile, in spans of these jobs' own, is done at the end of those.
    let later = thread::with(|thread| thread.later.take());
    later.into_iter().for_each(contain);
}
