//! An error together with the value that the operation returns to the caller.

use std::fmt;

use super::{Error, Result};
use crate::util::debug_by;

/// The error of an operation that takes a value by value, together with that value: nothing is lost.
///
/// `?` turns it into an [`Error`] and drops the value; in a function with an error of its own type,
/// write `.map_err(|rejected| rejected.error)?`. To keep the value, match on it, or take
/// [`Rejected::value`].
///
/// ```no_run
/// # let stream = cuda_core::Device::get(0)?.create_stream()?;
/// use cuda_core::Rejected;
///
/// let mut buffer = stream.alloc::<f32>(1000)?;
/// match stream.upload_owned(vec![1.0; 999], &mut buffer) {
///     Ok(upload) => drop(upload.wait()?),
///     Err(Rejected { error, value: flight }) => {
///         let vec = flight.wait()?; // the vector again: 999 elements do not fill the buffer
///         println!("{error}: {}", vec.len());
///     }
/// }
/// buffer.close()?;
/// # Ok::<(), cuda_core::Error>(())
/// ```
pub struct Rejected<X> {
    /// Why the operation failed.
    pub error: Error,
    /// The value given to the operation, in the state that its documentation names.
    pub value: X,
}

impl<X> Rejected<X> {
    pub(crate) fn new(error: Error, value: X) -> Self {
        Self { error, value }
    }

    /// Returns the result with the value, or the error with the value.
    pub(crate) fn unless<R>(tried: Result<R>, value: X) -> Result<(R, X), Self> {
        match tried {
            Ok(result) => Ok((result, value)),
            Err(error) => Err(Self::new(error, value)),
        }
    }

    /// The same error with another value, such as a wrapper around it.
    pub(crate) fn map<Y>(self, wrap: impl FnOnce(X) -> Y) -> Rejected<Y> {
        Rejected { error: self.error, value: wrap(self.value) }
    }
}

// Shows only the error: `X` need not implement `Debug`.
debug_by! { [X] Rejected<X>: |it| "Rejected"(it.error) }

impl<X> fmt::Display for Rejected<X> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<X> std::error::Error for Rejected<X> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_says_what_the_error_says_and_turns_into_it() {
        struct Plain;
        let rejected = Rejected::new(Error::ContextInUse, Plain);
        let said = "the context is still in use: by clones, streams, buffers, events or guards (drop them first), or by work that is not known to be done";
        assert_eq!(format!("{rejected:?}"), format!("Rejected(ContextInUse({said}))"));
        assert_eq!(rejected.to_string(), said);
        assert!(std::error::Error::source(&rejected).is_none(), "nothing is said twice");
        assert_eq!(Error::from(rejected), Error::ContextInUse);
    }
}
