//! Device memory that was allocated through another interface: Vulkan, OpenGL, Direct3D.

use std::mem::ManuallyDrop;
#[cfg(unix)]
use std::os::fd::OwnedFd;
use std::ptr;

use cuda_sys::{CUdeviceptr, CUexternalMemory, symbol as cu};

use crate::alloc::{MemoryOwner, OwnerTraits, owned, plain};
use crate::context::{Context, of_context};
use crate::error::{Error, OutOfBounds, Rejected, Result};
use crate::memory::{ALIGNMENT, DeviceBuffer, byte_len};
use crate::process::{Failed, Handle, Owned, Release, attempt, drop_hook};
use crate::types::{Pod, Resource};
use crate::util::debug_by;

/// How the other interface allocated the memory that an [`ExternalMemory`] imports.
///
/// ```
/// use cuda_core::interop::ExternalMemoryKind;
///
/// # let has_dedicated_allocate_info = false;
/// let kind = match has_dedicated_allocate_info {
///     true => ExternalMemoryKind::Dedicated, // VkMemoryDedicatedAllocateInfo was given
///     false => ExternalMemoryKind::Allocation,
/// };
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ExternalMemoryKind {
    /// Memory to which any number of buffers and images may be bound.
    Allocation = 0,
    /// Memory dedicated to one buffer or image: `CUDA_EXTERNAL_MEMORY_DEDICATED`.
    Dedicated = cuda_sys::CUDA_EXTERNAL_MEMORY_DEDICATED as isize,
}

/// Memory of another interface, imported into a context. It has no address until
/// [`ExternalMemory::into_buffer`] maps it.
///
/// ```no_run
/// # #[cfg(unix)]
/// # fn import(fd: std::os::fd::OwnedFd, size: usize) -> cuda_core::Result<()> {
/// use cuda_core::{Device, interop::{ExternalMemory, ExternalMemoryKind}};
///
/// let stream = Device::get(0)?.create_stream()?;
/// // SAFETY: from vkGetMemoryFdKHR, of an allocation of `size` bytes on the same device, which Vulkan
/// // does not touch while work here may.
/// let memory = unsafe {
///     ExternalMemory::import_fd(stream.context(), fd, size, ExternalMemoryKind::Allocation)
/// };
/// let memory = memory?;
/// let mut vertices = memory.into_buffer::<[f32; 4]>(0, size / 16)?;
/// stream.fill_bytes(&mut vertices, 0)?;
/// stream.synchronize()?; // Vulkan may use them now
/// # Ok(())
/// # }
/// ```
pub struct ExternalMemory(Owned<ImportedMemory>);

struct ImportedMemory {
    // INVARIANT: memory imported into `context`, none of which is mapped unless a `MappedExternal` owns
    // it. Only `release` destroys it.
    raw: Handle<CUexternalMemory>,
    context: Context,
    size: usize,
}

impl ExternalMemory {
    /// Imports `size` bytes from a file descriptor, which Vulkan calls `OPAQUE_FD`:
    /// `cuImportExternalMemory`. The driver gets a duplicate of the descriptor; on success `fd` is
    /// closed.
    ///
    /// # Errors
    /// [`Error::Invalid`] if `size` is zero, before any driver call; the driver's, among them
    /// `OPERATING_SYSTEM` if the process can have no more descriptors. The error returns the open
    /// descriptor.
    ///
    /// # Safety
    /// `fd` refers to memory of exactly `size` bytes, on the context's device and allocated as `kind`
    /// says. CUDA does not order its work with the other interface's. The caller orders both, so that
    /// no user of that interface accesses the memory while work of this process may.
    #[doc(alias("cuImportExternalMemory", "cudaImportExternalMemory"))]
    #[cfg(unix)]
    pub unsafe fn import_fd(
        context: &Context,
        fd: OwnedFd,
        size: usize,
        kind: ExternalMemoryKind,
    ) -> Result<Self, Rejected<OwnedFd>> {
        let op = "cuImportExternalMemory";
        let checked = Error::unless(size != 0, op, "no bytes were given");
        let ((), fd) = Rejected::unless(checked, fd)?;
        let mut handle = cuda_sys::CUDA_EXTERNAL_MEMORY_HANDLE_DESC {
            type_: cuda_sys::CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD,
            size: size as _,
            flags: kind as u32,
            ..Default::default()
        };
        let import = |raw: &mut CUexternalMemory, fd| {
            handle.handle.fd = fd;
            // SAFETY: the call reads a description and writes one handle, both locals that outlive it;
            // the descriptor is open and refers to such memory, by the caller's promise; a live context
            // is current.
            unsafe { cu::cuImportExternalMemory(raw, &handle) }
        };
        // SAFETY: just imported from the descriptor, which the caller vouches for.
        let own = |raw| unsafe { Self::from_raw(raw, size, context) };
        context.import_fd(op, &fd, import, own).map_err(|error| Rejected::new(error, fd))
    }

