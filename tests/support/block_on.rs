//! The smallest executor: polls one future on one thread.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

/// A waker that counts its wakes and unparks the thread that created it.
pub struct Alarm {
    wakes: AtomicUsize,
    thread: Thread,
}

impl Alarm {
    /// Creates an alarm that unparks the calling thread.
    pub fn new() -> Arc<Self> {
        Arc::new(Self { wakes: AtomicUsize::new(0), thread: thread::current() })
    }

    /// Returns how often the alarm was woken.
    pub fn wakes(&self) -> usize {
        self.wakes.load(Ordering::Acquire)
    }

    /// Polls the future once.
    pub fn poll<F: Future + Unpin>(self: &Arc<Self>, future: &mut F) -> Poll<F::Output> {
        let waker = Waker::from(Arc::clone(self));
        Pin::new(future).poll(&mut Context::from_waker(&waker))
    }

    /// Polls the future after each wake, and parks the thread in between.
    pub fn block_on<F: Future>(self: &Arc<Self>, future: F) -> F::Output {
        let mut future = pin!(future);
        let waker = Waker::from(Arc::clone(self));
        loop {
            let seen = self.wakes();
            if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                return output;
            }
            // A thread may be unparked spuriously: only a wake justifies a poll.
            while self.wakes() == seen {
                thread::park();
            }
        }
    }
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.wakes.fetch_add(1, Ordering::Release);
        self.thread.unpark();
    }
}

/// Runs a future to completion with an [`Alarm`] of its own.
pub fn block_on<F: Future>(future: F) -> F::Output {
    Alarm::new().block_on(future)
}
