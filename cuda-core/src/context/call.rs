//! Driver calls that need a current context, and must not end the thread's captures.

#[cfg(unix)]
use std::os::fd::{OwnedFd, RawFd};
#[cfg(unix)]
use std::ptr;

use cuda_sys::CUresult;

use super::{Context, Entered};
use crate::error::{Error, OutOfMemory, Result, asked};
#[cfg(unix)]
use crate::process::effect::give_fd;
use crate::process::{Failed, RelaxedCaptureMode, deferred, released};

/// Keeps a context current and the thread in relaxed capture mode; the mode ends first.
pub(crate) type RelaxedEntry = (RelaxedCaptureMode, Entered);

impl Context {
    /// Runs `calls` with this context current and the thread's capture mode relaxed, then restores
    /// both.
    pub(crate) fn relaxed<R>(&self, calls: impl FnOnce() -> R) -> Result<R> {
        let _scope = self.enter_relaxed()?;
        Ok(calls())
    }

    /// Imports an object by a file descriptor. The descriptor stays the caller's: the driver gets a
    /// duplicate. `own` takes the handle.
    #[cfg(unix)]
    pub(crate) fn import_fd<H, R>(
        &self,
        op: &'static str,
        fd: &OwnedFd,
        mut call: impl FnMut(&mut *mut H, RawFd) -> CUresult,
        own: impl Fn(*mut H) -> R,
    ) -> Result<R> {
        let mut raw = ptr::null_mut();
        let given = self.relaxed(|| give_fd(op, fd, |fd| call(&mut raw, fd)))?;
        // Despite the error, the driver may have written a handle.
        if given.is_err() && !raw.is_null() {
            drop(own(raw));
        }
        given?;
        Ok(own(raw))
    }

    // Compiled once, not with each closure of `relaxed`.
    #[inline(never)]
    pub(crate) fn enter_relaxed(&self) -> Result<RelaxedEntry> {
        let entered = self.enter_briefly()?;
        Ok((RelaxedCaptureMode::enter()?, entered))
    }

    /// [`asked`] with this context current.
    pub(crate) fn ask<R>(
        &self,
        op: &'static str,
        to: R,
        call: impl FnOnce(&mut R) -> CUresult,
    ) -> Result<R> {
        let _entered = self.enter_briefly()?;
        asked(op, to, call)
    }

    /// [`asked`] [in this context, relaxed](Self::relaxed).
    pub(crate) fn call<R>(
        &self,
        op: &'static str,
        to: R,
        call: impl FnOnce(&mut R) -> CUresult,
    ) -> Result<R> {
        self.relaxed(|| asked(op, to, call))?
    }

    /// [`Context::call`] for a call that allocates `bytes` on the device. For zero bytes, makes no call and
    /// returns `to`.
    pub(crate) fn allocate<R>(
        &self,
        op: &'static str,
        bytes: usize,
        to: R,
        call: impl FnOnce(&mut R) -> CUresult,
    ) -> Result<R> {
        if bytes == 0 {
            return self.live().map(|_| to);
        }
        self.call(op, to, call).map_err(|error| self.explain(error, op, bytes))
    }

    /// [`Context::call`] for a call that releases a resource. Some such calls wait for the device.
    pub(crate) fn release(
        &self,
        op: &'static str,
        call: impl FnOnce() -> CUresult,
    ) -> Result<(), Failed> {
        deferred::hand_over();
        released(op, self.relaxed(call)?)
    }

    /// Adds to an out-of-memory error the bytes requested and what the device has left.
    pub(crate) fn explain(&self, error: Error, op: &'static str, requested: usize) -> Error {
        if !error.is_out_of_memory() {
            return error;
        }
        Error::from(OutOfMemory {
            op,
            requested,
            device: self.device().ordinal(),
            memory: self.memory_info().ok(),
        })
    }
}
