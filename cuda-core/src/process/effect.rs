//! Calls that return an error although they may have taken effect.
//!
//! The reference says of most functions that change something: "Note that this function may also return error
//! codes from previous, asynchronous launches". It does not say whether the call itself then took effect.
//! Each such call of this crate goes through [`attempt`], and each caller decides by [`Failed`] what to undo.
//! Three cases are decided in one place for all callers:
//!
//! * Memory that a failed enqueue uses is marked as used ([`crate::timeline::submit`]).
//! * A resource that a failed call should release is given up ([`released`]).
//! * A descriptor that a failed call may have taken is not closed ([`give_fd`]).
//!
//! So an attempt to release a resource has three outcomes, which every `close` and `Drop` of this crate
//! handles as follows:
//!
//! * The resource is **gone**.
//! * It was **[kept](Failed::Refused)**: something failed before the driver was asked to release it, such
//!   as the wait for its last work. The resource is unchanged. `close` returns the owner unchanged; a `Drop`
//!   reports the resource and does not release it. The `Drop` of memory also [leaves its context
//!   behind](crate::context::destroy::leave_behind) permanently: destroying the context would free the memory
//!   under the work that could not be waited for.
//! * Its state is **[unknown](Failed::Unknown)**: the releasing call failed. The resource may be gone,
//!   and its address or handle may belong to something else by now, so it is *given up*: neither used nor
//!   released again, and reported as left behind. `close` returns an owner without the resource. Memory is
//!   then empty; the methods of an owner that cannot be empty return [`Error::GivenUp`].

#[cfg(unix)]
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd, RawFd};

use cuda_sys::CUresult;

use crate::error::{Error, Rejected, Result, check};
use crate::process::drop_hook;
use crate::types::Resource;
use crate::util::from;

/// Whether a call that returned an error may have taken effect.
#[derive(Debug)]
pub(crate) enum Failed {
    /// The driver refused the call, or something failed before it: nothing has changed.
    Refused(Error),
    /// The error may be one of earlier work, and the call may have taken effect.
    Unknown(Error),
}

impl Failed {
    /// Returns the error; calls `undo` first if the call may have taken effect.
    pub(crate) fn undo(self, undo: impl FnOnce()) -> Error {
        if let Self::Unknown(_) = self {
            undo();
        }
        self.into()
    }

    /// The error of an allocator's `deallocate`. That of a kept block has no [code](Error::code): it is a
    /// [`Rejected`] around the error.
    pub(crate) fn of_block(self, address: u64) -> Error {
        match self {
            Self::Refused(error) if error.code().is_some() => {
                Error::other(Rejected::new(error, address))
            }
            why => why.into(),
        }
    }

    /// The error for the caller of `close`; reports the resource if it is given up.
    pub(crate) fn into_reported(self, what: Resource, handle: u64, bytes: usize) -> Error {
        if let Self::Unknown(error) = &self {
            drop_hook::report(what, handle, bytes, Some(error.clone()));
        }
        self.into()
    }
}

from! {
    // An error of what comes before the call. Where the call may have had an effect, an error is converted
    // to `Unknown` by name.
    [] Error => Failed: |error| Failed::Refused(error);
    // For callers that treat both alike, such as a `Drop`, which tries only once.
    [] Failed => Error: |failed| match failed {
        Failed::Refused(error) | Failed::Unknown(error) => error,
    };
}

/// Checks a call whose reference says that it may return errors of earlier work. For calls whose effect the
/// caller can undo, or that may have taken an argument of the caller; not for enqueues and releases. A failed
/// allocation returns no address that could be freed. Other calls go through [`check`]: their errors are
/// taken to mean that the call had no effect.
#[inline]
pub(crate) fn attempt(op: &'static str, code: CUresult) -> Result<(), Failed> {
    check(op, code).map_err(|error| classify(code, error))
}

/// The result of a releasing call. A resource that the driver refused to release is given up as
/// well: another attempt would not succeed either.
pub(crate) fn released(op: &'static str, code: CUresult) -> Result<(), Failed> {
    check(op, code).map_err(Failed::Unknown)
}

#[cold]
fn classify(code: CUresult, error: Error) -> Failed {
    if is_refusal(code) { Failed::Refused(error) } else { Failed::Unknown(error) }
}

