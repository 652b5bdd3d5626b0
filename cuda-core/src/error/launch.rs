//! Reasons why a kernel cannot be launched.

use std::fmt;

use cuda_sys::CUresult;

use super::LAUNCH;
use super::text::{counted, describe};

/// Why a [launch](crate::Launch) was refused: the payload of [`Error::Launch`](crate::Error::Launch).
///
/// ```no_run
/// # let stream = cuda_core::Device::get(0)?.create_stream()?;
/// # let function = cuda_core::Module::from_ptx(stream.context(), "")?.function("scale")?;
/// use cuda_core::{Error, LaunchError};
///
/// let mut launch = stream.kernel(&function).block(4096);
/// // SAFETY: the kernel has no parameter and touches nothing.
/// match unsafe { launch.launch() } {
///     Err(Error::Launch(why)) => match *why {
///         LaunchError::Limit { what, asked, limit, .. } => {
///             println!("{what}: {asked}, where {limit} are possible");
///         }
///         why => println!("{why}"),
///     },
///     other => other?,
/// }
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum LaunchError {
    /// A size of the launch is zero, or exceeds what the device or the kernel allows.
    #[non_exhaustive]
    Limit {
        /// The kernel.
        kernel: String,
        /// Which size is zero or too large.
        what: &'static str,
        /// The size requested.
        asked: u64,
        /// The largest size allowed.
        limit: u64,
    },

    /// A kernel was given more or fewer arguments than it has parameters.
    #[non_exhaustive]
    ArgumentCount {
        /// The refused operation: `cuLaunchKernelEx`, or `load` for a declaration by
        /// [`kernel!`](crate::kernel!).
        op: &'static str,
        /// The kernel.
        kernel: String,
        /// The number of the kernel's parameters.
        expected: usize,
        /// The number of arguments given.
        given: usize,
    },

    /// An argument differs in size from its parameter.
    #[non_exhaustive]
    ArgumentSize {
        /// The refused operation: `cuLaunchKernelEx`, or `load` for a declaration by
        /// [`kernel!`](crate::kernel!).
        op: &'static str,
        /// The kernel.
        kernel: String,
        /// The parameter's index; the first is 0, in messages too.
        index: usize,
        /// The parameter's name, if the kernel was declared by [`kernel!`](crate::kernel!).
        name: Option<&'static str>,
        /// The parameter's size in bytes.
        expected: usize,
        /// The argument's size in bytes.
        given: usize,
    },

    /// The driver refused the launch; nothing was enqueued. If the driver reports that earlier work has
    /// failed, the error is [`Error::Driver`](crate::Error::Driver) instead.
    #[non_exhaustive]
    Refused {
        /// The kernel.
        kernel: String,
        /// The requested grid, block and, if any, clusters and dynamic shared memory.
        asked: String,
        /// The driver's code.
        code: CUresult,
    },
}

/// The `op` of [`LaunchError::ArgumentCount`] and [`LaunchError::ArgumentSize`] for a declaration.
pub(crate) const LOAD: &str = "load";

/// A size of a launch: dynamic shared memory that the device has, but that the kernel may not use yet.
pub(crate) const NOT_ALLOWED_YET: &str =
    "bytes of dynamic shared memory before `set_max_dynamic_shared` allows more";

