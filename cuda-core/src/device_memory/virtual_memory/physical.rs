//! Physical memory of a device, which has no address until it is mapped.

#[cfg(unix)]
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
#[cfg(unix)]
use std::ptr;

use cuda_sys::{CUmemAllocationProp, CUmemGenericAllocationHandle, symbol as cu};

use super::{Granularity, granularity, properties};
use crate::context::Context;
use crate::device::Device;
use crate::error::{Error, Rejected, Result, asked};
use crate::process::{Failed, Owned, Release, driver};
use crate::types::{Resource, ShareableHandle};
use crate::util::debug_by;

/// Physical memory of a device: `cuMemCreate`. It is usable once it is part of a
/// [`VirtualBuffer`](crate::virtual_memory::VirtualBuffer), which then owns it.
///
/// A growing buffer allocates its own memory; this type is for memory that comes from, or goes to,
/// another process.
///
/// ```no_run
/// use cuda_core::{
///     Device, interop::ShareableHandle, virtual_memory::{PhysicalMemory, VirtualBuffer},
/// };
///
/// let context = Device::get(0)?.context()?;
/// let memory = PhysicalMemory::new(&context, 1 << 20, ShareableHandle::None)?;
/// let mut buffer = VirtualBuffer::<f32>::new(&context, 1 << 30)?;
/// buffer.append(memory)?;
/// assert!(buffer.len() >= 1 << 18);
/// # Ok::<(), cuda_core::Error>(())
/// ```
pub struct PhysicalMemory(Owned<Allocation>);

struct Allocation {
    // INVARIANT: this crate owns the handle, which only `release` releases; zero for zero bytes.
    handle: CUmemGenericAllocationHandle,
    context: Context,
    size: usize,
}

impl PhysicalMemory {
    /// Allocates `bytes`, rounded up to the granularity of the context's device; allocates nothing if
    /// `bytes` is zero.
    ///
    /// # Errors
    /// [`Error::Unsupported`] on a device without virtual memory management, or one that cannot
    /// share memory as requested; [`Error::SizeOverflow`]; [`Error::OutOfMemory`].
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// use cuda_core::{interop::ShareableHandle, virtual_memory::PhysicalMemory};
    ///
    /// let memory = PhysicalMemory::new(&context, 1, ShareableHandle::None)?;
    /// println!("{} bytes", memory.size()); // rounded up to the device's granularity
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuMemCreate"))]
    pub fn new(context: &Context, bytes: usize, shareable: ShareableHandle) -> Result<Self> {
        let properties = properties(context.device(), shareable.as_raw());
        Self::with_properties(context, bytes, shareable, &properties)
    }

    /// [`PhysicalMemory::new`] for memory that other devices, such as network cards, read and write
    /// directly. `ncclMemAlloc` makes such memory too, to be
    /// [registered](crate::nccl::Communicator::register).
    ///
    /// # Errors
    /// Those of [`PhysicalMemory::new`]; [`Error::Unsupported`] if the device's
    /// `GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED` is zero.
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// use cuda_core::{interop::ShareableHandle, virtual_memory::PhysicalMemory};
    ///
    /// let (bytes, shareable) = (64 << 20, ShareableHandle::PosixFd);
    /// let memory = match context.device().attributes().gpu_direct_rdma_with_cuda_vmm_supported()? {
    ///     true => PhysicalMemory::for_rdma(&context, bytes, shareable)?,
    ///     false => PhysicalMemory::new(&context, bytes, shareable)?,
    /// };
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuMemCreate", "ncclMemAlloc"))]
    pub fn for_rdma(context: &Context, bytes: usize, shareable: ShareableHandle) -> Result<Self> {
        driver::ensure()?;
        let attribute = cuda_sys::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED;
        context.device().require(attribute, "GPUDirect RDMA with mapped memory")?;
        let mut properties = properties(context.device(), shareable.as_raw());
        properties.allocFlags.gpuDirectRDMACapable = 1;
        Self::with_properties(context, bytes, shareable, &properties)
    }

