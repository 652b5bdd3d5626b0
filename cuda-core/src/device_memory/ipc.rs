//! Device memory shared between processes.

use std::ptr;

use cuda_sys::{CUdeviceptr, CUipcMemHandle, symbol as cu};

use crate::alloc::{MemoryOwner, OwnerTraits, owned};
use crate::context::Context;
use crate::error::{Error, Result, asked, counted};
use crate::memory::{ALIGNMENT, Buffer, DeviceBuffer, DeviceMemory, byte_len};
use crate::process::{Failed, RelaxedCaptureMode, driver};
use crate::types::Pod;
use crate::util::sent_bytes;

sent_bytes! {
    /// A name of device memory that another process of the machine can open: plain bytes, to be sent by
    /// any means.
    ///
    /// It is valid while the process that created it keeps the memory allocated.
    ///
    /// ```no_run
    /// # let device = cuda_core::Device::get(0)?;
    /// use cuda_core::interop::IpcMemoryHandle;
    ///
    /// let buffer = device.context()?.alloc::<f32>(1 << 20)?;
    /// let bytes: [u8; 64] = buffer.ipc_handle()?.to_bytes();
    /// // In another process:
    /// let handle = IpcMemoryHandle::from_bytes(bytes);
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    IpcMemoryHandle: CUipcMemHandle
}

/// The owner that closes memory of another process.
struct Opened(Context);

impl MemoryOwner for Opened {
    fn release(&mut self, address: CUdeviceptr) -> Result<(), Failed> {
        // SAFETY: cuIpcOpenMemHandle opened the memory in this context; it is closed once, and no work
        // of this process uses it any more.
        self.0.release("cuIpcCloseMemHandle", || unsafe { cu::cuIpcCloseMemHandle(address) })
    }

    fn traits(&self) -> OwnerTraits {
        OwnerTraits { in_the_context: true, ..OwnerTraits::default() }
    }
}

/// # Sharing with other processes
impl<T: Pod, X> Buffer<T, DeviceMemory, X> {
    /// Returns a handle by which other processes can open the memory: `cuIpcGetMemHandle`.
    ///
    /// Small allocations share a block of 2 MiB, and a process that opens the handle can access all of
    /// the block. With untrusted processes, share only memory in multiples of that size.
    ///
    /// # Errors
    /// [`Error::Invalid`] for memory that did not come from [`Context::alloc`], and for an
    /// empty buffer.
    #[doc(alias("cuIpcGetMemHandle", "cudaIpcGetMemHandle"))]
    pub fn ipc_handle(&self) -> Result<IpcMemoryHandle> {
        driver::ensure()?;
        let op = "cuIpcGetMemHandle";
        let block = self.storage.block();
        Error::unless(block.bytes != 0, op, "the buffer is empty")?;
        let plain = block.backing.traits().plain;
        Error::unless(plain, op, "only memory of `Context::alloc` has a handle")?;
        let handle = self.context().ask(op, [0; 64], |handle| {
            // SAFETY: the call writes a handle, of this size and aligned to one byte, to an exclusive
            // borrow; the address is that of a live allocation of cuMemAlloc.
            unsafe { cu::cuIpcGetMemHandle(ptr::from_mut(handle).cast(), block.address) }
        })?;
        Ok(IpcMemoryHandle(handle))
    }
}

/// # Other processes
impl<T: Pod> DeviceBuffer<T> {
    /// Opens memory of another process: `cuIpcOpenMemHandle_v2`, which enables peer access if the
    /// memory is on another device. Dropping the buffer waits for the work that uses it, then
    /// closes the memory: `cuIpcCloseMemHandle`.
    ///
    /// The process that created the handle cannot open it.
    ///
    /// # Errors
    /// [`Error::SizeOverflow`], and [`Error::Invalid`] if `len` is zero or the elements need a stricter
    /// alignment, before any driver call, and if the memory has fewer elements; the
    /// driver's.
    ///
    /// # Safety
    /// The handle came from [`DeviceBuffer::ipc_handle`] or `cuIpcGetMemHandle`, for memory of the
    /// device of `context`. The process that created it keeps the memory allocated while the buffer
    /// lives. Buffers know nothing of other processes: the caller orders the work of both processes,
    /// for instance by an [`Event`](crate::Event) that both have. A second buffer of the same memory in
    /// this process is another such alias.
    ///
    /// ```no_run
    /// # fn receive() -> [u8; 64] { [0; 64] }
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// use cuda_core::{DeviceBuffer, interop::IpcMemoryHandle};
    ///
    /// let handle = IpcMemoryHandle::from_bytes(receive());
    /// // SAFETY: the sender keeps its buffer of as many elements until this process says that it
    /// // is done.
    /// let buffer = unsafe { DeviceBuffer::<f32>::open_ipc(&context, handle, 1 << 20) }?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuIpcOpenMemHandle", "cuIpcCloseMemHandle"))]
    #[doc(alias("cudaIpcOpenMemHandle", "cudaIpcCloseMemHandle"))]
    pub unsafe fn open_ipc(context: &Context, handle: IpcMemoryHandle, len: usize) -> Result<Self> {
        let bytes = byte_len::<T>(len, ALIGNMENT)?;
        Error::unless(bytes != 0, "cuIpcOpenMemHandle", "no elements were given")?;
        let entered = context.enter_briefly()?;
        let relaxed = RelaxedCaptureMode::enter()?;
        let mut raw = CUipcMemHandle::default();
        // SAFETY: a handle is 64 opaque bytes, whatever their element type.
        unsafe { (&raw mut raw).cast::<[u8; 64]>().write(handle.0) };
        let flags = cuda_sys::CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS.0;
        // SAFETY: the call writes one address, to an exclusive borrow; a live context is current.
        let address = asked("cuIpcOpenMemHandle", 0, |address| unsafe {
            cu::cuIpcOpenMemHandle_v2(address, raw, flags)
        })?;
        drop(relaxed);
        let room = room_behind(address);
        drop(entered);
        // On errors, dropping it closes the memory.
        let opened = owned(context, address, bytes, Opened(context.clone()), len);
        match room? {
            room if room >= bytes => Ok(opened),
            room => {
                let there = counted(room / size_of::<T>(), "element", "elements");
                let why = format!("{len} elements were asked for, and the memory has {there}");
                Err(Error::invalid("cuIpcOpenMemHandle", why))
            }
        }
    }
}

/// Returns the number of bytes from `address` to the end of its allocation. The caller has made the
/// allocation's context current.
fn room_behind(address: CUdeviceptr) -> Result<usize> {
    // SAFETY: the call writes an address and a size, to exclusive borrows; an address that the driver
    // does not know is an error.
    let (base, size) = asked("cuMemGetAddressRange", (0, 0), |(base, size)| unsafe {
        cu::cuMemGetAddressRange_v2(base, size, address)
    })?;
    Ok(size.saturating_sub((address - base) as usize))
}
