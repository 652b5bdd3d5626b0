//! Prints a test's findings beside its verdict.

use std::fmt::Arguments;
use std::io::{Write, stderr};

/// Prints a finding that does not affect the verdict: a figure, or what this machine could not check. The
/// runner shows it after all tests: `noted: copies::j13_overlap_pays: ...`.
///
/// ```text
/// support::report!("device {device} reaches no other: only copies without access were tried");
/// ```
#[macro_export]
macro_rules! report {
    ($($text:tt)+) => {
        $crate::report(module_path!(), format_args!($($text)+))
    };
}

/// Implements [`report!`](crate::report!) for the test at `path`.
pub fn report(path: &str, text: Arguments<'_>) {
    let text = text.to_string().replace('\n', " ");
    // Not `eprintln!`, whose output libtest captures when the test passes; in one write, since
    // other threads write too. If stderr is closed the text is lost.
    let _ = stderr().write_all(format!("noted: {path}: {text}\n").as_bytes());
}
