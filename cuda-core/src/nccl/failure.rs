//! Results of NCCL's functions.

use std::ffi::{CStr, c_char, c_int};
use std::ptr;

use super::library::Nccl;
use super::raw::{IN_PROGRESS, RawCommunicator, SUCCESS};
use crate::error::{Error, NcclError, Result};

/// Turns the result of a call outside a communicator into this crate's result.
pub(super) fn checked(op: &'static str, nccl: &Nccl, code: c_int) -> Result<()> {
    check(op, nccl, code, (ptr::null_mut(), None))
}

/// Turns NCCL's result code into an [`Error`]. `at` is the communicator, or null, and the rank in
/// it.
#[inline]
pub(super) fn check(
    op: &'static str,
    nccl: &Nccl,
    code: c_int,
    at: (RawCommunicator, Option<usize>),
) -> Result<()> {
    if code == SUCCESS { Ok(()) } else { Err(failed(op, nccl, code, at)) }
}

#[cold]
fn failed(
    op: &'static str,
    nccl: &Nccl,
    code: c_int,
    (raw, rank): (RawCommunicator, Option<usize>),
) -> Error {
    // SAFETY: the function takes any number, and returns a static text.
    let mut reason = text(unsafe { (nccl.error_string)(code) });
    // SAFETY: the communicator is live, or null, which the function takes; the text stays as it is
    // until the next error, and is copied here.
    let last = text(unsafe { (nccl.last_error)(raw) });
    if !last.is_empty() {
        reason = format!("{reason}: {}", last.trim_end());
    }
    NcclError::Failed { op, code, rank, reason }.into()
}

/// Returns the result of the call in progress or of earlier work: `ncclCommGetAsyncError`. Returns
/// an error if NCCL refuses that query, which says nothing about the work.
///
/// # Safety
/// The communicator is live, and no other thread calls it.
pub(super) unsafe fn async_result(nccl: &Nccl, raw: RawCommunicator) -> Result<c_int, c_int> {
    let mut result = SUCCESS;
    // SAFETY: the caller's promise; the call writes one number, to a local that outlives it.
    match unsafe { (nccl.async_error)(raw, &mut result) } {
        SUCCESS => Ok(result),
        refused => Err(refused),
    }
}

/// Returns the error that NCCL reports for earlier work.
///
/// # Safety
/// As [`async_result`].
pub(super) unsafe fn failed_work(
    op: &'static str,
    nccl: &Nccl,
    at: (RawCommunicator, Option<usize>),
) -> Option<Error> {
    // SAFETY: the caller's promise.
    match unsafe { async_result(nccl, at.0) } {
        Ok(IN_PROGRESS) | Err(_) => None,
        Ok(code) => check(op, nccl, code, at).err(),
    }
}

/// Returns whether ranks may now wait for each other in vain: NCCL failed a call, a call took too
/// long, or a rank was aborted. An error that is found before NCCL is called, such as
/// [`NcclError::Finalized`], has no such effect.
pub(super) fn may_have_lost_a_rank(error: &Error) -> bool {
    use NcclError::{Aborted, Failed, TimedOut};
    let Error::Nccl(why) = error else { return false };
    matches!(**why, Failed { .. } | TimedOut { .. } | Aborted { .. })
}

/// Copies a text of NCCL.
fn text(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: not null, so a C string of NCCL.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}
