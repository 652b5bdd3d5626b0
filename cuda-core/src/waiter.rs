//! Threads that wait for devices so that nobody else has to.
//!
//! Each stream that somebody waits for has a thread, which sleeps in `cuEventSynchronize`: a
//! stream's points come in order, so none holds up another, and no stream holds up a second one.
//! Host functions would need no thread, but the driver does not call them after an error.

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

/// The waits for one stream, in its order.
struct Queue {
    /// The timeline's.
    id: u64,
    /// A thread waits, and will see whatever is queued before it finds the queue empty.
    served: bool,
    waits: VecDeque<Wait>,
}

struct Waiters {
    queues: Vec<Queue>,
    /// Threads started before are to end.
    generation: u64,
    /// Threads of this generation that have nothing to wait for.
    idle: usize,
    /// And whether a thread of ours started it.
    threads: Vec<(JoinHandle<()>, bool)>,
}

static WAITERS: Mutex<Waiters> = Mutex::new(Waiters {
    queues: Vec::new(),
    generation: 0,
    idle: 0,
    threads: Vec::new(),
});

/// Told of each new queue, and of a new generation.
static CHANGED: Condvar = Condvar::new();

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
        let _relaxed = Relaxed::enter()?;
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
        let waiters = lock(&WAITERS);
        let queue = waiters.queue(mark.timeline.id())?;
        let covering = queue.waits.iter().find(|w| w.pending.seq >= mark.seq)?;
        let known = &covering.pending;
        recorded.is_none_or(|seq| known.seq <= seq).then(|| Self {
            timeline: known.timeline.clone(),
            seq: known.seq,
            event: known.event.clone(),
        })
    }

    /// Whether the point has been reached meanwhile.
    pub(crate) fn query(&self) -> Result<bool> {
        if self.timeline.has_completed(self.seq) {
            return Ok(true);
        }
        driver::ensure()?;
        let _relaxed = Relaxed::enter()?;
        let done = self.event.query()?;
        if done {
            self.timeline.complete(self.seq);
        }
        Ok(done)
    }

    /// Does `then` on a thread of ours when the point is reached.
    pub(crate) fn then(self, then: impl FnOnce(Result<()>) + Send + 'static) -> Result<()> {
        let mut waiters = lock(&WAITERS);
        let id = self.timeline.id();
        if waiters.queue(id).is_none() {
            let unserved = waiters.queues.iter().filter(|queue| !queue.served).count();
            if unserved >= waiters.idle {
                waiters.start()?;
            }
            waiters.queues.push(Queue {
                id,
                served: false,
                waits: VecDeque::new(),
            });
            CHANGED.notify_one();
        }
        if let Some(queue) = waiters.queues.iter_mut().find(|queue| queue.id == id) {
            queue.add(self, Box::new(then));
        }
        Ok(())
    }
}

/// An event that tells of a point for which one is recorded that nobody can sleep for, or that only
/// another thread could record: a stream of its own waits for the point.
fn relay(mark: &Mark) -> Result<(RawEvent, u64)> {
    let context = mark.timeline.context();
    let stream = context.create_stream()?;
    let core = stream.core();
    core.bind()?.wait_for(mark)?;
    let event = RawEvent::for_sleeping(context)?;
    match core.timeline().record_on(&event, None)? {
        Some(_) => Ok((event, mark.seq)),
        None => Err(Error::LostStream),
    }
}

impl Queue {
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

    /// Takes out what is due now that `event` has told of everything up to `seq`, or has failed.
    fn take(&mut self, event: &Arc<RawEvent>, seq: u64, failed: bool) -> Vec<Wait> {
        let (mut due, mut left) = (Vec::new(), VecDeque::new());
        for wait in self.waits.drain(..) {
            let told = Arc::ptr_eq(&wait.pending.event, event);
            if told || (!failed && wait.pending.seq <= seq) {
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
    fn queue(&self, id: u64) -> Option<&Queue> {
        self.queues.iter().find(|queue| queue.id == id)
    }

    fn start(&mut self) -> Result<()> {
        self.threads.retain(|(thread, _)| !thread.is_finished());
        let generation = self.generation;
        let thread = thread::Builder::new()
            .name("cuda-core waiter".to_owned())
            .spawn(move || serve(generation))
            .map_err(|error| Error::NoThread(error.kind()))?;
        self.threads
            .push((thread, is_waiter() || drops::is_reaper()));
        Ok(())
    }
}

/// Waits for one stream after the other, until there is none left for a while.
fn serve(generation: u64) {
    WAITS.set(true);
    let mut waiters = lock(&WAITERS);
    loop {
        if let Some(queue) = waiters.queues.iter_mut().find(|queue| !queue.served) {
            queue.served = true;
            let id = queue.id;
            drop(waiters);
            while wait_for_first(id) {}
            waiters = lock(&WAITERS);
            continue;
        }
        if waiters.generation != generation {
            return;
        }
        waiters.idle += 1;
        let (guard, timeout) = CHANGED
            .wait_timeout(waiters, LINGER)
            .unwrap_or_else(PoisonError::into_inner);
        waiters = guard;
        if waiters.generation != generation {
            continue;
        }
        waiters.idle -= 1;
        if timeout.timed_out() && waiters.queues.iter().all(|queue| queue.served) {
            return;
        }
    }
}

/// Sleeps until the stream's next point is reached, then does what was to be done. `false`: nobody
/// waits for the stream any more.
fn wait_for_first(id: u64) -> bool {
    let (event, timeline, seq) = {
        let mut waiters = lock(&WAITERS);
        let Some(at) = waiters.queues.iter().position(|queue| queue.id == id) else {
            return false;
        };
        let Some(first) = waiters.queues[at].waits.front() else {
            waiters.queues.swap_remove(at);
            return false;
        };
        let Pending {
            timeline,
            seq,
            event,
        } = &first.pending;
        (event.clone(), timeline.clone(), *seq)
    };
    let reached = event.synchronize();
    if driver::is_gone() {
        // The driver must not be called any more, nor may this thread end: its locals' destructors
        // could call it.
        loop {
            thread::park();
        }
    }
    if reached.is_ok() {
        timeline.complete(seq);
    }
    let due = {
        let mut waiters = lock(&WAITERS);
        let queue = waiters.queues.iter_mut().find(|queue| queue.id == id);
        queue.map(|queue| queue.take(&event, seq, reached.is_err()))
    };
    // Events and timelines go first: whoever is told finds nothing of this left.
    let due = due.into_iter().flatten();
    let told: Vec<Then> = due.flat_map(|wait| wait.then).collect();
    drop((event, timeline));
    for then in told {
        contain(|| then(reached.clone()));
    }
    true
}

/// Whether this thread is one of ours.
pub(crate) fn is_waiter() -> bool {
    WAITS.try_with(Cell::get).unwrap_or(false)
}

/// Waits until everything is reached that was waited for before this call, and for the threads that
/// did so to end: not for the calling one. `all`: or only for those that other threads of ours have
/// started. Whether there were any.
pub(crate) fn flush(all: bool) -> bool {
    let threads: Vec<_> = {
        let mut waiters = lock(&WAITERS);
        waiters.generation += 1;
        waiters.idle = 0;
        let awaited = |(_, by_ours): &(_, bool)| all || *by_ours;
        let threads = std::mem::take(&mut waiters.threads);
        let (threads, others) = threads.into_iter().partition(awaited);
        waiters.threads = others;
        threads
    };
    CHANGED.notify_all();
    let any = !threads.is_empty();
    for (thread, _) in threads {
        // It contains the panics of what it calls.
        drop(thread.join());
    }
    any
}
