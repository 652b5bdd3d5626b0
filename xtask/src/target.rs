//! The driver and devices that tests run on.

pub(crate) mod libraries;

use std::env;
use std::fmt;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use cuda_core::{Device, Version, driver_version, nccl};
use serde::{Deserialize, Serialize};

use crate::suite::Tag;
use crate::{Outcome, refuse};
pub(crate) use libraries::{DEVICE_RUNTIME, Libraries, RUNTIME};

/// The driver and devices that tests run on.
#[derive(Debug)]
pub(crate) enum Target {
    /// GPUs of the driver that `cuda-sys` loads.
    Real(Gpus),
    /// The simulated driver.
    Simulated { devices: u32 },
}

/// GPUs, as a process of its own prints them.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Gpus {
    pub(crate) devices: u32,
    /// CUDA version of the driver.
    pub(crate) driver: (u32, u32),
    pub(crate) names: Vec<String>,
    pub(crate) libraries: Box<Libraries>,
}

impl Target {
    /// Queries the driver in a process of its own, so that this one can start others without an
    /// initialised driver. The inner error says why there is no GPU.
    pub(crate) fn probe() -> Result<Result<Self, String>> {
        let output = Command::new(env::current_exe()?).arg("devices").output();
        let output = output.context("asking for devices")?;
        if !output.status.success() {
            let message = String::from_utf8_lossy(&output.stderr);
            return Ok(Err(message.trim().trim_start_matches("error: ").into()));
        }
        Ok(Ok(Self::Real(serde_json::from_slice(&output.stdout)?)))
    }

    /// The simulated driver with that many devices if they are asked for, otherwise the real one.
    pub(crate) fn asked_or_real(simulated: Option<u32>) -> Result<Self> {
        let asked = simulated.map(|devices| Self::Simulated { devices });
        let target = asked.map_or_else(Self::probe, |asked| Ok(Ok(asked)))?;
        target.map_err(|why| refuse(format!("{why}\nWithout a GPU: --sim 4")))
    }

    /// The real driver if it shows a device, otherwise the simulated one, or that if it is asked for:
    /// with why, and with that many devices.
    pub(crate) fn real_or_simulated(asked: Option<u32>, otherwise: u32) -> Result<(Self, String)> {
        if let Some(devices) = asked {
            return Ok((Self::Simulated { devices }, "as asked".to_owned()));
        }
        let simulated = |why| (Self::Simulated { devices: otherwise }, why);
        Ok(Self::probe()?.map_or_else(simulated, |target| (target, String::new())))
    }

    /// Makes this process use the simulated driver and the simulated NCCL, if that is the target.
    pub(crate) fn install(&self) -> Result<()> {
        if let Self::Simulated { devices } = self {
            install(cuda_sim::Config::default().devices(*devices))?;
            // SAFETY: the simulated NCCL is linked with this program, and its functions have the
            // signatures of `nccl.h`.
            unsafe { nccl::install(cuda_sim::symbol) }?;
        }
        Ok(())
    }

    pub(crate) fn devices(&self) -> u32 {
        match self {
            Self::Real(Gpus { devices, .. }) | Self::Simulated { devices } => *devices,
        }
    }

    /// The libraries for tests beside the driver; the simulated one has an NCCL of its own.
    pub(crate) fn libraries(&self) -> Option<&Libraries> {
        match self {
            Self::Real(gpus) => Some(&gpus.libraries),
            Self::Simulated { .. } => None,
        }
    }

    /// Why a test with this tag cannot run here, if so.
    pub(crate) fn lacks(&self, tag: Tag) -> Option<String> {
        let Self::Real(gpus) = self else {
            // The simulated driver has all but that.
            return (tag == Tag::Nvrtc).then(|| libraries::nvrtc().err()).flatten();
        };
        let driver = Version::new(gpus.driver.0, gpus.driver.1);
        let Libraries { runtime, nvrtc, device_runtime, nccl } = &*gpus.libraries;
        match tag {
            Tag::Runtime => runtime.clone().err(),
            Tag::Nvrtc => nvrtc.clone().err(),
            Tag::DeviceRuntime => device_runtime.clone().err(),
            Tag::Nccl => nccl.clone().err(),
            Tag::Cuda(major, minor) if driver < Version::new(major, minor) => {
                Some(format!("the driver is for CUDA {driver}"))
            }
            _ => None,
        }
    }
}

/// The value of `CUDA_VISIBLE_DEVICES` for the first `devices` of those that this process sees.
pub(crate) fn visible(devices: u32) -> String {
    first(env::var("CUDA_VISIBLE_DEVICES").ok().as_deref(), devices)
}

/// The first entries of a list, or the first ordinals if there is none.
fn first(list: Option<&str>, devices: u32) -> String {
    let ordinals: Vec<String> = (0..devices).map(|ordinal| ordinal.to_string()).collect();
    let list = list.map_or_else(|| ordinals.join(","), str::to_owned);
    list.split(',').take(devices as usize).collect::<Vec<_>>().join(",")
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Real(gpus) => {
                let name = gpus.names.first().map_or("GPU", String::as_str);
                let (devices, (major, minor)) = (gpus.devices, gpus.driver);
                write!(f, "{devices} × {name}, driver for CUDA {major}.{minor}")
            }
            Self::Simulated { devices } => write!(f, "simulated driver, {devices} devices"),
        }
    }
}

/// Makes this process use the simulated driver.
pub(crate) fn install(config: cuda_sim::Config) -> Result<()> {
    cuda_sim::install(config).context("installing the simulated driver")
}

/// The hidden task `devices`: prints the driver's devices as JSON.
pub(crate) fn print_devices() -> Result<Outcome> {
    let gpus = ask().map_err(|reason| refuse(format!("no GPU: {reason:#}")))?;
    println!("{}", serde_json::to_string(&gpus)?);
    Ok(Outcome::Passed)
}

fn ask() -> Result<Gpus> {
    cuda_sys::load()?;
    let devices = Device::count()?;
    ensure!(devices > 0, "the driver shows no device");
    let names = Device::all()?.map(|device| device.name());
    let names = names.collect::<cuda_core::Result<_>>()?;
    let Version { major, minor } = driver_version()?;
    Ok(Gpus { devices, driver: (major, minor), names, libraries: libraries::probe().into() })
}

#[cfg(test)]
pub(crate) mod tests;