/// Whether this code is documented as the refusal of a call, which then has no effect, and never as a failure
/// of work on a device.
pub(crate) fn is_refusal(code: CUresult) -> bool {
    const REFUSALS: [CUresult; 12] = [
        cuda_sys::CUDA_ERROR_DEINITIALIZED,
        cuda_sys::CUDA_ERROR_NOT_INITIALIZED,
        cuda_sys::CUDA_ERROR_INVALID_CONTEXT,
        cuda_sys::CUDA_ERROR_CONTEXT_IS_DESTROYED,
        cuda_sys::CUDA_ERROR_INVALID_VALUE,
        cuda_sys::CUDA_ERROR_INVALID_HANDLE,
        cuda_sys::CUDA_ERROR_OUT_OF_MEMORY,
        cuda_sys::CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED,
        cuda_sys::CUDA_ERROR_NOT_PERMITTED,
        cuda_sys::CUDA_ERROR_NOT_SUPPORTED,
        cuda_sys::CUDA_ERROR_OPERATING_SYSTEM,
        // Returned by `cuda-sys` for a function that the driver lacks.
        cuda_sys::CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER,
    ];
    REFUSALS.contains(&code)
}

/// Makes a call that takes ownership of a descriptor if it takes effect. Passes a duplicate, so that `fd`
/// stays with its owner in any case. Closes the duplicate if the call was refused, and leaves it to the
/// driver otherwise: its number may belong to another file by then.
///
/// # Errors
/// The call's; `OPERATING_SYSTEM` if the process can have no more descriptors.
#[cfg(unix)]
pub(crate) fn give_fd(
    op: &'static str,
    fd: &OwnedFd,
    call: impl FnOnce(RawFd) -> CUresult,
) -> Result<(), Failed> {
    let Ok(duplicate) = fd.try_clone() else {
        return attempt(op, cuda_sys::CUDA_ERROR_OPERATING_SYSTEM);
    };
    let given = attempt(op, call(duplicate.as_raw_fd()));
    if !matches!(given, Err(Failed::Refused(_))) {
        let _ = duplicate.into_raw_fd();
    }
    given
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_has_done_nothing_and_an_error_of_earlier_work_may() {
        let codes =
            [cuda_sys::CUDA_ERROR_INVALID_VALUE, cuda_sys::CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER];
        for refused in codes.map(|code| attempt("cuMemMap", code)) {
            assert!(matches!(refused, Err(Failed::Refused(_))), "{refused:?}");
        }
        let unknown = attempt("cuMemMap", cuda_sys::CUDA_ERROR_ILLEGAL_ADDRESS);
        assert!(matches!(unknown, Err(Failed::Unknown(_))), "{unknown:?}");
        assert!(attempt("cuMemMap", cuda_sys::CUDA_SUCCESS).is_ok());
    }

    #[test]
    #[cfg_attr(miri, ignore = "opens files")]
    #[cfg(unix)]
    fn s49_a_duplicate_that_was_refused_is_closed_and_one_that_may_be_taken_is_not() {
        use std::fs::File;
        use std::mem::ManuallyDrop;
        use std::os::fd::FromRawFd;
        let op = "cuImportExternalMemory";
        let fd = OwnedFd::from(File::open(env!("CARGO_MANIFEST_DIR")).expect("a file"));
        let is_open = |number| {
            // SAFETY: only queried, and not closed.
            let file = ManuallyDrop::new(unsafe { File::from_raw_fd(number) });
            file.metadata().is_ok()
        };
        let mut given = -1;
        let refused = give_fd(op, &fd, |number| {
            given = number;
            cuda_sys::CUDA_ERROR_INVALID_VALUE
        });
        assert!(matches!(refused, Err(Failed::Refused(_))), "{refused:?}");
        assert_ne!(given, fd.as_raw_fd());
        for code in [cuda_sys::CUDA_ERROR_LAUNCH_FAILED, cuda_sys::CUDA_SUCCESS] {
            let _ = give_fd(op, &fd, |number| {
                given = number;
                code
            });
            assert!(is_open(given), "{code:?}");
            // SAFETY: open, and owned by the driver, whose part this test plays.
            drop(unsafe { OwnedFd::from_raw_fd(given) });
        }
        assert!(is_open(fd.as_raw_fd()));
    }
}
