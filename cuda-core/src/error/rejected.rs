//! An error together with the value that the operation hands back.

use std::fmt;

use super::Error;
use crate::util::by_parts::debug_by;

/// The error of an operation that takes a value by value, and that value: nothing is lost.
///
/// `?` turns it into an [`Error`] and drops the value. To go on with the value, match on it, or
/// take [`Rejected::value`].
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
    /// What the operation was given, in the state that its documentation names.
    pub value: X,
}

impl<X> Rejected<X> {
    pub(crate) fn new(error: Error, value: X) -> Self {
        Self { error, value }
    }

    /// The same error with another value, such as a wrapper around it.
    pub(crate) fn map<Y>(self, wrap: impl FnOnce(X) -> Y) -> Rejected<Y> {
        Rejected { error: self.error, value: wrap(self.value) }
    }
}

// Of the error alone: the value need not have any.
debug_by! { [X] Rejected<X>: |it| "Rejected"(it.error) }

impl<X> fmt::Display for Rejected<X> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<X> std::error::Error for Rejected<X> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_turns_into_the_error_and_has_it_as_source() {
        struct Plain;
        let rejected = Rejected::new(Error::ContextInUse, Plain);
        assert_eq!(format!("{rejected:?}"), "Rejected(ContextInUse(the context is still in use))");
        let source = std::error::Error::source(&rejected).map(ToString::to_string);
        assert_eq!(source.as_deref(), Some("the context is still in use"));
        assert_eq!(Error::from(rejected), Error::ContextInUse);
    }
}
