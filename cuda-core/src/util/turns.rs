//! Maps whose entries become obsolete.

use std::ops::Bound::{Excluded, Included, Unbounded};
use std::ops::{Deref, DerefMut};

use super::tree::Tree;

/// A map keyed by numbers that are never reused, such as timeline ids. Its entries are checked round-robin, a
/// few at each operation. So finding obsolete entries has a constant cost for each operation, however many
/// entries there are.
pub(crate) struct Turns<V> {
    entries: Tree<u64, V>,
    /// The round continues at the first entry whose key is at least this.
    next: u64,
}

impl<V> Turns<V> {
    pub(crate) const fn new() -> Self {
        Self { entries: Tree::new(), next: 0 }
    }

    /// Returns the keys from `from` on, then those from the start: at most `most`, each once.
    pub(crate) fn following(&self, from: u64, most: usize) -> Vec<u64> {
        let later = self.entries.range(Included(from), Unbounded);
        let from_the_start = self.entries.range(Unbounded, Excluded(from));
        let keys = later.chain(from_the_start).map(|(key, _)| key);
        keys.take(most).collect()
    }

    /// Returns the next keys of the round: at most `most`, each once.
    pub(crate) fn in_turn(&mut self, most: usize) -> Vec<u64> {
        let keys = self.following(self.next, most);
        self.next = keys.last().map_or(0, |last| last + 1);
        keys
    }

    /// Inserts a value, then removes and returns the values that `is_over` selects among the next two of the
    /// round. It checks more entries than it inserts, so the map does not grow without bound.
    pub(crate) fn enter(
        &mut self,
        key: u64,
        value: V,
        mut is_over: impl FnMut(&V) -> bool,
    ) -> Vec<V> {
        let mut over = Vec::from_iter(self.entries.insert(key, value));
        for key in self.in_turn(2) {
            if self.entries.get(key).is_some_and(&mut is_over) {
                over.extend(self.entries.remove(key));
            }
        }
        over
    }
}

impl<V> Deref for Turns<V> {
    type Target = Tree<u64, V>;

    fn deref(&self) -> &Tree<u64, V> {
        &self.entries
    }
}

impl<V> DerefMut for Turns<V> {
    fn deref_mut(&mut self) -> &mut Tree<u64, V> {
        &mut self.entries
    }
}

impl<V> Default for Turns<V> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_entry_has_its_turn_and_none_has_two_at_once() {
        let mut map = Turns::new();
        for key in [5, 1, 9] {
            assert!(map.enter(key, (), |()| false).is_empty());
        }
        map.next = 0;
        assert_eq!(map.in_turn(2), [1, 5]);
        assert_eq!(map.in_turn(2), [9, 1]);
        assert_eq!(map.in_turn(100), [5, 9, 1]);
        map.remove(5);
        assert_eq!(map.in_turn(1), [9], "after the one that has gone");
        assert_eq!(map.in_turn(1), [1]);
    }

    #[test]
    fn entries_that_are_over_do_not_pile_up() {
        let mut map = Turns::new();
        // The first ten stay; the others are obsolete when they are twenty entries old.
        for key in 0..if cfg!(miri) { 200 } else { 1000 } {
            map.enter(key, key, |old| *old >= 10 && old + 20 < key);
            assert!(map.len() < 100, "{} after {key}", map.len());
        }
        assert!((0..10).all(|key| map.get(key).is_some()));
    }
}
