//! Spans of this crate's own calls, in which nobody else's code runs on the thread, but for a closure
//! that the driver calls and that therefore cannot call the driver.
//!
//! What is current is asked at the beginning of such a span and known until its end. A drop hook,
//! or the `Drop` of what keeps another library's context alive, may make something else current: what
//! comes up meanwhile waits for the end.

use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::mem::ManuallyDrop;

use crate::util::panic::contain;

/// As long as one lives, what [`after`] is given waits.
pub(crate) struct DeferForeignCode {
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
    // Neither has a destructor: both are there for as long as the thread runs.
    static SPANS: Cell<Spans> = const { Cell::new(Spans::NONE) };

    /// What waits for the end of the spans, in the order in which it came up. Borrowed for moments in
    /// which no foreign code runs.
    static LATER: ManuallyDrop<RefCell<Vec<Job>>> =
        const { ManuallyDrop::new(RefCell::new(Vec::new())) };
}

type Job = Box<dyn FnOnce()>;

impl Spans {
    const NONE: Self = Self {
        open: 0,
        awaited: false,
    };
}

impl DeferForeignCode {
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

impl Drop for DeferForeignCode {
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
    let job = Box::new(job);
    LATER.with(|later| later.borrow_mut().push(job));
    spans.awaited = true;
    SPANS.set(spans);
}

#[cold]
fn catch_up() {
    SPANS.set(Spans::NONE);
    // What comes up meanwhile, in spans of these jobs' own, is done at the end of those.
    let later = LATER.with(|later| later.take());
    later.into_iter().for_each(contain);
}
