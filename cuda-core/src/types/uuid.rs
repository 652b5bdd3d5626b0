//! The unique identifier of a device.

use std::fmt;

/// A device's identifier, in the notation of `nvidia-smi` and `CUDA_VISIBLE_DEVICES`:
/// `GPU-5c8bbd1d-8e5e-4f6c-9f1c-0d6a52c1b0a7`. `Display` writes `GPU-` also for an instance of a device
/// (MIG), although `nvidia-smi` and `CUDA_VISIBLE_DEVICES` write `MIG-`.
///
/// ```
/// let uuid: cuda_core::Uuid = "GPU-5c8bbd1d-8e5e-4f6c-9f1c-0d6a52c1b0a7".parse()?;
/// assert_eq!(uuid.as_bytes()[0], 0x5c);
/// assert_eq!(uuid.to_string(), "GPU-5c8bbd1d-8e5e-4f6c-9f1c-0d6a52c1b0a7");
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uuid([u8; 16]);

/// Indices of the bytes that a dash precedes.
const DASHES: [usize; 4] = [4, 6, 8, 10];

impl Uuid {
    /// The identifier with these bytes.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The identifier's bytes, in the driver's order.
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
