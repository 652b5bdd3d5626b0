//! Many copies in one driver call.

use std::fmt;

use cuda_sys::{CUdeviceptr, CUresult, CUstream, symbol as cu};

use crate::context::Context;
use crate::copy::endpoint::{Endpoint, Place};
use crate::copy::{at_one_end, between, crossing_of};
use crate::device::Device;
use crate::error::Result;
use crate::host::pinned::{PinnedSlice, PinnedSliceMut};
use crate::memory::device::{DeviceSlice, DeviceSliceMut};
use crate::memory::same_len;
use crate::memory::view::{Slice, SliceMut};
use crate::peer::Crossing;
use crate::stream::{Stream, StreamKind};
use crate::timeline::Flavor;
use crate::timeline::ledger::{Access, LedgerOf, Touch};
use crate::types::pod::Pod;

/// Copies that are enqueued together: `cuMemcpyBatchAsync`, one driver call for all of them (and a
/// context switch around it) if driver and header are of CUDA 12.8 or newer; otherwise one call for
/// each.
///
/// They run in any order. That cannot be observed: a batch borrows all that it reads and writes, so
/// no copy in it depends on another. Copies between two devices, and those on a default stream, are
/// enqueued one by one.
///
/// ```no_run
/// # let stream = cuda_core::Device::get(0)?.create_stream()?;
/// use cuda_core::{Batch, PinnedBuffer};
///
/// let host = PinnedBuffer::from_slice(stream.context(), &[1u32; 64])?;
/// let (mut a, mut b) = (stream.alloc::<u32>(32)?, stream.alloc::<u32>(32)?);
/// let mut batch = Batch::new();
/// batch.upload(host.slice(..32)?, &mut a)?;
/// batch.upload(host.slice(32..)?, &mut b)?;
/// stream.enqueue(batch)?;
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[derive(Default)]
#[must_use = "nothing is copied until the batch is enqueued"]
pub struct Batch<'a> {
    copies: Vec<BatchCopy<'a>>,
    // INVARIANT: cover all memory that `copies` read and write.
    touches: Vec<Touch<'a>>,
}

/// One of the copies.
struct BatchCopy<'a> {
    op: &'static str,
    // INVARIANT: both places have `bytes` bytes.
    from: Place,
    to: Place,
    bytes: usize,
    /// The context of the source; [`None`]: host memory.
    source: Option<&'a Context>,
    destination: Option<&'a Context>,
}

impl<'a> Batch<'a> {
    /// A batch of no copies.
    pub fn new() -> Self {
        Self::default()
    }

    /// The number of copies in the batch, without those of no elements.
    pub fn len(&self) -> usize {
        self.copies.len()
    }

    /// Whether there are no copies.
    pub fn is_empty(&self) -> bool {
        self.copies.is_empty()
    }

    /// Adds a copy from pinned memory to a device.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`](crate::Error::LengthMismatch).
    pub fn upload<T: Pod>(
        &mut self,
        source: impl Into<PinnedSlice<'a, T>>,
        destination: impl Into<DeviceSliceMut<'a, T>>,
    ) -> Result<()> {
        self.add("cuMemcpyHtoDAsync", source.into(), destination.into())
    }

    /// Adds a copy from a device to pinned memory.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`](crate::Error::LengthMismatch).
    pub fn download<T: Pod>(
        &mut self,
        source: impl Into<DeviceSlice<'a, T>>,
        destination: impl Into<PinnedSliceMut<'a, T>>,
    ) -> Result<()> {
        self.add("cuMemcpyDtoHAsync", source.into(), destination.into())
    }

    /// Adds a copy of device memory.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`](crate::Error::LengthMismatch).
    pub fn copy<T: Pod>(
        &mut self,
        source: impl Into<DeviceSlice<'a, T>>,
        destination: impl Into<DeviceSliceMut<'a, T>>,
    ) -> Result<()> {
        let (source, destination) = (source.into(), destination.into());
        let op = between(source.on(), destination.as_view().on());
        self.add(op, source, destination)
    }

