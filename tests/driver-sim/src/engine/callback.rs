//! Host functions run on a thread of their own, one after the other, with no lock of the
//! simulator held; their stream goes on when they have returned.

use std::collections::VecDeque;
use std::thread::JoinHandle;

use crate::engine::clock::Clock;
use crate::engine::work::{HostFn, HostPtr, Work};
use crate::handle::Id;
use crate::state::{self, State};
use crate::{Mode, thread};

#[derive(Debug)]
struct Job {
    stream: Id,
    seq: u64,
    function: HostFn,
    data: HostPtr,
    /// What came before it.
    before: Clock,
}

/// Host functions that were handed out.
///
/// The thread lives while there are any, so that a program can end, and be checked for leaks,
/// without telling the driver.
#[derive(Debug, Default)]
pub(crate) struct Callbacks {
    jobs: VecDeque<Job>,
    /// The thread is at work, and will look for further jobs before it ends.
    active: bool,
    last: Option<JoinHandle<()>>,
}

impl Callbacks {
    /// The thread, if it has nothing left to do, for somebody to join without the lock.
    pub(crate) fn finished_thread(&mut self) -> Option<JoinHandle<()>> {
        if self.active { None } else { self.last.take() }
    }

    pub(crate) fn is_active(&self) -> bool {
        self.active
    }
}

impl State {
    /// Hands the host function in front of a stream to the callback thread.
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
        stream.in_callback = true;
        let before = op.tells.unwrap_or_default();
        self.callbacks.jobs.push_back(Job {
            stream: id,
            seq: op.seq,
            function,
            data,
            before,
        });
        if !self.callbacks.active {
            self.callbacks.active = true;
            // The previous thread has nothing left but its own end; it is not waited for here,
            // where the lock is held.
            self.callbacks.last = Some(std::thread::spawn(serve));
        }
    }
}

fn serve() {
    thread::mark_callback_thread();
    let mut state = state::lock();
    while let Some(job) = state.callbacks.jobs.pop_front() {
        // It may tell the program, and does itself come after all that.
        state.host_join(&job.before);
        drop(state);
        // SAFETY: the program gave this function to `cuLaunchHostFunc` with this argument, to be
        // called once, on a thread of the driver's.
        unsafe { (job.function)(job.data.0.cast()) };
        state = state::lock();
        if let Some(stream) = state.streams.get_mut(&job.stream) {
            stream.in_callback = false;
        }
        state.complete(job.stream, job.seq);
        if state.mode == Mode::Eager {
            state.advance_all();
        }
        state::CHANGED.notify_all();
    }
    state.callbacks.active = false;
    state::CHANGED.notify_all();
}
