//! The lock of a capture.

use std::ops::{Deref, DerefMut};
use std::sync::MutexGuard;

use super::{OpenRecording, Recording};
use crate::process::DeferForeignCode;
use crate::util::lock;

/// The locked recording of a capture. A drop hook that runs while it is locked may use the capture, so it is
/// deferred until after unlocking.
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