    fn with_properties(
        context: &Context,
        bytes: usize,
        shareable: ShareableHandle,
        properties: &CUmemAllocationProp,
    ) -> Result<Self> {
        driver::ensure()?;
        let device = context.device();
        let step = granularity(device, Granularity::Minimum, properties)?;
        let size = round_up(bytes, step)?;
        if shareable == ShareableHandle::PosixFd {
            let attribute =
                cuda_sys::CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED;
            device.require(attribute, "sharing memory as a file descriptor")?;
        }
        Self::create(context, size, properties)
    }

    /// Creates memory of `size` bytes, a multiple of the granularity.
    pub(super) fn create(
        context: &Context,
        size: usize,
        properties: &CUmemAllocationProp,
    ) -> Result<Self> {
        let handle = context.allocate("cuMemCreate", size, 0, |handle| {
            // SAFETY: the call reads properties and writes one handle, both borrowed for longer than
            // the call; flags must be zero.
            unsafe { cu::cuMemCreate(handle, size, properties, 0) }
        })?;
        Ok(Self::own(context, handle, size))
    }

    fn own(context: &Context, handle: CUmemGenericAllocationHandle, size: usize) -> Self {
        Self(Owned::new(Allocation { handle, context: context.clone(), size }))
    }

    /// Returns the allocation; [`None`] for zero bytes.
    fn live(&self) -> Option<&Allocation> {
        self.0.get().filter(|allocation| allocation.handle != 0)
    }

    /// Returns the size in bytes, a multiple of the granularity.
    pub fn size(&self) -> usize {
        self.live().map_or(0, |allocation| allocation.size)
    }

    /// Returns the device that the memory is on.
    pub fn device(&self) -> Device {
        self.0.context.device()
    }

    /// Returns the driver's handle, valid while `self` lives; zero for no memory.
    pub fn as_raw(&self) -> CUmemGenericAllocationHandle {
        self.live().map_or(0, |allocation| allocation.handle)
    }

    /// Returns how the memory can be shared, as the driver reports:
    /// `cuMemGetAllocationPropertiesFromHandle`.
    ///
    /// # Errors
    /// The driver's.
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// use cuda_core::{interop::ShareableHandle, virtual_memory::PhysicalMemory};
    ///
    /// let step = context.device().virtual_memory_granularity(cuda_core::virtual_memory::Granularity::Minimum)?;
    /// let memory = PhysicalMemory::new(&context, step, ShareableHandle::None)?;
    /// assert_eq!(memory.shareable()?, ShareableHandle::None);
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuMemGetAllocationPropertiesFromHandle"))]
    pub fn shareable(&self) -> Result<ShareableHandle> {
        driver::ensure()?;
        let Some(Allocation { handle, .. }) = self.live() else { return Ok(ShareableHandle::None) };
        let to = properties(self.device(), cuda_sys::CU_MEM_HANDLE_TYPE_NONE);
        // SAFETY: the call writes one structure of this type, to an exclusive borrow; `self` keeps the
        // handle alive.
        let properties = asked("cuMemGetAllocationPropertiesFromHandle", to, |to| unsafe {
            cu::cuMemGetAllocationPropertiesFromHandle(to, *handle)
        })?;
        let fd = cuda_sys::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR.0;
        Ok(if properties.requestedHandleTypes.0 & fd != 0 {
            ShareableHandle::PosixFd
        } else {
            ShareableHandle::None
        })
    }