    fn add<T: Pod, A: Endpoint, B: Endpoint>(
        &mut self,
        op: &'static str,
        source: Slice<'a, T, A>,
        destination: SliceMut<'a, T, B>,
    ) -> Result<()> {
        same_len(op, source.len(), destination.len())?;
        if source.byte_len() == 0 {
            return Ok(());
        }
        // No other view of these elements exists while `'a` lasts.
        let destination = destination.into_view();
        self.touches.push(source.read());
        self.touches.push(Touch {
            ledger: LedgerOf::Shared(destination.ledger()),
            range: destination.range(),
            access: Access::Write,
        });
        self.copies.push(BatchCopy {
            op,
            from: source.place(),
            to: destination.place(),
            bytes: source.byte_len(),
            source: source.owner(),
            destination: destination.owner(),
        });
        Ok(())
    }
}

impl BatchCopy<'_> {
    /// Enqueues the copy by a call of its own.
    fn enqueue(&self, stream: CUstream) -> CUresult {
        let bytes = self.bytes;
        match (self.from, self.to) {
            (Place::Host(from), Place::Device(to)) => {
                // SAFETY: both sides have `bytes` bytes that stay allocated until this copy is done:
                // freeing either waits for the mark that is made of the batch.
                unsafe { cu::cuMemcpyHtoDAsync_v2(to, from.cast(), bytes, stream) }
            }
            (Place::Device(from), Place::Host(to)) => {
                // SAFETY: `add` found both sides equally long; freeing either, or accessing the
                // host's, waits for the mark that is made of the batch.
                unsafe { cu::cuMemcpyDtoHAsync_v2(to.cast(), from, bytes, stream) }
            }
            (Place::Device(from), Place::Device(to)) => match (self.source, self.destination) {
                (Some(of), Some(into)) if of.device() != into.device() => {
                    let (of, into) = (of.as_raw(), into.as_raw());
                    // SAFETY: `add` found both sides equally long; freeing either waits for the
                    // mark that is made of the batch, whose borrows keep both contexts alive.
                    unsafe { cu::cuMemcpyPeerAsync(to, into, from, of, bytes, stream) }
                }
                // SAFETY: `add` found both sides equally long; freeing either waits for the mark
                // that is made of the batch.
                _ => unsafe { cu::cuMemcpyDtoDAsync_v2(to, from, bytes, stream) },
            },
            // SAFETY: all memory is in the one address space; `add` found both sides equally long,
            // and freeing either waits for the mark that is made of the batch.
            (from, to) => unsafe { cu::cuMemcpyAsync(to.unified(), from.unified(), bytes, stream) },
        }
    }

    /// The devices that the source and the destination are on.
    fn devices(&self) -> [Option<Device>; 2] {
        [self.source, self.destination].map(|context| context.map(Context::device))
    }

    fn is_between_devices(&self) -> bool {
        matches!(self.devices(), [Some(near), Some(far)] if near != far)
    }

    fn crossing(&self) -> Option<Crossing> {
        let [source, destination] = self.devices();
        crossing_of(source, destination)
    }
}

