//! The lock of a capture.

use std::ops::{Deref, DerefMut};
use std::sync::MutexGuard;

use super::{OpenRecording, Recording};
use crate::process::DeferForeignCode;
use crate::util::lock;

/// What a capture has recorded, locked. A hook about what is dropped meanwhile may use the capture: it runs
/// after unlocking.
pub(super) struct LockedRecording<'a> {
    // Dropped in this order.
    pub(super) recorded: MutexGuard<'a, Option<OpenRecording>>,
    pub(super) _quiet: DeferForeignCode,
}

impl Recording {
    pub(super) fn lock(&self) -> LockedRecording<'_> {
        LockedRecording { recorded: lock(&self.recorded), _quiet: DeferForeignCode::begin() }
    }
}

impl Deref for LockedRecording<'_> {
    type Target = Option<OpenRecording>;

    fn deref(&self) -> &Self::Target {
        &self.recorded
    }
}

impl DerefMut for LockedRecording<'_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.recorded
    }
}
