//! Maps of few entries.

/// A map in one vector, for few entries, or for entries that come and go together with driver
/// calls. A tree of the standard library is ten times the code, compiled again for each type.
pub(crate) struct FlatMap<K, V> {
    /// Sorted by key, each key once.
    entries: Vec<(K, V)>,
}

impl<K, V> FlatMap<K, V> {
    pub(crate) const fn new() -> Self {
        Self { entries: Vec::new() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.entries.iter().map(|(_, value)| value)
    }
}

impl<K, V> Default for FlatMap<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Ord + Copy, V> FlatMap<K, V> {
    /// The index of the key, or where it would be inserted.
    fn place(&self, key: K) -> Result<usize, usize> {
        self.entries.binary_search_by_key(&key, |(key, _)| *key)
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = K> {
        self.entries.iter().map(|(key, _)| *key)
    }

    pub(crate) fn get(&self, key: K) -> Option<&V> {
        let place = self.place(key).ok()?;
        Some(&self.entries[place].1)
    }

    pub(crate) fn get_mut(&mut self, key: K) -> Option<&mut V> {
        let place = self.place(key).ok()?;
        Some(&mut self.entries[place].1)
    }

    /// Inserts a value, replacing that of the same key.
    pub(crate) fn insert(&mut self, key: K, value: V) {
        match self.place(key) {
            Ok(place) => self.entries[place].1 = value,
            Err(place) => self.entries.insert(place, (key, value)),
        }
    }

    pub(crate) fn remove(&mut self, key: K) -> Option<V> {
        let place = self.place(key).ok()?;
        Some(self.entries.remove(place).1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_found_replaced_and_removed() {
        let mut map = FlatMap::new();
        for key in [5, 1, 9, 3] {
            map.insert(key, key * 10);
        }
        map.insert(9, 0);
        map.insert(7, 2);
        assert!(map.keys().eq([1, 3, 5, 7, 9]));
        assert!(map.values().eq(&[10, 30, 50, 2, 0]));
        assert_eq!((map.get(3), map.get(4)), (Some(&30), None));
        assert_eq!((map.remove(1), map.remove(1)), (Some(10), None));
        assert_eq!((map.get(1), map.get(9)), (None, Some(&0)));
    }
}
