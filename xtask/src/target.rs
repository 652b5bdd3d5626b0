//! The driver and devices that tests run on.

pub(crate) mod libraries;

use std::env;
use std::ffi::{CStr, c_char};
use std::fmt;
use std::process::{Command, Stdio};

use anyhow::Context;
use cuda_core::Version;
use cuda_sys::{CUresult, cuDeviceGetCount, cuDeviceGetName, cuDriverGetVersion, cuInit};
use serde::{Deserialize, Serialize};

use crate::suite::Tag;
use crate::{Outcome, refuse};
pub(crate) use libraries::{Libraries, RUNTIME};

/// The driver and devices that tests run on.
#[derive(Debug)]
pub(crate) enum Target {
    /// GPUs behind the driver that `cuda-sys` loads.
    Real(Gpus),
    /// The simulated driver.
    Simulated { devices: u32 },
}

/// GPUs, as a process of its own prints them.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Gpus {
    pub(crate) devices: u32,
    /// CUDA version of the driver, in the form of `cuDriverGetVersion`.
    pub(crate) driver: i32,
    pub(crate) names: Vec<String>,
    pub(crate) libraries: Libraries,
}

impl Gpus {
    fn driver(&self) -> Version {
        let driver = self.driver.unsigned_abs();
        Version::new(driver / 1000, driver % 1000 / 10)
    }
}

impl Target {
    /// Queries the driver in a process of its own, so that this one can start others without an
    /// initialised driver. The inner error says why there is no GPU.
    pub(crate) fn probe() -> anyhow::Result<Result<Self, String>> {
        let output = Command::new(env::current_exe()?)
            .arg("devices")
            .stdin(Stdio::null())
            .output()
            .context("asking for devices")?;
        if !output.status.success() {
            let message = String::from_utf8_lossy(&output.stderr);
            return Ok(Err(message.trim().trim_start_matches("error: ").into()));
        }
        Ok(Ok(Self::Real(serde_json::from_slice(&output.stdout)?)))
    }

    /// The simulated driver with that many devices if they are asked for, otherwise the real one.
    pub(crate) fn asked_or_real(simulated: Option<u32>) -> anyhow::Result<Self> {
        if let Some(devices) = simulated {
            return Ok(Self::Simulated { devices });
        }
        Self::probe()?.map_err(|why| refuse(format!("{why}\nWithout a GPU: --sim 4")))
    }

    /// The real driver if it shows a device, otherwise the simulated one, or that if it is asked for:
    /// with why, and with that many devices.
    pub(crate) fn real_or_simulated(
        asked: Option<u32>,
        otherwise: u32,
    ) -> anyhow::Result<(Self, String)> {
        let (devices, why) = match asked {
            Some(devices) => (devices, "as asked".to_owned()),
            None => match Self::probe()? {
                Ok(target) => return Ok((target, String::new())),
                Err(why) => (otherwise, why),
            },
        };
        Ok((Self::Simulated { devices }, why))
    }

    /// Makes this process use the simulated driver, if that is the target.
    pub(crate) fn install(&self) -> anyhow::Result<()> {
        match self {
            Self::Real(_) => Ok(()),
            Self::Simulated { devices } => install(cuda_sim::Config::default().devices(*devices)),
        }
    }

    pub(crate) fn devices(&self) -> u32 {
        match self {
            Self::Real(Gpus { devices, .. }) | Self::Simulated { devices } => *devices,
        }
    }

    /// The libraries for tests beside the driver; tests that need them do not run on a simulated
    /// one.
    pub(crate) fn libraries(&self) -> Option<&Libraries> {
        match self {
            Self::Real(gpus) => Some(&gpus.libraries),
            Self::Simulated { .. } => None,
        }
    }

