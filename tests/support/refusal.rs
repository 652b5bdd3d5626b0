//! Arguments that the library refuses.

use std::fmt::Debug;

use cuda_core::{Error, Result};

/// The reason for which an argument was refused.
///
/// # Panics
/// If the result is anything but [`Error::Invalid`].
#[track_caller]
pub fn refusal<T: Debug>(result: Result<T>) -> String {
    match result {
        Err(Error::Invalid(it)) => it.reason.into_owned(),
        other => panic!("no argument was refused: {other:?}"),
    }
}
