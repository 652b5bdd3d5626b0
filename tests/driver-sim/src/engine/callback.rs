//! Host functions run on one thread, one after the other, without the simulator's lock; their
//! stream goes on when they have returned.

use std::collections::VecDeque;
use std::thread::JoinHandle;

use crate::engine::clock::{Clock, Point};
use crate::engine::work::{HostFn, HostPtr, Work};
use crate::handle::Id;
use crate::state::{self, State};
use crate::{Mode, thread};

#[derive(Debug)]
struct Job {
    /// The operation that ends with the function, unless the function belongs to none.
    operation: Option<Point>,
    function: HostFn,
    data: HostPtr,
    /// What happened before the function.
    before: Clock,
}

/// Queued host functions.
///
/// The thread lives only while there are any, so that a program can end, and be checked for leaks,
/// without a shutdown call.
#[derive(Debug, Default)]
pub(crate) struct Callbacks {
    jobs: VecDeque<Job>,
    /// The thread is running and will look for further jobs before it ends.
    active: bool,
    last: Option<JoinHandle<()>>,
}

impl Callbacks {
    /// The thread, if it has no more work, for the caller to join without the lock.
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

    /// Calls a function of the program, not before this call of the driver lets go of the lock.
    pub(crate) fn call_later(&mut self, function: HostFn, data: HostPtr) {
        self.call_on_thread(Job { operation: None, function, data, before: Clock::default() });
    }

    fn call_on_thread(&mut self, job: Job) {
        self.callbacks.jobs.push_back(job);
        if !self.callbacks.active {
            self.callbacks.active = true;
            // The previous thread is about to end; it is not joined here, where the lock is held.
            self.callbacks.last = Some(std::thread::spawn(serve));
        }
    }
}

fn serve() {
    thread::mark_callback_thread();
    let mut state = state::lock();
    while let Some(job) = state.callbacks.jobs.pop_front() {
        // The function may signal the host, and runs after everything in `before`.
        state.host_join(&job.before);
        drop(state);
        // SAFETY: the program passed this function with this argument to be called on a thread of the
        // driver's: to `cuLaunchHostFunc` once, to a graph once a launch, and to `cuUserObjectCreate`
        // once, after the last reference.
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
