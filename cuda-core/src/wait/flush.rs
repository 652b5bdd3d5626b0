//! Waiting for deferred drops.

use std::sync::Mutex;

use crate::process::{deferred, driver, held};
use crate::util::lock;

/// Waits until every drop deferred before this call has run. For tests and orderly shutdowns.
///
/// Drops of [`InFlight`](crate::InFlight) come after their copies, so this call waits for the device, and for
/// everything else that futures of this crate wait for. It includes waits that a waker or the `Drop` of an
/// owner begins on a thread of this crate, until there are no more.
///
/// Drops that found a stream [captured by other code](crate::Error::Capturing) are tried once more.
///
/// Does nothing inside a host function, since the drops may be waiting for it, nor on threads of this crate:
/// in a hook that a deferred drop calls, in the `Drop` of a value that an [`InFlight`](crate::InFlight)
/// owned, in a waker. Such code must not wait for another thread that calls this function, since that thread
/// waits for the code to end.
///
/// ```
/// cuda_core::drops::flush();
/// ```
pub fn flush_deferred_drops() {
    // Before the first driver call there is nothing to wait for.
    if deferred::is_reaper() || super::is_waiter() || !driver::is_ready() {
        return;
    }
    // Not under the lock: the drops that are tried again run here, and may call this function.
    held::retry();
    // One flush at a time: a second caller must not return before the threads that the first one waits for
    // have ended.
    static FLUSH: Mutex<()> = Mutex::new(());
    let _flush = lock(&FLUSH);
    let mut all = true;
    loop {
        deferred::join();
        if !super::flush(all) {
            return;
        }
        // A job that has run, or a continuation that was called, may have begun further waits on a
        // thread of this crate: the next round waits for those too, but not for waits that other
        // threads begin from now on.
        all = false;
    }
}
