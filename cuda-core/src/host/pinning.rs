//! Pinning existing host memory, and unpinning it.

use std::sync::Mutex;

use cuda_sys::symbol as cu;

use crate::context::Context;
use crate::error::{Error, Result};
use crate::host::{HostAddress, RegisterFlags};
use crate::memory::is_pinned;
use crate::process::{Failed, FailedRelease, attempt};
use crate::util::{OnDrop, lock};

pub(super) const REGISTER: &str = "cuMemHostRegister";

/// `cuMemHostRegister_v2`, if there is anything to register.
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
    // SAFETY: it ends the registration that begins at the address, if there is one. The failed call left
    // it behind: there was none before, and no other owner registers the same elements meanwhile. Other
    // libraries do not register the memory, by the promise of `StableHost`.
    let undone = unsafe { cu::cuMemHostUnregister(address.0.as_ptr().cast()) };
    // Then a registration of neighbouring memory pins the address.
    let is_neighbour = undone == cuda_sys::CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    // A registration that cannot be ended is what the caller asked for; the error was that of earlier work.
    let stays = undone != cuda_sys::CUDA_SUCCESS && is_registered();
    if stays && !is_neighbour { Ok(()) } else { Err(error) }
}

/// [`is_pinned`], asked again if the first question fails.
fn asked_again(address: HostAddress) -> Result<bool> {
    let ask = || is_pinned(address.0.as_ptr());
    ask().or_else(|_| ask())
}

/// `cuMemHostUnregister`.
///
/// # Safety
/// [`pin`] registered the memory in this context; that is given up, and no work uses it.
pub(crate) unsafe fn unpin(context: &Context, address: HostAddress) -> Result<(), FailedRelease> {
    context.release("cuMemHostUnregister", || {
        // SAFETY: by the caller's promise.
        unsafe { cu::cuMemHostUnregister(address.0.as_ptr().cast()) }
    })
}

/// Where registrations in progress begin.
static UNDER_WAY: Mutex<Vec<HostAddress>> = Mutex::new(Vec::new());

/// Begins a registration at the address, until the result is dropped; [`None`] if there is one already. There
/// may be several owners of the same elements, and the driver tells registrations apart by that address: after
/// a call that failed, nothing would say which of two calls had registered the memory. None waits for the
/// other, since the driver may wait for a device, and the device for what another thread does next.
fn begin(address: HostAddress) -> Option<OnDrop<impl FnOnce()>> {
    let mut under_way = lock(&UNDER_WAY);
    if under_way.contains(&address) {
        return None;
    }
    under_way.push(address);
    Some(OnDrop::new(move || lock(&UNDER_WAY).retain(|other| *other != address)))
}