    /// Returns a file descriptor by which another process can import the memory, if the memory was
    /// created with [`ShareableHandle::PosixFd`]: `cuMemExportToShareableHandle`. The descriptor keeps
    /// the memory until it is closed.
    ///
    /// # Errors
    /// The driver's, among them `INVALID_VALUE` for memory that is not shareable.
    #[doc(alias("cuMemExportToShareableHandle"))]
    #[cfg(unix)]
    pub fn export_fd(&self) -> Result<OwnedFd> {
        driver::ensure()?;
        let op = "cuMemExportToShareableHandle";
        let Some(Allocation { handle, .. }) = self.live() else {
            return Err(Error::Driver { op, code: cuda_sys::CUDA_ERROR_INVALID_VALUE });
        };
        let kind = ShareableHandle::PosixFd.as_raw();
        // SAFETY: for this type of handle the pointer is to an int; the memory's handle is live; flags
        // must be zero.
        let fd = asked(op, -1, |fd: &mut RawFd| unsafe {
            cu::cuMemExportToShareableHandle(ptr::from_mut(fd).cast(), *handle, kind, 0)
        })?;
        // SAFETY: the call has just opened the descriptor for this process.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }

    /// Imports memory that this or another process exported: `cuMemImportFromShareableHandle`. The
    /// descriptor may be closed afterwards.
    ///
    /// # Errors
    /// The driver's.
    ///
    /// # Safety
    /// `fd` came from [`PhysicalMemory::export_fd`] of memory of exactly `size` bytes on the device of
    /// `context`. Nothing orders the work of several owners on the memory: no other owner accesses it
    /// while work of this process may.
    #[doc(alias("cuMemImportFromShareableHandle"))]
    #[cfg(unix)]
    pub unsafe fn import_fd(context: &Context, fd: impl AsFd, size: usize) -> Result<Self> {
        let kind = ShareableHandle::PosixFd.as_raw();
        let descriptor = ptr::without_provenance_mut(fd.as_fd().as_raw_fd() as usize);
        let handle = context.call("cuMemImportFromShareableHandle", 0, |handle| {
            // SAFETY: the call writes one handle, to an exclusive borrow; this type of handle is
            // passed by value in the place of a pointer.
            unsafe { cu::cuMemImportFromShareableHandle(handle, descriptor, kind) }
        })?;
        Ok(Self::own(context, handle, size))
    }

    /// Releases the memory now: `cuMemRelease`. Dropping it does the same, but reports a failure to the
    /// hook of [`drops::set_hook`](crate::drops::set_hook). Processes that imported the memory keep it.
    ///
    /// # Errors
    /// The driver's; the memory then has no bytes: see [`Error::GivenUp`].
    #[doc(alias("cuMemRelease"))]
    pub fn close(mut self) -> Result<(), Rejected<Self>> {
        let released = driver::ensure().and_then(|()| self.release());
        released.map_err(|error| Rejected::new(error, self))
    }

    /// Releases the memory as `Drop` does, but returns the error. Mapped memory stays until it is
    /// unmapped. Unless the memory was [kept](Failed::Refused), no bytes are left.
    pub(super) fn release(&mut self) -> Result<()> {
        if self.0.get().is_some() { self.0.release() } else { Ok(()) }
    }
}

/// Rounds `bytes` up to a multiple of `step`.
pub(super) fn round_up(bytes: usize, step: usize) -> Result<usize> {
    let rounded = bytes.checked_next_multiple_of(step);
    rounded
        .filter(|rounded| *rounded <= isize::MAX as usize)
        .ok_or(Error::SizeOverflow { len: bytes, element_size: 1 })
}

impl Release for Allocation {
    const RESOURCE: Resource = Resource::PhysicalMemory;

    fn number(&self) -> u64 {
        self.handle
    }

    fn bytes(&self) -> usize {
        self.size
    }

    fn release(&mut self) -> Result<(), Failed> {
        if self.handle == 0 {
            return Ok(());
        }
        // SAFETY: the handle is this crate's, and released once. Mapped memory stays: "freed when all
        // outstanding mappings to the memory are unmapped".
        self.context.release("cuMemRelease", || unsafe { cu::cuMemRelease(self.handle) })
    }
}

debug_by! { [] PhysicalMemory: |it| "PhysicalMemory" { size: it.size(), device: it.device() } }