impl<K: StreamKind> Stream<K> {
    /// Enqueues the copies of a batch, asynchronously; see [`Batch`].
    ///
    /// # Errors
    /// [`Error::WrongDevice`](crate::Error::WrongDevice), before any driver call, if one of the
    /// copies has no end on the stream's device. After the driver fails, some of the copies may
    /// have been enqueued.
    ///
    /// ```no_run
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// use cuda_core::Batch;
    ///
    /// let sources = [stream.alloc_zeroed::<u32>(100)?, stream.alloc_zeroed(100)?];
    /// let mut both = stream.alloc(200)?;
    /// let (low, high) = both.split_at_mut(100)?;
    /// let mut batch = Batch::new();
    /// batch.copy(&sources[0], low)?;
    /// batch.copy(&sources[1], high)?;
    /// stream.enqueue(batch)?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn enqueue(&self, batch: Batch<'_>) -> Result<()> {
        let Batch { copies, mut touches } = batch;
        let core = self.core();
        for copy in &copies {
            let [source, destination] = copy.devices();
            at_one_end(copy.op, core, source, destination)?;
        }
        let Some(first) = copies.first() else {
            return Ok(());
        };
        let (apart, together): (Vec<_>, Vec<_>) =
            copies.iter().partition(|copy| copy.is_between_devices());
        let mut lists = Lists::of(&together);
        let flavor = core.timeline().flavor();
        let created = matches!(flavor, Flavor::Created | Flavor::Foreign);
        let at_once = created && together.len() > 1;
        let op = if at_once { OP } else { first.op };
        let stream = core.bind(op)?;
        // The driver refuses batches while no context is current, on any stream.
        let _entered = match at_once {
            true => Some(core.context().enter_briefly()?),
            false => None,
        };
        let _crossings: Vec<_> = apart.iter().map(|copy| copy.crossing()).collect();
        // May run twice; so may the copies, none of which reads what another writes.
        let call = |stream| {
            if at_once {
                match lists.enqueue(stream) {
                    cuda_sys::CUDA_SUCCESS => return singly(&apart, stream),
                    // The driver is older than the call, or does not support it on this device.
                    cuda_sys::CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER
                    | cuda_sys::CUDA_ERROR_NOT_SUPPORTED => {}
                    failed => return failed,
                }
            }
            singly(together.iter().chain(&apart), stream)
        };
        stream.submit_copy(op, &mut touches, call).1
    }
}

/// One call for each copy, up to the first that fails.
fn singly<'c, 'a: 'c>(
    copies: impl IntoIterator<Item = &'c &'c BatchCopy<'a>>,
    stream: CUstream,
) -> CUresult {
    let mut codes = copies.into_iter().map(|copy| copy.enqueue(stream));
    let failed = codes.find(|code| *code != cuda_sys::CUDA_SUCCESS);
    failed.unwrap_or(cuda_sys::CUDA_SUCCESS)
}

const OP: &str = "cuMemcpyBatchAsync";

/// The arguments of `cuMemcpyBatchAsync`.
struct Lists {
    to: Vec<CUdeviceptr>,
    from: Vec<CUdeviceptr>,
    bytes: Vec<usize>,
}

impl Lists {
    fn of(copies: &[&BatchCopy<'_>]) -> Self {
        Self {
            to: copies.iter().map(|copy| copy.to.unified()).collect(),
            from: copies.iter().map(|copy| copy.from.unified()).collect(),
            bytes: copies.iter().map(|copy| copy.bytes).collect(),
        }
    }

    /// Calls the newest version of the function that the driver has.
    fn enqueue(&mut self, stream: CUstream) -> CUresult {
        let mut attributes = cuda_sys::CUmemcpyAttributes {
            srcAccessOrder: cuda_sys::CU_MEMCPY_SRC_ACCESS_ORDER_STREAM,
            ..Default::default()
        };
        // The attributes hold from this copy on.
        let mut since = 0;
        let (to, from) = (self.to.as_mut_ptr(), self.from.as_mut_ptr());
        let (bytes, count) = (self.bytes.as_mut_ptr(), self.bytes.len());
        // SAFETY: three lists of `count` entries, one set of attributes with one index; each copy as
        // in `BatchCopy::enqueue`.
        let code = unsafe {
            cu::cuMemcpyBatchAsync_v2(
                to,
                from,
                bytes,
                count,
                &mut attributes,
                &mut since,
                1,
                stream,
            )
        };
        if code != cuda_sys::CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER {
            return code;
        }
        // Drivers for CUDA 12.8 and 12.9 only have the first version.
        let mut failed = 0;
        // SAFETY: as above. The call writes one number, to a local that outlives it.
        unsafe {
            cu::cuMemcpyBatchAsync(
                to,
                from,
                bytes,
                count,
                &mut attributes,
                &mut since,
                1,
                &mut failed,
                stream,
            )
        }
    }
}

impl fmt::Debug for Batch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Batch of {} copies", self.len())
    }
}
