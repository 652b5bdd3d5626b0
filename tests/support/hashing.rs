//! Hashes, for what claims to be a key.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hash};

/// A value's hash, the same whenever it is asked for.
pub fn hash(value: &impl Hash) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one(value)
}
