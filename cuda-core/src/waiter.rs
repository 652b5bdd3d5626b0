//! Threads that wait for devices so that nobody else has to.
//!
//! Each stream that somebody waits for has a thread, which sleeps in `cuEventSynchronize` until the
//! first point comes: a stream's points come in order, so none holds up a later one. A point before
//! the one that the thread sleeps for has a thread of its own, and so has whatever is waited for while
//! somebody is told. Host functions would need no thread, but the driver does not call them after an
//! error.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::capture::Relaxed;
use crate::driver;
use crate::drops::{self, contain};
use crate::error::{Error, Result};
use crate::event::RawEvent;
use crate::sync::lock;
use crate::timeline::{Flavor, Mark, Timeline};

/// What is done when a point is reached, or cannot be proven to be.
type Then = Box<dyn FnOnce(Result<()>) + Send>;

/// A point that has not been reached, with an event that tells.
#[derive(Clone)]
pub(crate) struct Pending {
    timeline: Arc<Timeline>,
    /// The event covers everything up to here.
    seq: u64,
    /// Puts a thread that waits for it to sleep.
    event: Arc<RawEvent>,
}

struct Wait {
    pending: Pending,
    then: Vec<Then>,
}

/// Waits for one stream, in its order; never empty.
struct Queue {
    /// Never used twice.
    key: u64,
    /// The timeline's.
    id: u64,
    /// The point that a thread sleeps for, if one does. It does not see what comes up before that.
    slept_for: Option<u64>,
    /// Made before the last flush; takes no more waits.
    closed: bool,
    waits: VecDeque<Wait>,
}

/// Threads that wait, and what for.
struct Pool {
    waiters: Mutex<Waiters>,
    /// Told of each queue that nobody sleeps for, and of a new generation.
    changed: Condvar,
}

struct Waiters {
    queues: Vec<Queue>,
    /// Of the queue made last.
    key: u64,
    /// Threads of an earlier generation serve closed queues only, then end.
    generation: u64,
    /// Threads of this generation that have nothing to wait for.
    idle: usize,
    /// With their generations.
    threads: Vec<(JoinHandle<()>, u64)>,
}

/// For everybody.
static ANYBODYS: Pool = Pool::new();

/// For what threads of ours begin to wait for, while they tell others or run deferred drops. A flush
/// waits until there is nothing left of these, so they have threads that see to nothing else.
static OURS: Pool = Pool::new();

/// How long a thread with nothing to wait for is kept: starting one costs more than most waits.
const LINGER: Duration = Duration::from_millis(500);

thread_local! {
    /// This thread is one of ours.
    static WAITS: Cell<bool> = const { Cell::new(false) };
}

impl Pending {
    /// What it takes to wait for `mark`; [`None`] if the point is known to be reached.
    ///
    /// Records an event here and now, so that what is enqueued later is not waited for.
    pub(crate) fn of(mark: &Mark) -> Result<Option<Self>> {
        let timeline = &mark.timeline;
        if timeline.has_completed(mark.seq) {
            return Ok(None);
        }
        driver::ensure()?;
        let recorded = timeline.recorded(mark.seq);
        if let Some(known) = Self::known(mark, recorded) {
            return Ok(Some(known));
        }
        if recorded.is_some() && timeline.peek(mark.seq) {
            return Ok(None);
        }
        let (event, seq) = match (timeline.flavor(), recorded) {
            // One recorded now would come after whatever is on the stream since.
            (_, Some(_)) | (Flavor::PerThread, None) => relay(mark)?,
            _ => {
                let event = RawEvent::for_sleeping(timeline.context())?;
                match timeline.record_on(&event, None)? {
                    Some(seq) => (event, seq),
                    // The stream was destroyed meanwhile, after its last event.
                    None => relay(mark)?,
                }
            }
        };
        Ok(Some(Self {
            timeline: timeline.clone(),
            seq,
            event: Arc::new(event),
        }))
    }

    /// Somebody else's, if it covers the point and comes no later than an event that is recorded
    /// already.
    fn known(mark: &Mark, recorded: Option<u64>) -> Option<Self> {
        let id = mark.timeline.id();
        for pool in [&ANYBODYS, &OURS] {
            let waiters = lock(&pool.waiters);
            let mut first: Option<&Self> = None;
            for queue in waiters.queues.iter().filter(|queue| queue.id == id) {
                let mut pending = queue.waits.iter().map(|wait| &wait.pending);
                // They come in the stream's order.
                if let Some(covering) = pending.find(|pending| pending.seq >= mark.seq) {
                    let comes_first = first.is_none_or(|first| covering.seq < first.seq);
                    first = if comes_first { Some(covering) } else { first };
                }
            }
            let first = first.filter(|first| recorded.is_none_or(|seq| first.seq <= seq));
            if let Some(first) = first {
                return Some(first.clone());
            }
        }
        None
    }