impl fmt::Display for LaunchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Limit { kernel, what, asked, limit } => {
                write!(f, "{LAUNCH}: `{kernel}`: ")?;
                match (*what, asked) {
                    ("grid.x" | "grid.y", 0) => {
                        write!(f, "{what} is zero; `elements(0)` makes a launch that does nothing")
                    }
                    ("block.x", 0) => write!(
                        f,
                        "{what} is zero; `block`, or `elements`, says how many threads run"
                    ),
                    (NOT_ALLOWED_YET, _) => write!(
                        f,
                        "{asked} bytes of dynamic shared memory asked for; {limit} possible until \
                         `Function::set_max_dynamic_shared` allows more"
                    ),
                    (_, 0) => write!(f, "{what} is zero"),
                    _ => write!(f, "{what}: {asked} asked for, at most {limit} possible"),
                }
            }
            Self::Refused { kernel, asked, code } => {
                write!(f, "{LAUNCH}: `{kernel}`, {asked}: {}", describe(*code))?;
                f.write_str(match *code {
                    cuda_sys::CUDA_ERROR_INVALID_CLUSTER_SIZE => {
                        "; the grid is to be a multiple of the cluster in each dimension, and \
                         `Launch::max_cluster_size` says how large that may be: 8, until \
                         `Function::set_attribute` sets \
                         `CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED`"
                    }
                    cuda_sys::CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE => {
                        "; `Function::max_active_blocks` says how many blocks fit each multiprocessor"
                    }
                    _ => "",
                })
            }
            Self::ArgumentCount { op: LOAD, kernel, expected, given } => write!(
                f,
                "{LOAD}: `{kernel}` has {}, and was declared with {given}",
                counted(*expected, "parameter", "parameters")
            ),
            Self::ArgumentCount { op, kernel, expected, given } => write!(
                f,
                "{op}: `{kernel}` has {}, and was given {}",
                counted(*expected, "parameter", "parameters"),
                counted(*given, "argument", "arguments")
            ),
            Self::ArgumentSize { op, kernel, index, name, expected, given } => write!(
                f,
                "{op}: parameter {index}{} of `{kernel}` has {}, the {} {given}{}",
                name.map_or(String::new(), |name| format!(" (`{name}`)")),
                counted(*expected, "byte", "bytes"),
                if *op == LOAD { "declared type" } else { "argument" },
                match (expected, given) {
                    (4, 8) if *op != LOAD =>
                        "; a literal such as `2.0` is an f64, a length a usize",
                    _ => "",
                }
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{LAUNCH, LOAD, LaunchError};

    #[test]
    fn one_argument_is_no_more_than_one() {
        let text = |op| {
            let (kernel, expected, given) = ("f".into(), 1, 2);
            LaunchError::ArgumentCount { op, kernel, expected, given }.to_string()
        };
        assert_eq!(
            text(LAUNCH),
            "cuLaunchKernelEx: `f` has 1 parameter, and was given 2 arguments"
        );
        assert_eq!(text(LOAD), "load: `f` has 1 parameter, and was declared with 2");
    }

    #[test]
    fn a_number_of_eight_bytes_may_be_a_literal() {
        let text = |expected, given| {
            let (op, kernel, index, name) = (LAUNCH, "f".into(), 1, None);
            LaunchError::ArgumentSize { op, kernel, index, name, expected, given }.to_string()
        };
        let plain = "cuLaunchKernelEx: parameter 1 of `f` has 8 bytes, the argument 4";
        assert_eq!(text(8, 4), plain);
        assert!(
            text(4, 8)
                .ends_with("the argument 8; a literal such as `2.0` is an f64, a length a usize")
        );
    }

    #[test]
    fn limits_read_alike_for_sizes_and_memory() {
        let limit = |what, asked, limit| {
            let kernel = "f".into();
            LaunchError::Limit { kernel, what, asked, limit }.to_string()
        };
        assert!(
            limit("grid.y", 0, 65_535).ends_with("`elements(0)` makes a launch that does nothing")
        );
        assert_eq!(limit("grid.z", 0, 65_535), "cuLaunchKernelEx: `f`: grid.z is zero");
        assert_eq!(
            limit("bytes of dynamic shared memory", 5, 0),
            "cuLaunchKernelEx: `f`: bytes of dynamic shared memory: 5 asked for, at most 0 possible"
        );
        assert_eq!(
            limit(super::NOT_ALLOWED_YET, 100_000, 49_152),
            "cuLaunchKernelEx: `f`: 100000 bytes of dynamic shared memory asked for; 49152 possible until \
             `Function::set_max_dynamic_shared` allows more"
        );
    }
}
