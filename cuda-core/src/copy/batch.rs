//! Many copies in one driver call.

use std::cell::Cell;

use cuda_sys::{CUresult, CUstream, symbol as cu};

use crate::context::Context;
use crate::copy::{LinearCopy, at_one_end, cross, ends, enter_if_captured};
use crate::error::{Error, Result};
use crate::host::{PinnedSlice, PinnedSliceMut};
use crate::memory::{DeviceSlice, DeviceSliceMut, IntoView, Memory, Slice, SliceMut, same_len};
use crate::stream::{Stream, StreamKind};
use crate::timeline::Flavor;
use crate::timeline::ledger::{Access, Touch};
use crate::timeline::recording::{CopiesBetween, CopyEnd, Notes};
use crate::types::Pod;
use crate::util::debug_by;

/// Copies that are enqueued together: `cuMemcpyBatchAsync`, one driver call for all of them (and a
/// context switch around it) if the driver supports CUDA 12.8 or newer; otherwise one call for each.
///
/// The copies run in any order. This cannot be observed: a batch borrows all that it reads and writes,
/// so no copy in it depends on another. Copies between two devices, on a default stream, or in a
/// capture are enqueued one by one.
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

/// A copy of the batch, and the contexts of its ends; [`None`] for host memory.
struct BatchCopy<'a> {
    // INVARIANT: both places have `bytes` bytes, which `touches` of the batch cover.
    copy: LinearCopy,
    owners: [Option<&'a Context>; 2],
    /// The ends, if they are on two devices.
    ends: Option<[CopyEnd<'a>; 2]>,
}

impl<'a> Batch<'a> {
    /// Creates an empty batch.
    pub fn new() -> Self {
        Self::default()
    }

    /// The number of copies in the batch; copies of no elements are not counted.
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
    /// [`Error::LengthMismatch`].
    #[doc(alias("cuMemcpyHtoDAsync", "cudaMemcpyAsync"))]
    pub fn upload<T: Pod>(
        &mut self,
        source: impl IntoView<PinnedSlice<'a, T>>,
        destination: impl IntoView<DeviceSliceMut<'a, T>>,
    ) -> Result<()> {
        self.add(source.into(), destination.into())
    }

    /// Adds a copy from a device to pinned memory.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`].
    ///
    /// ```no_run
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// use cuda_core::{Batch, PinnedBuffer};
    ///
    /// let (a, b) = (stream.alloc_zeroed::<f32>(100)?, stream.alloc_zeroed::<f32>(50)?);
    /// let mut host = PinnedBuffer::new(stream.context(), 150)?;
    /// let (first, second) = host.split_at_mut(100)?;
    /// let mut batch = Batch::new();
    /// batch.download(&a, first)?;
    /// batch.download(&b, second)?;
    /// stream.enqueue(batch)?;
    /// assert_eq!(host.as_slice()?, [0.0; 150]); // waits
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuMemcpyDtoHAsync", "cudaMemcpyAsync"))]
    pub fn download<T: Pod>(
        &mut self,
        source: impl IntoView<DeviceSlice<'a, T>>,
        destination: impl IntoView<PinnedSliceMut<'a, T>>,
    ) -> Result<()> {
        self.add(source.into(), destination.into())
    }

    /// Adds a copy of device memory.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`].
    #[doc(alias("cuMemcpyDtoDAsync", "cudaMemcpyAsync"))]
    pub fn copy<T: Pod>(
        &mut self,
        source: impl IntoView<DeviceSlice<'a, T>>,
        destination: impl IntoView<DeviceSliceMut<'a, T>>,
    ) -> Result<()> {
        self.add(source.into(), destination.into())
    }

    fn add<T: Pod, A: Memory, B: Memory>(
        &mut self,
        source: Slice<'a, T, A>,
        destination: SliceMut<'a, T, B>,
    ) -> Result<()> {
        // `destination` is exclusive, so no other view of these elements exists during `'a`.
        let destination = destination.into_view();
        let owners = [source.owner(), destination.owner()];
        let copy = LinearCopy::of((&source, owners[0]), (&destination, owners[1]));
        same_len(copy.op(), source.len(), destination.len())?;
        if source.byte_len() == 0 {
            return Ok(());
        }
        self.touches.push(source.read());
        self.touches.push(Touch { access: Access::Write, ..destination.read() });
        let crosses = matches!(owners, [Some(near), Some(far)] if near.device() != far.device());
        let ends = || ends((&source, owners[0]), (&destination, owners[1]));
        let ends = if crosses { ends() } else { None };
        self.copies.push(BatchCopy { copy, owners, ends });
        Ok(())
    }
}

/// # Many copies at once
impl<K: StreamKind> Stream<K> {
    /// Enqueues the copies of a batch, asynchronously; see [`Batch`].
    ///
    /// # Errors
    /// [`Error::WrongDevice`], before any driver call, if one of the copies has no end on the stream's
    /// device; in a capture also those of [`Stream::copy`]. If the driver fails, some of the copies may
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
    #[doc(alias("cuMemcpyBatchAsync", "cudaMemcpyBatchAsync"))]
    pub fn enqueue(&self, batch: Batch<'_>) -> Result<()> {
        let Batch { mut copies, mut touches } = batch;
        let core = self.core();
        copies.iter_mut().for_each(|copy| copy.copy = copy.copy.on(core));
        for copy in &copies {
            at_one_end(copy.copy.op(), core, copy.owners)?;
        }
        let Some(first) = copies.first() else { return Ok(()) };
        let (apart, together): (Vec<_>, Vec<_>) =
            copies.iter().partition(|copy| copy.ends.is_some());
        let flavor = core.timeline().flavor();
        let created = matches!(flavor, Flavor::Created | Flavor::Foreign);
        let at_once = created && together.len() > 1;
        let op = if at_once { OP } else { first.copy.op() };
        let stream = core.bind_work(op)?;
        // The driver refuses a batch on any stream if no context is current.
        let _entered = match at_once {
            true => Some(core.context().enter_briefly()?),
            false => enter_if_captured(core)?,
        };
        let _crossings: Vec<_> = apart.iter().map(|copy| cross(copy.owners)).collect();
        let captured = |copy: &&BatchCopy<'_>| {
            let ends = copy.ends.filter(|_| core.timeline().recording().is_some());
            ends.map(|ends| CopiesBetween::captured(copy.copy.op(), core.context(), ends))
        };
        let copies = apart.iter().filter_map(captured).collect::<Result<Vec<_>>>()?;
        let notes = || Notes { copies, ..Notes::default() };
        let called = Cell::new(op);
        // May run twice, and so may the copies: none of them reads what another writes.
        let call = |stream| {
            called.set(op);
            if at_once {
                match together_at_once(&together, stream) {
                    cuda_sys::CUDA_SUCCESS => return singly(&apart, stream, &called),
                    // The driver lacks the call, or does not support it on this device.
                    cuda_sys::CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER
                    | cuda_sys::CUDA_ERROR_NOT_SUPPORTED => {}
                    failed => return failed,
                }
            }
            singly(together.iter().chain(&apart), stream, &called)
        };
        let (_, enqueued) = stream.submit_copy(op, &mut touches, notes, call);
        enqueued.map_err(|error| match error {
            Error::Driver { op: of, code } if of == op => Error::Driver { op: called.get(), code },
            other => other,
        })
    }
}

