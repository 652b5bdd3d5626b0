//! Devices and their properties. Asking about a device creates no context.

use std::ffi::{c_char, c_int};
use std::ptr;
use std::sync::OnceLock;

use cuda_sys::{CUdevice, CUdevice_attribute, CUdeviceptr, symbol as cu};

use crate::device::default_pool::RawPool;
use crate::error::{Error, Result, asked, c_string, c_text, check};
use crate::process::driver;
use crate::util::by_parts::{compare_by, debug_by};
use crate::util::pocket::Pocket;

pub(crate) mod attributes;
pub(crate) mod default_pool;
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
/// A `Device` is a small copyable name. Asking it for properties creates no context; its primary
/// context is retained when something first needs it ([`Device::context`], [`Device::enter`],
/// [`Device::create_stream`]) and kept for the life of the process.
///
/// ```no_run
/// use cuda_core::Device;
///
/// for device in Device::all()? {
///     let (major, minor) = device.compute_capability()?;
///     println!("{}: {} ({major}.{minor})", device.ordinal(), device.name()?);
/// }
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[derive(Clone, Copy)]
pub struct Device {
    state: &'static DeviceState,
}

/// What the process remembers about a device.
pub(crate) struct DeviceState {
    ordinal: u32,
    raw: CUdevice,
    primary: <PrimaryContext as Pocket>::Content,
    default_pool: OnceLock<Option<RawPool>>,
}

/// The device's primary context.
pub(crate) enum PrimaryContext {}

static DEVICES: OnceLock<Box<[DeviceState]>> = OnceLock::new();

fn devices() -> Result<&'static [DeviceState]> {
    driver::ensure()?;
    if let Some(devices) = DEVICES.get() {
        return Ok(devices);
    }
    // SAFETY: the driver is initialised; the call writes one int, to a borrow of one.
    let count = asked("cuDeviceGetCount", |count| unsafe { cu::cuDeviceGetCount(count) })?;
    let mut found = Vec::new();
    for ordinal in 0..u32::try_from(count).unwrap_or(0) {
        // SAFETY: the call writes one handle, to a borrow of one; an ordinal that does not exist is
        // an error.
        let raw = asked("cuDeviceGet", |raw| unsafe { cu::cuDeviceGet(raw, ordinal as c_int) })?;
        found.push(DeviceState {
            ordinal,
            raw,
            primary: Default::default(),
            default_pool: OnceLock::new(),
        });
    }
    Ok(DEVICES.get_or_init(|| found.into_boxed_slice()))
}

/// The devices, as far as any were asked for.
pub(crate) fn known() -> impl Iterator<Item = Device> {
    let devices = DEVICES.get().map_or(&[][..], |devices| devices);
    devices.iter().map(|state| Device { state })
}

