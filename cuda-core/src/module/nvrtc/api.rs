//! Finds NVRTC's library and its functions, once per process.

use std::ffi::{CStr, OsString, c_char, c_int, c_void};
use std::fmt::Write;
use std::path::{Path, PathBuf};

use cuda_sys::os::{self, LoadOnce};

use crate::error::{Error, Result};

/// `nvrtcProgram`.
pub(super) type RawProgram = *mut c_void;

macro_rules! api {
    ($($field:ident = $symbol:literal: $ty:ty,)*) => {
        /// Functions of NVRTC, all of them in version 11.2, which return an `nvrtcResult`.
        // INVARIANT: functions with these signatures; the library is never unloaded.
        pub(super) struct Api {
            $(pub(super) $field: $ty,)*
        }

        impl Api {
            /// # Safety
            /// Each address that is not null is a function with the signature of that symbol in
            /// `nvrtc.h`, for the life of the process.
            unsafe fn resolve(
                mut symbol: impl FnMut(&CStr) -> *const c_void,
            ) -> Result<Self, &'static str> {
                Ok(Self {
                    $($field: {
                        let address = symbol($symbol);
                        if address.is_null() {
                            return Err(concat!("it lacks ", stringify!($field)));
                        }
                        // SAFETY: the caller promises that an address which is not null is a
                        // function of this signature; function pointers and data pointers have one
                        // size on every platform that CUDA supports.
                        unsafe { std::mem::transmute::<*const c_void, $ty>(address) }
                    },)*
                })
            }
        }
    };
}

api! {
    version = c"nvrtcVersion": unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int,
    error_string = c"nvrtcGetErrorString": unsafe extern "C" fn(c_int) -> *const c_char,
    num_supported_archs = c"nvrtcGetNumSupportedArchs": unsafe extern "C" fn(*mut c_int) -> c_int,
    supported_archs = c"nvrtcGetSupportedArchs": unsafe extern "C" fn(*mut c_int) -> c_int,
    create_program = c"nvrtcCreateProgram": unsafe extern "C" fn(
        *mut RawProgram,
        *const c_char,
        *const c_char,
        c_int,
        *const *const c_char,
        *const *const c_char,
    ) -> c_int,
    destroy_program = c"nvrtcDestroyProgram": unsafe extern "C" fn(*mut RawProgram) -> c_int,
    add_name_expression = c"nvrtcAddNameExpression":
        unsafe extern "C" fn(RawProgram, *const c_char) -> c_int,
    compile_program = c"nvrtcCompileProgram":
        unsafe extern "C" fn(RawProgram, c_int, *const *const c_char) -> c_int,
    lowered_name = c"nvrtcGetLoweredName":
        unsafe extern "C" fn(RawProgram, *const c_char, *mut *const c_char) -> c_int,
    ptx_size = c"nvrtcGetPTXSize": unsafe extern "C" fn(RawProgram, *mut usize) -> c_int,
    ptx = c"nvrtcGetPTX": unsafe extern "C" fn(RawProgram, *mut c_char) -> c_int,
    cubin_size = c"nvrtcGetCUBINSize": unsafe extern "C" fn(RawProgram, *mut usize) -> c_int,
    cubin = c"nvrtcGetCUBIN": unsafe extern "C" fn(RawProgram, *mut c_char) -> c_int,
    log_size = c"nvrtcGetProgramLogSize": unsafe extern "C" fn(RawProgram, *mut usize) -> c_int,
    log = c"nvrtcGetProgramLog": unsafe extern "C" fn(RawProgram, *mut c_char) -> c_int,
}

/// NVRTC, loaded at the first call; the result is kept for the life of the process.
pub(super) fn api() -> Result<&'static Api> {
    static LOADED: LoadOnce<Result<Api>> = LoadOnce::new();
    match LOADED.get_or_init(open) {
        Some(loaded) => loaded.as_ref().map_err(Clone::clone),
        None => Err(Error::NoNvrtc {
            tried: " nothing (this process was forked while a thread of its parent did)".to_owned(),
        }),
    }
}

/// The environment variable that names a library to use.
const OVERRIDE: &str = "CUDA_CORE_NVRTC";

/// The library's names, newest first.
#[cfg(not(windows))]
const NAMES: [&str; 4] = ["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2", "libnvrtc.so"];
#[cfg(windows)]
const NAMES: [&str; 3] = ["nvrtc64_130_0.dll", "nvrtc64_120_0.dll", "nvrtc64_112_0.dll"];

/// The library's folder in a toolkit: on Windows one from CUDA 13 on, and another before.
const FOLDERS: &[&str] = if cfg!(windows) { &["bin/x64", "bin"] } else { &["lib64"] };

/// The default location of a toolkit. Miri accesses no files.
const ROOT: Option<&str> = if cfg!(any(windows, miri)) { None } else { Some("/usr/local/cuda") };

fn open() -> Result<Api> {
    let mut tried = String::new();
    for library in candidates() {
        match load(&library) {
            Ok(api) => return Ok(api),
            Err(answer) => {
                // Writing to a string cannot fail.
                let _ = write!(tried, " {} ({answer});", library.display());
            }
        }
    }
    if tried.ends_with(';') {
        tried.pop();
    }
    Err(Error::NoNvrtc { tried })
}

/// Libraries to try, in order.
fn candidates() -> Vec<PathBuf> {
    let by_name: Vec<_> = NAMES.iter().map(PathBuf::from).collect();
    // The user who starts a privileged program must not choose the code that it runs.
    if os::is_privileged() {
        return by_name;
    }
    let set = |variable: &str| std::env::var_os(variable).filter(|value| !value.is_empty());
    if let Some(library) = set(OVERRIDE) {
        return vec![library.into()];
    }
    let roots = [set("CUDA_HOME"), set("CUDA_PATH"), ROOT.map(OsString::from)];
    let mut in_folders = Vec::new();
    for root in roots.into_iter().flatten() {
        for folder in FOLDERS {
            for name in NAMES {
                in_folders.push(Path::new(&root).join(folder).join(name));
            }
        }
    }
    if cfg!(windows) {
        // The toolkit's installer adds its folder to `PATH`; the loader does not search that, see
        // `os::Library`.
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders = std::env::split_paths(&path).filter(|folder| folder.is_absolute());
        in_folders.extend(folders.flat_map(|folder| NAMES.map(|name| folder.join(name))));
    }
    in_folders.retain(|library| library.exists());
    if cfg!(windows) { [in_folders, by_name].concat() } else { [by_name, in_folders].concat() }
}

fn load(library: &Path) -> Result<Api, String> {
    // SAFETY: the initialisers are those of NVRTC, found by its own name, or of the library that
    // the user who started the program chose.
    let library = unsafe { os::Library::open(library.as_os_str()) }?;
    // SAFETY: the library is NVRTC by its name, or the user's replacement; the signatures of
    // NVRTC's functions have never changed. It is never unloaded.
    unsafe { Api::resolve(|name| library.symbol(name)) }.map_err(str::to_owned)
}
