//! Demonstrates a guard: the current context before, inside and after, as the driver reports it.

use std::ptr;

use anyhow::bail;
use cuda_core::Device;
use cuda_sys::{CUDA_SUCCESS, CUcontext, cuCtxGetCurrent, cuCtxGetDevice};
use serde::Serialize;

/// The current context at three moments, as the driver reported it.
#[derive(Serialize)]
pub(crate) struct GuardReport {
    pub(crate) before: String,
    pub(crate) inside: String,
    pub(crate) after: String,
    /// Whether the handle after is the one before, and the one inside the device's own.
    pub(crate) restored: bool,
}

pub(crate) fn show(device: Device) -> anyhow::Result<GuardReport> {
    let before = current()?;
    let guard = device.guard()?;
    let inside = current()?;
    guard.restore()?;
    let after = current()?;
    Ok(GuardReport {
        restored: before.handle == after.handle && inside.device == Some(device.as_raw()),
        before: before.describe(),
        inside: inside.describe(),
        after: after.describe(),
    })
}

struct Current {
    handle: CUcontext,
    device: Option<i32>,
}

/// Queries the driver itself, not the library.
fn current() -> anyhow::Result<Current> {
    let mut handle = ptr::null_mut();
    // SAFETY: the call writes one handle, to a local that outlives it.
    let code = unsafe { cuCtxGetCurrent(&mut handle) };
    if code != CUDA_SUCCESS {
        bail!("cuCtxGetCurrent: error {}", code.0);
    }
    let mut device = 0;
    // SAFETY: the call writes one ordinal, to a local that outlives it; without a current context
    // it is an error.
    let code = unsafe { cuCtxGetDevice(&mut device) };
    let device = (!handle.is_null() && code == CUDA_SUCCESS).then_some(device);
    Ok(Current { handle, device })
}

impl Current {
    fn describe(&self) -> String {
        match self.device {
            Some(device) => format!("device {device}"),
            None => "none".to_owned(),
        }
    }
}
