//! Where managed memory is, and where it should be.

use std::ffi::c_int;
use std::ops::RangeBounds;

use cuda_sys::{
    CUdevice, CUdeviceptr, CUmem_advise, CUmem_range_attribute, CUmemLocation, CUresult, CUstream,
    symbol as cu,
};

use crate::device::{Device, mem_location};
use crate::device_memory::managed::ManagedBuffer;
use crate::error::{Result, check};
use crate::stream::{Stream, StreamKind};
use crate::timeline::submit::submit_copy;
use crate::types::pod::Pod;

/// A place that pages of managed memory can be at.
///
/// ```no_run
/// # let device = cuda_core::Device::get(0)?;
/// # let stream = device.create_stream()?;
/// use cuda_core::{ManagedBuffer, MemoryLocation};
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
    /// A node of the host's memory, by the system's number, which
    /// [`DeviceAttributes::host_numa_id`](crate::DeviceAttributes::host_numa_id) tells of a device's
    /// neighbour. From CUDA 12.2 on.
    HostNuma(u32),
    /// The node that the calling thread is closest to. From CUDA 12.2 on.
    HostNumaCurrent,
}

/// `CU_DEVICE_CPU`, a macro with a cast that bindgen does not translate.
const CPU: CUdevice = -1;

impl MemoryLocation {
    /// The place as the older calls have it, which know no nodes.
    fn as_device(self) -> Result<CUdevice, Node> {
        match self {
            Self::Host => Ok(CPU),
            Self::Device(device) => Ok(device.as_raw()),
            Self::HostNuma(node) => Err(Node::Number(node)),
            Self::HostNumaCurrent => Err(Node::Closest),
        }
    }

    /// [`None`] for `CU_DEVICE_INVALID`, -2, and whatever else is no device.
    fn from_raw(raw: CUdevice) -> Option<Self> {
        match raw {
            CPU => Some(Self::Host),
            raw => Device::from_raw(raw).ok().map(Self::Device),
        }
    }
}

/// A node of the host's memory.
#[derive(Clone, Copy)]
enum Node {
    Number(u32),
    Closest,
}

impl Node {
    fn location(self) -> CUmemLocation {
        match self {
            Self::Number(node) => mem_location::host_numa(node),
            Self::Closest => mem_location::host_numa_current(),
        }
    }

    /// # Safety
    /// That of `cuMemPrefetchAsync`.
    unsafe fn prefetch(self, address: CUdeviceptr, bytes: usize, stream: CUstream) -> CUresult {
        let location = self.location();
        // SAFETY: the range is managed memory that outlives the prefetch and the stream is live, by
        // the caller's promise; flags must be zero.
        unsafe { cu::cuMemPrefetchAsync_v2(address, bytes, location, 0, stream) }
    }

    /// # Safety
    /// That of `cuMemAdvise`.
    unsafe fn advise(self, address: CUdeviceptr, bytes: usize, advice: CUmem_advise) -> CUresult {
        // SAFETY: the range is allocated managed memory, by the caller's promise; a node that there
        // is not is an error.
        unsafe { cu::cuMemAdvise_v2(address, bytes, advice, self.location()) }
    }
}

/// How managed memory is going to be used: the advice of `cuMemAdvise`.
///
/// ```no_run
/// # let device = cuda_core::Device::get(0)?;
/// use cuda_core::{Advice, ManagedBuffer, MemoryLocation};
///
/// let table = ManagedBuffer::<f32>::new(&device.context()?, 1 << 20)?;
/// table.advise(.., Advice::SetReadMostly)?;
/// table.advise(..1024, Advice::SetPreferredLocation(MemoryLocation::Host))?;
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Advice {
    /// It is mostly read: every reader gets a copy of its own.
    SetReadMostly,
    /// Takes that back.
    UnsetReadMostly,
    /// It should stay there.
    SetPreferredLocation(MemoryLocation),
    /// Takes that back.
    UnsetPreferredLocation,
    /// It is kept mapped for whoever is there, wherever its pages are.
    SetAccessedBy(MemoryLocation),
    /// Takes that back.
    UnsetAccessedBy(MemoryLocation),
}

