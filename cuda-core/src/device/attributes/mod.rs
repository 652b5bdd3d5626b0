//! Device attributes by name, each with the type it has.

use crate::device::{Device, DeviceAttribute};
use crate::error::Result;

mod booleans;
mod numbers;

/// What a device can do and how much it has: `cuDeviceGetAttribute` with a name and a type for each
/// attribute that headers up to 13.5 know. [`Device::attribute`] takes any other by number.
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
    /// The attributes that have a name here, by CUDA's name without `CU_DEVICE_ATTRIBUTE_`.
    ///
    /// ```no_run
    /// let device = cuda_core::Device::get(0)?;
    /// for (name, attribute) in cuda_core::DeviceAttributes::named() {
    ///     println!("{name}: {:?}", device.attribute(attribute));
    /// }
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn named() -> impl Iterator<Item = (&'static str, DeviceAttribute)> {
        [numbers::NUMBERS, booleans::BOOLEANS]
            .into_iter()
            .flatten()
            .map(|&(name, number)| (name, attribute(number)))
    }
}

/// By number, since two names of the headers before 12.0 stand for other attributes than today.
fn attribute(number: u8) -> DeviceAttribute {
    cuda_sys::CUdevice_attribute(number.into())
}

/// The driver returns all values as one type; this is the type they stand for.
trait AttributeValue {
    fn of(raw: i32) -> Self;
}

impl AttributeValue for i32 {
    fn of(raw: i32) -> Self {
        raw
    }
}

impl AttributeValue for u32 {
    /// These attributes are never negative, or masks that fill all bits.
    fn of(raw: i32) -> Self {
        raw as u32
    }
}

impl AttributeValue for bool {
    fn of(raw: i32) -> Self {
        raw != 0
    }
}

/// Getters with their documentation, and the table of their names.
macro_rules! attributes {
    (
        $(#[$about:meta])*
        $table:ident
        $($getter:ident: $value:ty = $name:ident, $number:literal, $doc:literal;)*
    ) => {
        $(#[$about])*
        pub(super) const $table: &[(&str, u8)] = &[$((stringify!($name), $number)),*];

        impl super::DeviceAttributes {
            $(
                #[doc = $doc]
                #[doc = concat!("`CU_DEVICE_ATTRIBUTE_", stringify!($name), "`.")]
                ///
                /// # Errors
                /// The driver's.
                // Compiled where it is called: most programs call few of them.
                #[inline]
                pub fn $getter(self) -> crate::error::Result<$value> {
                    self.get($number)
                }
            )*
        }
    };
}

use attributes;

impl DeviceAttributes {
    #[inline]
    fn get<V: AttributeValue>(self, number: u8) -> Result<V> {
        self.0.attribute(attribute(number)).map(V::of)
    }
}
