//! The caller of a driver call, as a backtrace, for tests that ask for it.

use std::backtrace::Backtrace;
use std::fmt;
use std::sync::Arc;

/// The backtrace of a driver call; see [`Session::keep_origins`](crate::Session::keep_origins).
///
/// Its symbols are resolved on request, which is slow, above all the first time.
#[derive(Clone)]
pub struct Origin(Arc<Backtrace>);

impl Origin {
    pub(crate) fn here() -> Self {
        Self(Arc::new(Backtrace::force_capture()))
    }

    /// The functions of the backtrace by their paths, the simulator's own first.
    #[must_use]
    pub fn functions(&self) -> Vec<String> {
        // `   4: path::of::function`, and places of source between such lines.
        let text = self.0.to_string();
        let frames = text.lines().filter_map(|line| line.trim().split_once(": "));
        let frames = frames.filter(|(number, _)| number.parse::<usize>().is_ok());
        frames.map(|(_, function)| function.to_owned()).collect()
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Origin(..)")
    }
}

/// Both are of the same call.
impl PartialEq for Origin {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Origin {}

/// Functions that change the current context, or may.
pub(crate) const CHANGES_CURRENT: [&str; 8] = [
    "cuCtxCreate_v2",
    "cuCtxCreate_v3",
    "cuCtxCreate_v4",
    "cuCtxDestroy_v2",
    "cuCtxPopCurrent_v2",
    "cuCtxPushCurrent_v2",
    "cuCtxSetCurrent",
    "cuDevicePrimaryCtxReset_v2",
];
