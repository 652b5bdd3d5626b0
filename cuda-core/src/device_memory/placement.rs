//! Placement of managed memory: where its pages are, and where they should be.

use std::ffi::c_int;
use std::ops::RangeBounds;

use cuda_sys::{
    CU_DEVICE_CPU, CU_DEVICE_INVALID, CUdevice, CUdeviceptr, CUmem_advise, CUmem_range_attribute,
    CUmemLocation, symbol as cu,
};

use crate::device::{Device, mem_location};
use crate::device_memory::managed::ManagedBuffer;
use crate::error::{Result, check};
use crate::process::driver;
use crate::stream::{Stream, StreamKind};
use crate::types::Pod;
use crate::util::raw_enum;

/// A place where pages of managed memory can be.
///
/// ```no_run
/// # let device = cuda_core::Device::get(0)?;
/// # let stream = device.create_stream()?;
/// use cuda_core::managed::{ManagedBuffer, MemoryLocation};
///
/// let values = ManagedBuffer::<f32>::new(stream.context(), 1 << 20)?;
/// values.prefetch(&stream, .., MemoryLocation::Device(device))?;
/// // … kernels …
/// values.prefetch(&stream, ..1024, MemoryLocation::Host)?;
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MemoryLocation {
    /// The host.
    Host,
    /// A device.
    Device(Device),
    /// A NUMA node of the host, by the system's number.
    /// [`DeviceAttributes::host_numa_id`](crate::DeviceAttributes::host_numa_id) returns the node
    /// closest to a device. From CUDA 12.2 on.
    HostNuma(u32),
    /// The NUMA node that the calling thread is closest to. From CUDA 12.2 on.
    HostNumaCurrent,
}

impl MemoryLocation {
    /// Returns the location for the older calls; as an `Err` if only the newer ones know it.
    fn as_raw(self) -> Result<CUdevice, CUmemLocation> {
        match self {
            Self::Host => Ok(CU_DEVICE_CPU),
            Self::Device(device) => Ok(device.as_raw()),
            Self::HostNuma(node) => Err(mem_location::host_numa(node)),
            Self::HostNumaCurrent => Err(mem_location::host_numa_current()),
        }
    }

    fn from_raw(raw: CUdevice) -> Option<Self> {
        match raw {
            CU_DEVICE_CPU => Some(Self::Host),
            raw => Device::from_raw(raw).ok().map(Self::Device),
        }
    }
}

/// How the program will use managed memory: the advice of `cuMemAdvise`.
///
/// ```no_run
/// # let device = cuda_core::Device::get(0)?;
/// use cuda_core::managed::{Advice, ManagedBuffer, MemoryLocation};
///
/// let table = ManagedBuffer::<f32>::new(&device.context()?, 1 << 20)?;
/// table.advise(.., Advice::SetReadMostly)?;
/// table.advise(..1024, Advice::SetPreferredLocation(MemoryLocation::Host))?;
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Advice {
    /// The memory is mostly read: every reader gets its own copy.
    SetReadMostly,
    /// Undoes [`Advice::SetReadMostly`].
    UnsetReadMostly,
    /// The memory should stay at this location.
    SetPreferredLocation(MemoryLocation),
    /// Undoes [`Advice::SetPreferredLocation`].
    UnsetPreferredLocation,
    /// The memory stays mapped for this location, wherever its pages are.
    SetAccessedBy(MemoryLocation),
    /// Undoes [`Advice::SetAccessedBy`].
    UnsetAccessedBy(MemoryLocation),
}

impl Advice {
    fn parts(self) -> (CUmem_advise, MemoryLocation) {
        // For advice that names no location: the driver ignores this one.
        let anywhere = MemoryLocation::Host;
        match self {
            Self::SetReadMostly => (cuda_sys::CU_MEM_ADVISE_SET_READ_MOSTLY, anywhere),
            Self::UnsetReadMostly => (cuda_sys::CU_MEM_ADVISE_UNSET_READ_MOSTLY, anywhere),
            Self::SetPreferredLocation(location) => {
                (cuda_sys::CU_MEM_ADVISE_SET_PREFERRED_LOCATION, location)
            }
            Self::UnsetPreferredLocation => {
                (cuda_sys::CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION, anywhere)
            }
            Self::SetAccessedBy(location) => (cuda_sys::CU_MEM_ADVISE_SET_ACCESSED_BY, location),
            Self::UnsetAccessedBy(location) => {
                (cuda_sys::CU_MEM_ADVISE_UNSET_ACCESSED_BY, location)
            }
        }
    }
}

