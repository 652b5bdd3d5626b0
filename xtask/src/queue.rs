//! Runs work on several threads; each takes the next remaining item.

use std::iter;
use std::num::NonZero;
use std::sync::{Mutex, PoisonError};
use std::thread;

/// The number of threads that can run at once.
pub(crate) fn processors() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get)
}

/// Runs `work` on each item, on `workers` threads. The results are in the order of the items.
///
/// # Panics
/// If `work` panics.
pub(crate) fn each<T: Send, R: Send>(
    workers: usize,
    items: Vec<T>,
    work: impl Fn(T) -> R + Sync,
) -> Vec<R> {
    let left = Mutex::new(items.into_iter().enumerate());
    let next = || left.lock().unwrap_or_else(PoisonError::into_inner).next();
    let some = || iter::from_fn(next).map(|(at, item)| (at, work(item))).collect::<Vec<_>>();
    let mut done: Vec<(usize, R)> = thread::scope(|scope| {
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(some)).collect();
        let joined = workers.into_iter().map(|worker| worker.join());
        joined.flat_map(|done| done.expect("work does not panic")).collect()
    });
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    #[test]
    fn results_are_in_order_whichever_thread_was_first() {
        // Both threads must run at once, or the test would not end.
        let both = Barrier::new(2);
        let doubled = each(2, vec![1, 2, 3, 4], |number| {
            both.wait();
            2 * number
        });
        assert_eq!(doubled, [2, 4, 6, 8]);
    }

    #[test]
    fn there_may_be_nothing_to_do() {
        assert!(each(2, Vec::new(), |(): ()| ()).is_empty());
    }
}
