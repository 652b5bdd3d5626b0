//! Runs host functions on one thread, one after the other, without the simulator's lock. A stream continues
//! when its host function has returned.

use std::collections::VecDeque;
use std::thread::JoinHandle;

use crate::engine::clock::{Clock, Point};
use crate::engine::work::{HostFn, HostPtr, Work};
use crate::handle::Id;
use crate::state::{self, State};
use crate::{Mode, thread};

#[derive(Debug)]
struct Job {
    /// The operation that completes with the function, unless the function belongs to none.
    operation: Option<Point>,
    function: HostFn,
    data: HostPtr,
    /// The operations that happened before the function.
    before: Clock,
}

/// Queued host functions.
///
/// The thread exists only while there are any, so that a program can end, and be checked for leaks, without a
/// shutdown call.
#[derive(Debug, Default)]
pub(crate) struct Callbacks {
    jobs: VecDeque<Job>,
    /// Whether the thread is running and will look for further jobs before it ends.
    active: bool,
    last: Option<JoinHandle<()>>,
}

impl Callbacks {
    /// Returns the thread, if it has no more work, for the caller to join without the lock.
    pub(crate) fn finished_thread(&mut self) -> Option<JoinHandle<()>> {
        if self.active { None } else { self.last.take() }
    }

    pub(crate) fn is_active(&self) -> bool {
        self.active
    }
}

impl State {
    /// Hands the host function at the front of a stream to the callback thread.
    pub(crate) fn dispatch(&mut self, id: Id) {
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        let Some(op) = stream.queue.pop_front() else {
            return;
        };
        let Work::Call { function, data } = op.work else {
            stream.queue.push_front(op);
            return;
        };
        stream.calls -= 1;
        stream.in_callback = true;
        let before = op.tells.unwrap_or_default();
        let operation = Some(Point { stream: id, seq: op.seq });
        self.call_on_thread(Job { operation, function, data, before });
    }

    /// Calls a function of the program, at the earliest when this call of the driver releases the lock.
    pub(crate) fn call_later(&mut self, function: HostFn, data: HostPtr) {
        self.call_on_thread(Job { operation: None, function, data, before: Clock::default() });
    }

    fn call_on_thread(&mut self, job: Job) {
        self.callbacks.jobs.push_back(job);
        if !self.callbacks.active {
            self.callbacks.active = true;
            // The previous thread is about to end. It is not joined here, because the lock is held.
            self.callbacks.last = Some(std::thread::spawn(serve));
        }
    }
}

fn serve() {
    thread::mark_callback_thread();
    let mut state = state::lock();
    while let Some(job) = state.callbacks.jobs.pop_front() {
        // The function runs after everything in `before`, and may tell the host that it runs.
        state.host_join(&job.before);
        drop(state);
        // SAFETY: the program passed this function with this argument to be called on one of the driver's
        // threads: to `cuLaunchHostFunc` once, to a graph once per launch, and to `cuUserObjectCreate` once,
        // after the last reference.
        unsafe { (job.function)(job.data.0.cast()) };
        state = state::lock();
        if let Some(Point { stream: id, seq }) = job.operation {
            if let Some(stream) = state.streams.get_mut(&id) {
                stream.in_callback = false;
            }
            state.complete(id, seq);
        }
        if state.mode == Mode::Eager {
            state.advance_all();
        }
        state::CHANGED.notify_all();
    }
    state.callbacks.active = false;
    state::CHANGED.notify_all();
}
