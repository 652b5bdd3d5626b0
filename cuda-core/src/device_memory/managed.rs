//! Managed memory: one address for the host and all devices; pages move to where they are used.

use std::ptr;

use cuda_sys::{CUdeviceptr, symbol as cu};

use crate::alloc::{MemoryOwner, OwnerTraits, owned_storage, plain};
use crate::context::{self, Context};
use crate::device::Device;
use crate::device_memory::placement::ManagedAttach;
use crate::error::Result;
use crate::memory::{ALIGNMENT, Buffer, DeviceMemory, NOWHERE, byte_len};
use crate::process::{Failed, driver};
use crate::timeline::ledger::Access;
use crate::types::{Pod, bytes_of_mut};

/// A buffer in managed memory: `cuMemAllocManaged`.
///
/// Copies, fills and kernels use it as device memory, by [`as_view`](Self::as_view) and
/// [`as_view_mut`](Self::as_view_mut). The host accesses it in place, with [`as_slice`](Self::as_slice)
/// and [`as_mut_slice`](Self::as_mut_slice), which wait for conflicting work.
///
/// If all devices can use managed memory while the host does (`CONCURRENT_MANAGED_ACCESS`), streams of
/// any device copy and fill it as if it were on their own device; only a [`Batch`](crate::Batch) treats
/// it as memory of the device that it was allocated for. If one device cannot, only streams of the
/// device that it was allocated for use it, and the host must access no managed memory while any thread
/// has work running on that device. Then the host accesses only memory that is attached to it
/// ([`new_attached_to_host`](Self::new_attached_to_host), [`attach`](Self::attach)), or uses
/// [`as_slice_while_idle`](Self::as_slice_while_idle) at the caller's risk.
///
/// A [graph](crate::Graph) that uses it is [lent](crate::GraphExec::lend) it at each launch, like
/// pinned memory.
///
/// ```no_run
/// use cuda_core::{Device, managed::{ManagedBuffer, MemoryLocation}};
///
/// let device = Device::get(0)?;
/// let stream = device.create_stream()?;
/// let mut values = ManagedBuffer::<f32>::new(stream.context(), 1 << 20)?;
/// values.as_mut_slice()?.fill(1.0);
/// values.prefetch(&stream, .., MemoryLocation::Device(device))?;
/// stream.fill(values.slice_mut(..1000)?, 2.0)?;
/// assert_eq!(values.as_slice()?[999], 2.0); // waits
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[doc(alias("UnifiedBuffer", "UnifiedSlice", "malloc_managed"))]
pub type ManagedBuffer<T> = Buffer<T, DeviceMemory, Managed>;

/// The extra part that a [`ManagedBuffer`] has beyond a [`DeviceBuffer`](crate::DeviceBuffer).
// INVARIANT: the memory of a buffer with this extra part is managed, so the host accesses it at the
// same address: only `ManagedBuffer::alloc` creates one, and no method gives it to another buffer.
#[derive(Debug)]
pub struct Managed {
    /// Whether every device can use managed memory while the host does.
    concurrent: bool,
    /// What the memory is attached to; matters if a device cannot use managed memory while the host
    /// does.
    pub(super) attached: ManagedAttach,
}

/// The owner that frees managed memory.
struct ManagedOwner {
    /// Whether every device can use managed memory while the host does.
    concurrent: bool,
}

impl MemoryOwner for ManagedOwner {
    fn release(&mut self, address: CUdeviceptr) -> Result<(), Failed> {
        // SAFETY: memory of `cuMemAllocManaged`, released once, when no work uses it.
        unsafe { plain::free(address) }
    }

    fn traits(&self) -> OwnerTraits {
        let everywhere = self.concurrent;
        OwnerTraits { everywhere, visible_to_the_host: true, ..OwnerTraits::default() }
    }
}

