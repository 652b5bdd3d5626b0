//! Pinning existing host memory, and unpinning it.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};

use cuda_sys::symbol as cu;

use super::pin_gate::pages;
use crate::context::Context;
use crate::error::Result;
use crate::host::pinned::HostAddress;
use crate::host::registered::RegisterFlags;
use crate::memory::is_pinned;
use crate::process::{Failed, FailedRelease, attempt};
use crate::timeline::ledger::overlap;
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
    let registration = Attempt::begin(address, bytes);
    // Another owner of the same bytes may have registered them; this call must not end that.
    let was_pinned = !matches!(asked_again(address), Ok(false));
    // SAFETY: the bytes are allocated, and stay so until they are unregistered; a live context is
    // current.
    let code = unsafe { cu::cuMemHostRegister_v2(address.0.as_ptr().cast(), bytes, flags.bits()) };
    attempt(REGISTER, code).or_else(|failed| {
        let Failed::Unknown(error) = failed else {
            return Err(failed.into());
        };
        let is_registered = || !was_pinned && matches!(asked_again(address), Ok(true));
        if !is_registered() || !registration.was_alone() {
            return Err(error);
        }
        // SAFETY: the driver reports the address as pinned, and did not before the call above; no
        // other registration of this crate's overlapped this one, and one that begins now is refused.
        // Other libraries do not register it, by the promise of `StableHost`.
        let undone = unsafe { cu::cuMemHostUnregister(address.0.as_ptr().cast()) };
        // What cannot be undone is what was asked for; the error was that of earlier work.
        let stays = undone != cuda_sys::CUDA_SUCCESS && is_registered();
        if stays { Ok(()) } else { Err(error) }
    })
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

/// A registration in progress. There may be several, of the same memory too. None waits for
/// another, since the driver may wait for a device, and the device for what another thread does
/// next.
struct Attempt {
    pages: Range<usize>,
    /// No other registration of these pages has overlapped this one in time.
    alone: AtomicBool,
}

static UNDER_WAY: Mutex<Vec<Weak<Attempt>>> = Mutex::new(Vec::new());

impl Attempt {
    fn begin(address: HostAddress, bytes: usize) -> Arc<Self> {
        let start = address.0.addr().get();
        let pages = pages(&(start..start + bytes));
        let new = Arc::new(Self { pages, alone: AtomicBool::new(true) });
        let mut under_way = lock(&UNDER_WAY);
        under_way.retain(|other| other.strong_count() > 0);
        for other in under_way.iter().filter_map(Weak::upgrade) {
            if overlap(&other.pages, &new.pages) {
                other.alone.store(false, Ordering::SeqCst);
                new.alone.store(false, Ordering::SeqCst);
            }
        }
        under_way.push(Arc::downgrade(&new));
        new
    }

    /// Whether no other registration of this memory has been in progress since this one began.
    fn was_alone(&self) -> bool {
        self.alone.load(Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use std::ptr::NonNull;

    use super::*;

    #[test]
    fn registrations_of_the_same_memory_know_of_each_other() {
        let at = |page: usize| {
            let address = std::ptr::without_provenance_mut::<u8>(page << 16);
            HostAddress(NonNull::new(address).expect("not null"))
        };
        let first = Attempt::begin(at(8), 100);
        let elsewhere = Attempt::begin(at(9), 1 << 16);
        assert!(first.was_alone() && elsewhere.was_alone());
        let both = Attempt::begin(at(8), (1 << 16) + 1);
        assert!(!first.was_alone() && !elsewhere.was_alone() && !both.was_alone());
        drop(both);
        assert!(!first.was_alone(), "it was there");
        drop(first);
        let again = Attempt::begin(at(8), 100);
        assert!(again.was_alone());
    }
}
