//! Threads that wait for devices, so that no thread of the caller has to.
//!
//! Host functions would need no thread, but the driver does not call them after an error.
//!
//! A stream's points are reached in order, so its awaited points form a [queue], and a thread watches the
//! first of them. A point before the one that a thread sleeps for goes to a new queue. Few threads serve any
//! number of queues:
//!
//! * [`SLEEPERS`](watch::SLEEPERS) of them sleep in `cuEventSynchronize`, each for the first point of one
//!   queue. The sleep costs nothing, and ends as soon as the point is reached; with no more queues than
//!   sleepers, no other thread is needed.
//! * A point may never be reached, or only after something the caller does next, so a sleeper cannot serve
//!   other queues. If there are more queues than sleepers, one more thread polls the first points of the
//!   remaining queues round-robin with `cuEventQuery`; none of these queues waits for another. After a round
//!   in which no point was reached, the thread pauses: [`SHORTEST`](watch::SHORTEST) at first, twice as long
//!   each time, up to [`LONGEST`](watch::LONGEST) or four times the duration of the round, whichever is more.
//!   Once the pause has grown, the thread is busy for a fifth of the time at most, and notices a point after
//!   one pause and one round at the latest. Whenever a sleeper is free, it takes one of the polled queues.
//! * A continuation may be the caller's code, which may take any time, and may even wait for other
//!   continuations of the same point. Before such code, and before a wait for the device, the thread
//!   [hands over](deferred::hand_over) the rest of its task to another thread, and starts one if none is
//!   idle. If continuations do neither, one thread calls them all.

use std::cell::Cell;
use std::sync::{Arc, Mutex};
use std::thread;

use crate::error::{Error, Rejected, Result};
use crate::process::{deferred, driver, held};
use crate::timeline::ledger::Fences;
use crate::timeline::{Flavor, Mark, RawEvent, Timeline};
use crate::util::lock;

pub(crate) mod flush;
pub(crate) mod future;
mod queue;
mod watch;

use watch::Watch;

/// The continuation to call when a point is reached, or cannot be proven to be reached.
pub(crate) type Then = Box<dyn FnOnce(Result<()>) + Send>;

/// A point that has not been reached, with an event that covers it.
#[derive(Clone)]
pub(crate) struct PendingMark {
    timeline: Arc<Timeline>,
    /// The event covers everything up to here.
    seq: u64,
    /// Created so that a thread that waits for it sleeps.
    event: Arc<RawEvent>,
}

/// The points awaited since the last flush, if any.
type WaitPool = Mutex<Option<Arc<Watch>>>;

/// Holds waits that begin on threads other than this crate's own.
static CALLERS: WaitPool = Mutex::new(None);

/// Holds waits that begin on this crate's own threads, while these call a continuation or run deferred drops.
/// A flush waits until no such wait is left, so these waits have threads of their own.
static INTERNAL: WaitPool = Mutex::new(None);

thread_local! {
    /// Whether this thread is one of this module's.
    static WAITS: Cell<bool> = const { Cell::new(false) };
}

impl PendingMark {
    /// Prepares a wait for `mark`; returns [`None`] if the point is known to be reached.
    ///
    /// Records an event now, so that the wait does not include what is enqueued later.
    pub(crate) fn of(mark: &Mark) -> Result<Option<Self>> {
        let timeline = &mark.timeline;
        if timeline.has_completed(mark.seq) {
            return Ok(None);
        }
        driver::ensure()?;
        let recorded = timeline.recorded(mark.seq).map(|recorded| recorded.seq);
        if let Some(known) = Self::known(mark, recorded) {
            return Ok(Some(known));
        }
        if recorded.is_some() && timeline.peek(mark.seq) {
            return Ok(None);
        }
        let (event, seq) = match (timeline.flavor(), recorded) {
            // An event recorded now would also cover what was enqueued since.
            (_, Some(_)) | (Flavor::PerThread, None) => relay(mark)?,
            _ => {
                let event = RawEvent::for_sleeping(timeline.context())?;
                match timeline.record_on(&event, None)? {
                    // Another thread may have held up the stream meanwhile: without a checkpoint if the point
                    // had completed, else after one.
                    Some(_) if timeline.has_completed(mark.seq) => return Ok(None),
                    Some(_) if timeline.checkpointed(mark.seq) => relay(mark)?,
                    Some(seq) => (event, seq),
                    // The stream was destroyed meanwhile, after its last event.
                    None => relay(mark)?,
                }
            }
        };
        Ok(Some(Self { timeline: timeline.clone(), seq, event: Arc::new(event) }))
    }

