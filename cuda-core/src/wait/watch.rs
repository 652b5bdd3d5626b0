//! The waiter threads, and how they share the tasks.

use std::collections::VecDeque;
use std::mem;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::queue::{QueueKey, Queues};
use super::{PendingMark, Then, WAITS, stay_if_gone};
use crate::error::{Error, Rejected, Result};
use crate::process::{HandOver, RelaxedCaptureMode, deferred};
use crate::util::lock;

/// The most threads that sleep, for one point each.
pub(super) const SLEEPERS: usize = 16;

/// Bounds of the pause between two rounds of polling.
pub(super) const SHORTEST: Duration = Duration::from_micros(20);
pub(super) const LONGEST: Duration = Duration::from_millis(1);

/// How long an idle thread is kept: starting one costs more than most waits take.
const LINGER: Duration = Duration::from_millis(500);

/// The points that are awaited, and the threads that wait for them. A flush replaces the watch with an empty
/// one, and joins its threads.
pub(super) struct Watch {
    state: Mutex<WatchState>,
    /// Notified when there is something to do.
    work: Condvar,
    /// Notified of each new wait.
    added: Condvar,
}

#[derive(Default)]
struct WatchState {
    queues: Queues,
    /// Points that were reached or have failed, with continuations still to be called.
    due: VecDeque<Due>,
    /// The number of threads that sleep for a point.
    sleepers: usize,
    /// Whether a thread polls.
    asks: bool,
    /// The number of threads that have nothing to do.
    idle: usize,
    /// Whether a thread was notified or started, and has not yet looked for a task.
    called: bool,
    /// The number of threads in a continuation that have not [handed over](deferred::hand_over). Each looks
    /// for a task afterwards, which is soon, since a thread hands over before it waits.
    calling: usize,
    /// Whether a flush waits for everything, so that nothing more is added.
    closed: bool,
    threads: Vec<JoinHandle<()>>,
}

/// A point that was reached, or has failed.
struct Due {
    /// Dropped before the continuations are called. The marks may be the last owners of a context, and
    /// destroying it waits for the device.
    marks: Vec<PendingMark>,
    then: VecDeque<Then>,
    reached: Result<()>,
}

/// The continuations that a thread has yet to call, after the one that it calls now. Another thread takes
/// them if that one waits.
struct Left {
    watch: Arc<Watch>,
    due: Mutex<Due>,
}

/// What a thread does next.
enum Task {
    Call(Due),
    SleepFor(QueueKey, PendingMark),
    Ask,
}

impl WatchState {
    /// Whether there is a task that no thread serves.
    fn is_wanting(&self) -> bool {
        let looked_for = self.queues.free() == 0 || (self.asks && self.sleepers == SLEEPERS);
        !self.due.is_empty() || !looked_for
    }

    /// Whether an additional queue would need a new thread.
    fn needs_one_more(&self) -> bool {
        let asked_for = self.asks && self.sleepers == SLEEPERS;
        !asked_for && !self.will_look() && self.idle == 0
    }

    /// Whether a thread will look for a task soon.
    fn will_look(&self) -> bool {
        self.called || self.calling > 0
    }

    fn next(&mut self) -> Option<Task> {
        if let Some(due) = self.due.pop_front() {
            self.calling += 1;
            return Some(Task::Call(due));
        }
        if self.sleepers < SLEEPERS {
            let (key, first) = self.queues.take_free()?;
            self.sleepers += 1;
            return Some(Task::SleepFor(key, first));
        }
        if self.asks || self.queues.free() == 0 {
            return None;
        }
        self.asks = true;
        Some(Task::Ask)
    }

    /// Notifies or starts a thread for a task that no thread serves, unless a thread will look for tasks
    /// anyway. If no thread can be started, the existing threads serve the task after their own.
    fn call_one(&mut self, watch: &Arc<Watch>) -> Result<()> {
        if self.will_look() || !self.is_wanting() {
            return Ok(());
        }
        if self.idle == 0 {
            self.start(watch)?;
        }
        self.called = true;
        watch.work.notify_one();
        Ok(())
    }

    fn start(&mut self, watch: &Arc<Watch>) -> Result<()> {
        self.threads.retain(|thread| !thread.is_finished());
        let watch = Arc::clone(watch);
        let thread = thread::Builder::new()
            .name("cuda-core waiter".to_owned())
            .spawn(move || watch.serve())
            .map_err(|error| Error::NoThread(error.kind()))?;
        self.threads.push(thread);
        Ok(())
    }
}

