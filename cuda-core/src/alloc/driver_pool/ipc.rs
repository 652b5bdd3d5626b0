//! Pools shared between processes, and the memory in them.

#[cfg(unix)]
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;

use cuda_sys::{CUdeviceptr, CUmemPoolPtrExportData, symbol as cu};

use super::memory_pool::MemoryPool;
#[cfg(unix)]
use super::memory_pool::PoolKind;
use crate::alloc::{MemoryOwner, owned, plain};
use crate::context::Context;
#[cfg(unix)]
use crate::context::peer::PeerAccess;
#[cfg(unix)]
use crate::device::Device;
use crate::error::{Error, Result, asked};
use crate::memory::{ALIGNMENT, DeviceBuffer, byte_len};
use crate::process::Failed;
#[cfg(unix)]
use crate::process::capture_mode::RelaxedCaptureMode;
use crate::types::Pod;
#[cfg(unix)]
use crate::types::shareable::ShareableHandle;
use crate::util::sent_bytes;

sent_bytes! {
    /// A name of memory in a shared pool, for a process that has imported the pool. It is plain bytes, to be
    /// sent by any means.
    ///
    /// ```no_run
    /// # fn send(_: impl Sized) {}
    /// use cuda_core::{Device, MemoryPool, interop::{PoolPointer, ShareableHandle}};
    ///
    /// let device = Device::get(0)?;
    /// let stream = device.create_stream()?;
    /// let pool = MemoryPool::builder(device).shareable(ShareableHandle::PosixFd).build()?;
    /// # #[cfg(unix)]
    /// send(pool.export_fd()?); // over a socket of Unix
    /// let buffer = stream.alloc_from::<f32>(&pool, 1000)?;
    /// stream.synchronize()?; // it is there
    /// send(pool.export_pointer(&buffer)?.to_bytes());
    /// // The other process: `MemoryPool::import_fd`, `PoolPointer::from_bytes`, `import_pointer`.
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    PoolPointer: CUmemPoolPtrExportData
}

/// Frees memory of another process's pool.
struct ImportedBlock {
    _pool: MemoryPool,
}

impl MemoryOwner for ImportedBlock {
    fn release(&mut self, address: CUdeviceptr) -> Result<(), Failed> {
        // SAFETY: imported memory, which `cuMemFree` frees, is released once, when no work uses it.
        unsafe { plain::free(address) }
    }
}

