//! What is wrong with device code.

use std::path::PathBuf;

use cuda_sys::CUresult;

use super::text::{describe, on_lines_of_its_own};

/// Why device code could not be compiled, loaded or looked into: the inside of
/// [`Error::Module`](crate::Error::Module).
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ModuleError {
    /// A compiler, or the driver's linker, could make nothing of its input.
    #[error("{op}: {}{}", describe(*.code), on_lines_of_its_own(.log))]
    Compile {
        /// The driver call.
        op: &'static str,
        /// Its result.
        code: CUresult,
        /// What the compiler had to say.
        log: String,
    },

    /// Text that does not begin with `.version`, as PTX does.
    #[error("this is no PTX: it does not begin with .version")]
    NotPtx,

    /// A file could not be read.
    #[error("{}: {why}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system says.
        why: String,
    },

    /// A module holds nothing of that name.
    #[error("{op}: there is nothing named `{name}`")]
    NotFound {
        /// The driver call.
        op: &'static str,
        /// The name.
        name: String,
    },

    /// A module's global is somebody else's for now.
    #[error("the global `{name}` is taken: there is a buffer of it already")]
    GlobalTaken {
        /// The name.
        name: String,
    },
}
