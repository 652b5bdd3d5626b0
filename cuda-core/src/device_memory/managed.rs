//! Managed memory: one address for the host and all devices, and pages that move to where they are
//! used.

use std::fmt;
use std::ops::RangeBounds;
use std::ptr;

use cuda_sys::{CUdeviceptr, symbol as cu};

use crate::alloc::backing::MemoryOwner;
use crate::alloc::plain::{self, owned};
use crate::context::{self, Context};
use crate::device::Device;
use crate::device_memory::placement::ManagedAttach;
use crate::error::{Error, Result};
use crate::memory::byte_len;
use crate::memory::device::{
    ALIGNMENT, DeviceBuffer, DeviceMemory, DeviceSlice, DeviceSliceMut, NOWHERE,
};
use crate::memory::view::{Slice, SliceMut};
use crate::process::driver;
use crate::process::release::FailedRelease;
use crate::timeline::ledger::Access;
use crate::types::pod::Pod;
use crate::wait::future::Ready;

/// Elements in managed memory: `cuMemAllocManaged`.
///
/// For copies, fills and kernels it is device memory, by [`as_view`](Self::as_view) and
/// [`as_view_mut`](Self::as_view_mut). The host accesses it in place, with
/// [`as_slice`](Self::as_slice) and [`as_mut_slice`](Self::as_mut_slice), which wait for
/// conflicting work.
///
/// If all devices can use managed memory while the host does (`CONCURRENT_MANAGED_ACCESS`), streams
/// of any of them copy and fill it as if it were their own device's. If one cannot, only streams of
/// the device that it was allocated for do, and the host must touch no managed memory while that
/// device runs anything at all, enqueued by whatever thread. Then the host accesses only memory
/// that is attached to it ([`new_attached_to_host`](Self::new_attached_to_host),
/// [`attach`](Self::attach)), or uses [`as_slice_while_idle`](Self::as_slice_while_idle) at the
/// caller's risk.
///
/// ```no_run
/// use cuda_core::{Device, ManagedBuffer, MemoryLocation};
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
pub struct ManagedBuffer<T: Pod> {
    // INVARIANT: its memory is managed, so that the host reaches it at the same address: no method
    // lets the buffer be exchanged for another.
    pub(super) buffer: DeviceBuffer<T>,
    /// Every device can use managed memory while the host does.
    concurrent: bool,
    /// What it is attached to; matters if a device cannot use managed memory while the host does.
    pub(super) attached: ManagedAttach,
}

/// Frees managed memory.
struct Managed {
    /// Every device can use managed memory while the host does.
    concurrent: bool,
}

impl MemoryOwner for Managed {
    fn release(&mut self, address: CUdeviceptr, _bytes: usize) -> Result<(), FailedRelease> {
        plain::free(address)
    }

    fn usable_from(&self, _device: Device) -> bool {
        self.concurrent
    }
}

impl<T: Pod> ManagedBuffer<T> {
    /// `len` elements of unspecified value, which every device can use: `cuMemAllocManaged` with
    /// `CU_MEM_ATTACH_GLOBAL`; no such call if `len` is zero.
    ///
    /// # Errors
    /// [`Error::SizeOverflow`] and [`Error::OverAligned`]; [`Error::Unsupported`] on a device
    /// without managed memory; [`Error::OutOfMemory`].
    pub fn new(context: &Context, len: usize) -> Result<Self> {
        Self::alloc(context, len, ManagedAttach::Global)
    }

    /// [`ManagedBuffer::new`] for the host alone, until [`attach`](Self::attach) changes that:
    /// `CU_MEM_ATTACH_HOST`. If a device cannot use managed memory while the host does, the host
    /// may then access this buffer whatever the device does.
    ///
    /// # Errors
    /// Those of [`ManagedBuffer::new`].
    ///
    /// # Safety
    /// No device without `CONCURRENT_MANAGED_ACCESS` uses the memory while it is attached to the
    /// host.
    pub unsafe fn new_attached_to_host(context: &Context, len: usize) -> Result<Self> {
        Self::alloc(context, len, ManagedAttach::Host)
    }

