//! Devices by their identifiers.

use std::mem::MaybeUninit;
use std::str::FromStr;

use cuda_sys::{CUuuid, symbol as cu};

use crate::device::Device;
use crate::error::{Error, Result, check};
use crate::process::driver;
use crate::types::uuid::Uuid;

impl FromStr for Uuid {
    type Err = Error;

    /// With or without a `GPU-` or `MIG-` prefix; dashes may be missing.
    fn from_str(text: &str) -> Result<Self> {
        let refused = || {
            let form = "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx in hexadecimal";
            Error::malformed("Uuid::from_str", text, form)
        };
        let digits =
            text.strip_prefix("GPU-").or_else(|| text.strip_prefix("MIG-")).unwrap_or(text);
        let mut bytes = [0; 16];
        let mut count = 0;
        for digit in digits.chars().filter(|&c| c != '-') {
            let value = digit.to_digit(16).ok_or_else(refused)? as u8;
            let byte = bytes.get_mut(count / 2).ok_or_else(refused)?;
            *byte = *byte << 4 | value;
            count += 1;
        }
        if count != 2 * bytes.len() {
            return Err(refused());
        }
        Ok(Self::from_bytes(bytes))
    }
}

impl Device {
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
    pub fn uuid(self) -> Result<Uuid> {
        driver::ensure()?;
        let mut uuid = MaybeUninit::<CUuuid>::zeroed();
        // SAFETY: the call writes one structure of this type, to a local that outlives it.
        check("cuDeviceGetUuid", unsafe {
            cu::cuDeviceGetUuid_v2(uuid.as_mut_ptr(), self.as_raw())
        })?;
        // SAFETY: zeroed at first, which is a valid CUuuid, then written by the driver.
        let uuid = unsafe { uuid.assume_init() };
        Ok(Uuid::from_bytes(uuid.bytes.map(|byte| byte as u8)))
    }

    /// The device with this identifier.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_uuid() {
        for text in [
            "",
            "GPU-",
            "GPU-5c8bbd1d",
            "5c8bbd1d-8e5e-4f6c-9f1c-0d6a52c1b0a71",
            "GPU-5c8bbd1d-8e5e-4f6c-9f1c-0d6a52c1b0ag",
        ] {
            assert!(text.parse::<Uuid>().is_err(), "{text}");
        }
    }
}