impl Watch {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { state: Mutex::default(), work: Condvar::new(), added: Condvar::new() })
    }

    /// The earliest awaited point that covers the stream's `seq`.
    pub(super) fn covering(&self, id: u64, seq: u64) -> Option<PendingMark> {
        lock(&self.state).queues.covering(id, seq)
    }

    /// Calls `then` when the point is reached. If there is no thread for it, returns both
    /// arguments, to be dropped where nothing is locked.
    pub(super) fn add(
        self: &Arc<Self>,
        pending: PendingMark,
        then: Then,
    ) -> Result<(), Rejected<(PendingMark, Then)>> {
        let mut state = lock(&self.state);
        let found = state.queues.find(&pending);
        if found.is_none() && state.needs_one_more() {
            // The new thread will find what is added below.
            if let Err(error) = state.start(self) {
                return Err(Rejected::new(error, (pending, then)));
            }
            state.called = true;
        }
        state.queues.add(found, pending, then);
        let _ = state.call_one(self);
        drop(state);
        self.added.notify_one();
        Ok(())
    }

    /// Serves tasks until there have been none for a while.
    fn serve(self: Arc<Self>) {
        WAITS.set(true);
        deferred::unless_exiting(RelaxedCaptureMode::for_life);
        let mut state = lock(&self.state);
        state.called = false;
        loop {
            let task = state.next();
            // The task may be a sleep, which may take any time, so another thread is called for the other
            // tasks first.
            let _ = state.call_one(&self);
            if let Some(task) = task {
                drop(state);
                state = self.run(task);
                continue;
            }
            if state.closed {
                break;
            }
            state.idle += 1;
            let waited = self.work.wait_timeout(state, LINGER);
            let (guard, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            state = guard;
            state.idle -= 1;
            let called = mem::take(&mut state.called);
            if timeout.timed_out() && !called && !state.is_wanting() {
                break;
            }
        }
        drop(state);
        stay_if_gone();
    }

    fn run(self: &Arc<Self>, task: Task) -> MutexGuard<'_, WatchState> {
        match task {
            Task::Call(due) => {
                let is_done = self.call(due);
                let mut state = lock(&self.state);
                state.calling -= usize::from(is_done);
                state
            }
            Task::SleepFor(key, first) => {
                let reached = first.event.synchronize();
                stay_if_gone();
                let mut state = self.settle(key, first, reached);
                state.sleepers -= 1;
                state
            }
            Task::Ask => self.ask(),
        }
    }

    /// Calls the continuations. Returns false if one of the calls has handed over the others.
    fn call(self: &Arc<Self>, due: Due) -> bool {
        let reached = due.reached.clone();
        let left = Arc::new(Left { watch: self.clone(), due: Mutex::new(due) });
        let marks = mem::take(&mut lock(&left.due).marks);
        let mut is_here = deferred::run_before(left.clone(), || drop(marks));
        while is_here {
            let Some(then) = lock(&left.due).then.pop_front() else { break };
            is_here = deferred::run_before(left.clone(), || then(reached.clone()));
        }
        is_here
    }

    /// Makes waits due, since the first point of a queue was reached or has failed.
    fn settle(
        &self,
        key: QueueKey,
        first: PendingMark,
        reached: Result<()>,
    ) -> MutexGuard<'_, WatchState> {
        if reached.is_ok() {
            first.timeline.complete(first.seq);
        }
        let mut state = lock(&self.state);
        let mut due = Due { marks: Vec::new(), then: VecDeque::new(), reached };
        for wait in state.queues.take(key, &first, due.reached.is_err()) {
            due.marks.push(wait.pending);
            due.then.extend(wait.then);
        }
        due.marks.push(first);
        state.due.push_back(due);
        state
    }

    /// Polls the first points of all queues that no thread sleeps for, until there are none.
    fn ask(self: &Arc<Self>) -> MutexGuard<'_, WatchState> {
        let mut pause = SHORTEST;
        loop {
            let began = Instant::now();
            let came = self.ask_once();
            let longest = LONGEST.max(4 * began.elapsed());
            let mut state = lock(&self.state);
            if state.queues.free() == 0 {
                state.asks = false;
                return state;
            }
            pause = if came { SHORTEST } else { pause.min(longest) };
            let waited = self.added.wait_timeout(state, pause);
            let (_state, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            pause = if timeout.timed_out() { 2 * pause } else { SHORTEST };
        }
    }

    /// Polls each free queue once. Returns whether any point was reached or has failed.
    fn ask_once(self: &Arc<Self>) -> bool {
        let mut came = false;
        let round = lock(&self.state).queues.free();
        for _ in 0..round {
            let Some((key, first)) = lock(&self.state).queues.take_free() else { break };
            match deferred::unless_exiting(|| first.query()) {
                Ok(false) => {
                    drop(first);
                    lock(&self.state).queues.leave(key);
                }
                reached => {
                    came = true;
                    let _ = self.settle(key, first, reached.map(drop)).call_one(self);
                }
            }
        }
        came
    }

    /// Waits until all tasks are done and the threads have ended. Returns whether there were any threads.
    pub(super) fn finish(&self) -> bool {
        lock(&self.state).closed = true;
        self.work.notify_all();
        let mut any = false;
        loop {
            // Threads that end may have started others, which serve the rest.
            let threads = mem::take(&mut lock(&self.state).threads);
            if threads.is_empty() {
                return any;
            }
            any = true;
            for thread in threads {
                // The thread has caught the panics of what it called.
                drop(thread.join());
            }
        }
    }
}

impl HandOver for Left {
    fn hand_over(self: Arc<Self>) {
        let mut due = lock(&self.due);
        let then = mem::take(&mut due.then);
        let rest = Due { marks: Vec::new(), then, reached: due.reached.clone() };
        drop(due);
        let mut state = lock(&self.watch.state);
        state.calling -= 1;
        if !rest.then.is_empty() {
            state.due.push_front(rest);
        }
        let _ = state.call_one(&self.watch);
    }
}
