//! Releasing a resource to the driver, and the resource's state if the release fails.
//!
//! An error of the releasing call may be one of earlier work: see [`crate::process::effect`]. So an attempt
//! has three outcomes, which every `close` and `Drop` of this crate handles as follows:
//!
//! * The resource is **gone**.
//! * It was **[kept](FailedRelease::Kept)**: something failed before the driver was asked to release it, such
//!   as the wait for its last work. The resource is unchanged. `close` returns the owner unchanged; a `Drop`
//!   reports the resource and does not release it. The `Drop` of memory also [leaves its context
//!   behind](crate::context::destroy::leave_behind) permanently: destroying the context would free the memory
//!   under the work that could not be waited for.
//! * Its state is **[unknown](FailedRelease::Unknown)**: the releasing call failed. The resource may be gone,
//!   and its address or handle may belong to something else by now, so it is *given up*: neither used nor
//!   released again, and reported as left behind. `close` returns an owner without the resource. Memory is
//!   then empty; the methods of an owner that cannot be empty return [`Error::GivenUp`].

use cuda_sys::CUresult;

use crate::error::{Error, Rejected, Result, check};
use crate::process::drop_hook;
use crate::types::Resource;
use crate::util::from;

/// The reason why a resource was not released, or may not have been.
#[derive(Debug)]
pub(crate) enum FailedRelease {
    Kept(Error),
    Unknown(Error),
}

/// The result of a releasing call. A resource that the driver refused to release is given up as
/// well: another attempt would not succeed either.
pub(crate) fn released(op: &'static str, code: CUresult) -> Result<(), FailedRelease> {
    check(op, code).map_err(FailedRelease::Unknown)
}

impl FailedRelease {
    /// The error of an allocator's `deallocate`. That of a kept block has no [code](Error::code): it is a
    /// [`Rejected`] around the error.
    pub(crate) fn of_block(self, address: u64) -> Error {
        match self {
            FailedRelease::Kept(error) if error.code().is_some() => {
                Error::other(Rejected::new(error, address))
            }
            why => why.into(),
        }
    }

    /// The error for the caller of `close`; reports the resource if it is given up.
    pub(crate) fn into_reported(self, what: Resource, handle: u64, bytes: usize) -> Error {
        match self {
            FailedRelease::Kept(error) => error,
            FailedRelease::Unknown(error) => {
                drop_hook::report(what, handle, bytes, Some(error.clone()));
                error
            }
        }
    }
}

from! {
    // Errors before the releasing call.
    [] Error => FailedRelease: |error| FailedRelease::Kept(error);
    // For callers that treat both outcomes alike, such as a `Drop`, which tries only once.
    [] FailedRelease => Error: |why| match why {
        FailedRelease::Kept(error) | FailedRelease::Unknown(error) => error,
    };
}