    /// Whether the point has been reached meanwhile.
    pub(crate) fn query(&self) -> Result<bool> {
        if self.timeline.has_completed(self.seq) {
            return Ok(true);
        }
        driver::ensure()?;
        let done = self.event.query()?;
        if done {
            self.timeline.complete(self.seq);
        }
        Ok(done)
    }

    /// Does `then` on a thread of ours when the point is reached.
    pub(crate) fn then(self, then: impl FnOnce(Result<()>) + Send + 'static) -> Result<()> {
        let by_ours = is_waiter() || drops::is_reaper();
        let pool = if by_ours { &OURS } else { &ANYBODYS };
        // Where that fails, what was given is dropped when the lock is free again.
        let mut waiters = lock(&pool.waiters);
        let queue = waiters.queue_for(pool, &self)?;
        queue.add(self, Box::new(then));
        Ok(())
    }
}

/// An event that tells of a point for which one is recorded that nobody can sleep for, or that only
/// another thread could record: a stream of its own waits for the point.
fn relay(mark: &Mark) -> Result<(RawEvent, u64)> {
    let context = mark.timeline.context();
    let stream = context.create_stream()?;
    let core = stream.core();
    core.bind("cuStreamWaitEvent")?.wait_for(mark)?;
    let event = RawEvent::for_sleeping(context)?;
    match core.timeline().record_on(&event, None)? {
        Some(_) => Ok((event, mark.seq)),
        None => Err(Error::LostStream),
    }
}

impl Queue {
    /// Whether a thread sees the point when it comes.
    fn takes(&self, pending: &Pending) -> bool {
        let in_time = self.slept_for.is_none_or(|seq| seq <= pending.seq);
        self.id == pending.timeline.id() && !self.closed && in_time
    }

    fn add(&mut self, pending: Pending, then: Then) {
        let same = |wait: &&mut Wait| Arc::ptr_eq(&wait.pending.event, &pending.event);
        if let Some(wait) = self.waits.iter_mut().find(same) {
            wait.then.push(then);
            return;
        }
        let at = self.waits.partition_point(|w| w.pending.seq <= pending.seq);
        let then = vec![then];
        self.waits.insert(at, Wait { pending, then });
    }

    /// Takes out what is due now that `first` was reached, or has failed.
    fn take(&mut self, first: &Pending, failed: bool) -> Vec<Wait> {
        let (mut due, mut left) = (Vec::new(), VecDeque::new());
        for wait in self.waits.drain(..) {
            let told = Arc::ptr_eq(&wait.pending.event, &first.event);
            if told || (!failed && wait.pending.seq <= first.seq) {
                due.push(wait);
            } else {
                left.push_back(wait);
            }
        }
        self.waits = left;
        due
    }
}

impl Waiters {
    /// The queue that the point goes into, made if need be.
    fn queue_for(&mut self, pool: &'static Pool, pending: &Pending) -> Result<&mut Queue> {
        let found = self.queues.iter().position(|queue| queue.takes(pending));
        let at = match found {
            Some(at) => at,
            None => {
                self.call_one(pool, self.generation)?;
                self.key += 1;
                self.queues.push(Queue {
                    key: self.key,
                    id: pending.timeline.id(),
                    slept_for: None,
                    closed: false,
                    waits: VecDeque::new(),
                });
                self.queues.len() - 1
            }
        };
        Ok(&mut self.queues[at])
    }

    /// Sees to it that a thread of that generation takes one more queue.
    fn call_one(&mut self, pool: &'static Pool, generation: u64) -> Result<()> {
        let awaited = self
            .queues
            .iter()
            .filter(|queue| self.is_free(queue, generation));
        if generation != self.generation || awaited.count() >= self.idle {
            self.start(pool, generation)?;
        }
        pool.changed.notify_one();
        Ok(())
    }

    fn start(&mut self, pool: &'static Pool, generation: u64) -> Result<()> {
        self.threads.retain(|(thread, _)| !thread.is_finished());
        let thread = thread::Builder::new()
            .name("cuda-core waiter".to_owned())
            .spawn(move || pool.serve(generation))
            .map_err(|error| Error::NoThread(error.kind()))?;
        self.threads.push((thread, generation));
        Ok(())
    }

    /// Whether a thread of that generation is to take the queue.
    fn is_free(&self, queue: &Queue, generation: u64) -> bool {
        queue.slept_for.is_none() && queue.closed == (generation != self.generation)
    }