impl Advice {
    fn parts(self) -> (CUmem_advise, MemoryLocation) {
        // Where the advice names no place, the driver ignores it.
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

/// What the driver was told of a range of managed memory: `cuMemRangeGetAttribute`. A property holds
/// for the range if it holds for all of its pages.
///
/// ```no_run
/// # let context = cuda_core::Device::get(0)?.context()?;
/// use cuda_core::{Advice, ManagedBuffer};
///
/// let table = ManagedBuffer::<f32>::new(&context, 1 << 20)?;
/// table.advise(.., Advice::SetReadMostly)?;
/// let known = table.attributes(..)?;
/// assert!(known.read_mostly && known.preferred_location.is_none());
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ManagedAttributes {
    /// [`Advice::SetReadMostly`].
    pub read_mostly: bool,
    /// [`Advice::SetPreferredLocation`].
    pub preferred_location: Option<MemoryLocation>,
    /// [`Advice::SetAccessedBy`].
    pub accessed_by: Vec<MemoryLocation>,
    /// Where it was prefetched to last, whether or not it has arrived.
    pub last_prefetch: Option<MemoryLocation>,
}

/// Who uses managed memory, where a device cannot use it beside the host: the flags of
/// `cuStreamAttachMemAsync`.
///
/// ```no_run
/// # let context = cuda_core::Device::get(0)?.context()?;
/// # let stream = context.create_stream()?;
/// use cuda_core::{ManagedAttach, ManagedBuffer};
///
/// let mut values = ManagedBuffer::<f32>::new(&context, 1 << 20)?;
/// // SAFETY: no other stream uses it until it is attached to all again.
/// unsafe { values.attach(&stream, ManagedAttach::Single) }?;
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ManagedAttach {
    /// Any stream of any device.
    Global,
    /// The host alone.
    Host,
    /// The stream alone.
    Single,
}

impl ManagedAttach {
    pub(super) fn as_raw(self) -> u32 {
        match self {
            Self::Global => cuda_sys::CU_MEM_ATTACH_GLOBAL.0,
            Self::Host => cuda_sys::CU_MEM_ATTACH_HOST.0,
            Self::Single => cuda_sys::CU_MEM_ATTACH_SINGLE.0,
        }
    }
}

impl<T: Pod> ManagedBuffer<T> {
    /// Moves the pages of some elements to where they will be used, asynchronously:
    /// `cuMemPrefetchAsync`, or `cuMemPrefetchAsync_v2` to a node of the host's memory. Nothing has
    /// to wait for it; no driver call for no elements.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`](crate::Error::OutOfBounds); the driver's, `INVALID_DEVICE` for a
    /// device that cannot use managed memory beside the host; `CALL_REQUIRES_NEWER_DRIVER` (36) for a
    /// node where it is older than CUDA 12.2.
    ///
    /// ```no_run
    /// # let device = cuda_core::Device::get(0)?;
    /// use cuda_core::{ManagedBuffer, MemoryLocation};
    ///
    /// let stream = device.create_stream()?;
    /// let mut table = ManagedBuffer::<f32>::new(stream.context(), 1 << 20)?;
    /// table.as_mut_slice()?.fill(1.0); // its pages are the host's now
    /// table.prefetch(&stream, ..1 << 19, MemoryLocation::Device(device))?; // and half of them the device's
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
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
        let call = |stream| match location.as_device() {
            // SAFETY: the range is managed memory that stays allocated until the mark that is made
            // of this has completed. The symbol takes a device, whatever the header's name of it.
            Ok(device) => unsafe { cu::cuMemPrefetchAsync(address, bytes, device, stream) },
            // SAFETY: the range is managed memory that stays allocated until the mark that is made
            // of this has completed.
            Err(node) => unsafe { node.prefetch(address, bytes, stream) },
        };
        submit_copy(core, &bound, op, &mut [part.read()], call).1
    }

    /// Tells the driver how some elements are going to be used: `cuMemAdvise`, or `cuMemAdvise_v2`
    /// where that names a node of the host's memory. No driver call for no elements.
    ///
    /// # Errors
    /// Those of [`prefetch`](Self::prefetch).
    ///
    /// ```no_run
    /// # let device = cuda_core::Device::get(0)?;
    /// use cuda_core::{Advice, ManagedBuffer, MemoryLocation};
    ///
    /// let table = ManagedBuffer::<f32>::new(&device.context()?, 1 << 20)?;
    /// table.advise(.., Advice::SetReadMostly)?;
    /// table.advise(.., Advice::SetPreferredLocation(MemoryLocation::Device(device)))?;
    /// assert!(table.attributes(..)?.read_mostly);
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn advise(&self, range: impl RangeBounds<usize>, advice: Advice) -> Result<()> {
        let part = self.slice(range)?;
        let (address, bytes) = (part.as_raw(), part.byte_len());
        let _entered = self.context().enter_briefly()?;
        if bytes == 0 {
            return Ok(());
        }
        let (advice, location) = advice.parts();
        let code = match location.as_device() {
            // SAFETY: the range is managed memory, allocated while `self` is. The symbol takes a
            // device, whatever the header's name of it.
            Ok(device) => unsafe { cu::cuMemAdvise(address, bytes, advice, device) },
            // SAFETY: the range is managed memory, allocated while `self` is.
            Err(node) => unsafe { node.advise(address, bytes, advice) },
        };
        check("cuMemAdvise", code)
    }

    /// What the driver was told of some elements: `cuMemRangeGetAttribute`, four times. Nothing, for
    /// no elements.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`](crate::Error::OutOfBounds); the driver's.
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// use cuda_core::{Advice, ManagedBuffer};
    ///
    /// let table = ManagedBuffer::<f32>::new(&context, 1 << 20)?;
    /// table.advise(.., Advice::SetReadMostly)?;
    /// assert!(table.attributes(..)?.read_mostly);
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
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
        // One entry for each device and one for the host; the driver fills up what is left over.
        let mut users = vec![NOBODY; Device::count()? as usize + 1];
        range_attribute(
            cuda_sys::CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY,
            address,
            bytes,
            &mut users,
        )?;
        let place = |attribute| one(attribute).map(MemoryLocation::from_raw);
        Ok(ManagedAttributes {
            read_mostly: one(cuda_sys::CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY)? != 0,
            preferred_location: place(cuda_sys::CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION)?,
            accessed_by: users
                .into_iter()
                .filter_map(MemoryLocation::from_raw)
                .collect(),
            last_prefetch: place(cuda_sys::CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION)?,
        })
    }