impl Device {
    /// The device with this ordinal, 0 to [`Device::count`] − 1.
    ///
    /// # Errors
    /// [`Error::NoSuchDevice`], [`Error::NoDriver`].
    ///
    /// ```no_run
    /// let device = cuda_core::Device::get(0)?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn get(ordinal: u32) -> Result<Self> {
        let devices = devices()?;
        match devices.get(ordinal as usize) {
            Some(state) => Ok(Self { state }),
            None => Err(Error::NoSuchDevice { ordinal, count: devices.len() as u32 }),
        }
    }

    /// The number of devices that the process sees: `cuDeviceGetCount`.
    ///
    /// # Errors
    /// [`Error::NoDriver`]; the driver's.
    pub fn count() -> Result<u32> {
        Ok(devices()?.len() as u32)
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
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn all() -> Result<impl ExactSizeIterator<Item = Device>> {
        Ok(devices()?.iter().map(|state| Self { state }))
    }

    /// Whether there is a driver and at least one device. Creates no context.
    ///
    /// ```no_run
    /// let on_gpu = cuda_core::Device::is_available(); // false without a driver, too
    /// ```
    pub fn is_available() -> bool {
        Self::count().is_ok_and(|count| count > 0)
    }

    /// The device at that PCI address, `DDDD:BB:DD.F`: `cuDeviceGetByPCIBusId`.
    ///
    /// # Errors
    /// The driver's `INVALID_VALUE` or `INVALID_DEVICE` if no device has it; [`Error::Invalid`].
    ///
    /// ```no_run
    /// # let device = cuda_core::Device::get(0)?;
    /// use cuda_core::Device;
    ///
    /// assert_eq!(Device::by_pci_bus_id(&device.pci_bus_id()?)?, device);
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn by_pci_bus_id(id: &str) -> Result<Self> {
        let devices = devices()?;
        let op = "cuDeviceGetByPCIBusId";
        let id = c_string(op, id)?;
        // SAFETY: the string is NUL-terminated and read during the call only; the call writes one
        // number, to a borrow of one.
        let raw = asked(op, |raw| unsafe { cu::cuDeviceGetByPCIBusId(raw, id.as_ptr()) })?;
        let missing = Error::Driver { op, code: cuda_sys::CUDA_ERROR_INVALID_DEVICE };
        devices.iter().find(|state| state.raw == raw).map(|state| Self { state }).ok_or(missing)
    }

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

    /// The name, such as "NVIDIA H200": `cuDeviceGetName`.
    ///
    /// # Errors
    /// The driver's.
    pub fn name(self) -> Result<String> {
        self.ask_for_text("cuDeviceGetName", |buffer, len| {
            // SAFETY: `buffer` is valid for `len` bytes; the driver ends the string within them.
            unsafe { cu::cuDeviceGetName(buffer, len, self.as_raw()) }
        })
    }

    /// The PCI address, `DDDD:BB:DD.F`: `cuDeviceGetPCIBusId`.
    ///
    /// # Errors
    /// The driver's.
    pub fn pci_bus_id(self) -> Result<String> {
        self.ask_for_text("cuDeviceGetPCIBusId", |buffer, len| {
            // SAFETY: `buffer` is valid for `len` bytes; the driver ends the string within them.
            unsafe { cu::cuDeviceGetPCIBusId(buffer, len, self.as_raw()) }
        })
    }

    fn ask_for_text(
        self,
        op: &'static str,
        call: impl FnOnce(*mut c_char, c_int) -> cuda_sys::CUresult,
    ) -> Result<String> {
        driver::ensure()?;
        let mut buffer = [0u8; 256];
        // One byte less than the buffer has, so that a NUL ends the text whatever the driver wrote.
        let len = buffer.len() as c_int - 1;
        check(op, call(buffer.as_mut_ptr().cast(), len))?;
        Ok(c_text(&buffer))
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
    pub fn total_memory(self) -> Result<usize> {
        driver::ensure()?;
        // SAFETY: the driver gave the device's handle; the call writes one size, to a borrow of one.
        asked("cuDeviceTotalMem", |bytes| unsafe { cu::cuDeviceTotalMem_v2(bytes, self.as_raw()) })
    }

    /// One attribute: `cuDeviceGetAttribute`.
    ///
    /// # Errors
    /// The driver's `INVALID_VALUE` for an attribute that it does not know.
    ///
    /// ```no_run
    /// let device = cuda_core::Device::get(0)?;
    /// assert_eq!(device.attribute(cuda_core::sys::CU_DEVICE_ATTRIBUTE_WARP_SIZE)?, 32);
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn attribute(self, attribute: DeviceAttribute) -> Result<i32> {
        driver::ensure()?;
        // SAFETY: the call writes one number, to a borrow of one; an unknown attribute is an error,
        // not undefined behaviour.
        asked("cuDeviceGetAttribute", |value| unsafe {
            cu::cuDeviceGetAttribute(value, attribute, self.as_raw())
        })
    }

    /// Refuses a device of which the attribute is zero.
    pub(crate) fn require(self, attribute: DeviceAttribute, feature: &'static str) -> Result<()> {
        if self.attribute(attribute)? != 0 { Ok(()) } else { Err(self.unsupported(feature)) }
    }

    /// The error for what the device lacks.
    pub(crate) fn unsupported(self, feature: &'static str) -> Error {
        Error::Unsupported { feature, device: self.ordinal() }
    }

    /// Refuses memory of another device than this one, which is a stream's.
    #[inline]
    pub(crate) fn require_same(self, op: &'static str, memory: Self) -> Result<()> {
        if self == memory {
            return Ok(());
        }
        Err(Error::WrongDevice { op, memory: memory.ordinal(), stream: self.ordinal() })
    }

    /// Major and minor compute capability: (9, 0) for Hopper.
    ///
    /// # Errors
    /// The driver's.
    pub fn compute_capability(self) -> Result<(i32, i32)> {
        Ok((
            self.attribute(cuda_sys::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            self.attribute(cuda_sys::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        ))
    }

    /// The device that holds the memory at `address`, which may lie anywhere in an allocation:
    /// `cuPointerGetAttribute` of `CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL`. [`None`] for an address
    /// that the driver does not know, such as plain host memory. For pinned memory it is the device
    /// in whose context it was pinned. Needs no context.
    ///
    /// # Errors
    /// The driver's.
    ///
    /// ```no_run
    /// use cuda_core::Device;
    ///
    /// let buffer = Device::get(0)?.create_stream()?.alloc::<f32>(256)?;
    /// assert_eq!(Device::of_pointer(buffer.as_raw() + 100)?, Some(Device::get(0)?));
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn of_pointer(address: CUdeviceptr) -> Result<Option<Self>> {
        driver::ensure()?;
        let mut ordinal: c_int = 0;
        // SAFETY: the attribute's value is an int, which the call writes to a local that outlives
        // it; an unknown address is an error.
        let asked = check("cuPointerGetAttribute", unsafe {
            cu::cuPointerGetAttribute(
                (&raw mut ordinal).cast(),
                cuda_sys::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                address,
            )
        });
        match asked {
            Err(error) if error.code() == Some(cuda_sys::CUDA_ERROR_INVALID_VALUE) => {
                return Ok(None);
            }
            other => other?,
        }
        // Host memory that was not pinned for a particular device has a negative ordinal.
        match u32::try_from(ordinal) {
            Ok(ordinal) => Self::get(ordinal).map(Some),
            Err(_) => Ok(None),
        }
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

debug_by! { [] Device: |it| "Device({})", it.ordinal() }