    /// Takes a queue, to sleep for its first point: its key, and that.
    fn take_queue(&mut self, generation: u64) -> Option<(u64, Pending)> {
        let at = (0..self.queues.len()).find(|&at| self.is_free(&self.queues[at], generation))?;
        let queue = &mut self.queues[at];
        let first = queue.waits.front()?.pending.clone();
        queue.slept_for = Some(first.seq);
        Some((queue.key, first))
    }

    /// Takes out whoever is to be told that `first` was reached, or has failed. Telling them may take
    /// any time: what is left of the queue is another thread's, if one can be had, and otherwise
    /// waits for the caller.
    fn take_due(
        &mut self,
        pool: &'static Pool,
        generation: u64,
        (key, first): (u64, &Pending),
        failed: bool,
    ) -> Vec<Wait> {
        let Some(at) = self.queues.iter().position(|queue| queue.key == key) else {
            return Vec::new();
        };
        let due = self.queues[at].take(first, failed);
        if self.queues[at].waits.is_empty() {
            self.queues.swap_remove(at);
        } else {
            let _ = self.call_one(pool, generation);
            self.queues[at].slept_for = None;
        }
        due
    }
}

impl Pool {
    const fn new() -> Self {
        Self {
            waiters: Mutex::new(Waiters {
                queues: Vec::new(),
                key: 0,
                generation: 0,
                idle: 0,
                threads: Vec::new(),
            }),
            changed: Condvar::new(),
        }
    }

    /// Waits for one queue after the other, until there is none left for a while.
    fn serve(&'static self, generation: u64) {
        WAITS.set(true);
        Relaxed::for_life();
        let mut waiters = lock(&self.waiters);
        loop {
            if let Some((key, first)) = waiters.take_queue(generation) {
                drop(waiters);
                self.wait_for(generation, key, first);
                waiters = lock(&self.waiters);
                continue;
            }
            if waiters.generation != generation {
                break;
            }
            waiters.idle += 1;
            let (guard, timeout) = self
                .changed
                .wait_timeout(waiters, LINGER)
                .unwrap_or_else(PoisonError::into_inner);
            waiters = guard;
            if waiters.generation != generation {
                continue;
            }
            waiters.idle -= 1;
            let mut queues = waiters.queues.iter();
            if timeout.timed_out() && !queues.any(|queue| waiters.is_free(queue, generation)) {
                break;
            }
        }
        drop(waiters);
        stay_if_gone();
    }

    /// Sleeps until the first point of a queue is reached, then does what was to be done.
    fn wait_for(&'static self, generation: u64, key: u64, first: Pending) {
        let reached = first.event.synchronize();
        stay_if_gone();
        if reached.is_ok() {
            first.timeline.complete(first.seq);
        }
        let due = lock(&self.waiters).take_due(self, generation, (key, &first), reached.is_err());
        // Events and timelines go first: whoever is told finds nothing of this left.
        let told: Vec<Then> = due.into_iter().flat_map(|wait| wait.then).collect();
        drop(first);
        for then in told {
            contain(|| then(reached.clone()));
        }
    }

    /// Waits until everything is reached that is waited for now, and for the threads that see to it
    /// to end: not for the calling one. Whether there were any.
    fn flush(&self) -> bool {
        let generation = {
            let mut waiters = lock(&self.waiters);
            for queue in &mut waiters.queues {
                queue.closed = true;
            }
            waiters.generation += 1;
            waiters.idle = 0;
            waiters.generation
        };
        self.changed.notify_all();
        let mut any = false;
        loop {
            // Those that end may have started others, which have the rest of their queues.
            let threads: Vec<_> = {
                let mut waiters = lock(&self.waiters);
                let all = std::mem::take(&mut waiters.threads);
                let (old, new) = all.into_iter().partition(|(_, of)| *of < generation);
                waiters.threads = new;
                old
            };
            if threads.is_empty() {
                return any;
            }
            any = true;
            for (thread, _) in threads {
                // It contains the panics of what it calls.
                drop(thread.join());
            }
        }
    }
}

/// Once the process exits the driver must not be called any more, nor may this thread end: its locals'
/// destructors could call it.
fn stay_if_gone() {
    while driver::is_gone() {
        thread::park();
    }
}

/// Whether this thread is one of ours.
pub(crate) fn is_waiter() -> bool {
    WAITS.try_with(Cell::get).unwrap_or(false)
}

/// Waits for everything that is waited for now, or, if not `all`, for what threads of ours wait for.
/// Whether there was anything, or a thread that it could have been there for.
pub(crate) fn flush(all: bool) -> bool {
    let anybodys = all && ANYBODYS.flush();
    OURS.flush() || anybodys
}