    /// Says who uses the memory from here on, in the order of `stream`: `cuStreamAttachMemAsync`,
    /// for all of it. Matters only for devices that cannot use managed memory beside the host.
    ///
    /// # Errors
    /// The driver's.
    ///
    /// # Safety
    /// Until it is attached anew, no device without `CONCURRENT_MANAGED_ACCESS` uses the memory,
    /// unless it is attached to a stream: then that stream alone, which outlives the use.
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
            // SAFETY: managed memory, which stays allocated until the mark that is made of this has
            // completed; length zero stands for all of it.
            unsafe { cu::cuStreamAttachMemAsync(stream, address, 0, attach.as_raw()) }
        };
        let (_, attached) = submit_copy(core, &bound, op, &mut [view.write()], call);
        // Where that failed, nobody knows, and the host least of all.
        self.attached = match attached {
            Ok(()) => attach,
            Err(_) => ManagedAttach::Global,
        };
        attached
    }
}

/// `CU_DEVICE_INVALID`, another such macro.
const NOBODY: c_int = -2;

/// `cuMemRangeGetAttribute` of an attribute that is one or more numbers of devices.
fn range_attribute(
    attribute: CUmem_range_attribute,
    address: CUdeviceptr,
    bytes: usize,
    value: &mut [c_int],
) -> Result<()> {
    // SAFETY: the call writes as many bytes as it is told, to an exclusive borrow of that size; the
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
