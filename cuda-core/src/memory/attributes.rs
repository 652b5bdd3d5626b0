//! What the driver knows about an address.

use std::ffi::c_void;
use std::ptr;

use cuda_sys::{
    CUcontext, CUdeviceptr, CUmemoryPool, CUmemorytype, CUpointer_attribute, symbol as cu,
};

use crate::device::Device;
use crate::error::{Result, check};
use crate::process::driver;

/// What the driver knows about an address: `cuPointerGetAttributes`.
///
/// ```no_run
/// use cuda_core::{Device, MemoryType, PointerAttributes};
///
/// let buffer = Device::get(0)?.create_stream()?.alloc::<f32>(256)?;
/// let attributes = PointerAttributes::of_device(buffer.as_raw() + 100)?;
/// assert_eq!(attributes.memory_type, Some(MemoryType::Device));
/// assert_eq!(attributes.device, Some(Device::get(0)?));
/// assert_eq!(attributes.range_start, buffer.as_raw());
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct PointerAttributes {
    /// The kind of memory at the address; [`None`] if the driver does not know the address.
    pub memory_type: Option<MemoryType>,
    /// The device that the memory is on, or was pinned or allocated for.
    pub device: Option<Device>,
    /// The context that the memory was allocated in; null for memory of a pool, which belongs to no
    /// context.
    pub context: CUcontext,
    /// Whether the memory is managed.
    pub is_managed: bool,
    /// Whether the address range is mapped to memory.
    pub is_mapped: bool,
    /// The start of the allocation that contains the address.
    pub range_start: CUdeviceptr,
    /// The size of that allocation in bytes.
    pub range_size: usize,
    /// The address by which kernels of the current context reach the memory; zero if they cannot.
    pub device_pointer: CUdeviceptr,
    /// The address by which the host reaches the memory; null if it cannot.
    pub host_pointer: *mut c_void,
    /// The pool that the memory was allocated from; null for other memory.
    pub pool: CUmemoryPool,
    /// An id of the allocation that no other allocation of the process ever has.
    pub buffer_id: u64,
}

// SAFETY: no code here dereferences the pointers and handles. Code that uses one is `unsafe` and
// answers for the thread that it runs on.
unsafe impl Send for PointerAttributes {}
// SAFETY: as above; a shared reference gives copies of them.
unsafe impl Sync for PointerAttributes {}

/// Kind of memory.
///
/// ```no_run
/// # let stream = cuda_core::Device::get(0)?.create_stream()?;
/// use cuda_core::{MemoryType, PointerAttributes};
///
/// let buffer = stream.alloc::<u8>(100)?;
/// let attributes = PointerAttributes::of_device(buffer.as_raw())?;
/// assert_eq!(attributes.memory_type, Some(MemoryType::Device));
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MemoryType {
    /// Pinned or registered memory of the host.
    Host,
    /// Memory of a device.
    Device,
    /// A CUDA array.
    Array,
    /// Managed memory, whose pages move to the device or host that uses them.
    Unified,
    /// A kind that this crate does not know, by the driver's number.
    Other(u32),
}

impl MemoryType {
    fn new(raw: u32) -> Option<Self> {
        match CUmemorytype(raw as _) {
            CUmemorytype(0) => None,
            cuda_sys::CU_MEMORYTYPE_HOST => Some(Self::Host),
            cuda_sys::CU_MEMORYTYPE_DEVICE => Some(Self::Device),
            cuda_sys::CU_MEMORYTYPE_ARRAY => Some(Self::Array),
            cuda_sys::CU_MEMORYTYPE_UNIFIED => Some(Self::Unified),
            _ => Some(Self::Other(raw)),
        }
    }
}