/// # Managed memory
impl<T: Pod> ManagedBuffer<T> {
    /// Allocates `len` elements of unspecified value, which every device can use: `cuMemAllocManaged`
    /// with `CU_MEM_ATTACH_GLOBAL`; no such call if `len` is zero.
    ///
    /// # Errors
    /// [`Error::SizeOverflow`](crate::Error::SizeOverflow) and
    /// [`Error::Invalid`](crate::Error::Invalid);
    /// [`Error::Unsupported`](crate::Error::Unsupported) on a device without managed memory;
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory).
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// use cuda_core::managed::ManagedBuffer;
    ///
    /// let mut values = ManagedBuffer::<f32>::new(&context, 1000)?;
    /// values.as_mut_slice()?.fill(1.0);
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuMemAllocManaged", "cudaMallocManaged"))]
    pub fn new(context: &Context, len: usize) -> Result<Self> {
        Self::alloc(context, len, ManagedAttach::Global)
    }

    /// Copies `elements` on the host to new managed memory.
    ///
    /// # Errors
    /// Those of [`ManagedBuffer::new`] and [`as_mut_slice`](Self::as_mut_slice).
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// use cuda_core::managed::ManagedBuffer;
    ///
    /// assert_eq!(ManagedBuffer::from_slice(&context, &[1.0f32, 2.0])?.as_slice()?, [1.0, 2.0]);
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuMemAllocManaged", "cudaMallocManaged"))]
    pub fn from_slice(context: &Context, elements: &[T]) -> Result<Self> {
        let mut buffer = Self::new(context, elements.len())?;
        buffer.as_mut_slice()?.copy_from_slice(elements);
        Ok(buffer)
    }

    /// Allocates `len` elements, whose bytes the host sets to zero.
    ///
    /// # Errors
    /// As [`ManagedBuffer::from_slice`].
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// use cuda_core::managed::ManagedBuffer;
    ///
    /// assert_eq!(ManagedBuffer::<u32>::zeroed(&context, 2)?.as_slice()?, [0, 0]);
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuMemAllocManaged", "cudaMallocManaged"))]
    pub fn zeroed(context: &Context, len: usize) -> Result<Self> {
        let mut buffer = Self::new(context, len)?;
        bytes_of_mut(buffer.as_mut_slice()?).fill(0);
        Ok(buffer)
    }

    /// [`ManagedBuffer::new`] for the host alone, until [`attach`](Self::attach) changes that:
    /// `CU_MEM_ATTACH_HOST`. Even if a device cannot use managed memory while the host does, the host
    /// may access this buffer while the device runs.
    ///
    /// # Errors
    /// Those of [`ManagedBuffer::new`].
    ///
    /// # Safety
    /// No device without `CONCURRENT_MANAGED_ACCESS` uses the memory while it is attached to the
    /// host.
    #[doc(alias("cuMemAllocManaged", "cudaMallocManaged"))]
    pub unsafe fn new_attached_to_host(context: &Context, len: usize) -> Result<Self> {
        Self::alloc(context, len, ManagedAttach::Host)
    }

    fn alloc(context: &Context, len: usize, attached: ManagedAttach) -> Result<Self> {
        let bytes = byte_len::<T>(len, ALIGNMENT)?;
        let device = context.device();
        device.require(cuda_sys::CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, "managed memory")?;
        let concurrent = all_concurrent()?;
        let address = context.allocate("cuMemAllocManaged", bytes, NOWHERE, |address| {
            // SAFETY: the call writes one address, to an exclusive borrow; a live context is
            // current.
            unsafe { cu::cuMemAllocManaged(address, bytes, attached.as_raw().0) }
        })?;
        let storage = owned_storage(context, address, bytes, ManagedOwner { concurrent });
        Ok(Self::with_extra(storage, len, Managed { concurrent, attached }))
    }

    /// Waits for the work that writes the elements, and returns them.
    ///
    /// # Errors
    /// [`Error::Unsupported`](crate::Error::Unsupported) if a device cannot use managed memory
    /// while the host does and the buffer is not attached to the host: another thread could start
    /// work on the device at any time. [`Error::NotCapturable`](crate::Error::NotCapturable) while work
    /// that writes them is being captured. The driver's errors about the work waited for.
    ///
    /// ```no_run
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// use cuda_core::managed::ManagedBuffer;
    ///
    /// let mut values = ManagedBuffer::<f32>::new(stream.context(), 1000)?;
    /// stream.fill(&mut values, 2.0f32)?;
    /// assert_eq!(values.as_slice()?[999], 2.0); // waits for the fill
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn as_slice(&self) -> Result<&[T]> {
        self.require_lendable()?;
        // SAFETY: every device can run beside the host, or none uses the memory while it is attached to
        // the host, by the promise of the code that attached it.
        unsafe { self.as_slice_while_idle() }
    }

    /// Waits for the work that uses the elements, and returns them for writing.
    ///
    /// # Errors
    /// As [`as_slice`](Self::as_slice), also while work that reads the elements is being captured.
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// # let stream = context.create_stream()?;
    /// let mut values = cuda_core::managed::ManagedBuffer::<u32>::new(&context, 1000)?;
    /// values.as_mut_slice()?.fill(1);
    /// stream.fill(values.slice_mut(..500)?, 2)?;
    /// assert_eq!(values.as_slice()?[499..501], [2, 1]); // waits for the device
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn as_mut_slice(&mut self) -> Result<&mut [T]> {
        self.require_lendable()?;
        // SAFETY: every device can run beside the host, or none uses the memory while it is attached to
        // the host, by the promise of the code that attached it.
        unsafe { self.as_mut_slice_while_idle() }
    }

    /// [`as_slice`](Self::as_slice), even if a device cannot use managed memory while the host does: it
    /// then waits for all work of all devices.
    ///
    /// # Errors
    /// [`Error::NotCapturable`](crate::Error::NotCapturable) while work that writes the elements is
    /// being captured; the driver's errors about the work waited for.
    ///
    /// # Safety
    /// While the slice lives, no thread enqueues work on a device without
    /// `CONCURRENT_MANAGED_ACCESS`, unless the memory is attached to the host.
    pub unsafe fn as_slice_while_idle(&self) -> Result<&[T]> {
        self.settle("as_slice", Access::Read)?;
        // SAFETY: the host has managed memory at the same address, by the invariant, aligned for `T` or
        // dangling. It holds values, by `Pod`. It is not written while the slice lives: the devices'
        // work was waited for, and new work and the host need exclusive access, which the borrow rules
        // out. No device runs that forbids the host to access it, by the caller's promise.
        Ok(unsafe { std::slice::from_raw_parts(self.host_ptr(), self.len()) })
    }

    /// [`as_mut_slice`](Self::as_mut_slice), even if a device cannot use managed memory while the host
    /// does: it then waits for all work of all devices.
    ///
    /// # Errors
    /// Those of [`as_slice_while_idle`](Self::as_slice_while_idle).
    ///
    /// # Safety
    /// As for [`as_slice_while_idle`](Self::as_slice_while_idle).
    pub unsafe fn as_mut_slice_while_idle(&mut self) -> Result<&mut [T]> {
        self.settle("as_mut_slice", Access::Write)?;
        // SAFETY: the host has managed memory at the same address, by the invariant, aligned for `T` or
        // dangling. It holds values, by `Pod`. Nothing else accesses it: all work was waited for, the
        // borrow is exclusive, and no device runs that forbids the host to access it, by the caller's
        // promise.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.host_ptr(), self.len()) })
    }

    /// Returns an error if the host may access the memory only while no device runs.
    fn require_lendable(&self) -> Result<()> {
        if self.extra.concurrent || self.is_empty() || self.extra.attached == ManagedAttach::Host {
            return Ok(());
        }
        Err(self.device().unsupported("managed memory in use by the host beside the device"))
    }

    fn host_ptr(&self) -> *mut T {
        ptr::with_exposed_provenance_mut(self.as_raw() as usize)
    }

    /// Waits until the host may access the memory.
    fn settle(&self, op: &'static str, access: Access) -> Result<()> {
        driver::ensure()?;
        self.storage.ensure()?;
        let block = self.storage.block();
        block.ledger.conflicts_with_host(&block.whole(), access, op)?.wait_host()?;
        if !self.extra.concurrent && block.bytes > 0 && self.extra.attached != ManagedAttach::Host {
            // While a device without concurrent access runs anything, in any context, the host must
            // not access managed memory.
            for context in context::all_known() {
                context.synchronize()?;
            }
        }
        if access == Access::Write {
            block.ledger.prune(&block.whole());
        }
        Ok(())
    }
}

/// Whether every device can use managed memory while the host does. Queries all devices, since any
/// device that cannot may use the memory now or later.
fn all_concurrent() -> Result<bool> {
    let attribute = cuda_sys::CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS;
    for device in Device::all()? {
        if device.attribute(attribute)? == 0 {
            return Ok(false);
        }
    }
    Ok(true)
}
