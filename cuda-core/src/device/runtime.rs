//! The version of the CUDA runtime, for programs that share the process with it.

use crate::types::Version;

/// Returns the version of the CUDA runtime library: `cudaRuntimeGetVersion`. [`None`] if there is no
/// libcudart.
///
/// Uses the library that the process has already loaded; otherwise the newest that the system's loader finds
/// by name, which then stays loaded. A statically linked runtime is not found. Calls neither the driver nor a
/// device. [`None`] on systems other than Unix.
///
/// ```
/// if let Some(version) = cuda_core::runtime_version() {
///     println!("CUDA runtime {version}");
/// }
/// ```
#[doc(alias("cudaRuntimeGetVersion"))]
pub fn runtime_version() -> Option<Version> {
    os::version().map(Version::of)
}

#[cfg(all(unix, not(miri)))]
mod os {
    use std::ffi::{CStr, c_int};

    use libc::{RTLD_NOLOAD, RTLD_NOW, dlopen, dlsym};

    use crate::util::library::function;

    /// Newest first. The last name is a development link to any version.
    const NAMES: [&CStr; 4] =
        [c"libcudart.so.13", c"libcudart.so.12", c"libcudart.so.11.0", c"libcudart.so"];

    pub(super) fn version() -> Option<i32> {
        let open = |flags| {
            NAMES.iter().find_map(move |name| {
                // SAFETY: the name is a C string; libcudart's initialisers only set it up.
                let library = unsafe { dlopen(name.as_ptr(), flags) };
                (!library.is_null()).then_some(library)
            })
        };
        // The first call finds a library that is already loaded, and loads none.
        let library = open(RTLD_NOW | RTLD_NOLOAD).or_else(|| open(RTLD_NOW))?;
        // SAFETY: the library is open and stays so; the name is a C string.
        let symbol = unsafe { dlsym(library, c"cudaRuntimeGetVersion".as_ptr()) };
        // SAFETY: "cudaError_t cudaRuntimeGetVersion(int *)" in every release, and cudaError_t is
        // an int; null is `None`.
        let get = unsafe { function::<unsafe extern "C" fn(*mut c_int) -> c_int>(symbol) }?;
        let mut version = 0;
        // SAFETY: the library is open and stays so; the function writes one int, to a local that
        // outlives the call.
        let code = unsafe { get(&mut version) };
        (code == 0 && version > 0).then_some(version)
    }
}

#[cfg(not(all(unix, not(miri))))]
mod os {
    pub(super) fn version() -> Option<i32> {
        None
    }
}
