//! Devices and their properties. Asking about a device creates no context.

use std::cmp::Ordering;
use std::ffi::c_int;
use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::ptr;
use std::sync::OnceLock;

use cuda_sys::{CUdevice, CUdevice_attribute, symbol as cu};

use crate::device::default_pool::RawPool;
use crate::device::limits::DeviceLimits;
use crate::error::{Error, Result, asked};
use crate::process::driver;
use crate::util::{Pocket, compare_by, debug_by};

// Separated by blank lines, so that rustfmt keeps this order, in which rustdoc shows their `impl`s.
mod find;

mod properties;

pub(crate) mod attributes;
pub(crate) mod default_pool;
pub(crate) mod limits;
pub(crate) mod mem_location;
pub(crate) mod p2p;
pub(crate) mod runtime;
mod uuid;

/// A device attribute, by CUDA's own name: `sys::CU_DEVICE_ATTRIBUTE_WARP_SIZE`.
///
/// ```no_run
/// use cuda_core::{Device, DeviceAttribute, sys};
///
/// let attribute: DeviceAttribute = sys::CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK;
/// println!("{} registers a block", Device::get(0)?.attribute(attribute)?);
/// # Ok::<(), cuda_core::Error>(())
/// ```
pub type DeviceAttribute = CUdevice_attribute;

/// A GPU, named by its ordinal among those visible to the process.
///
/// A `Device` is a small copyable name. Asking it for properties creates no context. Its primary context is
/// retained when a call first needs it ([`Device::context`], [`Device::enter`], [`Device::create_stream`])
/// and kept for the life of the process.
///
/// ```no_run
/// use cuda_core::Device;
///
/// for device in Device::all()? {
///     let (major, minor) = device.compute_capability()?;
///     println!("{device}: {} ({major}.{minor})", device.name()?); // "device 0: …"
/// }
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[derive(Clone, Copy)]
pub struct Device {
    state: &'static DeviceState,
}

/// What the process remembers about a device.
#[derive(Default)]
pub(crate) struct DeviceState {
    ordinal: u32,
    raw: CUdevice,
    primary: <PrimaryContext as Pocket>::Content,
    default_pool: OnceLock<Option<RawPool>>,
    limits: OnceLock<DeviceLimits>,
    stream_values: OnceLock<[bool; 2]>,
    host_addresses: OnceLock<bool>,
    memory: OnceLock<usize>,
}

/// Names the field for the device's primary context.
pub(crate) enum PrimaryContext {}

static DEVICES: OnceLock<Box<[DeviceState]>> = OnceLock::new();

fn devices() -> Result<&'static [DeviceState]> {
    driver::ensure()?;
    if let Some(devices) = DEVICES.get() {
        return Ok(devices);
    }
    // SAFETY: the driver is initialised; the call writes one int, to a borrow of one.
    let count = asked("cuDeviceGetCount", 0, |count| unsafe { cu::cuDeviceGetCount(count) })?;
    let mut found = Vec::new();
    for ordinal in 0..u32::try_from(count).unwrap_or(0) {
        // SAFETY: the call writes one handle, to a borrow of one; an ordinal that does not exist is
        // an error.
        let raw = asked("cuDeviceGet", 0, |raw| unsafe { cu::cuDeviceGet(raw, ordinal as c_int) })?;
        found.push(DeviceState { ordinal, raw, ..DeviceState::default() });
    }
    Ok(DEVICES.get_or_init(|| found.into_boxed_slice()))
}

/// Iterates over the devices if they have been queried; otherwise over none. Makes no driver call.
pub(crate) fn known() -> impl Iterator<Item = Device> {
    let devices = DEVICES.get().map_or(&[][..], |devices| devices);
    devices.iter().map(|state| Device { state })
}

/// # The device itself
impl Device {
    pub(crate) fn from_raw(raw: CUdevice) -> Result<Self> {
        let devices = devices()?;
        match devices.iter().find(|state| state.raw == raw) {
            Some(state) => Ok(Self { state }),
            None => Err(Error::NoSuchDevice { ordinal: raw as u32, count: devices.len() as u32 }),
        }
    }

    /// The ordinal.
    #[inline]
    pub fn ordinal(self) -> u32 {
        self.state.ordinal
    }

    /// The driver's handle.
    #[inline]
    pub fn as_raw(self) -> CUdevice {
        self.state.raw
    }

    /// Refuses a device whose attribute is zero.
    pub(crate) fn require(self, attribute: DeviceAttribute, feature: &'static str) -> Result<()> {
        if self.attribute(attribute)? != 0 { Ok(()) } else { Err(self.unsupported(feature)) }
    }

    /// Returns the error for a feature that the device lacks.
    pub(crate) fn unsupported(self, feature: &'static str) -> Error {
        Error::Unsupported { feature, device: self.ordinal() }
    }

    /// Refuses memory of a device other than `self`, which is a stream's device.
    #[inline]
    pub(crate) fn require_same(self, op: &'static str, memory: Self) -> Result<()> {
        if self == memory {
            return Ok(());
        }
        Err(Error::wrong_device(op, memory.ordinal(), self.ordinal()))
    }

    #[inline]
    pub(crate) fn primary_pocket(self) -> &'static <PrimaryContext as Pocket>::Content {
        &self.state.primary
    }
}

impl Error {
    /// Adds the device that the error concerns.
    pub(crate) fn on(self, device: Device) -> Self {
        Error::OnDevice { device: device.ordinal(), error: Box::new(self) }
    }
}

// Each device has one state.
compare_by! { Device: |it| ptr::from_ref(it.state) }

/// By ordinal.
impl PartialOrd for Device {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// By ordinal.
impl Ord for Device {
    fn cmp(&self, other: &Self) -> Ordering {
        self.ordinal().cmp(&other.ordinal())
    }
}

// Each field of a device's state is written once, by code that does not unwind halfway.
impl UnwindSafe for Device {}
impl RefUnwindSafe for Device {}

/// "device 0"
impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "device {}", self.ordinal())
    }
}

debug_by! { [] Device: |it| "Device({})", it.ordinal() }
