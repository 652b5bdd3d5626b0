//! Properties of devices.

use std::ffi::{c_char, c_int};

use cuda_sys::{CUuuid, symbol as cu};

use crate::device::{Device, DeviceAttribute};
use crate::error::{Result, asked, c_text, check};
use crate::process::driver;
use crate::types::Uuid;
use crate::util::get_or_try_init;

/// # Properties
impl Device {
    /// The name, such as "NVIDIA H200": `cuDeviceGetName`.
    ///
    /// # Errors
    /// The driver's.
    ///
    /// ```no_run
    /// # let device = cuda_core::Device::get(0)?;
    /// println!("{}", device.name()?);
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuDeviceGetName", "cudaGetDeviceProperties"))]
    pub fn name(self) -> Result<String> {
        self.ask_for_text("cuDeviceGetName", |buffer, len| {
            // SAFETY: `buffer` is valid for `len` bytes; the driver ends the string within them.
            unsafe { cu::cuDeviceGetName(buffer, len, self.as_raw()) }
        })
    }

    /// Major and minor compute capability: (9, 0) for Hopper.
    ///
    /// # Errors
    /// The driver's.
    ///
    /// ```no_run
    /// # let device = cuda_core::Device::get(0)?;
    /// let (major, minor) = device.compute_capability()?;
    /// println!("sm_{major}{minor}");
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuDeviceGetAttribute", "cudaGetDeviceProperties", "cudaDeviceGetAttribute"))]
    pub fn compute_capability(self) -> Result<(i32, i32)> {
        Ok((
            self.attribute(cuda_sys::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            self.attribute(cuda_sys::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        ))
    }

    /// Memory of the device in bytes: `cuDeviceTotalMem_v2`.
    ///
    /// # Errors
    /// The driver's.
    ///
    /// ```no_run
    /// # let device = cuda_core::Device::get(0)?;
    /// println!("{} GiB", device.total_memory()? >> 30); // needs no context
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuDeviceTotalMem", "cudaGetDeviceProperties"))]
    pub fn total_memory(self) -> Result<usize> {
        driver::ensure()?;
        // SAFETY: the driver gave the device's handle; the call writes one size, to a borrow of one.
        asked("cuDeviceTotalMem", 0, |bytes| unsafe {
            cu::cuDeviceTotalMem_v2(bytes, self.as_raw())
        })
    }

    /// Returns [`total_memory`](Self::total_memory), asking the driver only once, since it never changes.
    pub(crate) fn known_memory(self) -> Result<usize> {
        get_or_try_init(&self.state.memory, || self.total_memory()).copied()
    }

    /// Returns one attribute: `cuDeviceGetAttribute`.
    ///
    /// # Errors
    /// The driver's `INVALID_VALUE` for an attribute that it does not know.
    ///
    /// ```no_run
    /// let device = cuda_core::Device::get(0)?;
    /// assert_eq!(device.attribute(cuda_core::sys::CU_DEVICE_ATTRIBUTE_WARP_SIZE)?, 32);
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuDeviceGetAttribute", "cudaDeviceGetAttribute"))]
    pub fn attribute(self, attribute: DeviceAttribute) -> Result<i32> {
        driver::ensure()?;
        // SAFETY: the call writes one number, to a borrow of one; an unknown attribute is an error,
        // not undefined behaviour.
        asked("cuDeviceGetAttribute", 0, |value| unsafe {
            cu::cuDeviceGetAttribute(value, attribute, self.as_raw())
        })
    }

    /// The PCI address, `DDDD:BB:DD.F`: `cuDeviceGetPCIBusId`.
    ///
    /// # Errors
    /// The driver's.
    ///
    /// ```no_run
    /// # let device = cuda_core::Device::get(0)?;
    /// println!("{}", device.pci_bus_id()?); // 0000:3B:00.0
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuDeviceGetPCIBusId", "cudaDeviceGetPCIBusId"))]
    pub fn pci_bus_id(self) -> Result<String> {
        self.ask_for_text("cuDeviceGetPCIBusId", |buffer, len| {
            // SAFETY: `buffer` is valid for `len` bytes; the driver ends the string within them.
            unsafe { cu::cuDeviceGetPCIBusId(buffer, len, self.as_raw()) }
        })
    }

    /// The device's unique identifier: `cuDeviceGetUuid_v2`.
    ///
    /// # Errors
    /// The driver's.
    ///
    /// ```no_run
    /// # let device = cuda_core::Device::get(0)?;
    /// println!("{}", device.uuid()?); // GPU-1f3c…, as nvidia-smi writes it
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuDeviceGetUuid", "cudaGetDeviceProperties"))]
    pub fn uuid(self) -> Result<Uuid> {
        driver::ensure()?;
        // SAFETY: the call writes one structure of this type, to an exclusive borrow.
        let uuid = asked("cuDeviceGetUuid", CUuuid::default(), |uuid| unsafe {
            cu::cuDeviceGetUuid_v2(uuid, self.as_raw())
        })?;
        Ok(Uuid::from_bytes(uuid.bytes.map(|byte| byte as u8)))
    }

    fn ask_for_text(
        self,
        op: &'static str,
        call: impl FnOnce(*mut c_char, c_int) -> cuda_sys::CUresult,
    ) -> Result<String> {
        driver::ensure()?;
        let mut buffer = [0u8; 256];
        // One byte less than the buffer's size, so that a NUL ends the text whatever the driver wrote.
        let len = buffer.len() as c_int - 1;
        check(op, call(buffer.as_mut_ptr().cast(), len))?;
        Ok(c_text(&buffer))
    }
}
