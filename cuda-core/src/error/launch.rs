//! What keeps a kernel from being launched, found before the driver is asked.

use std::fmt;

/// Why a [launch](crate::Launch) was refused: the inside of
/// [`Error::Launch`](crate::Error::Launch).
#[derive(Clone)]
#[non_exhaustive]
pub enum LaunchError {
    /// A launch is of no size, or of more than the device or the kernel allows.
    Limit {
        /// What is too much, or nothing.
        what: &'static str,
        /// What was asked for.
        asked: u64,
        /// What there may be.
        limit: u64,
    },

    /// A kernel was given more or fewer arguments than it has parameters.
    ArgumentCount {
        /// The kernel.
        kernel: String,
        /// Parameters that it has.
        expected: usize,
        /// Arguments that it was given.
        given: usize,
    },

    /// An argument differs in size from the parameter that it is for.
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
            Self::Limit { what, asked, limit } => {
                write!(f, "launch: {what}: {asked} is not within 1 to {limit}")
            }
            Self::ArgumentCount {
                kernel,
                expected,
                given,
            } => write!(
                f,
                "launch: `{kernel}` has {expected} parameters, and was given {given} arguments"
            ),
            Self::ArgumentSize {
                kernel,
                index,
                expected,
                given,
            } => write!(
                f,
                "launch: parameter {index} of `{kernel}` has {expected} bytes, the argument {given}"
            ),
        }
    }
}
