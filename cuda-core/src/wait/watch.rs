//! The threads, and who of them does what.

use std::collections::VecDeque;
use std::mem;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::queue::{Key, Queues};
use super::{Pending, Then, WAITS, stay_if_gone};
use crate::error::{Error, Result};
use crate::process::capture_mode::Relaxed;
use crate::process::deferred;
use crate::util::panic::contain;
use crate::util::sync::lock;

/// Threads that sleep for one point each.
pub(super) const SLEEPERS: usize = 16;

/// Between two rounds of questions.
pub(super) const SHORTEST: Duration = Duration::from_micros(20);
pub(super) const LONGEST: Duration = Duration::from_millis(1);

/// How long a thread with nothing to do is kept: starting one costs more than most waits.
const LINGER: Duration = Duration::from_millis(500);

/// What is waited for, until a flush waits for it.
pub(super) struct Watch {
    state: Mutex<State>,
    /// Told of whatever there is to do.
    work: Condvar,
    /// Told of each new queue.
    added: Condvar,
}

#[derive(Default)]
struct State {
    queues: Queues,
    /// To be called, with what became of their points.
    due: VecDeque<(Vec<Then>, Result<()>)>,
    /// Threads that sleep for a point.
    sleepers: usize,
    /// A thread asks for points.
    asks: bool,
    /// Threads that have nothing to do.
    idle: usize,
    /// A thread was called, and has not looked yet what there is to do.
    called: bool,
    /// A flush waits for all of it, so nothing more is added.
    closed: bool,
    threads: Vec<JoinHandle<()>>,
}

/// What a thread does next.
enum Task {
    Call(Vec<Then>, Result<()>),
    SleepFor(Key, Pending),
    Ask,
}

impl State {
    /// Whether there is something that no thread sees to.
    fn is_wanting(&self) -> bool {
        let looked_for = self.queues.free() == 0 || (self.asks && self.sleepers == SLEEPERS);
        !self.due.is_empty() || !looked_for
    }

    /// Whether no thread that there is would look for one more queue.
    fn needs_one_more(&self) -> bool {
        let asked_for = self.asks && self.sleepers == SLEEPERS;
        !asked_for && !self.called && self.idle == 0
    }

    fn next(&mut self) -> Option<Task> {
        if let Some((then, reached)) = self.due.pop_front() {
            return Some(Task::Call(then, reached));
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

    /// Calls a thread for what no thread sees to, if none is on its way already. Where none can be had,
    /// those that there are see to it when they have done what they do.
    fn call_one(&mut self, watch: &Arc<Watch>) -> Result<()> {
        if self.called || !self.is_wanting() {
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
        Arc::new(Self {
            state: Mutex::default(),
            work: Condvar::new(),
            added: Condvar::new(),
        })
    }

    /// The earliest point that is waited for and covers the stream's `seq`.
    pub(super) fn covering(&self, id: u64, seq: u64) -> Option<Pending> {
        lock(&self.state).queues.covering(id, seq)
    }

    /// Does `then` when the point is reached. Gives it back, to be dropped where nothing is locked, if
    /// there is no thread for it.
    pub(super) fn add(
        self: &Arc<Self>,
        pending: Pending,
        then: Then,
    ) -> Result<(), (Error, (Pending, Then))> {
        let mut state = lock(&self.state);
        let found = state.queues.find(&pending);
        if found.is_none() && state.needs_one_more() {
            // It sees what is added below.
            if let Err(error) = state.start(self) {
                return Err((error, (pending, then)));
            }
            state.called = true;
        }
        state.queues.add(found, pending, then);
        let _ = state.call_one(self);
        drop(state);
        self.added.notify_one();
        Ok(())
    }

    /// Does what there is to do, until there has been nothing for a while.
    fn serve(self: Arc<Self>) {
        WAITS.set(true);
        deferred::unless_exiting(Relaxed::for_life);
        let mut state = lock(&self.state);
        state.called = false;
        loop {
            let task = state.next();
            // Whatever it is may take any time.
            let _ = state.call_one(&self);
            if let Some(task) = task {
                drop(state);
                self.run(task);
                state = lock(&self.state);
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

    fn run(self: &Arc<Self>, task: Task) {
        match task {
            Task::Call(all, reached) => {
                for then in all {
                    contain(|| then(reached.clone()));
                }
            }
            Task::SleepFor(key, first) => {
                let reached = first.event.synchronize();
                stay_if_gone();
                self.settle(key, first, reached);
                lock(&self.state).sleepers -= 1;
            }
            Task::Ask => self.ask(),
        }
    }

    /// The first point of a queue was reached, or has failed.
    fn settle(&self, key: Key, first: Pending, reached: Result<()>) {
        if reached.is_ok() {
            first.timeline.complete(first.seq);
        }
        let due = lock(&self.state).queues.take(key, &first, reached.is_err());
        // Events and timelines go first: what is called finds nothing of this left.
        let then: Vec<Then> = due.into_iter().flat_map(|wait| wait.then).collect();
        drop(first);
        if !then.is_empty() {
            lock(&self.state).due.push_back((then, reached));
        }
    }

    /// Asks for the first points of all queues that nobody sleeps for, until there are none.
    fn ask(self: &Arc<Self>) {
        let mut pause = SHORTEST;
        loop {
            let began = Instant::now();
            let came = self.ask_once();
            let longest = LONGEST.max(4 * began.elapsed());
            let mut state = lock(&self.state);
            if state.queues.free() == 0 {
                state.asks = false;
                return;
            }
            pause = if came { SHORTEST } else { pause.min(longest) };
            let waited = self.added.wait_timeout(state, pause);
            let (_state, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            pause = if timeout.timed_out() {
                2 * pause
            } else {
                SHORTEST
            };
        }
    }

    /// One round of questions. Whether any point had come.
    fn ask_once(self: &Arc<Self>) -> bool {
        let mut came = false;
        let round = lock(&self.state).queues.free();
        for _ in 0..round {
            let Some((key, first)) = lock(&self.state).queues.take_free() else {
                break;
            };
            match first.look() {
                Some(reached) => {
                    came = true;
                    self.settle(key, first, reached);
                    let _ = lock(&self.state).call_one(self);
                }
                None => {
                    drop(first);
                    lock(&self.state).queues.leave(key);
                }
            }
        }
        came
    }

    /// Waits until all is done that there is, and for the threads to end. Whether there were any.
    pub(super) fn finish(&self) -> bool {
        lock(&self.state).closed = true;
        self.work.notify_all();
        let mut any = false;
        loop {
            // Those that end may have started others, which have the rest.
            let threads = mem::take(&mut lock(&self.state).threads);
            if threads.is_empty() {
                return any;
            }
            any = true;
            for thread in threads {
                // It contains the panics of what it calls.
                drop(thread.join());
            }
        }
    }
}

impl Pending {
    /// What became of the point, if it is not to come yet.
    fn look(&self) -> Option<Result<()>> {
        if self.timeline.has_completed(self.seq) {
            return Some(Ok(()));
        }
        match deferred::unless_exiting(|| self.event.query()) {
            Ok(false) => None,
            Ok(true) => Some(Ok(())),
            Err(error) => Some(Err(error)),
        }
    }
}