    /// Why a test with this tag cannot run here, if so.
    pub(crate) fn lacks(&self, tag: Tag) -> Option<String> {
        let Self::Real(gpus) = self else {
            return None;
        };
        let driver = gpus.driver();
        match tag {
            Tag::Runtime => gpus.libraries.runtime.as_ref().err().cloned(),
            Tag::Nvrtc => gpus.libraries.nvrtc.as_ref().err().cloned(),
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
    let entries: Vec<String> = match list {
        Some(list) => list.split(',').take(devices as usize).map(str::to_owned).collect(),
        None => (0..devices).map(|ordinal| ordinal.to_string()).collect(),
    };
    entries.join(",")
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Real(gpus) => {
                let name = gpus.names.first().map_or("GPU", String::as_str);
                write!(f, "{} × {name}, driver for CUDA {}", gpus.devices, gpus.driver())
            }
            Self::Simulated { devices } => write!(f, "simulated driver, {devices} devices"),
        }
    }
}

/// Makes this process use the simulated driver.
pub(crate) fn install(config: cuda_sim::Config) -> anyhow::Result<()> {
    cuda_sim::install(config).context("installing the simulated driver")
}

/// The hidden task `devices`: prints the driver's devices as JSON.
pub(crate) fn print_devices() -> anyhow::Result<Outcome> {
    match ask() {
        Ok(gpus) => {
            println!("{}", serde_json::to_string(&gpus)?);
            Ok(Outcome::Passed)
        }
        Err(reason) => {
            eprintln!("error: no GPU: {reason}");
            Ok(Outcome::CouldNotRun)
        }
    }
}

fn ask() -> Result<Gpus, String> {
    cuda_sys::load().map_err(|error| error.to_string())?;
    // SAFETY: takes no pointer.
    check("cuInit", unsafe { cuInit(0) })?;
    let mut devices = 0;
    // SAFETY: `devices` is valid for the one `int` that is written.
    check("cuDeviceGetCount", unsafe { cuDeviceGetCount(&mut devices) })?;
    if devices <= 0 {
        return Err("the driver shows no device".into());
    }
    let mut version = 0;
    // SAFETY: `version` is valid for the one `int` that is written.
    check("cuDriverGetVersion", unsafe { cuDriverGetVersion(&mut version) })?;
    let names = (0..devices).map(name).collect::<Result<_, _>>()?;
    Ok(Gpus {
        devices: devices.unsigned_abs(),
        driver: version,
        names,
        libraries: Libraries::probe(),
    })
}

fn name(device: i32) -> Result<String, String> {
    const LENGTH: i32 = 256;
    let mut name: [c_char; LENGTH as usize] = [0; LENGTH as usize];
    // SAFETY: the driver writes at most `LENGTH` bytes, the terminator among them.
    check("cuDeviceGetName", unsafe { cuDeviceGetName(name.as_mut_ptr(), LENGTH, device) })?;
    let bytes = name.map(|byte| byte as u8);
    let text = CStr::from_bytes_until_nul(&bytes).map_err(|error| error.to_string())?;
    Ok(text.to_string_lossy().into_owned())
}

fn check(call: &str, result: CUresult) -> Result<(), String> {
    if result == cuda_sys::CUDA_SUCCESS {
        return Ok(());
    }
    Err(format!("{call} returned {}", result.0))
}

/// The seed of threaded mode: always the same, unless the environment sets another.
pub(crate) fn simulator_seed() -> (&'static str, String) {
    const NAME: &str = "CUDA_SIM_SEED";
    (NAME, env::var(NAME).unwrap_or_else(|_| "1".into()))
}

/// The driver of this program's own tests: a process has only one, so they share it.
#[cfg(test)]
pub(crate) fn simulated() -> cuda_sim::Session {
    let config = cuda_sim::Config::default().devices(2).quarantine(0).mode(cuda_sim::Mode::Eager);
    // The test that ran first has installed it.
    let _ = cuda_sim::install(config);
    cuda_sim::Session::begin()
}

#[cfg(test)]
mod tests {
    use super::first;

    #[test]
    fn a_choice_made_outside_is_narrowed_not_replaced() {
        assert_eq!(first(Some("2,5,7"), 2), "2,5");
        assert_eq!(first(None, 2), "0,1");
    }
}
