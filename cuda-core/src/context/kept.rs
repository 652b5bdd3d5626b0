//! What rooms above keep for the process that names contexts, and forget when they are asked to.

use std::sync::OnceLock;

use crate::context::RawContext;

/// How each of them forgets; set before the first thing is kept.
pub(crate) struct Kept {
    /// Points that are known to have been reached, of the pinned chunks of buffers, of staging and of
    /// signals, with the streams and contexts that they name. No driver call.
    pub(crate) pinned: OnceLock<fn()>,
    pub(crate) staging: OnceLock<fn()>,
    pub(crate) signals: OnceLock<fn()>,
    /// The access that a context has to others' memory, and they to its.
    pub(crate) access: OnceLock<fn(RawContext)>,
}

pub(crate) static KEPT: Kept = Kept {
    pinned: OnceLock::new(),
    staging: OnceLock::new(),
    signals: OnceLock::new(),
    access: OnceLock::new(),
};

/// Has points forgotten that are known to have been reached.
pub(crate) fn forget_reached() {
    let points = [&KEPT.staging, &KEPT.pinned, &KEPT.signals];
    points
        .into_iter()
        .filter_map(OnceLock::get)
        .for_each(|forget| forget());
}
