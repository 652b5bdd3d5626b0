//! The driver's devices, and the libraries beside it.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use cuda_core::{Device, Version, driver_version, nccl, nvrtc, runtime_version};
use cuda_sys::os;

use super::libraries::{DEVICE_RUNTIME, Libraries, Library, RUNTIME};
use super::{Gpus, Machine, Target};
use crate::{Outcome, driver};

/// The variable that names NVRTC to `cuda-core`.
const NVRTC: &str = "CUDA_CORE_NVRTC";

/// The variable that names NCCL to `cuda-core`.
const NCCL: &str = "CUDA_CORE_NCCL";

const DEVICE_RUNTIME_FILE: &str = if cfg!(windows) { "cudadevrt.lib" } else { "libcudadevrt.a" };

impl Target {
    /// Selects the simulated driver if `asked` gives its devices; else the real driver if it shows a device;
    /// else the simulated one with `otherwise` devices. Also returns the reason for the simulated one.
    pub(crate) fn real_or_simulated(
        asked: Option<u32>,
        otherwise: u32,
    ) -> anyhow::Result<(Self, String)> {
        let simulated = |devices| Self::Simulated { devices, without_nvrtc: None };
        if let Some(devices) = asked {
            return Ok((simulated(devices), "as asked".to_owned()));
        }
        let Machine { gpus, libraries } = Machine::ask(&driver::program()?)?;
        Ok(match gpus {
            Ok(gpus) => (Self::Real(gpus, libraries), String::new()),
            Err(why) => (simulated(otherwise), why),
        })
    }

    /// Makes this process use the simulated driver and the simulated NCCL, if that is the target.
    pub(crate) fn install(&self) -> anyhow::Result<()> {
        if let Self::Simulated { devices, .. } = self {
            install(cuda_sim::Config::default().devices(*devices))?;
            // SAFETY: the simulated NCCL is linked with this program, and its functions have the
            // signatures of `nccl.h`.
            unsafe { nccl::install(cuda_sim::symbol) }?;
        }
        Ok(())
    }
}

/// Makes this process use the simulated driver.
pub(crate) fn install(config: cuda_sim::Config) -> anyhow::Result<()> {
    cuda_sim::install(config).context("installing the simulated driver")
}

/// Runs the hidden task `devices`.
pub(crate) fn print_machine() -> anyhow::Result<Outcome> {
    let gpus = gpus().map_err(|reason| format!("no GPU: {reason:#}"));
    println!("{}", serde_json::to_string(&Machine { gpus, libraries: libraries().into() })?);
    Ok(Outcome::Passed)
}

fn gpus() -> anyhow::Result<Gpus> {
    cuda_sys::load()?;
    let devices = Device::count()?;
    ensure!(devices > 0, "the driver shows no device");
    let names = Device::all()?.map(|device| device.name());
    let names = names.collect::<cuda_core::Result<_>>()?;
    let Version { major, minor } = driver_version()?;
    Ok(Gpus { devices, driver: (major, minor), names })
}

/// Loads the libraries and returns what was found.
fn libraries() -> Libraries {
    let nvrtc = of_cuda_core("libnvrtc.so", NVRTC, nvrtc::version());
    let nccl = of_cuda_core("libnccl.so", NCCL, nccl::version());
    Libraries { runtime: runtime(), nvrtc, device_runtime: device_runtime(), nccl }
}

impl Library {
    fn of(file: &str, name: &str, version: Version) -> Self {
        Self { path: mapped(file).unwrap_or_else(|| name.to_owned()), version: version.to_string() }
    }
}

fn set(name: &str) -> Option<OsString> {
    env::var_os(name).filter(|value| !value.is_empty())
}

/// Returns the result for a library that `cuda-core` loads, or for the one that `variable` names.
fn of_cuda_core(
    file: &str,
    variable: &str,
    version: cuda_core::Result<Version>,
) -> Result<Library, String> {
    match version {
        Ok(version) => Ok(Library::of(file, "found by the loader", version)),
        // The library's own error would list every path tried.
        Err(_) if set(variable).is_none() => {
            Err(format!("none is found; {variable} names one to take"))
        }
        Err(error) => Err(error.to_string()),
    }
}

/// Finds the toolkit's archive that device code is linked with.
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
    let name = set(RUNTIME);
    if let Some(name) = &name {
        // SAFETY: the initialisers of libcudart only set up the library.
        let opened = unsafe { os::Library::open(name) };
        // It stays loaded, so `cuda-core` finds it before others.
        opened.map_err(|error| format!("{RUNTIME}: {error}"))?;
    }
    let version = runtime_version();
    let version = version.ok_or_else(|| format!("none is found; {RUNTIME} names one to take"))?;
    Ok(Library::of("libcudart.so", &name.unwrap_or_default().to_string_lossy(), version))
}

/// Returns the path of the file mapped into this process whose name begins with `file`.
pub(super) fn mapped(file: &str) -> Option<String> {
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    let path = maps.lines().find_map(|line| {
        let path = &line[line.find('/')?..];
        let name = path.rsplit('/').next()?;
        name.starts_with(file).then_some(path)
    })?;
    Some(path.to_owned())
}
