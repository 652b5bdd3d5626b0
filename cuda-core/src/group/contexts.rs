//! The primary contexts of several devices, retained at the same time.

use std::sync::{Mutex, PoisonError};

use crate::context::Context;
use crate::device::Device;
use crate::driver;
use crate::error::Result;
use crate::group::threads::together;
use crate::sync::lock;

impl Device {
    /// The primary contexts of several devices, in their order. Those not retained yet are retained
    /// at the same time, each by a thread of its own: `cuDevicePrimaryCtxRetain`, which takes a tenth
    /// of a second or more, and which the driver serialises in part only.
    ///
    /// As with [`Device::context`] the contexts are kept for the life of the process, and what is
    /// current stays current.
    ///
    /// # Errors
    /// Those of [`Device::context`], as [`Error::OnDevice`](crate::Error::OnDevice). Every device is tried; of several errors
    /// the first device's is returned, and contexts that were retained stay so.
    ///
    /// ```no_run
    /// use cuda_core::Device;
    ///
    /// let contexts = Device::contexts(Device::all()?)?;
    /// assert_eq!(contexts[0], Device::get(0)?.context()?);
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn contexts(devices: impl IntoIterator<Item = Device>) -> Result<Vec<Context>> {
        // On this thread: the others do not know that it may be the driver's.
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
