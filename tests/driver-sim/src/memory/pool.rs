//! Accounts of stream-ordered memory pools: what they hold, and which devices may access it.

use std::collections::BTreeSet;

use crate::descriptor::FileId;

#[derive(Debug)]
pub(crate) struct Pool {
    pub(crate) device: usize,
    pub(crate) is_default: bool,
    pub(crate) destroyed: bool,
    /// The limit of the pool's size; 0 means none.
    pub(crate) max_size: usize,
    pub(crate) release_threshold: u64,
    /// Values of the reuse attributes: event dependencies, opportunistic, internal dependencies.
    pub(crate) reuse: [i32; 3],
    /// Other devices that may access the pool's memory.
    pub(crate) access: BTreeSet<usize>,
    /// The handle types by which the pool can be shared.
    pub(crate) handle_types: u32,
    /// The files of the descriptors by which the pool was exported.
    pub(crate) exported: Vec<FileId>,
    /// Whether the pool was imported from another process: nothing is allocated from it.
    pub(crate) imported: bool,
    pub(crate) used: Gauge,
    pub(crate) reserved: Gauge,
}

/// A value and its highest value so far.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Gauge {
    pub(crate) current: usize,
    pub(crate) high: usize,
}

impl Gauge {
    pub(crate) fn set(&mut self, value: usize) {
        self.current = value;
        self.high = self.high.max(value);
    }
}

impl Pool {
    pub(crate) fn new(device: usize, is_default: bool) -> Self {
        Self {
            device,
            is_default,
            destroyed: false,
            max_size: 0,
            release_threshold: 0,
            reuse: [1; 3],
            access: BTreeSet::new(),
            handle_types: 0,
            exported: Vec::new(),
            imported: false,
            used: Gauge::default(),
            reserved: Gauge::default(),
        }
    }

    /// Returns the bytes that the pool must take from the device to allocate `size` more.
    pub(crate) fn growth(&self, size: usize) -> usize {
        (self.used.current + size).saturating_sub(self.reserved.current)
    }

    pub(crate) fn take(&mut self, size: usize) {
        self.used.set(self.used.current + size);
        self.reserved.set(self.reserved.current.max(self.used.current));
    }

    pub(crate) fn give(&mut self, size: usize) {
        self.used.set(self.used.current - size);
    }

    /// Returns to the device what the pool caches above `keep`.
    pub(crate) fn trim(&mut self, keep: usize) {
        let target = self.used.current.max(keep.min(self.reserved.current));
        self.reserved.set(target);
    }

    pub(crate) fn is_open_to(&self, device: usize) -> bool {
        self.device == device || self.access.contains(&device)
    }
}
