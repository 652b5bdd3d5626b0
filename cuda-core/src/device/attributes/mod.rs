//! Device attributes by name, each with its type.

use crate::device::{Device, DeviceAttribute};

mod table;

use table::NAMED;

/// A device's capabilities and quantities: `cuDeviceGetAttribute` with a name and a type for each attribute
/// in the headers up to 13.5. [`Device::attribute`] takes any other by number.
///
/// Asking creates no context. A driver that is older than an attribute returns `INVALID_VALUE`.
///
/// ```no_run
/// let attributes = cuda_core::Device::get(0)?.attributes();
/// let threads = attributes.max_threads_per_multiprocessor()? * attributes.multiprocessor_count()?;
/// println!("{threads} threads at once, ECC: {}", attributes.ecc_enabled()?);
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DeviceAttributes(Device);

/// # Attributes
impl Device {
    /// The device's attributes by name.
    ///
    /// ```no_run
    /// # let device = cuda_core::Device::get(0)?;
    /// println!("{} multiprocessors", device.attributes().multiprocessor_count()?);
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuDeviceGetAttribute", "cudaGetDeviceProperties", "cudaDeviceGetAttribute"))]
    pub fn attributes(self) -> DeviceAttributes {
        DeviceAttributes(self)
    }
}

impl DeviceAttributes {
    /// Iterates over the attributes that have a name here, with CUDA's name without `CU_DEVICE_ATTRIBUTE_`.
    ///
    /// ```no_run
    /// let device = cuda_core::Device::get(0)?;
    /// for (name, attribute) in cuda_core::DeviceAttributes::named() {
    ///     println!("{name}: {:?}", device.attribute(attribute));
    /// }
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn named() -> impl Iterator<Item = (&'static str, DeviceAttribute)> {
        NAMED.iter().map(|&(name, number)| (name, attribute(number)))
    }
}

/// Makes an attribute from its number: two names of the headers before 12.0 stood for other attributes than
/// today.
fn attribute(number: u8) -> DeviceAttribute {
    cuda_sys::CUdevice_attribute(number.into())
}
