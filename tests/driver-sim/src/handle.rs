//! Opaque handles: small integers cast to pointers, recycled as early as possible.

use crate::table::Table;

/// Identity of an object. Never reused, unlike the object's handle.
pub(crate) type Id = u64;

/// The handles of one kind of object.
#[derive(Debug)]
pub(crate) struct Handles {
    base: usize,
    /// The object of each value issued so far, if it still exists.
    issued: Vec<Option<Id>>,
    /// Values of destroyed objects. The newest is issued first, so that a stale handle means another object
    /// as soon as possible.
    free: Vec<usize>,
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
        Self { base, issued: Vec::new(), free: Vec::new() }
    }

    pub(crate) fn issue(&mut self, id: Id) -> usize {
        if let Some(value) = self.free.pop() {
            self.rename(value, id);
            return value;
        }
        self.issued.push(Some(id));
        self.base + self.issued.len() * STRIDE
    }

    /// Makes a handle refer to another object.
    pub(crate) fn rename(&mut self, value: usize, id: Id) {
        if let Some(place) = self.place(value) {
            self.issued[place] = Some(id);
        }
    }

    pub(crate) fn retire(&mut self, value: usize) {
        let place = self.place(value);
        let retired = place.and_then(|place| self.issued[place].take());
        if retired.is_some() {
            self.free.push(value);
        }
    }

    /// Removes the rows for which `goes` returns a handle, and retires that handle.
    pub(crate) fn retire_all<T>(
        &mut self,
        rows: &mut Table<T>,
        goes: impl Fn(&T) -> Option<usize>,
    ) {
        rows.retain(|_, row| match goes(row) {
            Some(handle) => {
                self.retire(handle);
                false
            }
            None => true,
        });
    }

    /// Returns the index of a value in `issued`, if it was issued.
    fn place(&self, value: usize) -> Option<usize> {
        let distance = value.checked_sub(self.base + STRIDE)?;
        let place = distance / STRIDE;
        (distance % STRIDE == 0 && place < self.issued.len()).then_some(place)
    }

    pub(crate) fn resolve<T>(&self, handle: *mut T) -> Result<Id, Dangling> {
        let value = handle.addr();
        match self.place(value) {
            Some(place) => self.issued[place].ok_or(Dangling::Destroyed),
            None if value == 0 => Err(Dangling::Null),
            None => Err(Dangling::NeverIssued),
        }
    }
}

/// Returns the pointer that stands for a handle's value.
pub(crate) fn pointer<T>(value: usize) -> *mut T {
    std::ptr::without_provenance_mut(value)
}
