//! Fills of device memory with a value of any width.
//!
//! The driver repeats patterns of 1, 2 and 4 bytes. A value of another width is written in two steps.
//! Memsets write the first elements part by part, in rows as far apart as the elements are. Copies then
//! write the other elements; each copies all elements written so far. A copy runs at the memory's
//! bandwidth, and the number of copies grows with the logarithm of the length; a memset of such rows
//! writes a few bytes of each row, which is slow for many rows.

use cuda_sys::{
    CU_MEMORYTYPE_DEVICE, CUDA_MEMCPY2D, CUDA_MEMSET_NODE_PARAMS, CUDA_SUCCESS, CUdeviceptr,
    CUresult, CUstream, symbol as cu,
};

use crate::copy::{Geometry, PitchedMut, at_home, enter_if_captured};
use crate::error::Result;
use crate::memory::{DeviceMemory, DeviceSliceMut, IntoView};
use crate::stream::{Stream, StreamKind};
use crate::types::{Pod, bytes_of};

/// A pattern that `cuMemset` can repeat.
#[derive(Clone, Copy)]
struct Pattern {
    /// The pattern's bytes, as a number.
    value: u32,
    // INVARIANT: 1, 2 or 4.
    width: usize,
}

impl Pattern {
    /// Returns the name of the call that fills one row, and of the call that fills several.
    fn ops(self) -> (&'static str, &'static str) {
        match self.width {
            1 => ("cuMemsetD8Async", "cuMemsetD2D8Async"),
            2 => ("cuMemsetD16Async", "cuMemsetD2D16Async"),
            _ => ("cuMemsetD32Async", "cuMemsetD2D32Async"),
        }
    }

    /// Makes a pattern of the first `width` bytes: 1, 2 or 4.
    #[inline]
    fn of(bytes: &[u8], width: usize) -> Self {
        let value = match bytes[..width] {
            [a, b, c, d] => u32::from_ne_bytes([a, b, c, d]),
            [a, b] => u16::from_ne_bytes([a, b]).into(),
            _ => bytes[0].into(),
        };
        Self { value, width }
    }

    /// Enqueues the fill of `count` elements of this width.
    ///
    /// # Safety
    /// The elements are at `to`, aligned to their width, and stay allocated until the fill is done.
    #[inline]
    unsafe fn fill(self, to: CUdeviceptr, count: usize, stream: CUstream) -> CUresult {
        let value = self.value;
        match self.width {
            // SAFETY: the caller promises that there are `count` bytes, until the fill is done.
            1 => unsafe { cu::cuMemsetD8Async(to, value as u8, count, stream) },
            // SAFETY: the caller promises that there are `count` elements of two bytes, aligned to two
            // bytes, until the fill is done.
            2 => unsafe { cu::cuMemsetD16Async(to, value as u16, count, stream) },
            // SAFETY: the caller promises that there are `count` elements of four bytes, aligned to
            // four bytes, until the fill is done.
            _ => unsafe { cu::cuMemsetD32Async(to, value, count, stream) },
        }
    }

    /// Enqueues the fill of the first `n` elements of each of `rows` rows.
    ///
    /// # Safety
    /// The rows are `pitch` bytes apart, the first at `to`, all aligned to the width of an element,
    /// and stay allocated until the fill is done.
    unsafe fn fill_rows(
        self,
        (to, pitch): (CUdeviceptr, usize),
        (n, rows): (usize, usize),
        stream: CUstream,
    ) -> CUresult {
        let v = self.value;
        match self.width {
            // SAFETY: the caller promises that there are these rows of `n` bytes, until the fill is
            // done.
            1 => unsafe { cu::cuMemsetD2D8Async(to, pitch, v as u8, n, rows, stream) },
            // SAFETY: the caller promises that there are these rows of `n` elements of two bytes,
            // aligned to two bytes, until the fill is done.
            2 => unsafe { cu::cuMemsetD2D16Async(to, pitch, v as u16, n, rows, stream) },
            // SAFETY: the caller promises that there are these rows of `n` elements of four bytes,
            // aligned to four bytes, until the fill is done.
            _ => unsafe { cu::cuMemsetD2D32Async(to, pitch, v, n, rows, stream) },
        }
    }
}

