//! Extracts the reasons for which arguments and device code are refused.

use std::fmt::Debug;

use cuda_core::{Error, ModuleError, Result};

/// Returns the reason for which an argument was refused.
///
/// # Panics
/// If the result is anything but [`Error::Invalid`].
#[track_caller]
pub fn refusal<T: Debug>(result: Result<T, impl Into<Error>>) -> String {
    match result.map_err(Into::into) {
        Err(Error::Invalid(it)) => it.reason.into_owned(),
        other => panic!("no argument was refused: {other:?}"),
    }
}

/// Returns the error log of the compiler or the linker.
///
/// # Panics
/// If the result is anything but [`ModuleError::Compile`].
#[track_caller]
pub fn compile_log<T: Debug>(result: Result<T>) -> String {
    match result {
        Err(Error::Module(why)) => match *why {
            ModuleError::Compile { log, .. } => log,
            why => panic!("{why:?}"),
        },
        other => panic!("{other:?}"),
    }
}
