//! Values in memory that streams write and wait for.
//!
//! The host may read and change them at any moment without a call, so the simulator accesses host memory
//! atomically, as a device does.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

use crate::engine::work::{Compare, Place};
use crate::state::State;

impl State {
    /// Writes a value of `width` bytes.
    pub(super) fn write_value(
        &mut self,
        call: &'static str,
        place: &Place,
        value: u64,
        width: usize,
    ) {
        if matches!(place, Place::Device { .. }) {
            self.write(call, place, 0, &value.to_le_bytes()[..width]);
            return;
        }
        let Some(at) = self.host_pointer(call, place, 0) else {
            return;
        };
        if width == 4 {
            // SAFETY: the address was aligned and inside its pinned block at enqueue, and the block
            // still exists; the program accesses it atomically, as CUDA requires.
            let there = unsafe { AtomicU32::from_ptr(at.cast()) };
            there.store(value as u32, Ordering::Release);
        } else {
            // SAFETY: the address was aligned and inside its pinned block at enqueue, and the block
            // still exists; the program accesses it atomically, as CUDA requires.
            let there = unsafe { AtomicU64::from_ptr(at.cast()) };
            there.store(value, Ordering::Release);
        }
    }

    /// Reads a value; returns `None` if the memory is gone, which has been reported.
    pub(super) fn read_value(
        &mut self,
        call: &'static str,
        place: &Place,
        width: usize,
    ) -> Option<u64> {
        if matches!(place, Place::Device { .. }) {
            let mut bytes = [0; 8];
            let there = self.read(call, place, 0, &mut bytes[..width]);
            return there.then(|| u64::from_le_bytes(bytes));
        }
        let at = self.host_pointer(call, place, 0)?;
        if width == 4 {
            // SAFETY: as in `write_value`.
            let there = unsafe { AtomicU32::from_ptr(at.cast()) };
            Some(there.load(Ordering::Acquire).into())
        } else {
            // SAFETY: as in `write_value`.
            let there = unsafe { AtomicU64::from_ptr(at.cast()) };
            Some(there.load(Ordering::Acquire))
        }
    }

    /// Returns whether a wait for a value has ended.
    pub(super) fn value_arrived(
        &mut self,
        call: &'static str,
        place: &Place,
        value: u64,
        width: usize,
        compare: Compare,
    ) -> bool {
        let Some(memory) = self.read_value(call, place, width) else {
            return true;
        };
        if self.log.waits_end.is_some_and(|end| end <= Instant::now()) {
            return true;
        }
        let unused = 64 - 8 * width as u32;
        match compare {
            Compare::Geq => ((memory.wrapping_sub(value)) << unused) as i64 >= 0,
            Compare::Eq => memory == value,
            Compare::And => memory & value != 0,
            Compare::Nor => !(memory | value) << unused != 0,
        }
    }
}
