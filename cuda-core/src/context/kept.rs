//! Hooks by which rooms above forget process-wide objects that refer to contexts. Each room sets its function
//! before it keeps the first such object.

use std::sync::OnceLock;

/// Removes reached points from staging chunks, and with them references to streams and contexts. Makes no
/// driver call.
pub(crate) static STAGING: OnceLock<fn()> = OnceLock::new();

/// Does the same for the chunks of pinned buffers and of signals.
pub(crate) static PINNED: OnceLock<fn()> = OnceLock::new();

/// Does the same for launches of libraries, which belong to no context.
pub(crate) static LIBRARIES: OnceLock<fn()> = OnceLock::new();

/// Does the same for blocks of the shared caching pool, which streams of other contexts may have used.
pub(crate) static POOL: OnceLock<fn()> = OnceLock::new();

/// Removes reached points from objects that belong to no context, or to another one. Makes no driver call.
pub(crate) fn forget_reached() {
    let kept = [&STAGING, &PINNED, &LIBRARIES, &POOL];
    kept.iter().filter_map(|kept| kept.get()).for_each(|forget| forget());
}