    /// Takes ownership of memory imported by a raw call, for kinds of handle without a method here. No
    /// driver call.
    ///
    /// # Safety
    /// `raw` came from `cuImportExternalMemory` with the context current, no other code owns it, none
    /// of it is mapped, and it has `size` bytes. The conditions of [`ExternalMemory::import_fd`] hold.
    pub unsafe fn from_raw(raw: CUexternalMemory, size: usize, context: &Context) -> Self {
        Self(Owned::new(ImportedMemory { raw: Handle(raw), context: context.clone(), size }))
    }

    /// Maps `len` elements from byte `offset` on: `cuExternalMemoryGetMappedBuffer`.
    ///
    /// One buffer owns the memory. Map all that you need, and take [views](crate::Buffer::slice) of its
    /// parts, which can be [cast](crate::Slice::cast). Dropping or closing the buffer waits for the
    /// work that uses it, then unmaps and destroys the memory: `cuMemFree_v2`,
    /// `cuDestroyExternalMemory`. A failure of the second call is reported to the hook of
    /// [`drops::set_hook`](crate::drops::set_hook).
    ///
    /// # Errors
    /// With the memory unchanged: before any driver call, [`Error::SizeOverflow`],
    /// [`Error::OutOfBounds`], in bytes, and [`Error::Invalid`] if `len` is zero or the offset is not
    /// aligned for `T`; the driver's. If the memory may still be mapped after a failed call, it is
    /// [given up](Error::GivenUp).
    #[doc(alias("cuExternalMemoryGetMappedBuffer", "cudaExternalMemoryGetMappedBuffer"))]
    pub fn into_buffer<T: Pod>(
        mut self,
        offset: usize,
        len: usize,
    ) -> Result<DeviceBuffer<T>, Rejected<Self>> {
        let ((address, bytes), this) = Rejected::unless(self.map::<T>(offset, len), self)?;
        let context = this.context().clone();
        let mapped = MappedExternal(Some(ManuallyDrop::new(this)));
        Ok(owned(&context, address, bytes, mapped, len))
    }

    fn map<T: Pod>(&mut self, offset: usize, len: usize) -> Result<(CUdeviceptr, usize)> {
        let op = "cuExternalMemoryGetMappedBuffer";
        self.0.live()?;
        let bytes = byte_len::<T>(len, ALIGNMENT)?;
        Error::unless(bytes != 0, op, "no elements were given")?;
        let end = offset.saturating_add(bytes);
        if end > self.0.size {
            return Err(OutOfBounds { start: offset, end, len: self.0.size }.into());
        }
        let why = || format!("offset {offset} is not aligned to {} bytes", align_of::<T>());
        Error::unless_with(offset % align_of::<T>() == 0, op, why)?;
        let part = cuda_sys::CUDA_EXTERNAL_MEMORY_BUFFER_DESC {
            offset: offset as _,
            size: bytes as _,
            ..Default::default()
        };
        let mut address = 0;
        let code = self.context().relaxed(|| {
            // SAFETY: the call reads a description and writes one address, both locals that outlive it;
            // the memory is imported, and its context is current.
            unsafe { cu::cuExternalMemoryGetMappedBuffer(&mut address, self.0.raw.0, &part) }
        })?;
        attempt(op, code).map_err(|failed| failed.undo(|| self.unmap(address)))?;
        Ok((address, bytes))
    }

