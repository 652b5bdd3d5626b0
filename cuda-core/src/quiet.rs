//! Spans of this crate's own calls, in which nobody else's code runs on the thread, but for a closure
//! that the driver calls and that therefore cannot call the driver.
//!
//! What is current is asked at the beginning of such a span and known until its end. A drop hook,
//! or the `Drop` of what keeps another library's context alive, may make something else current: what
//! comes up meanwhile waits for the end.

use std::cell::{Cell, RefCell};
use std::marker::PhantomData;

use crate::drops::contain;

/// As long as one lives, what [`after`] is given waits.
pub(crate) struct Quiet {
    /// The thread's.
    _not_send: PhantomData<*const ()>,
}

#[derive(Clone, Copy)]
struct Spans {
    /// Spans that the thread is in.
    open: u32,
    /// There is something to do when the outermost ends.
    awaited: bool,
}

thread_local! {
    static SPANS: Cell<Spans> = const { Cell::new(Spans { open: 0, awaited: false }) };

    /// What waits, in the order in which it came up.
    static LATER: RefCell<Vec<Box<dyn FnOnce()>>> = const { RefCell::new(Vec::new()) };
}

impl Quiet {
    #[inline]
    pub(crate) fn begin() -> Self {
        let mut spans = SPANS.get();
        spans.open += 1;
        SPANS.set(spans);
        Self {
            _not_send: PhantomData,
        }
    }
}

impl Drop for Quiet {
    #[inline]
    fn drop(&mut self) {
        let mut spans = SPANS.get();
        spans.open -= 1;
        SPANS.set(spans);
        if spans.awaited && spans.open == 0 {
            catch_up();
        }
    }
}

/// Does `job`, which is somebody else's code, when no span is open on the thread: now, as a rule.
pub(crate) fn after(job: impl FnOnce() + 'static) {
    let mut spans = SPANS.get();
    if spans.open == 0 {
        return contain(job);
    }
    let mut job: Option<Box<dyn FnOnce()>> = Some(Box::new(job));
    let _ = LATER.try_with(|later| later.borrow_mut().extend(job.take()));
    // A thread that is losing its locals forgets it: what it captures may not even be dropped now.
    std::mem::forget(job);
    spans.awaited = true;
    SPANS.set(spans);
}

#[cold]
fn catch_up() {
    SPANS.set(Spans {
        open: 0,
        awaited: false,
    });
    // What comes up meanwhile, in spans of these jobs' own, is done at the end of those.
    let later = LATER.try_with(RefCell::take).unwrap_or_default();
    later.into_iter().for_each(contain);
}
