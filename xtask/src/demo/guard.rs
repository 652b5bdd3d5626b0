//! Demonstrates a guard: the current context before, inside and after, as the driver reports it.

use std::ptr;

use cuda_core::Device;
use cuda_sys::{CUcontext, cuCtxGetCurrent, cuCtxGetDevice};
use serde::Serialize;

use crate::bench::raw::check;

/// The current context at three moments, as the driver reported it.
#[derive(Serialize)]
pub(crate) struct GuardReport {
    pub(crate) before: String,
    pub(crate) inside: String,
    pub(crate) after: String,
    /// Whether the handles before and after are the same, and the device inside was the guard's own.
    pub(crate) restored: bool,
}

pub(crate) fn show(device: Device) -> anyhow::Result<GuardReport> {
    let (handle_before, before) = current()?;
    let guard = device.enter()?;
    let (_, inside) = current()?;
    guard.restore()?;
    let (handle_after, after) = current()?;
    let restored = handle_before == handle_after && inside == description(device.as_raw());
    Ok(GuardReport { before, inside, after, restored })
}

/// Returns the current context and its device, as the driver itself reports them.
fn current() -> anyhow::Result<(CUcontext, String)> {
    let mut handle = ptr::null_mut();
    // SAFETY: the call writes one handle, to a local that outlives it.
    check("cuCtxGetCurrent", unsafe { cuCtxGetCurrent(&mut handle) })?;
    if handle.is_null() {
        return Ok((handle, "none".to_owned()));
    }
    let mut device = 0;
    // SAFETY: the call writes one ordinal, to a local that outlives it; a context is current.
    check("cuCtxGetDevice", unsafe { cuCtxGetDevice(&mut device) })?;
    Ok((handle, description(device)))
}

fn description(device: i32) -> String {
    format!("device {device}")
}