impl PointerAttributes {
    /// Queries a device address, which may lie anywhere in an allocation. Needs no context; one driver
    /// call.
    ///
    /// # Errors
    /// The driver's. An unknown address is no error: `memory_type` is then [`None`].
    #[doc(alias("cuPointerGetAttributes", "cuPointerGetAttribute", "cudaPointerGetAttributes"))]
    pub fn of_device(address: CUdeviceptr) -> Result<Self> {
        driver::ensure()?;
        // The initial values are what the driver reports for an unknown address, since it may leave
        // some variables unwritten.
        let (mut kind, mut ordinal) = (0u32, UNKNOWN_DEVICE);
        let mut context: CUcontext = ptr::null_mut();
        let mut pool: CUmemoryPool = ptr::null_mut();
        let mut host_pointer: *mut c_void = ptr::null_mut();
        // 32 bits for values documented as booleans, since drivers differ in how many bytes they write.
        let (mut managed, mut mapped) = (0u32, 0u32);
        let (mut range_start, mut range_size) = (0, 0usize);
        let (mut device_pointer, mut buffer_id) = (0, 0u64);
        let asked: [(CUpointer_attribute, *mut c_void); COUNT] = [
            (cuda_sys::CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (&raw mut kind).cast()),
            (cuda_sys::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, (&raw mut ordinal).cast()),
            (cuda_sys::CU_POINTER_ATTRIBUTE_CONTEXT, (&raw mut context).cast()),
            (cuda_sys::CU_POINTER_ATTRIBUTE_IS_MANAGED, (&raw mut managed).cast()),
            (cuda_sys::CU_POINTER_ATTRIBUTE_MAPPED, (&raw mut mapped).cast()),
            (cuda_sys::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, (&raw mut range_start).cast()),
            (cuda_sys::CU_POINTER_ATTRIBUTE_RANGE_SIZE, (&raw mut range_size).cast()),
            (cuda_sys::CU_POINTER_ATTRIBUTE_DEVICE_POINTER, (&raw mut device_pointer).cast()),
            (cuda_sys::CU_POINTER_ATTRIBUTE_HOST_POINTER, (&raw mut host_pointer).cast()),
            (cuda_sys::CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, (&raw mut pool).cast()),
            (cuda_sys::CU_POINTER_ATTRIBUTE_BUFFER_ID, (&raw mut buffer_id).cast()),
        ];
        let mut attributes = asked.map(|(attribute, _)| attribute);
        let mut places = asked.map(|(_, place)| place);
        // SAFETY: as many attributes as places; each place is a local of its attribute's type that
        // outlives the call.
        check("cuPointerGetAttributes", unsafe {
            cu::cuPointerGetAttributes(
                COUNT as u32,
                attributes.as_mut_ptr(),
                places.as_mut_ptr(),
                address,
            )
        })?;
        let device = match ordinal {
            ..0 => None,
            ordinal => Some(Device::from_raw(ordinal)?),
        };
        let memory_type = MemoryType::new(kind);
        Ok(Self {
            memory_type,
            device: device.filter(|_| memory_type.is_some()),
            context,
            is_managed: managed.to_ne_bytes()[0] != 0,
            is_mapped: mapped.to_ne_bytes()[0] != 0,
            range_start,
            range_size,
            device_pointer,
            host_pointer,
            pool,
            buffer_id,
        })
    }

    /// Queries a host address. Any address is valid, since it is not dereferenced. Needs no context;
    /// one driver call.
    ///
    /// # Errors
    /// Those of [`PointerAttributes::of_device`].
    #[doc(alias("cuPointerGetAttributes", "cudaPointerGetAttributes"))]
    pub fn of_host<T>(pointer: *const T) -> Result<Self> {
        Self::of_device(pointer.addr() as CUdeviceptr)
    }
}

const COUNT: usize = 11;

/// Reported for an address without a device: "If the pointer is not associated with a device, -2".
const UNKNOWN_DEVICE: i32 = -2;

/// Whether the address is in pinned or registered host memory, which the device can copy directly.
/// The address is not dereferenced.
///
/// # Errors
/// The driver's.
///
/// ```no_run
/// # let context = cuda_core::Device::get(0)?.context()?;
/// let pinned = cuda_core::PinnedBuffer::<u8>::zeroed(&context, 100)?;
/// assert!(cuda_core::is_pinned(pinned.as_slice()?.as_ptr())?);
/// assert!(!cuda_core::is_pinned(&0)?);
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[doc(alias("cuPointerGetAttributes", "cudaPointerGetAttributes"))]
pub fn is_pinned<T>(pointer: *const T) -> Result<bool> {
    let attributes = PointerAttributes::of_host(pointer)?;
    Ok(attributes.memory_type == Some(MemoryType::Host) && !attributes.is_managed)
}