    fn alloc(context: &Context, len: usize, attached: ManagedAttach) -> Result<Self> {
        let op = "cuMemAllocManaged";
        let bytes = byte_len::<T>(len, ALIGNMENT)?;
        let device = context.device();
        if device.attribute(cuda_sys::CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY)? == 0 {
            return Err(Error::Unsupported { feature: "managed memory", device: device.ordinal() });
        }
        let concurrent = all_concurrent()?;
        let mut address = NOWHERE;
        if bytes > 0 {
            context.allocate(op, bytes, || {
                // SAFETY: the call writes one address, to a local that outlives it; a live context is
                // current.
                unsafe { cu::cuMemAllocManaged(&mut address, bytes, attached.as_raw()) }
            })?;
        }
        Ok(Self {
            buffer: owned(context, address, bytes, Managed { concurrent }, len),
            concurrent,
            attached,
        })
    }

    /// Elements in the buffer.
    pub fn len(&self) -> usize {
        self.buffer.len()
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    /// Size in bytes.
    pub fn byte_len(&self) -> usize {
        self.buffer.byte_len()
    }

    /// The context that the memory was allocated in.
    pub fn context(&self) -> &Context {
        self.buffer.context()
    }

    /// The device of that context.
    pub fn device(&self) -> Device {
        self.buffer.device()
    }

    /// The address of the first element, for the host and for devices; see
    /// [`DeviceBuffer::as_raw`].
    pub fn as_raw(&self) -> CUdeviceptr {
        self.buffer.as_raw()
    }

    /// The memory as a device buffer.
    pub fn as_device(&self) -> &DeviceBuffer<T> {
        &self.buffer
    }

    /// A view of all elements for a device.
    pub fn as_view(&self) -> DeviceSlice<'_, T> {
        self.buffer.as_view()
    }

