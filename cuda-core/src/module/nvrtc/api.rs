//! Finds NVRTC's library and its functions, once per process.

use std::ffi::{OsString, c_char, c_int, c_void};
use std::iter;
use std::path::PathBuf;

use cuda_sys::os::{self, LoadOnce};

use crate::error::{Error, Result};
use crate::util::library::{FORKED_MEANWHILE, find, functions, set};

/// `nvrtcProgram`.
pub(super) type RawProgram = *mut c_void;

functions! {
    /// Functions of NVRTC that return an `nvrtcResult`; version 11.2 has all of them.
    Api {
        version = c"nvrtcVersion"(*mut c_int, *mut c_int);
        error_string = c"nvrtcGetErrorString"(c_int) -> *const c_char;
        num_supported_archs = c"nvrtcGetNumSupportedArchs"(*mut c_int);
        supported_archs = c"nvrtcGetSupportedArchs"(*mut c_int);
        create_program = c"nvrtcCreateProgram"(
            *mut RawProgram, *const c_char, *const c_char, c_int, *const *const c_char,
            *const *const c_char);
        destroy_program = c"nvrtcDestroyProgram"(*mut RawProgram);
        add_name_expression = c"nvrtcAddNameExpression"(RawProgram, *const c_char);
        compile_program = c"nvrtcCompileProgram"(RawProgram, c_int, *const *const c_char);
        lowered_name = c"nvrtcGetLoweredName"(RawProgram, *const c_char, *mut *const c_char);
        ptx_size = c"nvrtcGetPTXSize"(RawProgram, *mut usize);
        ptx = c"nvrtcGetPTX"(RawProgram, *mut c_char);
        cubin_size = c"nvrtcGetCUBINSize"(RawProgram, *mut usize);
        cubin = c"nvrtcGetCUBIN"(RawProgram, *mut c_char);
        log_size = c"nvrtcGetProgramLogSize"(RawProgram, *mut usize);
        log = c"nvrtcGetProgramLog"(RawProgram, *mut c_char);
    }
}

/// Returns NVRTC's functions. The first call loads the library, for the life of the process.
pub(super) fn api() -> Result<&'static Api> {
    static LOADED: LoadOnce<Result<Api>> = LoadOnce::new();
    match LOADED.get_or_init(open) {
        Some(loaded) => loaded.as_ref().map_err(Clone::clone),
        None => Err(Error::NoNvrtc { tried: FORKED_MEANWHILE.into() }),
    }
}

/// The environment variable that names the library to use.
const OVERRIDE: &str = "CUDA_CORE_NVRTC";

/// The library's names, newest first.
#[cfg(not(windows))]
const NAMES: [&str; 4] = ["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2", "libnvrtc.so"];
#[cfg(windows)]
const NAMES: [&str; 3] = ["nvrtc64_130_0.dll", "nvrtc64_120_0.dll", "nvrtc64_112_0.dll"];

/// The folders that a toolkit for several targets has for this one.
const TARGETS: &[&str] = match cfg!(target_arch = "aarch64") {
    true => &["targets/sbsa-linux", "targets/aarch64-linux"],
    false => &["targets/x86_64-linux"],
};

/// The library's folders in a toolkit, or in its folder for this target: on Windows one from CUDA 13 on, and
/// another before. Packages of conda and pip have no `lib64`.
const FOLDERS: &[&str] = if cfg!(windows) { &["bin/x64", "bin"] } else { &["lib64", "lib"] };

/// The default location of a toolkit. Miri accesses no files.
const ROOT: Option<&str> = if cfg!(any(windows, miri)) { None } else { Some("/usr/local/cuda") };

fn open() -> Result<Api> {
    find(OVERRIDE, &NAMES, in_toolkits, |library| {
        // SAFETY: the library is NVRTC by its name, or the user's replacement; the signatures of
        // NVRTC's functions have never changed. The library is never unloaded.
        unsafe { Api::resolve(&mut |name| library.symbol(name)) }
    })
    .map_err(|tried| Error::NoNvrtc { tried: tried.into() })
}

/// Returns where toolkits may be: the folders that the environment names, and the default location; after
/// each the folders for this target in it.
fn toolkits() -> impl Iterator<Item = PathBuf> {
    // In a process with more rights than its user, the user must not choose the code that it runs.
    let named = match os::is_privileged() {
        true => [None, None],
        false => [set("CUDA_HOME"), set("CUDA_PATH")],
    };
    let roots = named.into_iter().flatten().chain(ROOT.map(OsString::from)).map(PathBuf::from);
    roots.flat_map(|root| {
        let of_target: Vec<_> = TARGETS.iter().map(|target| root.join(target)).collect();
        iter::once(root).chain(of_target)
    })
}

/// Returns the header folders of the first toolkit that has CUDA's headers. From CUDA 13 on, the
/// C++ library has another folder.
pub(super) fn header_folders() -> Option<impl Iterator<Item = PathBuf>> {
    let mut includes = toolkits().map(|root| root.join("include"));
    let include = includes.find(|include| include.join("cuda_fp16.h").exists())?;
    let folders = [include.join("cccl"), include];
    Some(folders.into_iter().filter(|folder| folder.exists()))
}

/// Lists the libraries that the loader finds by name, and those in toolkits; on Windows, toolkits
/// come first.
fn in_toolkits(by_name: Vec<PathBuf>) -> Vec<PathBuf> {
    let mut in_folders = Vec::new();
    for root in toolkits() {
        for folder in FOLDERS {
            in_folders.extend(NAMES.map(|name| root.join(folder).join(name)));
        }
    }
    if cfg!(windows) {
        // The toolkit's installer adds its folder to `PATH`, which the loader does not search: see
        // `os::Library`.
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders = std::env::split_paths(&path).filter(|folder| folder.is_absolute());
        in_folders.extend(folders.flat_map(|folder| NAMES.map(|name| folder.join(name))));
    }
    in_folders.retain(|library| library.exists());
    if cfg!(windows) { [in_folders, by_name].concat() } else { [by_name, in_folders].concat() }
}
