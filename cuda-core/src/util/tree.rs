//! Ordered maps that share one B-tree.
//!
//! The standard library's B-tree is compiled anew for each type of key and value; fifteen of them took a
//! quarter of this crate's build time. The maps here all use the same one, from numbers to indices, and keep
//! their values in a list.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::ops::Bound::{self, Excluded, Included, Unbounded};

type Numbers = [u64; 2];

/// A key of a [`Tree`].
pub(crate) trait TreeKey: Copy {
    /// Returns numbers that are ordered as the keys are.
    fn numbers(self) -> Numbers;

    /// Makes the key from its numbers.
    fn of(numbers: Numbers) -> Self;
}

macro_rules! tree_keys {
    ($($key:ty: |$from:pat_param| $numbers:expr, |$to:pat_param| $back:expr;)*) => {$(
        impl TreeKey for $key {
            #[inline]
            fn numbers(self) -> Numbers {
                let $from = self;
                $numbers
            }

            #[inline]
            fn of($to: Numbers) -> Self {
                $back
            }
        }
    )*};
}

tree_keys! {
    u64: |key| [key, 0], |[key, _]| key;
    usize: |key| [key as u64, 0], |[key, _]| key as usize;
    (u64, u64): |(first, second)| [first, second], |[first, second]| (first, second);
    (usize, u64): |(first, second)| [first as u64, second],
        |[first, second]| (first as usize, second);
}

/// A map from keys to values, in the order of the keys. With `()` as the value type it is a set.
pub(crate) struct Tree<K, V> {
    /// Each key's index in `values`.
    // INVARIANT: the values at these indices, and no others, are `Some`.
    index: BTreeMap<Numbers, usize>,
    values: Vec<Option<V>>,
    /// Indices without a value.
    free: Vec<usize>,
    _keys: PhantomData<K>,
}

impl<K: TreeKey, V> Tree<K, V> {
    pub(crate) const fn new() -> Self {
        Self { index: BTreeMap::new(), values: Vec::new(), free: Vec::new(), _keys: PhantomData }
    }

    pub(crate) fn len(&self) -> usize {
        self.index.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    pub(crate) fn get(&self, key: K) -> Option<&V> {
        let at = *self.index.get(&key.numbers())?;
        self.values.get(at)?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, key: K) -> Option<&mut V> {
        let at = *self.index.get(&key.numbers())?;
        self.values.get_mut(at)?.as_mut()
    }

    /// Sets the key's value, and returns the value that it had.
    pub(crate) fn insert(&mut self, key: K, value: V) -> Option<V> {
        self.place(key).replace(value)
    }

    /// Returns the key's value, creating it if there is none.
    pub(crate) fn get_or_insert_with(&mut self, key: K, make: impl FnOnce() -> V) -> &mut V {
        self.place(key).get_or_insert_with(make)
    }

    /// Returns the key's place in `values`. It is empty if the key is new; the caller fills it.
    fn place(&mut self, key: K) -> &mut Option<V> {
        let Self { index, values, free, .. } = self;
        let unused = || {
            free.pop().unwrap_or_else(|| {
                values.push(None);
                values.len() - 1
            })
        };
        let at = *index.entry(key.numbers()).or_insert_with(unused);
        &mut values[at]
    }

    pub(crate) fn remove(&mut self, key: K) -> Option<V> {
        let at = self.index.remove(&key.numbers())?;
        self.free.push(at);
        self.values.get_mut(at)?.take()
    }

    // The bounds are values, not a generic range, so this is compiled once for each map, not for each kind of
    // range.
    pub(crate) fn range(
        &self,
        from: Bound<K>,
        to: Bound<K>,
    ) -> impl DoubleEndedIterator<Item = (K, &V)> {
        let keys = (from.map(K::numbers), to.map(K::numbers));
        let found = self.index.range::<Numbers, _>(keys);
        found.filter_map(|(key, at)| Some((K::of(*key), self.values.get(*at)?.as_ref()?)))
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = K> {
        self.iter().map(|(key, _)| key)
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.iter().map(|(_, value)| value)
    }

    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = (K, &V)> {
        self.range(Unbounded, Unbounded)
    }

    pub(crate) fn last_before(&self, key: K) -> Option<(K, &V)> {
        self.range(Unbounded, Excluded(key)).next_back()
    }

    pub(crate) fn first_from(&self, key: K) -> Option<(K, &V)> {
        self.range(Included(key), Unbounded).next()
    }

    pub(crate) fn first(&self) -> Option<(K, &V)> {
        self.iter().next()
    }

    pub(crate) fn last(&self) -> Option<(K, &V)> {
        self.iter().next_back()
    }

    pub(crate) fn into_values(self) -> impl Iterator<Item = V> {
        let Self { index, mut values, .. } = self;
        index.into_values().filter_map(move |at| values.get_mut(at)?.take())
    }
}

impl<K: TreeKey, V> Default for Tree<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares the tree with the standard library's map on random keys.
    #[test]
    fn it_is_an_ordered_map() {
        let mut tree = Tree::new();
        let mut model = BTreeMap::new();
        let mut seed = 1_u64;
        let mut random = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % below
        };
        for value in 0..if cfg!(miri) { 60 } else { 5_000 } {
            let key = (random(8) as usize, random(8));
            match random(3) {
                0 => assert_eq!(tree.remove(key), model.remove(&key)),
                _ => assert_eq!(tree.insert(key, value), model.insert(key, value)),
            }
            assert_eq!(tree.len(), model.len());
            assert!(tree.keys().eq(model.keys().copied()) && tree.values().eq(model.values()));
            let key = (random(8) as usize, random(8));
            assert_eq!(tree.get(key), model.get(&key));
            assert_eq!(tree.get_mut(key), model.get_mut(&key));
            let expected =
                model.range((Excluded(key), Unbounded)).map(|(key, value)| (*key, value));
            assert!(tree.range(Excluded(key), Unbounded).eq(expected));
            let expected = model.range(..=key).rev().map(|(key, value)| (*key, value));
            assert!(tree.range(Unbounded, Included(key)).rev().eq(expected));
            assert_eq!(tree.last().map(|(key, _)| key), model.keys().last().copied());
        }
        assert!(tree.values.len() <= 64, "indices are used again");
        assert!(tree.into_values().eq(model.into_values()));
    }
}