/// # Other processes
impl MemoryPool {
    /// A file descriptor by which another process can import the pool, if it was created with
    /// [`ShareableHandle::PosixFd`]: `cuMemPoolExportToShareableHandle`.
    ///
    /// # Errors
    /// The driver's, `INVALID_VALUE` for a pool that is not shareable among them.
    ///
    /// ```no_run
    /// use cuda_core::{Device, MemoryPool, interop::ShareableHandle};
    ///
    /// let device = Device::get(0)?;
    /// let pool = MemoryPool::builder(device).shareable(ShareableHandle::PosixFd).build()?;
    /// let buffer = device.create_stream()?.alloc_from::<f32>(&pool, 1024)?;
    /// let fd = pool.export_fd()?; // sent over a Unix socket
    /// let name = pool.export_pointer(&buffer)?.to_bytes(); // and this beside it
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuMemPoolExportToShareableHandle", "cudaMemPoolExportToShareableHandle"))]
    #[cfg(unix)]
    pub fn export_fd(&self) -> Result<OwnedFd> {
        let pool = self.live()?;
        let kind = ShareableHandle::PosixFd.as_raw();
        // SAFETY: for this type of handle the pointer is to an int; the pool is live; flags must be
        // zero.
        let fd = asked("cuMemPoolExportToShareableHandle", -1, |fd: &mut RawFd| unsafe {
            cu::cuMemPoolExportToShareableHandle(ptr::from_mut(fd).cast(), pool, kind, 0)
        })?;
        // SAFETY: on success it is an open file descriptor, which the caller has to close.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }

    /// Imports a pool of another process: `cuMemPoolImportFromShareableHandle`. Nothing can be allocated from
    /// it; [`import_pointer`](Self::import_pointer) opens memory that the other process has allocated.
    /// Importing gives the device access to the pool, if it has none: `cuMemPoolGetAccess`,
    /// `cuMemPoolSetAccess`.
    ///
    /// # Errors
    /// The driver's.
    ///
    /// # Safety
    /// `fd`, which is not descriptor zero, came from [`MemoryPool::export_fd`], or the driver's own call, for
    /// a pool on `device`.
    #[doc(alias("cuMemPoolImportFromShareableHandle", "cuMemPoolGetAccess", "cuMemPoolSetAccess"))]
    #[doc(alias(
        "cudaMemPoolImportFromShareableHandle",
        "cudaMemPoolGetAccess",
        "cudaMemPoolSetAccess"
    ))]
    #[cfg(unix)]
    pub unsafe fn import_fd(device: Device, fd: impl AsFd) -> Result<Self> {
        crate::process::driver::ensure()?;
        let number = fd.as_fd().as_raw_fd();
        let (number, kind) =
            (ptr::without_provenance_mut(number as usize), ShareableHandle::PosixFd.as_raw());
        let relaxed = RelaxedCaptureMode::enter()?;
        // SAFETY: the call writes one handle, to an exclusive borrow; for this type of handle it imports the
        // descriptor's number, which is open while `fd` lives; flags must be zero.
        let raw = asked("cuMemPoolImportFromShareableHandle", ptr::null_mut(), |raw| unsafe {
            cu::cuMemPoolImportFromShareableHandle(raw, number, kind, 0)
        })?;
        drop(relaxed);
        let pool = Self::made(raw, device, PoolKind::Imported);
        if pool.access(device)? != PeerAccess::ReadWrite {
            pool.set_access(device, PeerAccess::ReadWrite)?;
        }
        Ok(pool)
    }

    /// Returns a name of a buffer for processes that have imported the pool: `cuMemPoolExportPointer`. The
    /// buffer must come from this pool. To be called after the first [`export_fd`](Self::export_fd): the
    /// driver only names memory of pools that were exported.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an empty buffer, and for a part of a caching pool's block; the driver's, for
    /// memory of another pool.
    #[doc(alias("cuMemPoolExportPointer", "cudaMemPoolExportPointer"))]
    pub fn export_pointer<T: Pod>(&self, buffer: &DeviceBuffer<T>) -> Result<PoolPointer> {
        self.live()?;
        let block = buffer.storage.block();
        Error::unless(block.bytes != 0, "cuMemPoolExportPointer", "the buffer is empty")?;
        let why = "a caching pool cut the memory from a larger block: use `Stream::alloc_from`";
        Error::unless(!block.backing.is_cached(), "cuMemPoolExportPointer", why)?;
        // SAFETY: the call writes a structure of this size, aligned to one byte, to an exclusive
        // borrow; the address is that of a live allocation.
        let data = asked("cuMemPoolExportPointer", [0; 64], |data| unsafe {
            cu::cuMemPoolExportPointer(ptr::from_mut(data).cast(), block.address)
        })?;
        Ok(PoolPointer(data))
    }

    /// Opens `len` elements that another process has allocated in this pool, which was imported:
    /// `cuMemPoolImportPointer`. Dropping the buffer waits for the work that uses it, then frees it in this
    /// process: `cuMemFree_v2`.
    ///
    /// # Errors
    /// [`Error::SizeOverflow`]; [`Error::Invalid`] for zero elements, for elements that need a stricter
    /// alignment, and for a pool of another device; the driver's.
    ///
    /// # Safety
    /// The other process has allocated that many elements there, the allocation has completed, and that
    /// process frees them only when this buffer is gone. The caller orders the work of both processes.
    #[doc(alias("cuMemPoolImportPointer", "cuMemFree", "cudaMemPoolImportPointer", "cudaFree"))]
    pub unsafe fn import_pointer<T: Pod>(
        &self,
        context: &Context,
        pointer: PoolPointer,
        len: usize,
    ) -> Result<DeviceBuffer<T>> {
        let op = "cuMemPoolImportPointer";
        let bytes = byte_len::<T>(len, ALIGNMENT)?;
        Error::unless(bytes != 0, op, "no elements were given")?;
        self.require_device(op, context.device())?;
        let pool = self.live()?;
        let mut data = pointer.0;
        let address = context.call(op, 0, |address| {
            // SAFETY: the call reads a structure of the size of `data`, which outlives it, and writes
            // one address, to an exclusive borrow; `self` keeps the pool.
            unsafe { cu::cuMemPoolImportPointer(address, pool, (&raw mut data).cast()) }
        })?;
        let owner = ImportedBlock { _pool: self.clone() };
        Ok(owned(context, address, bytes, owner, len))
    }
}
