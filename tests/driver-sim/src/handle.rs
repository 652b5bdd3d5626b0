//! Opaque handles: small integers cast to pointers, recycled as early as possible.

use std::ops::Deref;

use crate::table::Table;

/// Identity of an object. Never reused, unlike the object's handle.
pub(crate) type Id = u64;

/// The objects of one kind, with their handles.
#[derive(Debug)]
pub(crate) struct Objects<T> {
    rows: Table<Handled<T>>,
    handles: Handles,
}

/// An object with its handle: zero if it never had one, and the old one if it has lost it.
#[derive(Debug)]
pub(crate) struct Handled<T> {
    pub(crate) handle: usize,
    object: T,
}

/// The handles of one kind of object.
#[derive(Debug)]
struct Handles {
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

impl<T> Objects<T> {
    /// Handles are numbers above `base`.
    pub(crate) fn new(base: usize) -> Self {
        let handles = Handles { base, issued: Vec::new(), free: Vec::new() };
        Self { rows: Table::new(), handles }
    }

    /// Adds an object, and returns its handle.
    pub(crate) fn add(&mut self, id: Id, object: T) -> usize {
        self.add_without_handle(id, object);
        self.issue(id)
    }

    pub(crate) fn add_without_handle(&mut self, id: Id, object: T) {
        self.rows.insert(id, Handled { handle: 0, object });
    }

    /// Gives an object that has no handle a new one.
    pub(crate) fn issue(&mut self, id: Id) -> usize {
        let handle = self.handles.issue(id);
        if let Some(row) = self.rows.get_mut(&id) {
            row.handle = handle;
        }
        handle
    }

    /// Takes the handle from an object, which may stay, because work uses it.
    pub(crate) fn retire(&mut self, id: &Id) {
        if let Some(row) = self.rows.get(id) {
            self.handles.retire(row.handle, *id);
        }
    }

    pub(crate) fn remove(&mut self, id: &Id) -> Option<T> {
        self.retire(id);
        self.rows.remove(id).map(|row| row.object)
    }

    pub(crate) fn retain(&mut self, keep: impl Fn(&T) -> bool) {
        self.rows.retain(|id, row| {
            let stays = keep(&row.object);
            if !stays {
                self.handles.retire(row.handle, *id);
            }
            stays
        });
    }

    /// Gives an object another identity. It keeps its handle.
    pub(crate) fn rename(&mut self, old: &Id, new: Id) {
        if let Some(row) = self.rows.remove(old) {
            self.handles.rename(row.handle, new);
            self.rows.insert(new, row);
        }
    }

    pub(crate) fn resolve<H>(&self, handle: *mut H) -> Result<Id, Dangling> {
        self.handles.resolve(handle.addr())
    }

    pub(crate) fn get_mut(&mut self, id: &Id) -> Option<&mut T> {
        self.rows.get_mut(id).map(|row| &mut row.object)
    }

    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.rows.values_mut().map(|row| &mut row.object)
    }
}

/// The table does not change through this reference, so no object loses its handle.
impl<T> Deref for Objects<T> {
    type Target = Table<Handled<T>>;

    fn deref(&self) -> &Self::Target {
        &self.rows
    }
}

impl<T> Deref for Handled<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.object
    }
}

impl Handles {
    fn issue(&mut self, id: Id) -> usize {
        if let Some(value) = self.free.pop() {
            self.rename(value, id);
            return value;
        }
        self.issued.push(Some(id));
        self.base + self.issued.len() * STRIDE
    }

    /// Makes a handle refer to another object.
    fn rename(&mut self, value: usize, id: Id) {
        if let Some(place) = self.place(value) {
            self.issued[place] = Some(id);
        }
    }

    /// Retires a value, unless it does not refer to this object: another one may have it by now.
    fn retire(&mut self, value: usize, id: Id) {
        let place = self.place(value).filter(|place| self.issued[*place] == Some(id));
        if let Some(place) = place {
            self.issued[place] = None;
            self.free.push(value);
        }
    }

    /// Returns the index of a value in `issued`, if it was issued.
    fn place(&self, value: usize) -> Option<usize> {
        let distance = value.checked_sub(self.base + STRIDE)?;
        let place = distance / STRIDE;
        (distance % STRIDE == 0 && place < self.issued.len()).then_some(place)
    }

    fn resolve(&self, value: usize) -> Result<Id, Dangling> {
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

#[cfg(test)]
mod tests {
    use super::{Dangling, Objects, pointer};

    #[test]
    fn a_handle_is_taken_only_from_the_object_that_has_it() {
        let mut objects = Objects::new(0x1000);
        let first = objects.add(1, "first");
        objects.retire(&1);
        let resolve = |objects: &Objects<_>| objects.resolve(pointer::<u8>(first));
        assert_eq!((objects[&1].handle, resolve(&objects)), (first, Err(Dangling::Destroyed)));
        assert_eq!((objects.add(2, "second"), resolve(&objects)), (first, Ok(2)));
        assert_eq!((objects.remove(&1), resolve(&objects)), (Some("first"), Ok(2)));
        objects.rename(&2, 3);
        assert_eq!((objects.contains_key(&2), resolve(&objects)), (false, Ok(3)));
        objects.retain(|_| false);
        assert_eq!(resolve(&objects), Err(Dangling::Destroyed));
        objects.add_without_handle(4, "third");
        assert_eq!((objects[&4].handle, objects.issue(4)), (0, first));
    }
}