/// The bytes of a value, and the width of the patterns that write them.
#[derive(Clone, Copy)]
struct FillValue<'a> {
    // INVARIANT: not empty, and a multiple of `width`.
    bytes: &'a [u8],
    // INVARIANT: 1, 2 or 4.
    width: usize,
}

/// The number of elements that memsets write; the others are copies of them. Lower under Miri, which is
/// slow with many rows.
const SEED: usize = if cfg!(miri) { 16 } else { 512 };

impl<'a> FillValue<'a> {
    /// Prepares `bytes` to be repeated from address `at` on; for rows, `at` is the bitwise OR of the
    /// first address and the pitch. The patterns are as wide as the alignment of `at` and of the size
    /// allows.
    #[inline]
    fn of(bytes: &'a [u8], at: u64) -> Self {
        let width = match bytes.len() as u64 | at {
            both if both & 3 == 0 => 4,
            both if both & 1 == 0 => 2,
            _ => 1,
        };
        Self { bytes, width }
    }

    /// Returns the one pattern that this value repeats, if any. Of the values of more than four bytes
    /// only some have one, such as zero.
    #[inline]
    fn pattern(self) -> Option<Pattern> {
        let (first, rest) = self.bytes.split_at(self.width);
        let repeats = rest.chunks_exact(self.width).all(|part| part == first);
        repeats.then(|| Pattern::of(first, self.width))
    }

    /// Returns the first call of a fill that needs several, as errors name it.
    fn op(self) -> &'static str {
        Pattern::of(self.bytes, self.width).ops().1
    }

    /// Enqueues the fill of `len` elements: a memset for each run of equal patterns in the value, then
    /// copies. Stops at the first failed call.
    ///
    /// # Safety
    /// The elements are at `to`, a multiple of the patterns' width, and stay allocated until the fill
    /// is done.
    unsafe fn fill(self, to: CUdeviceptr, len: usize, stream: CUstream) -> Result<(), CUresult> {
        let size = self.bytes.len();
        let address = |element: usize| to + (element * size) as u64;
        let mut done = len.min(SEED);
        let mut offset = 0;
        let units = self.bytes.chunks_exact(self.width).collect::<Vec<_>>();
        for run in units.chunk_by(PartialEq::eq) {
            let pattern = Pattern::of(run[0], self.width);
            // SAFETY: these patterns of the first `done` elements are `size` bytes apart, aligned to
            // their width since `to` and `size` are; they stay allocated by the caller's promise.
            ok(unsafe { pattern.fill_rows((to + offset, size), (run.len(), done), stream) })?;
            offset += (run.len() * self.width) as u64;
        }
        while done < len {
            let more = done.min(len - done);
            // SAFETY: the elements up to `done`, and the `more` after them, are among the `len`
            // elements, which stay allocated by the caller's promise. They do not overlap, as `more` is
            // at most `done`.
            ok(unsafe { cu::cuMemcpyDtoDAsync_v2(address(done), to, more * size, stream) })?;
            done += more;
        }
        Ok(())
    }

    /// Enqueues the fill of rows: fills the first row, copies all rows written so far to the next rows
    /// of the first plane, and copies the first plane to each other plane. Stops at the first failed
    /// call.
    ///
    /// # Safety
    /// The rows are at `to`, a multiple of the patterns' width, laid out by `geometry`, which has at
    /// least one element; they stay allocated until the fill is done.
    unsafe fn fill_rows(
        self,
        to: CUdeviceptr,
        geometry: Geometry,
        stream: CUstream,
    ) -> Result<(), CUresult> {
        let Geometry { row, pitch, .. } = geometry;
        // SAFETY: the first row has this many elements, and stays allocated by the caller's promise.
        unsafe { self.fill(to, row / self.bytes.len(), stream) }?;
        for (plane, rows) in geometry.planes() {
            let (mut done, whole) = if plane == 0 { (1, 1) } else { (0, rows) };
            while done < rows {
                let more = whole.max(done).min(rows - done);
                let copy = CUDA_MEMCPY2D {
                    srcMemoryType: CU_MEMORYTYPE_DEVICE,
                    srcDevice: to,
                    srcPitch: pitch,
                    dstMemoryType: CU_MEMORYTYPE_DEVICE,
                    dstDevice: to + (plane + done * pitch) as u64,
                    dstPitch: pitch,
                    WidthInBytes: row,
                    Height: more,
                    ..Default::default()
                };
                // SAFETY: both sides have `more` rows, which stay allocated by the caller's promise:
                // the source rows are the first plane's up to `done`, or all of them; the destination
                // rows are not written yet.
                ok(unsafe { cu::cuMemcpy2DAsync_v2(&copy, stream) })?;
                done += more;
            }
        }
        Ok(())
    }
}

