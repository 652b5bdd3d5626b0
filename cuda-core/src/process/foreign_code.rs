//! Spans of this crate's own calls during which no foreign code runs on the thread. The exception is closures
//! that the driver calls, which cannot call the driver themselves.
//!
//! This crate asks for the current context at the beginning of such a span and relies on the answer until its
//! end. A drop hook, or the `Drop` of a foreign context's owner, may make another context current, so code of
//! these kinds is deferred to the span's end.

use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::mem::ManuallyDrop;

use crate::process::contain;

/// Opens a span: while the value lives, the jobs given to [`after`] on its thread are deferred.
pub(crate) struct DeferForeignCode {
    /// Belongs to the thread.
    _not_send: PhantomData<*const ()>,
}

#[derive(Clone, Copy)]
struct OpenSpans {
    /// The number of spans that the thread is in.
    open: u32,
    /// Jobs wait for the outermost span to end.
    awaited: bool,
}

thread_local! {
    // Neither has a destructor: both exist while the thread runs.
    static SPANS: Cell<OpenSpans> = const { Cell::new(OpenSpans::NONE) };

    /// Jobs deferred to the end of the spans, in order. Borrowed only while no foreign code runs.
    static LATER: ManuallyDrop<RefCell<Vec<LocalJob>>> =
        const { ManuallyDrop::new(RefCell::new(Vec::new())) };
}

type LocalJob = Box<dyn FnOnce()>;

impl OpenSpans {
    const NONE: Self = Self { open: 0, awaited: false };
}

impl DeferForeignCode {
    #[inline]
    pub(crate) fn begin() -> Self {
        SPANS.with(|spans| {
            let now = spans.get();
            spans.set(OpenSpans { open: now.open + 1, ..now });
        });
        Self { _not_send: PhantomData }
    }
}

impl Drop for DeferForeignCode {
    #[inline]
    fn drop(&mut self) {
        let now = SPANS.with(|spans| {
            let now = spans.get();
            let now = OpenSpans { open: now.open - 1, ..now };
            spans.set(now);
            now
        });
        if now.awaited && now.open == 0 {
            catch_up();
        }
    }
}

/// Runs `job`, which is foreign code, once no span is open on the thread: usually at once.
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
    SPANS.set(OpenSpans::NONE);
    // Jobs deferred meanwhile, by spans within these jobs, run at the end of those spans.
    let later = LATER.with(|later| later.take());
    later.into_iter().for_each(contain);
}
