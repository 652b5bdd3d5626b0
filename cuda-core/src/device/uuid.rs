//! The unique identifier of a device.

use std::fmt;
use std::mem::MaybeUninit;
use std::str::FromStr;

use cuda_sys::{CUuuid, symbol as cu};

use crate::device::Device;
use crate::driver;
use crate::error::{Error, Result, check};

/// A device's identifier, in the notation of `nvidia-smi` and `CUDA_VISIBLE_DEVICES`:
/// `GPU-5c8bbd1d-8e5e-4f6c-9f1c-0d6a52c1b0a7`.
///
/// ```
/// let uuid: cuda_core::Uuid = "GPU-5c8bbd1d-8e5e-4f6c-9f1c-0d6a52c1b0a7".parse()?;
/// assert_eq!(uuid.as_bytes()[0], 0x5c);
/// assert_eq!(uuid.to_string(), "GPU-5c8bbd1d-8e5e-4f6c-9f1c-0d6a52c1b0a7");
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uuid([u8; 16]);

/// Bytes that a dash precedes.
const DASHES: [usize; 4] = [4, 6, 8, 10];

impl Uuid {
    /// The identifier with these bytes.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// Its bytes, in the driver's order.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GPU-")?;
        for (index, byte) in self.0.iter().enumerate() {
            if DASHES.contains(&index) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl FromStr for Uuid {
    type Err = Error;

    /// With or without a `GPU-` or `MIG-` prefix; dashes may be missing.
    fn from_str(text: &str) -> Result<Self> {
        let refused = || Error::Malformed {
            what: "a device's UUID",
            text: text.to_owned(),
            form: "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx in hexadecimal",
        };
        let digits = text
            .strip_prefix("GPU-")
            .or_else(|| text.strip_prefix("MIG-"))
            .unwrap_or(text);
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
        Ok(Self(bytes))
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
        Ok(Uuid(uuid.bytes.map(|byte| byte as u8)))
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
        Err(Error::NoSuchUuid {
            uuid,
            count: Self::count()?,
        })
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
