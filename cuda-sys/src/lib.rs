//! Raw FFI of the CUDA driver API: every function, type and constant of `cuda.h`, under C's own
//! names.
//!
//! It builds on every machine, with a CUDA toolkit or without, and programs start on every machine,
//! with a driver or without: the driver's library is loaded at the first call.
//!
//! ```
//! use cuda_sys::*;
//!
//! let mut version = 0;
//! // SAFETY: the one argument points to an `int` to write to.
//! match unsafe { cuDriverGetVersion(&mut version) } {
//!     CUDA_SUCCESS => println!("CUDA {}.{}", version / 1000, version % 1000 / 10),
//!     CUDA_ERROR_SHARED_OBJECT_INIT_FAILED => match load() {
//!         Err(why) => println!("{why}"), // no CUDA driver could be loaded: libcuda.so.1 (...)
//!         Ok(_) => unreachable!("a loaded driver does not say so"),
//!     },
//!     other => panic!("{other:?}"),
//! }
//! ```
//!
//! # Loading
//! The first call of any function loads `libcuda.so.1` (`nvcuda.dll` on Windows) and looks up every
//! symbol; the library stays for the life of the process. Nothing here panics or aborts:
//! * Without a driver every function returns [`CUDA_ERROR_SHARED_OBJECT_INIT_FAILED`] (303).
//!   [`load()`] says which library was tried and what the system's loader answered.
//! * A symbol that the driver lacks, because it is older than the header, returns
//!   [`CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER`] (36). [`DriverApi::missing`] lists such symbols.
//!
//! [`load()`] also gives access to the table itself, [`DriverApi`]. [`install`] fills it from
//! any other source, such as a simulated driver. `CUDA_SYS_LIBRARY` names another library to load;
//! programs with raised privileges ignore it.
//!
//! # Linking
//! Who builds the final program may link the driver's library instead, with `CUDA_SYS_LINK=1` in the
//! environment of the build. The names and signatures stay. What the program calls of CUDA 11.8 is
//! linked, so it does not start where the library is absent: that is why this is not a cargo feature,
//! which any dependency could turn on for everybody. What is newer is still looked up when it is
//! called, so it starts on every driver from CUDA 11.8 on. The toolkit's stub directories are searched,
//! or `CUDA_SYS_LIB_DIR`.
//!
//! # Names
//! A symbol's name is its ABI: from CUDA 11.8 on, no symbol ever changed its signature. What changes
//! is the symbol that a plain name stands for; `cuda.h` redirects it by macro, `cuMemAlloc` to
//! `cuMemAlloc_v2`. Hence two ways to name a function:
//! * [`symbol`] holds every function under its exact symbol, which means the same for ever.
//! * At the root of the crate, plain names lead where those of the bundled header lead, that of CUDA
//!   13.5, in every build; another version of this crate may follow a newer one.
//!
//! Every symbol that a release from CUDA 11.8 on has declared is here: newer headers drop
//! declarations of what the driver still exports.
//!
//! C's enums are integer newtypes, so a value from a newer driver is just a value. Enumerators that
//! only count the others (`CU_DEVICE_ATTRIBUTE_MAX`) are left out.
//!
//! # Where the bindings come from
//! The bundled bindings are of CUDA 13.5, and the same for Linux and Windows, x86-64 and AArch64. With
//! the feature `buildtime-bindgen`, on by default, the `cuda.h` that the build script finds is read as
//! well, from CUDA 11.8 on, and **what it declares beyond the bundled bindings is added to them**. What
//! both declare is the bundled bindings', whichever is newer. So every name that the header has is here,
//! and whatever compiles with the bundled bindings compiles with every header, and means the same:
//! what a crate can use does not depend on the machine that builds it. [`HEADER`] says which header was
//! read and what it added. Reading it needs libclang.
//!
//! Preferring the bundled declaration is sound, since a name is its ABI: what differs between releases
//! is how a header spells the same bytes. CUDA 13.x moved the number in `CUmemLocation` into an unnamed
//! union and gave names to reserved tails of structs, 13.0 raised the alignment of `CUtensorMap`, 12.0
//! gave plain names of attributes to their second versions. A type whose size has grown is the one case
//! in which a new function could not make do with the bundled declaration. Then the function is left
//! out, with a warning. The test `abi` has a C compiler check the bundled bindings against the header
//! of the same release, and others against what bindgen makes of them; of the latter it lists each
//! difference to the bundled ones.
//!
//! The header is looked for in the directory `CUDA_SYS_INCLUDE_DIR`, if that is set; else in `include`
//! and `targets/<arch>-linux/include` below `CUDA_HOME`, `CUDA_PATH`, `CUDA_ROOT`,
//! `CUDA_TOOLKIT_ROOT_DIR`, the `nvcc` on `PATH`, `CONDA_PREFIX`, `/usr/local/cuda`, `/opt/cuda` and
//! `/usr`, in this order. A `site-packages` with NVIDIA's wheels is a root like any other. When
//! cross-compiling, only headers of the target count. Only what is asked on the way makes cargo run the
//! build script again when it changes.
//!
//! # Environment variables
//! | variable | read | |
//! |---|---|---|
//! | `CUDA_SYS_BINDINGS` | by the build | `auto` (default): read the system's header if possible; `system`: read it or fail; `bundled`: read none |
//! | `CUDA_SYS_INCLUDE_DIR` | by the build | the directory of `cuda.h` |
//! | `CUDA_HOME`, `CUDA_PATH`, `CUDA_ROOT`, `CUDA_TOOLKIT_ROOT_DIR` | by the build | the toolkit's root |
//! | `CUDA_SYS_LINK` | by the build | `1`: link the driver's library |
//! | `CUDA_SYS_LIB_DIR` | by the build | where the linker finds it |
//! | `LIBCLANG_PATH`, `BINDGEN_EXTRA_CLANG_ARGS` | by the build | passed on to bindgen |
//! | `CUDA_SYS_LIBRARY` | at run time | the library to load as the driver |
//!
//! Each variable that names a directory can be set for one target alone, by its triple in capitals:
//! `AARCH64_UNKNOWN_LINUX_GNU_CUDA_HOME`.
//!
//! # For build scripts of dependents
//! `links = "cuda_sys_driver"`, a name that leaves `cuda` to others, gives the build scripts of direct
//! dependents:
//!
//! | variable, after `DEP_CUDA_SYS_DRIVER_` | |
//! |---|---|
//! | `VERSION` | `CUDA_VERSION` of the bindings: 13050, of the bundled ones in every build |
//! | `BINDINGS` | `system` if a header was read, or `bundled` |
//! | `SOURCE` | the directory of the bindings' text |
//! | `HEADER_VERSION`, `HEADER_SOURCE` | if a header was read: its `CUDA_VERSION`, and what it alone yields |
//! | `ROOT`, `INCLUDE` | the toolkit's root and the directory of its `cuda.h`, if one was looked for and found |

