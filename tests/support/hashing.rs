//! Hashes, for tests of types that are used as keys.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hash};

/// Returns a value's hash, the same on every call.
pub fn hash(value: &impl Hash) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one(value)
}
