//! Backtraces of driver calls, for tests that ask for them.

use std::backtrace::Backtrace;
use std::fmt;
use std::sync::Arc;

/// The backtrace of a driver call; see [`Session::keep_origins`](crate::Session::keep_origins).
///
/// Its symbols are resolved on request, which is slow, most of all the first time.
#[derive(Clone)]
pub struct Origin(Arc<Backtrace>);

impl Origin {
    pub(crate) fn here() -> Self {
        Self(Arc::new(Backtrace::force_capture()))
    }

    /// Returns the paths of the backtrace's functions, the simulator's own first.
    #[must_use]
    pub fn functions(&self) -> Vec<String> {
        frames(&self.0.to_string()).map(|(function, _)| function.to_owned()).collect()
    }

    /// Returns the function of the program that led to the driver's function `call`, with its source
    /// location; `None` if the program has no symbols.
    pub(crate) fn caller(&self, call: &str) -> Option<String> {
        let text = self.0.to_string();
        let frames: Vec<_> = frames(&text).collect();
        // The entry point may have a longer name, such as that of a later version.
        let is_entry = |&(function, _): &Frame<'_>| {
            function.rsplit("::").next().is_some_and(|name| name.starts_with(call))
        };
        let entry = frames.iter().rposition(is_entry)?;
        let (function, place) = frames[entry + 1..].iter().find(|frame| !is_of_a_library(frame))?;
        Some(place.map_or((*function).to_owned(), |place| format!("{function} ({place})")))
    }
}

/// A function, and its source location if known.
type Frame<'a> = (&'a str, Option<&'a str>);

/// Returns the frames of a backtrace's text: `   4: path::of::function`, mostly followed by a line
/// `at file:1:2`.
fn frames(text: &str) -> impl Iterator<Item = Frame<'_>> {
    let mut lines = text.lines().map(str::trim).peekable();
    std::iter::from_fn(move || {
        loop {
            let (number, function) = lines.next()?.split_once(": ").unwrap_or_default();
            if number.parse::<usize>().is_ok() {
                let place = lines.peek().and_then(|line| line.strip_prefix("at "));
                return Some((function, place));
            }
        }
    })
}

/// Returns whether a frame lies between the program and the driver. An inlined function may appear by its
/// name alone, without a path.
fn is_of_a_library((function, place): &Frame<'_>) -> bool {
    let path = function.trim_start_matches(['<', '&']);
    let libraries = ["cuda_sys::", "cuda_core::", "std::", "core::", "alloc::"];
    let folders = ["cuda-sys/src/", "cuda-core/src/", "/rustc/"];
    libraries.iter().any(|it| path.starts_with(it))
        || place.is_some_and(|place| folders.iter().any(|it| place.contains(it)))
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

/// Equal if both are of the same call.
impl PartialEq for Origin {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Origin {}

/// Functions that change, or may change, the current context.
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
