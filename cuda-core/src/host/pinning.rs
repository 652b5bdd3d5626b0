//! Pinning and unpinning of existing host memory.

use std::sync::Mutex;

use cuda_sys::symbol as cu;

use crate::context::Context;
use crate::error::{Error, Result};
use crate::host::{HostAddress, RegisterFlags};
use crate::memory::is_pinned;
use crate::process::{Failed, attempt};
use crate::util::{OnDrop, lock};

pub(super) const REGISTER: &str = "cuMemHostRegister";

/// Calls `cuMemHostRegister_v2`, unless there are no bytes.
pub(crate) fn pin(
    context: &Context,
    address: HostAddress,
    bytes: usize,
    flags: RegisterFlags,
) -> Result<()> {
    if bytes == 0 {
        return context.live().map(drop);
    }
    let _scope = context.enter_relaxed()?;
    let taken = cuda_sys::CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    let _alone = begin(address).ok_or(Error::Driver { op: REGISTER, code: taken })?;
    let was_free = matches!(asked_again(address), Ok(false));
    // SAFETY: the bytes are allocated, and stay so until they are unregistered; a live context is
    // current.
    let code = unsafe { cu::cuMemHostRegister_v2(address.0.as_ptr().cast(), bytes, flags.bits()) };
    let Err(failed) = attempt(REGISTER, code) else { return Ok(()) };
    let is_registered = || matches!(asked_again(address), Ok(true));
    let left_one = was_free && matches!(failed, Failed::Unknown(_)) && is_registered();
    let error = failed.into();
    if !left_one {
        return Err(error);
    }
    // SAFETY: this ends the registration that begins at the address, if any. The failed call left it
    // behind: there was none before, and no other owner registers the same elements in the meantime.
    // Other libraries do not register the memory, by the promise of `StableHost`.
    let undone = unsafe { cu::cuMemHostUnregister(address.0.as_ptr().cast()) };
    // In this case a registration of neighbouring memory pins the address.
    let is_neighbour = undone == cuda_sys::CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    // If the registration cannot be ended, the caller has what it asked for; the error was that of
    // earlier work.
    let stays = undone != cuda_sys::CUDA_SUCCESS && is_registered();
    if stays && !is_neighbour { Ok(()) } else { Err(error) }
}

/// Calls [`is_pinned`], and again if the first call fails.
fn asked_again(address: HostAddress) -> Result<bool> {
    let ask = || is_pinned(address.0.as_ptr());
    ask().or_else(|_| ask())
}

/// Calls `cuMemHostUnregister`.
///
/// # Safety
/// [`pin`] registered the memory in this context, the caller gives that up, and no work uses the
/// memory.
pub(crate) unsafe fn unpin(context: &Context, address: HostAddress) -> Result<(), Failed> {
    context.release("cuMemHostUnregister", || {
        // SAFETY: by the caller's promise.
        unsafe { cu::cuMemHostUnregister(address.0.as_ptr().cast()) }
    })
}

/// Start addresses of registrations in progress.
static UNDER_WAY: Mutex<Vec<HostAddress>> = Mutex::new(Vec::new());

/// Begins a registration at the address, until the result is dropped; [`None`] if one is in progress
/// there. The same elements may have several owners, and the driver identifies registrations by that
/// address: after a failed call, nothing would show which of two calls had registered the memory. No
/// owner waits for another, since the driver may wait for a device, and the device for what another
/// thread does next.
fn begin(address: HostAddress) -> Option<OnDrop<impl FnOnce()>> {
    let mut under_way = lock(&UNDER_WAY);
    if under_way.contains(&address) {
        return None;
    }
    under_way.push(address);
    Some(OnDrop::new(move || lock(&UNDER_WAY).retain(|other| *other != address)))
}