/// # Fills
impl<K: StreamKind> Stream<K> {
    /// Sets every element to `value`, asynchronously: `cuMemsetD8Async`, `cuMemsetD16Async` or
    /// `cuMemsetD32Async`, one call for a value of 1, 2 or 4 bytes at a multiple of its size, and for one
    /// that repeats such a pattern, as zero does.
    ///
    /// Any other value, such as `1.0f64` or `[1.0f32, 2.0, 3.0]`, takes a `cuMemsetD2D32Async` for each
    /// run of equal 4-byte parts in it (`D2D16`, `D2D8`, for shorter parts, if its size or address is no
    /// multiple of 4), and a `cuMemcpyDtoDAsync_v2` for each doubling of the length beyond 512 elements:
    /// 13 calls for a million `f64`.
    ///
    /// # Errors
    /// [`Error::WrongDevice`](crate::Error::WrongDevice).
    ///
    /// ```no_run
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// let mut buffer = stream.alloc::<f32>(1000)?;
    /// stream.fill(&mut buffer, 1.5)?;
    /// let mut colours = stream.alloc::<[f32; 3]>(1000)?;
    /// stream.fill(&mut colours, [1.0, 0.5, 0.0])?;
    /// stream.fill(colours.as_view_mut().cast::<u32>()?, 0x7fc0_0000)?; // a pattern of another type
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuMemsetD8Async", "cuMemsetD16Async", "cuMemsetD32Async", "cudaMemsetAsync"))]
    #[doc(alias("memset_zeros"))]
    pub fn fill<'b, T: Pod>(
        &self,
        destination: impl IntoView<DeviceSliceMut<'b, T>>,
        value: T,
    ) -> Result<()> {
        let destination = destination.into();
        if destination.byte_len() == 0 {
            // `fill_bytes` makes the checks of every fill.
            return self.fill_bytes(destination, 0);
        }
        let value = [value];
        let value = FillValue::of(bytes_of(&value), destination.as_raw());
        match value.pattern() {
            Some(pattern) => self.fill_with(destination, pattern),
            None => self.fill_wide(destination, value),
        }
    }

    /// Sets every byte to `value`, asynchronously: `cuMemsetD8Async`.
    ///
    /// # Errors
    /// [`Error::WrongDevice`](crate::Error::WrongDevice).
    ///
    /// ```no_run
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// let mut buffer = stream.alloc::<f64>(1000)?;
    /// stream.fill_bytes(&mut buffer, 0xff)?; // NaN, all of them
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuMemsetD8Async", "cudaMemset", "cudaMemsetAsync"))]
    pub fn fill_bytes<'b, T: Pod>(
        &self,
        destination: impl IntoView<DeviceSliceMut<'b, T>>,
        value: u8,
    ) -> Result<()> {
        self.fill_with(destination.into(), Pattern::of(&[value], 1))
    }

    /// Sets every element in rows to `value`, asynchronously: `cuMemsetD2D8Async`, `cuMemsetD2D16Async`
    /// or `cuMemsetD2D32Async`, once for each slice if there are gaps between slices. The gaps between
    /// rows are not written.
    ///
    /// If [`Stream::fill`] needs several calls for the value, these calls write only the first row. A
    /// `cuMemcpy2DAsync_v2` for each doubling of the number of rows writes the others.
    ///
    /// # Errors
    /// [`Error::WrongDevice`](crate::Error::WrongDevice).
    ///
    /// ```no_run
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// let mut image = stream.context().alloc_pitched::<f32>(640, 480)?;
    /// stream.fill_pitched(image.pitched_mut()?, 0.5)?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuMemsetD2D8Async", "cuMemsetD2D16Async", "cuMemsetD2D32Async"))]
    #[doc(alias("cudaMemset2DAsync"))]
    pub fn fill_pitched<T: Pod>(
        &self,
        mut destination: PitchedMut<'_, T, DeviceMemory>,
        value: T,
    ) -> Result<()> {
        let (bytes, geometry) = destination.parts();
        let core = self.core();
        let address = bytes.as_raw();
        if geometry.span == 0 {
            return at_home("cuMemsetD2D8Async", core, &bytes.as_view());
        }
        let value = [value];
        // A pattern is repeated in each row separately, so rows must begin at multiples of its width.
        let value = FillValue::of(bytes_of(&value), address | geometry.pitch as u64);
        let pattern = value.pattern();
        let op = value.op();
        at_home(op, core, &bytes.as_view())?;
        let stream = core.bind_work(op)?;
        let _entered = enter_if_captured(core)?;
        let call = |stream| {
            let filled = match pattern {
                // SAFETY: the destination has these rows, aligned to the value's patterns, and stays
                // allocated until the completion of the mark that follows this fill.
                None => unsafe { value.fill_rows(address, geometry, stream) },
                Some(pattern) => geometry.planes().try_for_each(|(start, rows)| {
                    let to = (address + start as u64, geometry.pitch);
                    // SAFETY: the destination has these rows, each of this many elements of this width
                    // and aligned to it, and stays allocated until the completion of the mark that
                    // follows this fill.
                    ok(unsafe { pattern.fill_rows(to, (geometry.row / value.width, rows), stream) })
                }),
            };
            filled.err().unwrap_or(CUDA_SUCCESS)
        };
        stream.submit_copy(op, &mut [bytes.write()], Default::default, call).1
    }

    fn fill_with<T: Pod>(
        &self,
        destination: DeviceSliceMut<'_, T>,
        pattern: Pattern,
    ) -> Result<()> {
        let (address, count) = (destination.as_raw(), destination.byte_len() / pattern.width);
        // SAFETY: the destination has `count` elements of this width, aligned to it, and stays
        // allocated until the completion of the mark that follows this fill.
        let call = |stream| unsafe { pattern.fill(address, count, stream) };
        self.submit_fill(pattern.ops().0, destination, call)
    }

    /// Enqueues a fill of several calls as one operation, with one mark in the ledger.
    #[cold]
    fn fill_wide<T: Pod>(&self, to: DeviceSliceMut<'_, T>, value: FillValue<'_>) -> Result<()> {
        let (address, len) = (to.as_raw(), to.len());
        // SAFETY: the destination has `len` elements of the value's size, aligned to its patterns, and
        // stays allocated until the completion of the mark that follows this fill.
        let call =
            |stream| unsafe { value.fill(address, len, stream) }.err().unwrap_or(CUDA_SUCCESS);
        // The fill copies what it has filled.
        let _entered = enter_if_captured(self.core())?;
        self.submit_fill(value.op(), to, call)
    }

    #[inline]
    fn submit_fill<T: Pod>(
        &self,
        op: &'static str,
        mut destination: DeviceSliceMut<'_, T>,
        call: impl FnMut(CUstream) -> CUresult,
    ) -> Result<()> {
        let core = self.core();
        at_home(op, core, &destination.as_view())?;
        if destination.byte_len() == 0 {
            return Ok(());
        }
        let stream = core.bind_work(op)?;
        stream.submit_copy(op, &mut [destination.write()], Default::default, call).1
    }
}

/// Converts a code to a result: an error unless it is `CUDA_SUCCESS`.
fn ok(code: CUresult) -> Result<(), CUresult> {
    if code == CUDA_SUCCESS { Ok(()) } else { Err(code) }
}

/// Returns the parameters of a graph node that fills `rows` rows of `row` bytes, which begin `pitch`
/// bytes apart; [`None`] for a value that needs several nodes.
pub(crate) fn fill_node<T: Pod>(
    to: CUdeviceptr,
    (row, pitch, rows): (usize, usize, usize),
    value: T,
) -> Option<CUDA_MEMSET_NODE_PARAMS> {
    let value = [value];
    let Pattern { value, width } = FillValue::of(bytes_of(&value), to | pitch as u64).pattern()?;
    Some(CUDA_MEMSET_NODE_PARAMS {
        dst: to,
        pitch,
        value,
        elementSize: width as u32,
        width: row / width,
        height: rows,
    })
}
