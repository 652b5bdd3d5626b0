//! Device memory, and its stream-ordered allocation.

use std::fmt;

use cuda_sys::{CUdeviceptr, symbol as cu};

use crate::context::Context;
use crate::device::Device;
use crate::drops::Resource;
use crate::error::{Error, Result};
use crate::memory::buffer::Buffer;
use crate::memory::ledger::{Access, Fences, Ledger};
use crate::memory::origin::Origin;
use crate::memory::pod::Pod;
use crate::memory::view::{Slice, SliceMut};
use crate::memory::{self, Block, Storage, byte_len, explain};
use crate::stream::Stream;
use crate::stream_core::StreamCore;

/// Memory of a device.
#[derive(Debug)]
pub enum DeviceMemory {}

/// A shared view of a [`DeviceBuffer`].
pub type DeviceSlice<'a, T> = Slice<'a, T, DeviceMemory>;

/// An exclusive view of a [`DeviceBuffer`].
pub type DeviceSliceMut<'a, T> = SliceMut<'a, T, DeviceMemory>;

/// Alignment of every allocation: "aligned to at least 256 bytes".
pub(crate) const ALIGNMENT: usize = 256;

/// Where empty buffers are: nowhere in particular, but aligned and not null.
pub(crate) const NOWHERE: CUdeviceptr = ALIGNMENT as CUdeviceptr;

impl memory::Kind for DeviceMemory {
    type Address = CUdeviceptr;
    type Keeper = Origin;

    const RESOURCE: Resource = Resource::DeviceMemory;

    fn free(block: &mut Block<Self>) -> Result<()> {
        let range = block.whole();
        let mut fences = Fences::none();
        match &mut block.keeper {
            Origin::Home(home) => {
                block.ledger.conflicts_exclusive(
                    &range,
                    Access::Write,
                    Some(home.timeline()),
                    &mut fences,
                );
                free_in_order(home, block.address, &fences)
            }
            Origin::Owned { owner, .. } => {
                block
                    .ledger
                    .conflicts_exclusive(&range, Access::Write, None, &mut fences);
                fences.wait_host()?;
                owner.release(block.address, block.bytes)
            }
        }
    }

    fn number(address: CUdeviceptr) -> u64 {
        address
    }
}

/// `cuMemFreeAsync` on the stream that the block was allocated on, behind everybody else's work.
fn free_in_order(home: &StreamCore, address: CUdeviceptr, fences: &Fences) -> Result<()> {
    let bound = home.bind()?;
    if fences.wait_on(&bound).is_err() {
        // The stream could not be made to wait, so the host does.
        fences.wait_host()?;
    }
    let (_, freed) = bound.enqueue("cuMemFreeAsync", |stream| {
        // SAFETY: the block was allocated by cuMemAllocAsync and is freed once; all other work on
        // it comes before this point of the stream.
        unsafe { cu::cuMemFreeAsync(address, stream) }
    });
    freed
}

/// Elements on a device. Any stream of the device may use them; who must wait for whom is sorted out
/// without the caller.
///
/// [`Stream::alloc`] allocates in the order of a stream, which is the buffer's *home*: allocation and
/// free happen in its order, and the buffer keeps it alive. Dropping it frees the memory behind all
/// work that uses it, without waiting. [`Stream::alloc_from`] does so from a pool of one's own.
///
/// Memory that belongs to no stream comes from [`Context::alloc`], from somebody else
/// ([`DeviceBuffer::from_raw`]) or from another process ([`DeviceBuffer::open_ipc`]). Dropping such a
/// buffer waits with the host for the work that uses it.
///
/// ```no_run
/// use cuda_core::Device;
///
/// let stream = Device::get(0)?.create_stream()?;
/// let mut buffer = stream.alloc::<u32>(1024)?;
/// stream.upload_from(&[7; 1024], &mut buffer)?;
/// let mut back = [0; 1024];
/// stream.download_to(&buffer, &mut back)?;
/// assert_eq!(back, [7; 1024]);
/// # Ok::<(), cuda_core::Error>(())
/// ```
pub type DeviceBuffer<T> = Buffer<T, DeviceMemory>;

impl Stream {
    /// `len` elements of unspecified value: `cuMemAllocAsync`, one driver call, none if `len` is
    /// zero.
    ///
    /// # Errors
    /// [`Error::SizeOverflow`] and [`Error::OverAligned`] before the driver is asked;
    /// [`Error::Unsupported`] on a device without memory pools; [`Error::OutOfMemory`].
    pub fn alloc<T: Pod>(&self, len: usize) -> Result<DeviceBuffer<T>> {
        let op = "cuMemAllocAsync";
        let bytes = byte_len::<T>(len, ALIGNMENT)?;
        let mut address = NOWHERE;
        let core = self.core();
        let mut ledger = Ledger::default();
        if bytes > 0 {
            let bound = core.bind()?;
            if self.device().default_pool()?.is_none() {
                return Err(Error::Unsupported {
                    feature: "stream-ordered allocation (memory pools)",
                    device: self.device().ordinal(),
                });
            }
            let (seq, result) = bound.enqueue(op, |stream| {
                // SAFETY: the pointer is valid for a write; the stream is live.
                unsafe { cu::cuMemAllocAsync(&mut address, bytes, stream) }
            });
            drop(bound);
            result.map_err(|error| explain(self.context(), error, op, bytes))?;
            // Another stream may touch the memory only when the allocation has happened.
            ledger = Ledger::allocated(0..bytes, core.timeline(), seq);
        }
        let keeper = Origin::Home(core.clone());
        let block = Block {
            address,
            bytes,
            ledger,
            keeper,
        };
        Ok(Buffer::from_storage(Storage::new(block), len))
    }

    /// `len` elements whose bytes are all zero: `cuMemAllocAsync`, `cuMemsetD8Async`.
    ///
    /// # Errors
    /// As [`Stream::alloc`].
    pub fn alloc_zeroed<T: Pod>(&self, len: usize) -> Result<DeviceBuffer<T>> {
        let mut buffer = self.alloc(len)?;
        self.fill_bytes(&mut buffer, 0)?;
        Ok(buffer)
    }
}

impl<T: Pod> DeviceBuffer<T> {
    /// The context that the memory belongs to.
    pub fn context(&self) -> &Context {
        self.storage.block().keeper.context()
    }

    /// The device that the memory is on.
    pub fn device(&self) -> Device {
        self.storage.block().keeper.device()
    }

    /// The device's address of the first element, valid while `self` lives; not null, but otherwise
    /// meaningless for an empty buffer.
    ///
    /// Work that is given the address is unknown to the buffer: see [`Buffer::note_use`].
    pub fn as_raw(&self) -> CUdeviceptr {
        self.storage.block().address
    }
}

impl<'a, T: Pod> DeviceSlice<'a, T> {
    /// The device's address of the first element.
    pub fn as_raw(&self) -> CUdeviceptr {
        self.block().address + self.range().start as CUdeviceptr
    }

    /// The device that the memory is on.
    pub fn device(&self) -> Device {
        self.block().keeper.device()
    }

    pub(crate) fn context(&self) -> &'a Context {
        self.block().keeper.context()
    }
}

impl<T: Pod> DeviceSliceMut<'_, T> {
    /// The device's address of the first element.
    pub fn as_raw(&self) -> CUdeviceptr {
        self.as_view().as_raw()
    }
}

impl<T: Pod> fmt::Debug for DeviceBuffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceBuffer")
            .field("address", &format_args!("{:#x}", self.as_raw()))
            .field("len", &self.len())
            .field("device", &self.device())
            .finish()
    }
}