    /// Unmaps what a failed call may have mapped. If that fails, gives the memory up.
    fn unmap(&mut self, address: CUdeviceptr) {
        // SAFETY: "the returned pointer must be freed using cuMemFree"; nothing uses the address.
        if address != 0 && unsafe { plain::free(address) }.is_err() {
            let lost = self.0.disown().map(|memory| (memory.number(), memory.size));
            if let Ok((handle, size)) = lost {
                report_mapped(handle, size);
            }
        }
    }

    /// Returns the size in bytes; zero for memory that was [given up](Error::GivenUp).
    pub fn size(&self) -> usize {
        self.0.get().map_or(0, |live| live.size)
    }

    of_context! { "The context that it was imported into.": |it| &it.0.context }

    /// Returns the driver's handle, valid while `self` lives; null for memory that was
    /// [given up](Error::GivenUp).
    pub fn as_raw(&self) -> CUexternalMemory {
        self.0.get().map_or(ptr::null_mut(), |live| live.raw.0)
    }

    /// Destroys the imported memory: `cuDestroyExternalMemory`. Dropping it does the same, but reports
    /// a failure to the hook of [`drops::set_hook`](crate::drops::set_hook).
    ///
    /// # Errors
    /// The driver's. If the call that destroys the memory failed, the returned memory is
    /// [given up](Error::GivenUp).
    #[doc(alias("cuDestroyExternalMemory", "cudaDestroyExternalMemory"))]
    pub fn close(mut self) -> Result<(), Rejected<Self>> {
        self.0.release().map_err(|error| Rejected::new(error, self))
    }
}

impl Release for ImportedMemory {
    const RESOURCE: Resource = Resource::ExternalMemory;

    fn number(&self) -> u64 {
        self.raw.number()
    }

    fn bytes(&self) -> usize {
        self.size
    }

    fn release(&mut self) -> Result<(), Failed> {
        self.context.release("cuDestroyExternalMemory", || {
            // SAFETY: the owner is being closed or dropped, so no code uses the handle after this call,
            // and none of the memory is mapped any more; its context is current.
            unsafe { cu::cuDestroyExternalMemory(self.raw.0) }
        })
    }
}

debug_by! { [] ExternalMemory: |it| "ExternalMemory" { size: it.size(), device: it.device() } }

/// The imported memory of a mapped buffer. Leaked unless it is unmapped: work may use it until the host
/// has observed the end of all work on it.
struct MappedExternal(Option<ManuallyDrop<ExternalMemory>>);

impl MemoryOwner for MappedExternal {
    fn release(&mut self, address: CUdeviceptr) -> Result<(), Failed> {
        // SAFETY: "the returned pointer must be freed using cuMemFree", before the memory is destroyed;
        // it is released once, when no work uses it.
        unsafe { plain::free(address) }?;
        drop(self.0.take().map(ManuallyDrop::into_inner));
        Ok(())
    }

    fn traits(&self) -> OwnerTraits {
        OwnerTraits { in_the_context: true, ..OwnerTraits::default() }
    }
}

impl Drop for MappedExternal {
    /// Reports memory that is still mapped, and so cannot be destroyed.
    fn drop(&mut self) {
        if let Some(memory) = &self.0 {
            report_mapped(memory.0.number(), memory.0.bytes());
        }
    }
}

/// Reports imported memory that cannot be destroyed, since it is still mapped.
fn report_mapped(handle: u64, size: usize) {
    let why = Error::GivenUp { what: Resource::DeviceMemory };
    drop_hook::report(Resource::ExternalMemory, handle, size, Some(why));
}
