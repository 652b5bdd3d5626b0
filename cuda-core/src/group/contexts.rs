//! The primary contexts of several devices, retained at the same time.

use std::sync::{Mutex, PoisonError};
use std::thread;

use crate::context::Context;
use crate::device::Device;
use crate::error::Result;
use crate::process::driver;
use crate::util::lock;

/// # Several devices
impl Device {
    /// Returns the primary contexts of several devices, in the order of the devices. Those not
    /// retained yet are retained at the same time, each on a thread of its own:
    /// `cuDevicePrimaryCtxRetain`, which takes a tenth of a second or more, and which the driver
    /// serialises only in part.
    ///
    /// As with [`Device::context`], the contexts are kept for the life of the process, and the
    /// thread's current context does not change.
    ///
    /// # Errors
    /// As [`Device::context`], in [`Error::OnDevice`](crate::Error::OnDevice). Every device is
    /// tried. Of several errors the first device's is returned, and contexts that were retained
    /// stay retained.
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
        // Checked on this thread: the new threads cannot tell that this one may be the driver's
        // callback thread.
        driver::ensure()?;
        let devices: Vec<Device> = devices.into_iter().collect();
        let mut missing = Vec::new();
        for &device in &devices {
            if device.retained_primary().is_none() && !missing.contains(&device) {
                missing.push(device);
            }
        }
        let failed = Mutex::new(Vec::new());
        let (threads, missing) = (missing.len(), Mutex::new(missing.into_iter()));
        let next = || lock(&missing).next();
        let work = || {
            while let Some(device) = next() {
                if let Err(error) = device.primary() {
                    lock(&failed).push((device, error));
                }
            }
        };
        // The threads share the work, so if one cannot be started, the others do its part. No
        // context is current on the new threads.
        thread::scope(|scope| {
            let start = |_| {
                let thread = thread::Builder::new().name("cuda-core group".to_owned());
                thread.spawn_scoped(scope, work).ok()
            };
            (1..threads).map_while(start).for_each(drop);
            work();
        });
        let failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
        let context = |device: Device| match failed.iter().find(|(other, _)| *other == device) {
            Some((_, error)) => Err(error.clone().on(device)),
            None => device.context().map_err(|error| error.on(device)),
        };
        devices.into_iter().map(context).collect()
    }
}
