//! Errors of device code.

use std::fmt;
use std::io;
use std::path::PathBuf;

use cuda_sys::CUresult;

use super::text::{describe, on_lines_of_its_own};

/// Why device code could not be compiled or loaded, or a name not found in it: the payload of
/// [`Error::Module`](crate::Error::Module).
///
/// ```no_run
/// # let context = cuda_core::Device::get(0)?.context()?;
/// use cuda_core::{Error, Module, ModuleError};
///
/// match Module::from_ptx(&context, ".version 7.0\n.target sm_52\nnonsense") {
///     Err(Error::Module(why)) => match *why {
///         ModuleError::Compile { log, .. } => println!("{log}"),
///         why => println!("{why}"),
///     },
///     other => drop(other?),
/// }
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ModuleError {
    /// A compiler, or the driver's linker, rejected its input.
    #[non_exhaustive]
    Compile {
        /// The driver call.
        op: &'static str,
        /// Its result.
        code: CUresult,
        /// The compiler's log.
        log: String,
    },

    /// A file could not be read.
    #[non_exhaustive]
    File {
        /// The file.
        path: PathBuf,
        /// The kind of failure.
        kind: io::ErrorKind,
        /// The system's message.
        why: String,
    },

    /// A module contains nothing with the requested name.
    #[non_exhaustive]
    NotFound {
        /// The driver call.
        op: &'static str,
        /// The name.
        name: String,
        /// The module's first few kernels, if the driver lists them: from CUDA 12.4 on.
        kernels: Vec<String>,
        /// How many kernels the module has.
        count: usize,
    },
}

impl fmt::Display for ModuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Compile { op, code, log } => {
                write!(f, "{op}: {}{}", describe(*code), on_lines_of_its_own(log))
            }
            Self::File { path, why, .. } => write!(f, "{}: {why}", path.display()),
            Self::NotFound { op, name, kernels, count } => {
                write!(
                    f,
                    "{op}: there is nothing named `{name}`; C++ changes names unless they are \
                     declared `extern \"C\"`"
                )?;
                for (at, kernel) in kernels.iter().enumerate() {
                    write!(f, "{} `{kernel}`", if at == 0 { "; it has" } else { "," })?;
                }
                if *count > kernels.len() { write!(f, ", … ({count})") } else { Ok(()) }
            }
        }
    }
}
