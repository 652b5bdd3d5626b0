//! Giving something back to the driver, and what is left of it where that fails.
//!
//! An error of the call that releases something may be that of earlier work: see [`crate::process::effect`]. So an
//! attempt has three outcomes, and this is what each `close` and each `Drop` of this crate makes of
//! them:
//!
//! * It is **gone**.
//! * It was **[kept](Unreleased::Kept)**: something stood in the way before the driver was asked to
//!   release it, such as a failed wait for its last work. All is as before. `close` gives the owner
//!   back as it was; a `Drop` [leaves it behind](crate::context::destroy::leave_behind), for good, and its context with it: that
//!   would take the memory along under the work that could not be waited for.
//! * That is **[unknown](Unreleased::Unknown)**: the call that releases it failed. It may be gone, and
//!   its address or handle somebody else's by now, so it is *given up*: neither used nor released
//!   again, and reported as left behind. `close` gives back an owner without it. Memory of that kind
//!   is empty; whatever cannot be empty answers [`Error::GivenUp`].

use cuda_sys::CUresult;

use crate::error::{Error, check};
use crate::process::{driver, drop_hook};
use crate::types::resource::Resource;

/// Why something was not released, as far as anybody can tell.
#[derive(Debug)]
pub(crate) enum Unreleased {
    Kept(Error),
    Unknown(Error),
}

/// A handle, unless it was given up: then it is null.
#[inline]
pub(crate) fn unless_given_up<T>(raw: *mut T, what: Resource) -> Result<*mut T, Error> {
    driver::ensure()?;
    if raw.is_null() {
        return Err(Error::GivenUp { what });
    }
    Ok(raw)
}

/// What the call that releases something says. What the driver refused to release is given up as well:
/// another attempt would end no better.
pub(crate) fn released(op: &'static str, code: CUresult) -> Result<(), Unreleased> {
    check(op, code).map_err(Unreleased::Unknown)
}

impl Unreleased {
    /// The error for whoever called `close`; what is given up with it is reported.
    pub(crate) fn into_told(self, what: Resource, handle: u64, bytes: usize) -> Error {
        match self {
            Unreleased::Kept(error) => error,
            Unreleased::Unknown(error) => {
                drop_hook::report(what, handle, bytes, Some(error.clone()));
                error
            }
        }
    }
}

/// Whatever comes before that call.
impl From<Error> for Unreleased {
    fn from(error: Error) -> Self {
        Unreleased::Kept(error)
    }
}

/// For whom it is all the same: a `Drop`, which tries only once.
impl From<Unreleased> for Error {
    fn from(why: Unreleased) -> Self {
        match why {
            Unreleased::Kept(error) | Unreleased::Unknown(error) => error,
        }
    }
}
