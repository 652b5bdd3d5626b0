//! Opaque handles: small integers dressed as pointers, recycled as eagerly as possible.

use std::collections::BTreeMap;

/// Identity of an object; never reused, unlike its handle.
pub(crate) type Id = u64;

/// The handles of one kind of object.
#[derive(Debug)]
pub(crate) struct Handles {
    base: usize,
    issued: usize,
    /// Values of destroyed objects; the newest is handed out first, so that a stale handle means
    /// another object as soon as possible.
    free: Vec<usize>,
    live: BTreeMap<usize, Id>,
}

/// Why a handle names no object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dangling {
    Null,
    Destroyed,
    NeverIssued,
}

const STRIDE: usize = 64;

impl Handles {
    pub(crate) fn new(base: usize) -> Self {
        Self {
            base,
            issued: 0,
            free: Vec::new(),
            live: BTreeMap::new(),
        }
    }

    pub(crate) fn issue(&mut self, id: Id) -> usize {
        let value = self.free.pop().unwrap_or_else(|| {
            self.issued += 1;
            self.base + self.issued * STRIDE
        });
        self.live.insert(value, id);
        value
    }

    pub(crate) fn retire(&mut self, value: usize) {
        if self.live.remove(&value).is_some() {
            self.free.push(value);
        }
    }

    pub(crate) fn resolve<T>(&self, handle: *mut T) -> Result<Id, Dangling> {
        let value = handle.addr();
        match self.live.get(&value) {
            Some(&id) => Ok(id),
            None if value == 0 => Err(Dangling::Null),
            None if self.free.contains(&value) => Err(Dangling::Destroyed),
            None => Err(Dangling::NeverIssued),
        }
    }
}

/// The pointer that stands for a handle's value.
pub(crate) fn pointer<T>(value: usize) -> *mut T {
    std::ptr::without_provenance_mut(value)
}
