//! What a test has to say beside its verdict.

use std::fmt::Arguments;
use std::io::{Write, stderr};

/// Says what a test found that is no verdict: a figure to read, or what it could not ask of this
/// machine. The runner shows it when all is over, `noted: copies::j13_overlap_pays: ...`.
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

/// What [`report!`](crate::report!) does in the test at `path`.
pub fn report(path: &str, text: Arguments<'_>) {
    let text = text.to_string().replace('\n', " ");
    // Not `eprintln!`, which libtest keeps from the reader of a green test, and in one write, since
    // others write too. A closed stderr leaves nobody to tell.
    let _ = stderr().write_all(format!("noted: {path}: {text}\n").as_bytes());
}
