//! Devices by ordinal, identifier, address.

use cuda_sys::symbol as cu;

use crate::device::{Device, devices};
use crate::error::{Error, Result, asked, c_string};
use crate::process::driver;
use crate::types::Uuid;

/// # Finding devices
impl Device {
    /// Returns the device with this ordinal, 0 to [`Device::count`] − 1.
    ///
    /// # Errors
    /// [`Error::NoSuchDevice`]; [`Error::NoDriver`]; the driver's `NO_DEVICE` if there is a driver but no
    /// device.
    ///
    /// ```no_run
    /// let device = cuda_core::Device::get(0)?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuDeviceGet"))]
    pub fn get(ordinal: u32) -> Result<Self> {
        let devices = devices()?;
        match devices.get(ordinal as usize) {
            Some(state) => Ok(Self { state }),
            None => Err(Error::NoSuchDevice { ordinal, count: devices.len() as u32 }),
        }
    }

    /// All devices, in the order of their ordinals.
    ///
    /// # Errors
    /// [`Error::NoDriver`]; the driver's.
    ///
    /// ```no_run
    /// use cuda_core::Device;
    ///
    /// for device in Device::all()? {
    ///     let (major, minor) = device.compute_capability()?;
    ///     println!("{}: {}, {major}.{minor}", device.ordinal(), device.name()?);
    /// }
    /// let devices: Vec<Device> = Device::all()?.collect(); // to index
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuDeviceGetCount", "cudaGetDeviceCount"))]
    pub fn all() -> Result<impl ExactSizeIterator<Item = Device>> {
        Ok(devices()?.iter().map(|state| Self { state }))
    }

    /// The number of devices that the process sees: `cuDeviceGetCount`.
    ///
    /// # Errors
    /// [`Error::NoDriver`]; the driver's.
    ///
    /// ```no_run
    /// println!("{} devices", cuda_core::Device::count()?);
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuDeviceGetCount", "cudaGetDeviceCount"))]
    pub fn count() -> Result<u32> {
        Ok(devices()?.len() as u32)
    }

    /// Whether there is a driver and at least one device. Creates no context.
    ///
    /// ```no_run
    /// let on_gpu = cuda_core::Device::is_available(); // false without a driver, too
    /// ```
    #[doc(alias("cuInit"))]
    pub fn is_available() -> bool {
        Self::count().is_ok_and(|count| count > 0)
    }

    /// Returns the device at that PCI address, `DDDD:BB:DD.F`: `cuDeviceGetByPCIBusId`.
    ///
    /// # Errors
    /// [`Error::Invalid`] if no device of this process has that address, or if `id` is not an address.
    ///
    /// ```no_run
    /// # let device = cuda_core::Device::get(0)?;
    /// use cuda_core::Device;
    ///
    /// assert_eq!(Device::by_pci_bus_id(&device.pci_bus_id()?)?, device);
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuDeviceGetByPCIBusId", "cudaDeviceGetByPCIBusId"))]
    pub fn by_pci_bus_id(id: &str) -> Result<Self> {
        driver::ensure()?;
        let op = "cuDeviceGetByPCIBusId";
        let text = c_string(op, id)?;
        // SAFETY: the string is NUL-terminated and read during the call only; the call writes one
        // number, to a borrow of one.
        let raw = asked(op, 0, |raw| unsafe { cu::cuDeviceGetByPCIBusId(raw, text.as_ptr()) });
        let form = "the address of a device of this process, such as 0000:65:00.0";
        let none = [cuda_sys::CUDA_ERROR_INVALID_VALUE, cuda_sys::CUDA_ERROR_INVALID_DEVICE];
        Self::from_raw(raw.map_err(|error| match error.code() {
            Some(code) if none.contains(&code) => Error::malformed(op, id, form),
            _ => error,
        })?)
    }

    /// Returns the device with this identifier.
    ///
    /// # Errors
    /// [`Error::NoSuchUuid`] if no visible device has it.
    ///
    /// ```no_run
    /// use cuda_core::Device;
    ///
    /// let device = Device::get(0)?;
    /// assert_eq!(Device::by_uuid(device.uuid()?)?, device);
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn by_uuid(uuid: Uuid) -> Result<Self> {
        for device in Self::all()? {
            if device.uuid()? == uuid {
                return Ok(device);
            }
        }
        Err(Error::NoSuchUuid { uuid, count: Self::count()? })
    }
}