    /// An exclusive view of all elements for a device.
    pub fn as_view_mut(&mut self) -> DeviceSliceMut<'_, T> {
        self.buffer.as_view_mut()
    }

    /// A view of some elements for a device.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`].
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<DeviceSlice<'_, T>> {
        self.buffer.slice(range)
    }

    /// An exclusive view of some elements for a device.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`].
    pub fn slice_mut(&mut self, range: impl RangeBounds<usize>) -> Result<DeviceSliceMut<'_, T>> {
        self.buffer.slice_mut(range)
    }

    /// As [`Buffer::split_at_mut`](crate::Buffer::split_at_mut).
    ///
    /// # Errors
    /// [`Error::OutOfBounds`] if `mid` is greater than the length.
    pub fn split_at_mut(
        &mut self,
        mid: usize,
    ) -> Result<(DeviceSliceMut<'_, T>, DeviceSliceMut<'_, T>)> {
        self.as_view_mut().split_at_mut(mid)
    }

    /// Waits, without blocking, for the work that writes the buffer. Reading it does not block
    /// after that.
    pub fn ready(&self) -> Ready<'_> {
        self.as_view().ready()
    }

    /// Waits, without blocking, for all work that uses the buffer.
    pub fn ready_mut(&mut self) -> Ready<'_> {
        self.buffer.ready_mut()
    }

    /// The elements, once the work that writes them has completed.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if a device cannot use managed memory while the host does and the
    /// buffer is not attached to the host: another thread could start work on the device at any
    /// time. The driver's errors about the work waited for.
    pub fn as_slice(&self) -> Result<&[T]> {
        self.require_lendable()?;
        // SAFETY: no device runs that cannot run beside the host, or none of them uses the memory
        // while it is attached to the host, by the promise of the code that attached it.
        unsafe { self.as_slice_while_idle() }
    }

    /// The elements, to be changed, once the work that uses them has completed.
    ///
    /// # Errors
    /// Those of [`as_slice`](Self::as_slice).
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// # let stream = context.create_stream()?;
    /// let mut values = cuda_core::ManagedBuffer::<u32>::new(&context, 1000)?;
    /// values.as_mut_slice()?.fill(1);
    /// stream.fill(values.slice_mut(..500)?, 2)?;
    /// assert_eq!(values.as_slice()?[499..501], [2, 1]); // waits for the device
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn as_mut_slice(&mut self) -> Result<&mut [T]> {
        self.require_lendable()?;
        // SAFETY: no device runs that cannot run beside the host, or none of them uses the memory
        // while it is attached to the host, by the promise of the code that attached it.
        unsafe { self.as_mut_slice_while_idle() }
    }

    /// [`as_slice`](Self::as_slice), also if a device cannot use managed memory while the host
    /// does: then it waits for all work of the device.
    ///
    /// # Errors
    /// The driver's errors about the work waited for.
    ///
    /// # Safety
    /// While the slice lives, no thread enqueues work on a device without
    /// `CONCURRENT_MANAGED_ACCESS`, unless the memory is attached to the host.
    pub unsafe fn as_slice_while_idle(&self) -> Result<&[T]> {
        self.settle(Access::Read)?;
        // SAFETY: managed memory is the host's at the same address, by the invariant, and aligned
        // for `T` or dangling; what it holds is a value, by `Pod`; it is not written meanwhile: the
        // devices' work was waited for, and new work and the host need exclusive access, which the
        // borrow rules out. No device runs that forbids the host to access it, by the caller's
        // promise.
        Ok(unsafe { std::slice::from_raw_parts(self.host_ptr(), self.len()) })
    }

    /// [`as_mut_slice`](Self::as_mut_slice), also if a device cannot use managed memory while the
    /// host does: then it waits for all work of the device.
    ///
    /// # Errors
    /// The driver's errors about the work waited for.
    ///
    /// # Safety
    /// That of [`as_slice_while_idle`](Self::as_slice_while_idle).
    pub unsafe fn as_mut_slice_while_idle(&mut self) -> Result<&mut [T]> {
        self.settle(Access::Write)?;
        // SAFETY: managed memory is the host's at the same address, by the invariant, aligned for
        // `T` or dangling, and holds values, by `Pod`; nothing else accesses it: all work was
        // waited for, the borrow is exclusive, and no device runs that forbids the host to access
        // it, by the caller's promise.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.host_ptr(), self.len()) })
    }

    /// Refuses to lend memory that the host may touch only while nothing runs on a device.
    fn require_lendable(&self) -> Result<()> {
        if self.concurrent || self.is_empty() || self.attached == ManagedAttach::Host {
            return Ok(());
        }
        Err(Error::Unsupported {
            feature: "managed memory in use by the host beside the device",
            device: self.device().ordinal(),
        })
    }

    fn host_ptr(&self) -> *mut T {
        ptr::with_exposed_provenance_mut(self.buffer.as_raw() as usize)
    }

    /// Waits until the host may access the memory.
    fn settle(&self, access: Access) -> Result<()> {
        driver::ensure()?;
        self.buffer.storage.ensure()?;
        let block = self.buffer.storage.block();
        let fences = block.ledger.conflicts(&block.whole(), access, None);
        fences.wait_host()?;
        if !self.concurrent && block.bytes > 0 && self.attached != ManagedAttach::Host {
            // While a device runs anything, in whatever context, the host must touch no managed
            // memory.
            for context in context::known_on(&Device::all()?.collect::<Vec<_>>()) {
                context.synchronize()?;
            }
        }
        if access == Access::Write {
            block.ledger.prune(&block.whole());
        }
        Ok(())
    }

    /// Blocks the thread until no stream uses the buffer any more.
    ///
    /// # Errors
    /// The driver's errors about the work waited for.
    pub fn synchronize(&self) -> Result<()> {
        self.buffer.synchronize()
    }

    /// Frees the memory once no work uses it: `cuMemFree_v2`.
    ///
    /// # Errors
    /// Those of [`Buffer::close`](crate::Buffer::close).
    pub fn close(mut self) -> Result<(), (Error, Self)> {
        self.buffer.free().map_err(|error| (error, self))
    }
}

/// Whether every device can use managed memory while the host does. All are asked, since any that
/// cannot may be using the memory, or come to do so.
fn all_concurrent() -> Result<bool> {
    let attribute = cuda_sys::CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS;
    for device in Device::all()? {
        if device.attribute(attribute)? == 0 {
            return Ok(false);
        }
    }
    Ok(true)
}

impl<'a, T: Pod> From<&'a ManagedBuffer<T>> for Slice<'a, T, DeviceMemory> {
    fn from(buffer: &'a ManagedBuffer<T>) -> Self {
        buffer.as_view()
    }
}

impl<'a, T: Pod> From<&'a mut ManagedBuffer<T>> for SliceMut<'a, T, DeviceMemory> {
    fn from(buffer: &'a mut ManagedBuffer<T>) -> Self {
        buffer.as_view_mut()
    }
}

impl<T: Pod> fmt::Debug for ManagedBuffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ManagedBuffer")
            .field("address", &format_args!("{:#x}", self.as_raw()))
            .field("len", &self.len())
            .field("device", &self.device())
            .finish()
    }
}
