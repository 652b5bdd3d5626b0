//! The driver and devices that tests run on.

mod libraries;
#[cfg(feature = "driver")]
mod machine;

use std::env;
use std::fmt;
use std::path::Path;
use std::process::Command;

use anyhow::Context;
use serde::{Deserialize, Serialize};

use crate::process::output;
use crate::suite::Tag;
use crate::{driver, refuse};
pub(crate) use libraries::{DEVICE_RUNTIME, Libraries, RUNTIME};
#[cfg(feature = "driver")]
pub(crate) use machine::{install, print_machine};

/// The driver and devices that tests run on.
#[derive(Debug)]
pub(crate) enum Target {
    /// GPUs of the driver that `cuda-sys` loads, and the libraries beside it.
    Real(Gpus, Box<Libraries>),
    /// The simulated driver, and the reason why there is no NVRTC beside it, if it is absent.
    Simulated { devices: u32, without_nvrtc: Option<String> },
}

/// The description of a machine, which a process of its own prints.
#[derive(Debug, Serialize, Deserialize)]
struct Machine {
    /// The GPUs, or the reason why there are none.
    gpus: Result<Gpus, String>,
    libraries: Box<Libraries>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Gpus {
    pub(crate) devices: u32,
    /// The CUDA version of the driver.
    pub(crate) driver: (u32, u32),
    pub(crate) names: Vec<String>,
}

impl Machine {
    /// Runs a program that has the tasks of [`driver`], so that this process can start others without an
    /// initialised driver.
    fn ask(program: &Path) -> anyhow::Result<Self> {
        let printed = output(Command::new(program).arg("devices")).context("asking for devices")?;
        Ok(serde_json::from_str(&printed)?)
    }
}

impl Target {
    /// Returns the simulated driver, with the NVRTC that such a program finds.
    pub(crate) fn simulated(program: &Path, devices: u32) -> anyhow::Result<Self> {
        let without_nvrtc = Machine::ask(program)?.libraries.nvrtc.err();
        Ok(Self::Simulated { devices, without_nvrtc })
    }

    /// Returns the simulated driver with that many devices if they are requested, else the real one.
    pub(crate) fn asked_or_real(simulated: Option<u32>) -> anyhow::Result<Self> {
        let program = driver::program()?;
        if let Some(devices) = simulated {
            return Self::simulated(&program, devices);
        }
        let Machine { gpus, libraries } = Machine::ask(&program)?;
        let gpus = gpus.map_err(|why| refuse(format!("{why}\nWithout a GPU: --sim 4")))?;
        Ok(Self::Real(gpus, libraries))
    }

    pub(crate) fn devices(&self) -> u32 {
        match self {
            Self::Real(Gpus { devices, .. }, _) | Self::Simulated { devices, .. } => *devices,
        }
    }

    /// The libraries that tests need besides the real driver; [`None`] for the simulated one, which has an
    /// NCCL of its own.
    pub(crate) fn libraries(&self) -> Option<&Libraries> {
        match self {
            Self::Real(_, libraries) => Some(libraries),
            Self::Simulated { .. } => None,
        }
    }

    /// Returns the reason why a test with this tag cannot run here, if it cannot.
    pub(crate) fn lacks(&self, tag: Tag) -> Option<String> {
        let (gpus, libraries) = match self {
            Self::Real(gpus, libraries) => (gpus, libraries),
            Self::Simulated { without_nvrtc, .. } if tag == Tag::Nvrtc => {
                return without_nvrtc.clone();
            }
            // The simulated driver has everything else.
            Self::Simulated { .. } => return None,
        };
        let Libraries { runtime, nvrtc, device_runtime, nccl } = &**libraries;
        match tag {
            Tag::Runtime => runtime.clone().err(),
            Tag::Nvrtc => nvrtc.clone().err(),
            Tag::DeviceRuntime => device_runtime.clone().err(),
            Tag::Nccl => nccl.clone().err(),
            Tag::Cuda(major, minor) if gpus.driver < (major, minor) => {
                let (major, minor) = gpus.driver;
                Some(format!("the driver is for CUDA {major}.{minor}"))
            }
            _ => None,
        }
    }
}

/// Returns the value of `CUDA_VISIBLE_DEVICES` for the first `devices` of the devices that this process sees.
pub(crate) fn visible(devices: u32) -> String {
    first(env::var("CUDA_VISIBLE_DEVICES").ok().as_deref(), devices)
}

/// Returns the first entries of a list, or the first ordinals if there is no list.
fn first(list: Option<&str>, devices: u32) -> String {
    let ordinals: Vec<String> = (0..devices).map(|ordinal| ordinal.to_string()).collect();
    let list = list.map_or_else(|| ordinals.join(","), str::to_owned);
    list.split(',').take(devices as usize).collect::<Vec<_>>().join(",")
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Real(gpus, _) => {
                let name = gpus.names.first().map_or("GPU", String::as_str);
                let (devices, (major, minor)) = (gpus.devices, gpus.driver);
                write!(f, "{devices} × {name}, driver for CUDA {major}.{minor}")
            }
            Self::Simulated { devices, .. } => write!(f, "simulated driver, {devices} devices"),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
