//! Libraries that some tests need beside the driver.

use std::env;
use std::ffi::{OsString, c_int, c_void};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use cuda_core::{Version, nccl, nvrtc};
use cuda_sys::os;
use serde::{Deserialize, Serialize};

/// The variable that names libcudart to the test programs; rows set it to the one found here.
pub(crate) const RUNTIME: &str = "CUDA_TESTS_LIBCUDART";

/// The variable that names libcudadevrt to the test programs, likewise.
pub(crate) const DEVICE_RUNTIME: &str = "CUDA_TESTS_LIBCUDADEVRT";

/// The variable that names NVRTC to `cuda-core`.
const NVRTC: &str = "CUDA_CORE_NVRTC";

/// The variable that names NCCL to `cuda-core`.
const NCCL: &str = "CUDA_CORE_NCCL";

/// File names of libcudart, newest first.
const NAMES: &[&str] = match cfg!(windows) {
    true => &["cudart64_13.dll", "cudart64_12.dll", "cudart64_110.dll"],
    false => &["libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0", "libcudart.so"],
};

const DEVICE_RUNTIME_FILE: &str = if cfg!(windows) { "cudadevrt.lib" } else { "libcudadevrt.a" };

/// The libraries, or why each is absent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Libraries {
    pub(crate) runtime: Result<Library, String>,
    pub(crate) nvrtc: Result<Library, String>,
    /// The path of the archive.
    pub(crate) device_runtime: Result<String, String>,
    pub(crate) nccl: Result<Library, String>,
}

/// A library that can be loaded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Library {
    /// Its file if the system reports it, else the name by which it was found.
    pub(crate) path: String,
    /// Its version: for all but NCCL, that of the CUDA that it belongs to.
    version: String,
}

/// Loads them, in a process that does nothing else.
pub(super) fn probe() -> Libraries {
    let nccl = of_cuda_core("libnccl.so", NCCL, nccl::version());
    Libraries { runtime: runtime(), nvrtc: nvrtc(), device_runtime: device_runtime(), nccl }
}

impl fmt::Display for Libraries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { runtime, nvrtc, device_runtime, nccl } = self;
        let library = |library: &Result<Library, String>| {
            library.clone().map(|Library { path, version }| format!(" {version}: {path}"))
        };
        for (name, found) in [
            ("libcudart", library(runtime)),
            ("NVRTC", library(nvrtc)),
            ("NCCL", library(nccl)),
            ("libcudadevrt", device_runtime.clone().map(|path| format!(": {path}"))),
        ] {
            match found {
                Ok(found) => writeln!(f, "{name}{found}")?,
                Err(reason) => writeln!(f, "no {name}: {reason}")?,
            }
        }
        Ok(())
    }
}

impl Library {
    fn of(file: &str, name: &str, version: Version) -> Self {
        Self { path: mapped(file).unwrap_or_else(|| name.to_owned()), version: version.to_string() }
    }
}

fn set(name: &str) -> Option<OsString> {
    env::var_os(name).filter(|value| !value.is_empty())
}

/// The NVRTC that `cuda-core` loads.
pub(super) fn nvrtc() -> Result<Library, String> {
    of_cuda_core("libnvrtc.so", NVRTC, nvrtc::version())
}

/// A library that `cuda-core` loads, or the one that `variable` names.
fn of_cuda_core(
    file: &str,
    variable: &str,
    version: cuda_core::Result<Version>,
) -> Result<Library, String> {
    match version {
        Ok(version) => Ok(Library::of(file, "found by the loader", version)),
        // That error would list every path tried.
        Err(_) if set(variable).is_none() => {
            Err(format!("none is found; {variable} names one to take"))
        }
        Err(error) => Err(error.to_string()),
    }
}

/// The archive of the toolkit that device code is linked with.
fn device_runtime() -> Result<String, String> {
    let named = set(DEVICE_RUNTIME).map(PathBuf::from);
    let toolkits = [set("CUDA_HOME"), set("CUDA_PATH"), Some("/usr/local/cuda".into())];
    let places = ["lib64", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib", "lib/x64"];
    let files = toolkits.into_iter().flatten().flat_map(|toolkit| {
        let directories = places.map(|place| Path::new(&toolkit).join(place));
        directories.map(|directory| directory.join(DEVICE_RUNTIME_FILE))
    });
    let found = named.into_iter().chain(files).find(|file| file.is_file());
    let found = found.map(|file| file.display().to_string());
    found.ok_or_else(|| format!("no {DEVICE_RUNTIME_FILE}; {DEVICE_RUNTIME} names one to take"))
}

fn runtime() -> Result<Library, String> {
    if set("CUDA_SYS_LIBRARY").is_some() {
        return Err("it would load another driver than CUDA_SYS_LIBRARY names".into());
    }
    let names = match set(RUNTIME) {
        Some(name) => vec![name],
        None => NAMES.iter().map(OsString::from).collect(),
    };
    for name in &names {
        // SAFETY: the initialisers of libcudart only set it up.
        let Ok(library) = (unsafe { os::Library::open(name) }) else {
            continue;
        };
        let name = name.to_string_lossy();
        return match version(&library) {
            Some(version) => Ok(Library::of("libcudart.so", &name, version)),
            None => Err(format!("{name} does not tell its version")),
        };
    }
    Err(format!("none of {names:?} loads; {RUNTIME} names another"))
}

/// `cudaRuntimeGetVersion`.
fn version(library: &os::Library) -> Option<Version> {
    type GetVersion = unsafe extern "C" fn(*mut c_int) -> c_int;
    let address = library.symbol(c"cudaRuntimeGetVersion");
    // SAFETY: every release declares it like this, with `cudaError_t` an int; null becomes `None`.
    let get = unsafe { std::mem::transmute::<*const c_void, Option<GetVersion>>(address) }?;
    let mut version = 0;
    // SAFETY: the pointer is valid for the one `int` that the call writes.
    let code = unsafe { get(&mut version) };
    let number = u32::try_from(version).ok().filter(|_| code == 0)?;
    Some(Version::new(number / 1000, number % 1000 / 10))
}

/// The file mapped into this process with a name that begins like this.
pub(super) fn mapped(file: &str) -> Option<String> {
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    let path = maps.lines().find_map(|line| {
        let path = &line[line.find('/')?..];
        let name = path.rsplit('/').next()?;
        name.starts_with(file).then_some(path)
    })?;
    Some(path.to_owned())
}
