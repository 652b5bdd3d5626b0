//! The primary contexts of several devices, retained at the same time.

use std::panic::resume_unwind;
use std::sync::{Mutex, PoisonError};
use std::thread;

use crate::context::Context;
use crate::device::Device;
use crate::error::Result;
use crate::process::driver;
use crate::util::sync::lock;

/// # Several devices
impl Device {
    /// The primary contexts of several devices, in their order. Those not retained yet are retained
    /// at the same time, each on a thread of its own: `cuDevicePrimaryCtxRetain`, which takes a
    /// tenth of a second or more, and which the driver serialises only in part.
    ///
    /// As with [`Device::context`] the contexts are kept for the life of the process, and the
    /// thread's current context stays unchanged.
    ///
    /// # Errors
    /// Those of [`Device::context`], as [`Error::OnDevice`](crate::Error::OnDevice). Every device
    /// is tried; of several errors the first device's is returned, and contexts that were retained
    /// stay so.
    ///
    /// ```no_run
    /// use cuda_core::Device;
    ///
    /// let contexts = Device::contexts(Device::all()?)?;
    /// assert_eq!(contexts[0], Device::get(0)?.context()?);
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuDevicePrimaryCtxRetain"))]
    pub fn contexts(devices: impl IntoIterator<Item = Device>) -> Result<Vec<Context>> {
        // Called on this thread: the new threads cannot tell that this one may be the driver's
        // callback thread.
        driver::ensure()?;
        let devices: Vec<Device> = devices.into_iter().collect();
        let mut missing = devices.clone();
        missing.retain(|device| device.retained_primary().is_none());
        let failed = Mutex::new(Vec::new());
        let (threads, missing) = (missing.len(), Mutex::new(missing.into_iter()));
        together(threads, || {
            loop {
                let next = lock(&missing).next();
                let Some(device) = next else { return Ok(()) };
                if let Err(error) = device.primary() {
                    lock(&failed).push((device, error));
                }
            }
        })?;
        let failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
        let context = |device: Device| match failed.iter().find(|(other, _)| *other == device) {
            Some((_, error)) => Err(error.clone().on(device)),
            None => device.context().map_err(|error| error.on(device)),
        };
        devices.into_iter().map(context).collect()
    }
}

/// Runs `work` on this thread and on up to `threads - 1` more, until all of them have returned. The
/// first error is this thread's, then the others' in the order in which they were started.
///
/// The threads share the work, so the others do the part of one that cannot be started. They are
/// new: no context is current on them. A panic of one is resumed here, after all have ended.
fn together(threads: usize, work: impl Fn() -> Result<()> + Sync) -> Result<()> {
    thread::scope(|scope| {
        let start = |_| {
            let thread = thread::Builder::new().name("cuda-core group".to_owned());
            thread.spawn_scoped(scope, &work).ok()
        };
        let others: Vec<_> = (1..threads).map_while(start).collect();
        let own = work();
        others.into_iter().fold(own, |first, other| {
            let result = other.join().unwrap_or_else(|panic| resume_unwind(panic));
            first.and(result)
        })
    })
}
