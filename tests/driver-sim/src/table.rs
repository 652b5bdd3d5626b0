//! Tables of the driver's objects: few rows, and many lookups per call.

use std::ops::Index;

/// A map from numbers to rows, sorted by number.
///
/// With few rows, most of them added at the end, a sorted vector takes the fewest steps, which matters
/// because Miri interprets each step.
#[derive(Debug)]
pub(crate) struct Table<T> {
    rows: Vec<(u64, T)>,
}

impl<T> Table<T> {
    pub(crate) const fn new() -> Self {
        Self { rows: Vec::new() }
    }

    /// Returns the position of the first row with a key of at least `key`.
    fn position(&self, key: u64) -> usize {
        let rows = self.rows.as_slice();
        let (mut low, mut high) = (0, rows.len());
        while low < high {
            let middle = (low + high) / 2;
            if rows[middle].0 < key {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    pub(crate) fn get(&self, key: &u64) -> Option<&T> {
        match self.rows.get(self.position(*key)) {
            Some((found, row)) if found == key => Some(row),
            _ => None,
        }
    }

    pub(crate) fn get_mut(&mut self, key: &u64) -> Option<&mut T> {
        let at = self.position(*key);
        match self.rows.get_mut(at) {
            Some((found, row)) if found == key => Some(row),
            _ => None,
        }
    }

    pub(crate) fn contains_key(&self, key: &u64) -> bool {
        self.get(key).is_some()
    }

    /// Returns the last row with a key of at most `key`.
    pub(crate) fn last_to(&self, key: u64) -> Option<(u64, &T)> {
        let end = key.checked_add(1);
        let end = end.map_or(self.rows.len(), |end| self.position(end));
        let (key, row) = self.rows.get(end.checked_sub(1)?)?;
        Some((*key, row))
    }

    /// Returns the rows from `key` on.
    pub(crate) fn from(&self, key: u64) -> impl Iterator<Item = (&u64, &T)> {
        let rows = &self.rows[self.position(key)..];
        rows.iter().map(|(key, row)| (key, row))
    }

    /// Inserts the row; replaces one with the same key.
    pub(crate) fn insert(&mut self, key: u64, row: T) {
        let at = self.position(key);
        match self.rows.get_mut(at) {
            Some(old) if old.0 == key => old.1 = row,
            _ => self.rows.insert(at, (key, row)),
        }
    }

    pub(crate) fn remove(&mut self, key: &u64) -> Option<T> {
        let at = self.position(*key);
        let there = self.rows.get(at).is_some_and(|(found, _)| found == key);
        there.then(|| self.rows.remove(at).1)
    }

    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&u64, &mut T) -> bool) {
        self.rows.retain_mut(|(key, row)| keep(key, row));
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&u64, &T)> {
        self.rows.iter().map(|(key, row)| (key, row))
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &u64> {
        self.rows.iter().map(|(key, _)| key)
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &T> {
        self.rows.iter().map(|(_, row)| row)
    }

    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.rows.iter_mut().map(|(_, row)| row)
    }
}

impl<T: Default> Table<T> {
    /// Returns the row, inserting a default if it is missing.
    pub(crate) fn row(&mut self, key: u64) -> &mut T {
        let at = self.position(key);
        if self.rows.get(at).is_none_or(|(found, _)| *found != key) {
            self.rows.insert(at, (key, T::default()));
        }
        &mut self.rows[at].1
    }
}

/// Panics if the row does not exist.
impl<T> Index<&u64> for Table<T> {
    type Output = T;

    fn index(&self, key: &u64) -> &T {
        self.get(key).expect("a row with this number")
    }
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::Table;

    fn table(keys: &[u64]) -> Table<u64> {
        let mut table = Table::new();
        for &key in keys {
            table.insert(key, 10 * key);
        }
        table
    }

    #[test]
    fn rows_are_found_by_their_keys() {
        let mut table = table(&[5, 1, 9, 3]);
        assert!(table.keys().eq(&[1, 3, 5, 9]));
        for key in 0..12 {
            let there = [1, 3, 5, 9].contains(&key);
            assert_eq!(table.contains_key(&key), there, "{key}");
            assert_eq!(table.get(&key).copied(), there.then_some(10 * key));
        }
        table.insert(3, 7);
        assert_eq!((table[&3], table.remove(&3)), (7, Some(7)));
        assert_eq!((table.remove(&3), table.values().count()), (None, 3));
        *table.row(5) += 1;
        *table.row(4) += 1;
        assert!(table.values().eq(&[10, 1, 51, 90]));
    }

    #[test]
    fn rows_beside_a_key() {
        let table = table(&[2, 4, 6]);
        let last = |key| table.last_to(key).map(|(key, _)| key);
        assert_eq!([1, 2, 3, 6].map(last), [None, Some(2), Some(2), Some(6)]);
        assert_eq!(last(u64::MAX), Some(6));
        let from = |key| table.from(key).map(|(&key, _)| key).collect::<Vec<_>>();
        assert_eq!((from(3), from(4), from(7)), (vec![4, 6], vec![4, 6], vec![]));
    }
}