/// The advice given to the driver about a range of managed memory: `cuMemRangeGetAttribute`. A property
/// holds for the range if it holds for all of its pages.
///
/// ```no_run
/// # let context = cuda_core::Device::get(0)?.context()?;
/// use cuda_core::managed::{Advice, ManagedBuffer};
///
/// let table = ManagedBuffer::<f32>::new(&context, 1 << 20)?;
/// table.advise(.., Advice::SetReadMostly)?;
/// let known = table.attributes(..)?;
/// assert!(known.read_mostly && known.preferred_location.is_none());
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub struct ManagedAttributes {
    /// Whether [`Advice::SetReadMostly`] is in effect.
    pub read_mostly: bool,
    /// The location of [`Advice::SetPreferredLocation`].
    pub preferred_location: Option<MemoryLocation>,
    /// The locations of [`Advice::SetAccessedBy`].
    pub accessed_by: Vec<MemoryLocation>,
    /// The location of the last prefetch, whether or not it has completed.
    pub last_prefetch: Option<MemoryLocation>,
}

raw_enum! {
    /// Which users may access managed memory, if a device cannot use it while the host does: the flags
    /// of `cuStreamAttachMemAsync`.
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// # let stream = context.create_stream()?;
    /// use cuda_core::managed::{ManagedAttach, ManagedBuffer};
    ///
    /// let mut values = ManagedBuffer::<f32>::new(&context, 1 << 20)?;
    /// // SAFETY: no other stream uses it until it is attached to all again.
    /// unsafe { values.attach(&stream, ManagedAttach::Single) }?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    ManagedAttach: CUmemAttach_flags {
        /// Any stream of any device.
        Global = CU_MEM_ATTACH_GLOBAL,
        /// Only the host.
        Host = CU_MEM_ATTACH_HOST,
        /// Only the stream on which it is attached.
        Single = CU_MEM_ATTACH_SINGLE,
    }
}

/// # Placement of managed memory
impl<T: Pod> ManagedBuffer<T> {
    /// Moves the pages of the elements in `range` to where they will be used, asynchronously:
    /// `cuMemPrefetchAsync`, or `cuMemPrefetchAsync_v2` to a NUMA node of the host. No such call if
    /// the range is empty.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`](crate::Error::OutOfBounds); the driver's: `INVALID_DEVICE` for a
    /// device that cannot use managed memory while the host does; `CALL_REQUIRES_NEWER_DRIVER` (36)
    /// for a node if the driver is older than CUDA 12.2.
    ///
    /// ```no_run
    /// # let device = cuda_core::Device::get(0)?;
    /// use cuda_core::managed::{ManagedBuffer, MemoryLocation};
    ///
    /// let stream = device.create_stream()?;
    /// let mut table = ManagedBuffer::<f32>::new(stream.context(), 1 << 20)?;
    /// table.as_mut_slice()?.fill(1.0); // its pages are the host's now
    /// table.prefetch(&stream, ..1 << 19, MemoryLocation::Device(device))?; // and half of them the device's
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuMemPrefetchAsync", "cudaMemPrefetchAsync"))]
    pub fn prefetch<K: StreamKind>(
        &self,
        stream: &Stream<K>,
        range: impl RangeBounds<usize>,
        location: MemoryLocation,
    ) -> Result<()> {
        let part = self.slice(range)?;
        let core = stream.core();
        let op = "cuMemPrefetchAsync";
        let bound = core.bind(op)?;
        let (address, bytes) = (part.as_raw(), part.byte_len());
        if bytes == 0 {
            return Ok(());
        }
        let call = |stream| match location.as_raw() {
            // SAFETY: the range is managed memory that stays allocated until the completion of the mark
            // that follows this call. The symbol takes a device, whatever the header calls it.
            Ok(device) => unsafe { cu::cuMemPrefetchAsync(address, bytes, device, stream) },
            // SAFETY: the range is managed memory that stays allocated until the completion of the mark
            // that follows this call; flags must be zero.
            Err(node) => unsafe { cu::cuMemPrefetchAsync_v2(address, bytes, node, 0, stream) },
        };
        bound.submit_copy(op, &mut [part.read()], Default::default, call).1
    }

