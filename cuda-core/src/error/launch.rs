//! Why a kernel cannot be launched, found before any driver call.

use std::fmt;

/// Why a [launch](crate::Launch) was refused: the inner value of
/// [`Error::Launch`](crate::Error::Launch).
///
/// ```no_run
/// # let stream = cuda_core::Device::get(0)?.create_stream()?;
/// # let function = cuda_core::Module::from_ptx(stream.context(), "")?.function("scale")?;
/// use cuda_core::{Error, LaunchError};
///
/// let mut launch = stream.kernel(&function).block(4096);
/// // SAFETY: the kernel has no parameter and touches nothing.
/// match unsafe { launch.launch() } {
///     Err(Error::Launch(LaunchError::Limit { what, asked, limit, .. })) => {
///         println!("{what}: {asked}, where {limit} are possible");
///     }
///     other => other?,
/// }
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum LaunchError {
    /// A launch has a size of zero, or of more than the device or the kernel allows.
    #[non_exhaustive]
    Limit {
        /// What is zero or too much.
        what: &'static str,
        /// The size requested.
        asked: u64,
        /// The largest allowed.
        limit: u64,
    },

    /// A kernel was given more or fewer arguments than it has parameters.
    #[non_exhaustive]
    ArgumentCount {
        /// The kernel.
        kernel: String,
        /// Parameters that it has.
        expected: usize,
        /// Arguments that it was given.
        given: usize,
    },

    /// An argument differs in size from the parameter that it is for.
    #[non_exhaustive]
    ArgumentSize {
        /// The kernel.
        kernel: String,
        /// The parameter, from zero on.
        index: usize,
        /// Its size in bytes.
        expected: usize,
        /// The argument's.
        given: usize,
    },
}

impl fmt::Display for LaunchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Limit { what, asked: 0, .. } => write!(f, "launch: {what} is zero"),
            Self::Limit { what, asked, limit } => {
                write!(f, "launch: {what}: {asked} asked for, at most {limit} possible")
            }
            Self::ArgumentCount { kernel, expected, given } => write!(
                f,
                "launch: `{kernel}` has {expected} parameters, and was given {given} arguments"
            ),
            Self::ArgumentSize { kernel, index, expected, given } => write!(
                f,
                "launch: parameter {index} of `{kernel}` has {expected} bytes, the argument {given}"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::LaunchError;

    #[test]
    fn limits_read_alike_for_sizes_and_memory() {
        let limit = |what, asked, limit| LaunchError::Limit { what, asked, limit }.to_string();
        assert_eq!(limit("grid.x", 0, 65_535), "launch: grid.x is zero");
        assert_eq!(
            limit("bytes of dynamic shared memory", 5, 0),
            "launch: bytes of dynamic shared memory: 5 asked for, at most 0 possible"
        );
    }
}