    /// Returns a wait that is already registered, if its event covers the point and comes no later than an
    /// event that is already recorded.
    fn known(mark: &Mark, recorded: Option<u64>) -> Option<Self> {
        let id = mark.timeline.id();
        let known = |pool: &WaitPool| {
            let watch = lock(pool).clone()?;
            watch.covering(id, mark.seq)
        };
        let in_time = |known: &Self| recorded.is_none_or(|seq| known.seq <= seq);
        let pools = [&CALLERS, &INTERNAL].into_iter();
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

    /// Calls `then` on a thread of this module when the point is reached.
    pub(crate) fn then(self, then: Then) -> Result<(), Rejected<Then>> {
        let internal = is_waiter() || deferred::is_reaper();
        let pool = if internal { &INTERNAL } else { &CALLERS };
        // On failure, `self` is dropped after unlocking.
        let mut slot = lock(pool);
        let watch = slot.get_or_insert_with(Watch::new).clone();
        // Added under the lock, so that a flush that takes the watch out finds this wait in it.
        let refused = watch.add(self, then);
        drop(slot);
        refused.map_err(|rejected| rejected.map(|(_pending, then)| then))
    }
}

/// Makes an event to sleep for. It serves a point whose recorded event does not let a thread sleep, or for
/// which only another thread could record an event. A new stream waits for the point, and the event is
/// recorded there.
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

/// Calls `then` once the point is reached, or cannot be proven to be reached: at once, or on a thread of this
/// module.
pub(crate) fn when_reached(mark: Mark, then: Then) {
    let pending = PendingMark::of(&mark);
    when_passed(mark, pending, then);
}

fn when_passed(mark: Mark, pending: Result<Option<PendingMark>>, then: Then) {
    match pending {
        Ok(Some(pending)) => {
            if let Err(Rejected { error, value: then }) = pending.then(then) {
                then(Err(error));
            }
        }
        Ok(None) => then(Ok(())),
        Err(error) if held::is_held(&error) => held::keep(move || when_reached(mark, then)),
        Err(error) => then(Err(error)),
    }
}

/// [`when_reached`] for several points. A point of a lost context counts as reached.
pub(crate) fn when_all_reached(uses: &Fences, then: Then) {
    let reached = uses.query().unwrap_or(false);
    when_each_reached(if reached { Vec::new() } else { uses.marks().to_vec() }, then);
}

fn when_each_reached(mut marks: Vec<Mark>, then: Then) {
    while let Some(mark) = marks.pop() {
        let pending = match PendingMark::of(&mark) {
            Ok(None) => continue,
            Err(error) if error.is_sticky() => continue,
            pending => pending,
        };
        let next = move |reached: Result<()>| match reached {
            Err(error) if !error.is_sticky() => then(Err(error)),
            _ => when_each_reached(marks, then),
        };
        return when_passed(mark, pending, Box::new(next));
    }
    then(Ok(()));
}

/// Once the process exits, this thread must neither call the driver any more nor end: the
/// destructors of its thread-locals could call the driver.
fn stay_if_gone() {
    while driver::is_gone() {
        thread::park();
    }
}

/// Whether this thread is one of this module's.
pub(crate) fn is_waiter() -> bool {
    WAITS.try_with(Cell::get).unwrap_or(false)
}

/// Waits for everything that is awaited now, and until all threads that serve it have ended; without `all`,
/// only for the waits that threads of this crate began. Returns whether there were any such threads. Not to be
/// called on one of them.
pub(crate) fn flush(all: bool) -> bool {
    let flush = |pool: &WaitPool| {
        let watch = lock(pool).take();
        watch.is_some_and(|watch| watch.finish())
    };
    let of_callers = all && flush(&CALLERS);
    flush(&INTERNAL) || of_callers
}
