//! Stream-ordered memory pools, as accounts: what they hold, and which devices may access it.

use std::collections::BTreeSet;

use crate::descriptor::FileId;

#[derive(Debug)]
pub(crate) struct Pool {
    pub(crate) handle: usize,
    pub(crate) device: usize,
    pub(crate) is_default: bool,
    pub(crate) destroyed: bool,
    /// 0 means no limit.
    pub(crate) max_size: usize,
    pub(crate) release_threshold: u64,
    /// Values of the three reuse attributes: opportunistic and internal dependencies, event ones.
    pub(crate) reuse: [i32; 3],
    /// Other devices that may access its memory.
    pub(crate) access: BTreeSet<usize>,
    /// The handle types by which it can be shared.
    pub(crate) handle_types: u32,
    /// The files of the descriptors by which it was exported.
    pub(crate) exported: Vec<FileId>,
    /// Imported from another process: nothing is allocated from it.
    pub(crate) imported: bool,
    pub(crate) used: Gauge,
    pub(crate) reserved: Gauge,
}

/// A value and the highest it has been.
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
            handle: 0,
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

    /// Bytes that the pool must take from the device to allocate `size` more.
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

    /// Returns to the device what is cached above `keep`.
    pub(crate) fn trim(&mut self, keep: usize) {
        let target = self.used.current.max(keep.min(self.reserved.current));
        self.reserved.set(target);
    }

    pub(crate) fn is_open_to(&self, device: usize) -> bool {
        self.device == device || self.access.contains(&device)
    }
}
