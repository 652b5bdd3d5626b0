//! Code that the examples share: exit codes and the search for devices.
//!
//! Exit code 0: the example succeeded; 2: the machine lacks something that it needs; 1: any other error.

#![allow(dead_code, reason = "no example needs all of it")]

use std::error::Error;
use std::fmt;
use std::process::ExitCode;

use cuda_core::{Device, NcclError};

pub(crate) type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

/// The error for something that the machine lacks.
#[derive(Debug)]
pub(crate) struct Lacks(pub(crate) &'static str);

impl fmt::Display for Lacks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "this example needs {}", self.0)
    }
}

impl Error for Lacks {}

pub(crate) fn run(example: fn() -> Result) -> ExitCode {
    match example() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => ExitCode::from(report(&*error)),
    }
}

/// Prints which part the example leaves out, and what the machine lacks for it. `cargo xtask` lists these
/// lines.
pub(crate) fn leave_out(part: &str, needs: &str) {
    println!("not run: {part}: needs {needs}");
}

/// Prints an error, and returns the exit code for it.
pub(crate) fn report(error: &(dyn Error + 'static)) -> u8 {
    let lacks = match error.downcast_ref() {
        Some(cuda_core::Error::NoDriver(_) | cuda_core::Error::NoNvrtc { .. }) => true,
        Some(cuda_core::Error::Nccl(why)) => {
            matches!(**why, NcclError::NotFound { .. } | NcclError::TooOld { .. })
        }
        _ => error.is::<Lacks>(),
    };
    let what = if lacks { "could not run" } else { "error" };
    eprintln!("{what}: {error}");
    if lacks { 2 } else { 1 }
}

/// Returns all devices, at least one.
pub(crate) fn devices() -> Result<Vec<Device>> {
    if !Device::is_available() {
        return Err(Lacks("a GPU, or the simulated driver").into());
    }
    Ok(Device::all()?.collect())
}

/// Returns the first device.
pub(crate) fn device() -> Result<Device> {
    Ok(devices()?[0])
}

/// Returns all devices, at least two.
pub(crate) fn several() -> Result<Vec<Device>> {
    let devices = devices()?;
    if devices.len() < 2 {
        return Err(Lacks("two GPUs").into());
    }
    Ok(devices)
}

/// Whether the driver is the simulated one, which runs only kernels registered in Rust and shares
/// no memory between processes.
pub(crate) fn is_simulated(device: Device) -> Result<bool> {
    Ok(device.name()?.starts_with("Simulated"))
}
