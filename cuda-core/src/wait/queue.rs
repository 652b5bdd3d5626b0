//! The awaited points of each stream.

use std::collections::VecDeque;
use std::ops::Bound::Included;
use std::sync::Arc;

use super::{PendingMark, Then};
use crate::util::Tree;

/// A timeline's id, and a number that is never reused.
pub(super) type QueueKey = (u64, u64);

/// All queues.
#[derive(Default)]
pub(super) struct Queues {
    queues: Tree<QueueKey, Queue>,
    /// Queues that no thread watches, the longest unwatched first.
    free: VecDeque<QueueKey>,
    /// The number of the queue made last.
    number: u64,
}

/// Awaited points of one stream, in the stream's order; never empty.
#[derive(Default)]
struct Queue {
    /// The point that a thread watches, if any. That thread does not notice an earlier point that is added
    /// later.
    looked_for: Option<u64>,
    waits: VecDeque<Wait>,
}

pub(super) struct Wait {
    pub(super) pending: PendingMark,
    pub(super) then: Vec<Then>,
}

impl Queues {
    /// The number of queues that no thread watches.
    pub(super) fn free(&self) -> usize {
        self.free.len()
    }

    fn of(&self, id: u64) -> impl Iterator<Item = (QueueKey, &Queue)> {
        self.queues.range(Included((id, 0)), Included((id, u64::MAX)))
    }

    /// Returns the earliest awaited point that covers the stream's `seq`.
    pub(super) fn covering(&self, id: u64, seq: u64) -> Option<PendingMark> {
        let covering = self.of(id).filter_map(|(_, queue)| queue.waits.get(queue.before(seq)));
        covering.map(|wait| &wait.pending).min_by_key(|pending| pending.seq).cloned()
    }

    /// Finds a queue whose thread will notice the point in time.
    pub(super) fn find(&self, pending: &PendingMark) -> Option<QueueKey> {
        let in_time = |queue: &Queue| queue.looked_for.is_none_or(|seq| seq <= pending.seq);
        let mut queues = self.of(pending.timeline.id());
        queues.find_map(|(key, queue)| in_time(queue).then_some(key))
    }

    /// Adds the point to the queue that was [found](Self::find), or to a new one.
    pub(super) fn add(&mut self, found: Option<QueueKey>, pending: PendingMark, then: Then) {
        let key = found.unwrap_or_else(|| {
            self.number += 1;
            let key = (pending.timeline.id(), self.number);
            self.free.push_back(key);
            key
        });
        self.queues.get_or_insert_with(key, Queue::default).add(pending, then);
    }

    /// Takes a queue that no thread watches, to watch its first point.
    pub(super) fn take_free(&mut self) -> Option<(QueueKey, PendingMark)> {
        let key = self.free.pop_front()?;
        let queue = self.queues.get_mut(key)?;
        let first = queue.waits.front()?.pending.clone();
        queue.looked_for = Some(first.seq);
        Some((key, first))
    }

    /// Stops watching a queue whose first point has not been reached: another thread may watch it.
    pub(super) fn leave(&mut self, key: QueueKey) {
        if let Some(queue) = self.queues.get_mut(key) {
            queue.looked_for = None;
            self.free.push_back(key);
        }
    }

    /// Removes and returns the waits that are due now that `first` was reached or has failed; leaves the
    /// rest.
    pub(super) fn take(&mut self, key: QueueKey, first: &PendingMark, failed: bool) -> Vec<Wait> {
        let Some(queue) = self.queues.get_mut(key) else { return Vec::new() };
        // `first` is still the first: nothing is added before a point that a thread watches.
        let due = if failed { 1 } else { queue.reached_with(first.seq) };
        let due = queue.waits.drain(..due).collect();
        if queue.waits.is_empty() {
            self.queues.remove(key);
        } else {
            self.leave(key);
        }
        due
    }
}

impl Queue {
    /// How many of the points come before `seq`.
    fn before(&self, seq: u64) -> usize {
        self.waits.partition_point(|wait| wait.pending.seq < seq)
    }

    /// How many of the points are reached with `seq`.
    fn reached_with(&self, seq: u64) -> usize {
        self.waits.partition_point(|wait| wait.pending.seq <= seq)
    }

    fn add(&mut self, pending: PendingMark, then: Then) {
        let at = self.reached_with(pending.seq);
        let mut equal = self.waits.range_mut(self.before(pending.seq)..at);
        let same = |wait: &&mut Wait| Arc::ptr_eq(&wait.pending.event, &pending.event);
        if let Some(wait) = equal.find(same) {
            wait.then.push(then);
            return;
        }
        let then = vec![then];
        self.waits.insert(at, Wait { pending, then });
    }
}
