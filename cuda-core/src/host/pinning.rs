//! Pinning existing host memory, and unpinning it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};

use cuda_sys::symbol as cu;

use crate::context::Context;
use crate::error::Result;
use crate::host::{HostAddress, RegisterFlags};
use crate::memory::is_pinned;
use crate::process::{Failed, FailedRelease, attempt};
use crate::util::lock;

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
    let attempts = Attempts::join(address);
    if matches!(asked_again(address), Ok(false)) {
        attempts.was_free.store(true, Ordering::Relaxed);
    }
    // SAFETY: the bytes are allocated, and stay so until they are unregistered; a live context is
    // current.
    let code = unsafe { cu::cuMemHostRegister_v2(address.0.as_ptr().cast(), bytes, flags.bits()) };
    let Err(failed) = attempt(REGISTER, code) else {
        attempts.any_done.store(true, Ordering::Relaxed);
        return Ok(());
    };
    // Asked before it leaves: an attempt that begins after that is no part of the answer.
    let is_registered = || matches!(asked_again(address), Ok(true));
    if matches!(failed, Failed::Unknown(_)) && is_registered() {
        attempts.left_one.store(true, Ordering::Relaxed);
    }
    let error = failed.into();
    if !attempts.last_leaves_one() {
        return Err(error);
    }
    // SAFETY: it ends the registration that begins at the address, if there is one. A failed attempt left
    // it behind: there was none before, none of those that overlapped in time succeeded, and one that
    // begins now is refused. Other libraries do not register the memory, by the promise of `StableHost`.
    let undone = unsafe { cu::cuMemHostUnregister(address.0.as_ptr().cast()) };
    // Then it is neighbouring memory whose registration pins the address, too.
    let is_neighbour = undone == cuda_sys::CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    // What cannot be undone is what was asked for; the error was that of earlier work.
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

/// The registrations in progress that begin at one address: usually one, several if there are several
/// owners of the same elements. The driver tells registrations apart by that address. None waits for
/// another, since the driver may wait for a device, and the device for what another thread does next.
struct Attempts {
    address: HostAddress,
    /// The memory was not pinned at some time since the first of them began.
    was_free: AtomicBool,
    /// One has succeeded.
    any_done: AtomicBool,
    /// One has failed, and may have registered the memory all the same: it was pinned then.
    left_one: AtomicBool,
}

static UNDER_WAY: Mutex<Vec<Weak<Attempts>>> = Mutex::new(Vec::new());

impl Attempts {
    /// Those that begin at the address, with one more.
    fn join(address: HostAddress) -> Arc<Self> {
        let mut under_way = lock(&UNDER_WAY);
        under_way.retain(|attempts| attempts.strong_count() > 0);
        let mut known = under_way.iter().filter_map(Weak::upgrade);
        if let Some(attempts) = known.find(|other| other.address == address) {
            return attempts;
        }
        let [was_free, any_done, left_one] = [const { AtomicBool::new(false) }; 3];
        let new = Arc::new(Self { address, was_free, any_done, left_one });
        under_way.push(Arc::downgrade(&new));
        new
    }

    /// Takes one away. Whether it was the last, and a registration at the address can only be one that
    /// a failed attempt left behind.
    fn last_leaves_one(self: Arc<Self>) -> bool {
        // Under the lock, where nothing but attempts counts as one.
        let _under_way = lock(&UNDER_WAY);
        Arc::into_inner(self).is_some_and(|Self { was_free, any_done, left_one, .. }| {
            was_free.into_inner() && left_one.into_inner() && !any_done.into_inner()
        })
    }
}

#[cfg(test)]
mod tests {
    use std::ptr::NonNull;

    use super::*;

    #[test]
    fn registrations_of_the_same_memory_know_of_each_other() {
        let at = |address: usize| {
            let address = std::ptr::without_provenance_mut::<u8>(address);
            HostAddress(NonNull::new(address).expect("not null"))
        };
        let [first, neighbour, second] = [at(8), at(9), at(8)].map(Attempts::join);
        assert!(Arc::ptr_eq(&first, &second) && !Arc::ptr_eq(&first, &neighbour));
        for attempts in [&first, &neighbour] {
            attempts.was_free.store(true, Ordering::Relaxed);
            attempts.left_one.store(true, Ordering::Relaxed);
        }
        neighbour.any_done.store(true, Ordering::Relaxed);
        assert!(!neighbour.last_leaves_one(), "it may be the one that succeeded");
        assert!(!first.last_leaves_one(), "the other one is there");
        assert!(second.last_leaves_one());
        assert!(!Attempts::join(at(8)).last_leaves_one(), "they are over");
    }
}
