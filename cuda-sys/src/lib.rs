//! Raw FFI of the CUDA driver API: every function, type and constant of `cuda.h`, under C's own
//! names.
//!
//! The crate builds on every machine, with a CUDA toolkit or without, and programs start on every machine,
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
//! symbol; the library stays loaded for the life of the process. No function panics or aborts:
//! * Without a driver every function returns [`CUDA_ERROR_SHARED_OBJECT_INIT_FAILED`] (303).
//!   [`load()`] returns which library was tried and the system loader's message.
//! * A symbol that the driver lacks, because it is older than the header, returns
//!   [`CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER`] (36). [`DriverApi::missing`] lists such symbols.
//!
//! [`load()`] also gives access to the table itself, [`DriverApi`]. [`install`] fills it from any other
//! source, such as a simulated driver. The variable `CUDA_SYS_LIBRARY` names another library to load;
//! programs with raised privileges ignore it.
//!
//! # Linking
//! The builder of the final program may link the driver's library instead, with `CUDA_SYS_LINK=1`
//! in the environment of the build. The names and signatures stay the same. The functions of CUDA
//! 11.8 that the program calls are linked, so it does not start on a machine without the library:
//! that is why this is not a cargo feature, which any dependency could turn on for every program.
//! Newer functions are still looked up when they are called, so the program starts with every
//! driver from CUDA 11.8 on. The linker searches the toolkit's stub directories, or
//! `CUDA_SYS_LIB_DIR`.
//!
//! # Names
//! A symbol's name is its ABI: from CUDA 11.8 on, no symbol ever changed its signature. Releases differ in
//! which symbol a plain name stands for: `cuda.h` redirects it by a macro, such as `cuMemAlloc` to
//! `cuMemAlloc_v2`. Hence there are two ways to name a function:
//! * [`symbol`] holds every function under its exact symbol; its meaning never changes.
//! * At the root of the crate, in every build, a plain name means the symbol that it stands for in the
//!   bundled header, CUDA 13.5; another version of this crate may follow a newer header.
//!
//! Every symbol that a release from CUDA 11.8 on has declared is included: newer headers drop
//! declarations of functions that the driver still exports. Left out are the forms for per-thread default
//! streams (`_ptds`, `_ptsz`), which C code selects by a macro: pass [`CU_STREAM_PER_THREAD`] instead.
//!
//! C's enums are integer newtypes, so a value from a newer driver is valid. `Debug` shows the name of a
//! value, such as `CUDA_ERROR_NOT_READY`, or its number if the header does not name it. Enumerators that only
//! count the others (`CU_DEVICE_ATTRIBUTE_MAX`) are left out.
//!
//! # Where the bindings come from
//! The bundled bindings are of CUDA 13.5, and the same for Linux and Windows, x86-64 and AArch64.
//! With the feature `buildtime-bindgen`, on by default, the build script also reads the `cuda.h`
//! that it finds, from CUDA 11.8 on, and **adds to the bundled bindings what that header declares
//! beyond them**. Where both declare an item, the bundled declaration is used, whichever is newer.
//! So every name of the header is available, and code that compiles with the bundled bindings
//! compiles with every header, with the same meaning: what a crate can use does not depend on the
//! machine that builds it. [`HEADER`] says which header was read and what it added. Reading it
//! needs libclang.
//!
//! Preferring the bundled declaration is sound, since a name is its ABI: releases differ only in how a header
//! spells the same bytes. For example, CUDA 13.x moved the number in `CUmemLocation` into an unnamed union
//! and gave names to reserved tails of structs; 13.0 raised the alignment of `CUtensorMap`; 12.0 gave plain
//! names of attributes to their second versions. The one exception is a new function that uses a type whose
//! size has grown: the build leaves such a function out, with a warning. In the test `abi`, a C compiler
//! checks the bundled bindings against the header of the same release, and other headers against bindgen's
//! output for them; for those the test lists each difference from the bundled bindings.
//!
//! The build script searches for the header in the directory `CUDA_SYS_INCLUDE_DIR`, if that is set; else in
//! `include` and `targets/<arch>-linux/include` below `CUDA_HOME`, `CUDA_PATH`, `CUDA_ROOT`,
//! `CUDA_TOOLKIT_ROOT_DIR`, the `nvcc` on `PATH`, `CONDA_PREFIX`, `/usr/local/cuda`, `/opt/cuda` and `/usr`,
//! in this order. A `site-packages` with NVIDIA's wheels is a root like any other. When cross-compiling, only
//! headers of the target count. Cargo runs the build script again when a variable that the search has read
//! changes.
//!
//! # Environment variables
//! | variable | read | |
//! |---|---|---|
//! | `CUDA_SYS_BINDINGS` | by the build | `auto` (default): read the system's header if possible; `system`: read it or fail; `bundled`: read none |
//! | `CUDA_SYS_INCLUDE_DIR` | by the build | the directory of `cuda.h`, by an absolute path |
//! | `CUDA_HOME`, `CUDA_PATH`, `CUDA_ROOT`, `CUDA_TOOLKIT_ROOT_DIR` | by the build | the toolkit's root, by an absolute path |
//! | `CUDA_SYS_LINK` | by the build | `1`: link the driver's library |
//! | `CUDA_SYS_LIB_DIR` | by the build | where the linker finds it |
//! | `LIBCLANG_PATH`, `BINDGEN_EXTRA_CLANG_ARGS`, `BINDGEN_EXTRA_CLANG_ARGS_<target>` | by the build | passed on to bindgen |
//! | `CUDA_SYS_LIBRARY` | at run time | the library to load as the driver; a program that links the driver ignores it |
//!
//! The build runs again when a variable changes that it has read; after installing a toolkit or libclang where none
//! was found, or another toolkit at the same place, run `cargo clean -p cuda-sys`.
//!
//! Each variable that names a directory can be set for a single target, with the target triple in capitals as
//! a prefix: `AARCH64_UNKNOWN_LINUX_GNU_CUDA_HOME`.
//!
//! # For build scripts of dependents
//! `links = "cuda_sys_driver"`, which leaves the name `cuda` to other crates, passes these variables to the
//! build scripts of direct dependents (a package that only depends on `cuda-core` adds `cuda-sys` to get
//! them):
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
mod macros;
mod once;
/// For `cuda-core`; not part of the interface.
#[doc(hidden)]
pub mod os;
mod result;

/// The code generated from `cuda.h`: the bundled bindings, or those that the build script has completed.
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
pub use load::{InstallError, LoadError, install, load};
pub use macros::*;

/// The system's `cuda.h` that the build read; [`None`] if it read none, so that only the bundled
/// bindings exist.
pub const HEADER: Option<Header> = bindings::HEADER;

/// A header that was read; see [Where the bindings come from](crate#where-the-bindings-come-from).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Header {
    /// The header's `CUDA_VERSION`: 12040 for CUDA 12.4.
    pub version: u32,
    /// Names of the functions, types and constants that the header adds to the bundled bindings.
    pub adds: &'static [&'static str],
}
