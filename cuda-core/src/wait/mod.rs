//! Threads that wait for devices, so that no thread of the caller has to.
//!
//! Host functions would need no thread, but the driver does not call them after an error.
//!
//! A stream's points come in order, so those that are waited for form a [queue], of which the first is
//! looked for. A point before one that a thread sleeps for is in a queue of its own. For any number of
//! queues there are few threads:
//!
//! * [`SLEEPERS`](watch::SLEEPERS) of them sleep in `cuEventSynchronize`, each for the first point of
//!   one queue. That costs nothing while it lasts and ends at once, and it is all there is where no
//!   more streams are awaited at a time.
//! * A point may never come, or only when the caller has done what comes next: a sleeper is of no use
//!   to other queues. So where there are more queues than sleepers, one more thread asks for the first
//!   points of the rest in turn: `cuEventQuery`. None of them waits for another. Between two rounds in
//!   which no point had come it pauses, from [`SHORTEST`](watch::SHORTEST) on twice as long each time,
//!   up to [`LONGEST`](watch::LONGEST) or four times what the round took, whichever is more. So it is
//!   busy for a fifth of the time at most, and a point is seen at the latest after five rounds. What is
//!   left to be asked for is slept for as soon as a sleeper is free.
//! * What is done when a point comes is the caller's code and may take any time, waits for other
//!   points included. So a thread that calls it does nothing else meanwhile; before, it sees to it
//!   that another takes what is left, which is started if there is none at hand. There are as many of
//!   these threads as there is such code under way.

use std::cell::Cell;
use std::sync::{Arc, Mutex};
use std::thread;

use crate::error::{Error, Result};
use crate::process::{deferred, driver};
use crate::timeline::event::RawEvent;
use crate::timeline::{Flavor, Mark, Timeline};
use crate::util::sync::lock;

pub(crate) mod flush;
pub(crate) mod future;
mod queue;
mod watch;

use watch::Watch;

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

/// What is waited for since the last flush, if anything was.
struct Pool(Mutex<Option<Arc<Watch>>>);

/// For everybody.
static ANYBODYS: Pool = Pool(Mutex::new(None));

/// For what threads of this module begin to wait for, while they call what is to be done or run deferred
/// drops. A flush waits until there is nothing left of these, so they have threads that see to nothing
/// else.
static OURS: Pool = Pool(Mutex::new(None));

thread_local! {
    /// This thread is one of this module's.
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
        let known = |pool: &Pool| {
            let watch = lock(&pool.0).clone()?;
            watch.covering(id, mark.seq)
        };
        let in_time = |known: &Self| recorded.is_none_or(|seq| known.seq <= seq);
        let pools = [&ANYBODYS, &OURS].into_iter();
        pools.filter_map(known).find(in_time)
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
        let by_ours = is_waiter() || deferred::is_reaper();
        let pool = if by_ours { &OURS } else { &ANYBODYS };
        pool.watch(self, Box::new(then))
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

impl Pool {
    /// Does `then` when the point is reached.
    fn watch(&self, pending: Pending, then: Then) -> Result<()> {
        // Where that fails, what was given is dropped when the lock is free again.
        let mut slot = lock(&self.0);
        let watch = slot.get_or_insert_with(Watch::new).clone();
        // Under the lock: a flush that takes it out then finds this wait in it.
        let refused = watch.add(pending, then);
        drop(slot);
        refused.map_err(|(error, _then)| error)
    }

    /// Waits until everything is reached that is waited for now, and for the threads that see to it
    /// to end: not for the calling one. Whether there were any.
    fn flush(&self) -> bool {
        let watch = lock(&self.0).take();
        watch.is_some_and(|watch| watch.finish())
    }
}

/// Once the process exits the driver must not be called any more, nor may this thread end: its locals'
/// destructors could call it.
fn stay_if_gone() {
    while driver::is_gone() {
        thread::park();
    }
}

/// Whether this thread is one of this module's.
pub(crate) fn is_waiter() -> bool {
    WAITS.try_with(Cell::get).unwrap_or(false)
}

/// Waits for everything that is waited for now, or, if not `all`, for what threads of this module wait
/// for. Whether there was anything, or a thread that it could have been there for.
pub(crate) fn flush(all: bool) -> bool {
    let anybodys = all && ANYBODYS.flush();
    OURS.flush() || anybodys
}