    /// Advises the driver how the elements in `range` will be used, see [`Advice`]: `cuMemAdvise`, or
    /// `cuMemAdvise_v2` if the advice names a NUMA node of the host. No driver call if the range is
    /// empty.
    ///
    /// # Errors
    /// Those of [`prefetch`](Self::prefetch).
    #[doc(alias("cuMemAdvise", "cudaMemAdvise"))]
    pub fn advise(&self, range: impl RangeBounds<usize>, advice: Advice) -> Result<()> {
        let part = self.slice(range)?;
        let (address, bytes) = (part.as_raw(), part.byte_len());
        if bytes == 0 {
            return driver::ensure();
        }
        let _entered = self.context().enter_briefly()?;
        let (advice, location) = advice.parts();
        let code = match location.as_raw() {
            // SAFETY: the range is managed memory, allocated while `self` is. The symbol takes a
            // device, whatever the header calls it.
            Ok(device) => unsafe { cu::cuMemAdvise(address, bytes, advice, device) },
            // SAFETY: the range is managed memory, allocated while `self` is; a node that does not
            // exist is an error.
            Err(node) => unsafe { cu::cuMemAdvise_v2(address, bytes, advice, node) },
        };
        check("cuMemAdvise", code)
    }

    /// Returns the advice in effect for the elements in `range`, see [`ManagedAttributes`]:
    /// `cuMemRangeGetAttribute`, four times. For an empty range, the default.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`](crate::Error::OutOfBounds); the driver's.
    #[doc(alias("cuMemRangeGetAttribute", "cudaMemRangeGetAttribute"))]
    pub fn attributes(&self, range: impl RangeBounds<usize>) -> Result<ManagedAttributes> {
        let part = self.slice(range)?;
        let (address, bytes) = (part.as_raw(), part.byte_len());
        let _entered = self.context().enter_briefly()?;
        if bytes == 0 {
            return Ok(ManagedAttributes::default());
        }
        let one = |attribute| -> Result<c_int> {
            let mut value = [0];
            range_attribute(attribute, address, bytes, &mut value)?;
            Ok(value[0])
        };
        // One entry for each device and one for the host; the driver marks unused entries as invalid.
        let mut users = vec![CU_DEVICE_INVALID; Device::count()? as usize + 1];
        range_attribute(cuda_sys::CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, address, bytes, &mut users)?;
        let place = |attribute| one(attribute).map(MemoryLocation::from_raw);
        Ok(ManagedAttributes {
            read_mostly: one(cuda_sys::CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY)? != 0,
            preferred_location: place(cuda_sys::CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION)?,
            accessed_by: users.into_iter().filter_map(MemoryLocation::from_raw).collect(),
            last_prefetch: place(cuda_sys::CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION)?,
        })
    }

    /// Sets which users may access the memory from here on, in the order of `stream`:
    /// `cuStreamAttachMemAsync`, for all of it. Matters only for devices that cannot use managed memory
    /// while the host does.
    ///
    /// # Errors
    /// The driver's.
    ///
    /// # Safety
    /// Until the memory is attached again, no device without `CONCURRENT_MANAGED_ACCESS` uses it,
    /// except through the stream that it is attached to, which outlives the use.
    #[doc(alias("cuStreamAttachMemAsync", "cudaStreamAttachMemAsync"))]
    pub unsafe fn attach<K: StreamKind>(
        &mut self,
        stream: &Stream<K>,
        attach: ManagedAttach,
    ) -> Result<()> {
        let core = stream.core();
        let op = "cuStreamAttachMemAsync";
        let bound = core.bind(op)?;
        let address = self.as_raw();
        if self.byte_len() == 0 {
            return Ok(());
        }
        let mut view = self.as_view_mut();
        let call = |stream| {
            // SAFETY: managed memory that stays allocated until the completion of the mark that follows
            // this call; length zero stands for all of it.
            unsafe { cu::cuStreamAttachMemAsync(stream, address, 0, attach.as_raw().0) }
        };
        let (_, attached) = bound.submit_copy(op, &mut [view.write()], Default::default, call);
        // After a failure the attachment is unknown, so the host must not rely on it.
        self.extra.attached = if attached.is_ok() { attach } else { ManagedAttach::Global };
        attached
    }
}

/// Calls `cuMemRangeGetAttribute` for an attribute that consists of device numbers.
fn range_attribute(
    attribute: CUmem_range_attribute,
    address: CUdeviceptr,
    bytes: usize,
    value: &mut [c_int],
) -> Result<()> {
    // SAFETY: the call writes as many bytes as it is passed, to an exclusive borrow of that size; the
    // range is managed memory.
    check("cuMemRangeGetAttribute", unsafe {
        cu::cuMemRangeGetAttribute(
            value.as_mut_ptr().cast(),
            size_of_val(value),
            attribute,
            address,
            bytes,
        )
    })
}