/// Makes one call for each copy, up to the first that fails. Sets `called` to the last call.
fn singly<'c>(
    copies: impl IntoIterator<Item = &'c &'c BatchCopy<'c>>,
    stream: CUstream,
    called: &Cell<&'static str>,
) -> CUresult {
    let mut codes = copies.into_iter().map(|copy| {
        called.set(copy.copy.op());
        // SAFETY: both places have `bytes` bytes, by the invariant. Freeing either, or accessing the
        // host's, waits for the mark that follows the batch. The batch's borrows keep both contexts
        // alive.
        unsafe { copy.copy.enqueue(stream) }
    });
    let failed = codes.find(|code| *code != cuda_sys::CUDA_SUCCESS);
    failed.unwrap_or(cuda_sys::CUDA_SUCCESS)
}

const OP: &str = "cuMemcpyBatchAsync";

/// Enqueues these copies by one call, by the newest version of the function that the driver has.
fn together_at_once(copies: &[&BatchCopy<'_>], stream: CUstream) -> CUresult {
    let mut to: Vec<_> = copies.iter().map(|copy| copy.copy.to.unified()).collect();
    let mut from: Vec<_> = copies.iter().map(|copy| copy.copy.from.unified()).collect();
    let mut bytes: Vec<_> = copies.iter().map(|copy| copy.copy.bytes).collect();
    let mut attributes = cuda_sys::CUmemcpyAttributes {
        srcAccessOrder: cuda_sys::CU_MEMCPY_SRC_ACCESS_ORDER_STREAM,
        ..Default::default()
    };
    // The index of the first copy that the attributes apply to.
    let mut since = 0;
    let (to, from) = (to.as_mut_ptr(), from.as_mut_ptr());
    let (bytes, count) = (bytes.as_mut_ptr(), bytes.len());
    // SAFETY: three lists of `count` entries, one set of attributes with one index; for each copy the
    // argument of `singly` holds.
    let code = unsafe {
        cu::cuMemcpyBatchAsync_v2(to, from, bytes, count, &mut attributes, &mut since, 1, stream)
    };
    if code != cuda_sys::CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER {
        return code;
    }
    // Drivers for CUDA 12.8 and 12.9 only have the first version.
    let mut failed = 0;
    // SAFETY: as above. The call also writes one number, to a local that outlives it.
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

debug_by! { [] Batch<'_>: |it| "Batch of {} copies", it.len() }
