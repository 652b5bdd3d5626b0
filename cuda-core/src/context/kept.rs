//! Lets rooms above forget process-wide objects that refer to contexts. Each room sets its function
//! before it keeps the first such object.

use std::sync::OnceLock;

/// Removes points that are known to have been reached from the chunks of staging, and with them
/// references to streams and contexts. No driver call.
pub(crate) static STAGING: OnceLock<fn()> = OnceLock::new();

/// The same for the chunks of pinned buffers and of signals.
pub(crate) static PINNED: OnceLock<fn()> = OnceLock::new();

/// The same for the launches of libraries, which belong to no context.
pub(crate) static LIBRARIES: OnceLock<fn()> = OnceLock::new();

/// Removes points that are known to have been reached from the objects of no context. No driver call.
pub(crate) fn forget_reached() {
    let kept = [&STAGING, &PINNED, &LIBRARIES];
    kept.iter().filter_map(|kept| kept.get()).for_each(|forget| forget());
}