#[cfg(not(target_pointer_width = "64"))]
compile_error!("CUDA has 64-bit drivers only");

#[macro_use]
mod api;
mod load;
mod once;
/// For `cuda-core`; no part of the interface.
#[doc(hidden)]
pub mod os;

/// Everything that is generated from `cuda.h`: the bundled bindings, which the build script may have
/// completed.
#[allow(
    dead_code,
    missing_docs,
    unreachable_pub,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    clippy::all,
    clippy::multiple_unsafe_ops_per_block,
    clippy::undocumented_unsafe_blocks,
    reason = "generated: C's own names, C's own layout"
)]
mod bindings {
    #[cfg(not(cuda_sys_generated))]
    include!("bindings/mod.rs");
    #[cfg(cuda_sys_generated)]
    include!(concat!(env!("OUT_DIR"), "/bindings/mod.rs"));
}

pub use bindings::names::*;
pub use bindings::symbol;
pub use bindings::*;
pub use load::{Attempt, InstallError, LoadError, install, load};

/// The system's `cuda.h` that the build read; [`None`] if it read none, and the bundled bindings are all.
pub const HEADER: Option<Header> = bindings::HEADER;

/// A header that was read; see [Where the bindings come from](crate#where-the-bindings-come-from).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Header {
    /// Its `CUDA_VERSION`: 12040 for CUDA 12.4.
    pub version: u32,
    /// Names of the functions, types and constants that it adds to the bundled bindings.
    pub adds: &'static [&'static str],
}
