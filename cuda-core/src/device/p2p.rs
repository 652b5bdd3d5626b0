//! Attributes of the link between two devices.

use cuda_sys::{CUdevice_P2PAttribute, symbol as cu};

use crate::device::Device;
use crate::error::{Result, asked};
use crate::process::driver;

/// An attribute of the link from one device to another, by CUDA's own name:
/// `sys::CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK`.
///
/// ```no_run
/// use cuda_core::{Device, P2pAttribute, sys};
///
/// let attribute: P2pAttribute = sys::CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED;
/// let arrays = Device::get(0)?.p2p_attribute(Device::get(1)?, attribute)? != 0;
/// println!("arrays of the other device can be read: {arrays}");
/// # Ok::<(), cuda_core::Error>(())
/// ```
pub type P2pAttribute = CUdevice_P2PAttribute;

/// # Attributes of a pair of devices
impl Device {
    /// Returns one attribute of the link from this device to `peer`: `cuDeviceGetP2PAttribute`. Creates no
    /// context.
    ///
    /// # Errors
    /// The driver's: `INVALID_DEVICE` if both are the same device, `INVALID_VALUE` for an attribute
    /// that it does not know.
    ///
    /// ```no_run
    /// use cuda_core::Device;
    ///
    /// let (a, b) = (Device::get(0)?, Device::get(1)?);
    /// let rank = a.p2p_attribute(b, cuda_core::sys::CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK)?;
    /// println!("link {a:?} → {b:?}: rank {rank}, the smaller the faster");
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuDeviceGetP2PAttribute", "cudaDeviceGetP2PAttribute"))]
    pub fn p2p_attribute(self, peer: Device, attribute: P2pAttribute) -> Result<i32> {
        driver::ensure()?;
        // SAFETY: the call writes one number, to a borrow of one; an unknown attribute is an error.
        asked("cuDeviceGetP2PAttribute", 0, |value| unsafe {
            cu::cuDeviceGetP2PAttribute(value, attribute, self.as_raw(), peer.as_raw())
        })
    }
}
