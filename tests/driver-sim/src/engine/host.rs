//! The work that the host knows to be complete, because its threads have waited for it.
//!
//! Host threads order their calls among themselves in ways that the driver never sees, so what one thread has
//! waited for may be known to all. The simulator can only detect when that is *impossible*: a call that began
//! before another thread's wait had ended cannot come after that wait. Only such a call is checked without
//! the wait's result. No correct program is reported, and a program that fails to order two threads is
//! reported if their calls overlap.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::clock::{Clock, Point};
use crate::handle::Id;

/// Counts the threads that have entered the driver but do not have its lock yet.
#[derive(Debug)]
pub(crate) struct Door {
    /// Number of threads that have entered and do not have the lock yet.
    arriving: AtomicUsize,
    /// Number of waits that have ended.
    waits: AtomicU64,
}

/// The number of waits that had ended when a call began: it can know these.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arrival(u64);

pub(crate) static DOOR: Door = Door::new();

impl Door {
    const fn new() -> Self {
        Self { arriving: AtomicUsize::new(0), waits: AtomicU64::new(0) }
    }

    pub(crate) fn arrive(&self) -> Arrival {
        // This order, and sequential consistency, are needed: if a thread that ends a wait sees no thread
        // arriving, every thread that arrives later sees the wait.
        self.arriving.fetch_add(1, Ordering::SeqCst);
        Arrival(self.waits.load(Ordering::SeqCst))
    }
}

/// The number of recent waits that are distinguished: beyond it, the oldest counts as known to all.
const MOST: usize = 64;

/// The host's knowledge; see the module.
#[derive(Debug)]
pub(crate) struct Host {
    door: &'static Door,
    /// The points known to every call that takes the lock from now on.
    known: Clock,
    /// Waits that ended after a call in progress had begun, by number: that call cannot know their results.
    /// Each entry also has the results of the entries before it.
    recent: Vec<(u64, Clock)>,
    /// The arrival of the call that has the lock.
    arrival: Arrival,
}

impl Host {
    pub(crate) fn new(door: &'static Door) -> Self {
        Self { door, known: Clock::default(), recent: Vec::new(), arrival: Arrival(0) }
    }

    /// Records that a call has the lock for the first time.
    pub(crate) fn admit(&mut self, arrival: Arrival) {
        self.door.arriving.fetch_sub(1, Ordering::SeqCst);
        self.arrival = arrival;
    }

    /// Records that a call has the lock again, which it released to wait, or that another call enqueues its
    /// operations.
    pub(crate) fn readmit(&mut self, arrival: Arrival) {
        self.arrival = arrival;
    }

    pub(crate) fn arrival(&self) -> Arrival {
        self.arrival
    }

    /// Returns a test for the points that the call holding the lock may know to be complete.
    pub(crate) fn covers(&self) -> impl Fn(Point) -> bool {
        let seen = self.seen();
        move |point| self.known.covers(point) || seen.is_some_and(|clock| clock.covers(point))
    }

    /// Joins the points that the call holding the lock may know into a clock.
    pub(crate) fn tell(&self, clock: &mut Clock) {
        clock.join(&self.known);
        if let Some(seen) = self.seen() {
            clock.join(seen);
        }
    }

    /// Returns what the call holding the lock may know of recent waits.
    fn seen(&self) -> Option<&Clock> {
        let Arrival(waits) = self.arrival;
        let unseen = self.recent.partition_point(|(wait, _)| *wait <= waits);
        let (_, last) = self.recent.get(unseen.checked_sub(1)?)?;
        Some(last)
    }

    /// Returns the points that every call from now on knows.
    pub(crate) fn known(&self) -> &Clock {
        &self.known
    }

    /// Records a wait that has ended, and its result.
    pub(crate) fn join(&mut self, mut clock: Clock) {
        if let Some((_, before)) = self.recent.last() {
            clock.join(before);
        }
        let wait = self.door.waits.fetch_add(1, Ordering::SeqCst) + 1;
        self.recent.push((wait, clock));
        // The waiting thread itself knows the result.
        self.arrival = Arrival(wait);
        self.settle();
    }

    fn settle(&mut self) {
        let all = self.door.arriving.load(Ordering::SeqCst) == 0;
        let old = if all { self.recent.len() } else { self.recent.len().saturating_sub(MOST) };
        if let Some((_, last)) = self.recent.drain(..old).next_back() {
            self.known.join(&last);
        }
    }

    pub(crate) fn forget_all(&mut self, gone: impl Fn(Id) -> bool) {
        let recent = self.recent.iter_mut().map(|(_, clock)| clock);
        for clock in recent.chain([&mut self.known]) {
            clock.forget_all(&gone);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POINT: Point = Point { stream: 1, seq: 1 };

    fn waited() -> Clock {
        let mut clock = Clock::default();
        clock.set(POINT);
        clock
    }

    fn host() -> (&'static Door, Host) {
        let door = Box::leak(Box::new(Door::new()));
        (door, Host::new(door))
    }

    #[test]
    fn a_call_that_comes_later_knows() {
        let (door, mut host) = host();
        host.admit(door.arrive());
        host.join(waited());
        assert!(host.known().covers(POINT), "no thread was arriving");
        host.admit(door.arrive());
        assert!(host.covers()(POINT));
    }

    #[test]
    fn a_call_that_has_begun_cannot_know() {
        let (door, mut host) = host();
        host.admit(door.arrive());
        let early = door.arrive();
        host.join(waited());
        assert!(host.covers()(POINT), "the waiting thread knows");
        let late = door.arrive();
        host.admit(early);
        assert!(!host.covers()(POINT));
        let mut clock = Clock::default();
        host.tell(&mut clock);
        assert!(!clock.covers(POINT) && !host.known().covers(POINT));
        host.admit(late);
        assert!(host.covers()(POINT));
        // At the next wait, no thread is arriving.
        host.join(Clock::default());
        assert!(host.known().covers(POINT));
    }

    #[test]
    fn not_everything_is_kept_apart() {
        let (door, mut host) = host();
        host.admit(door.arrive());
        let early = door.arrive();
        host.join(waited());
        for _ in 0..=MOST {
            host.join(Clock::default());
        }
        host.admit(early);
        assert!(host.covers()(POINT));
    }
}
