//! Spans of this crate's own calls in which no foreign code runs on the thread, except closures
//! that the driver calls, which cannot call the driver themselves.
//!
//! This crate asks what is current at the beginning of such a span and relies on it until the end.
//! A drop hook, or the `Drop` of what keeps another library's context alive, may make another
//! context current: if one of them comes up within a span, it runs after the span.

use std::marker::PhantomData;

use crate::drops::contain;
use crate::thread;

/// While one lives on a thread, the jobs given to [`after`] on that thread are deferred.
pub(crate) struct Quiet {
    /// Belongs to the thread.
    _not_send: PhantomData<*const ()>,
}

#[derive(Clone, Copy)]
pub(crate) struct Spans {
    /// Spans that the thread is in.
    open: u32,
    /// Jobs wait for the outermost span to end.
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

/// Runs `job`, which is foreign code, when no span is open on the thread: usually now.
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
    // Jobs that come up meanwhile, in spans within these jobs, run at the end of those spans.
    let later = thread::with(|thread| thread.later.take());
    later.into_iter().for_each(contain);
}
