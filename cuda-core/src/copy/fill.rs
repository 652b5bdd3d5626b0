//! Fills: a pattern of 1, 2 or 4 bytes over device memory.

use cuda_sys::{CUdeviceptr, CUresult, CUstream, symbol as cu};

use crate::copy::at_home;
use crate::copy::pitched::PitchedMut;
use crate::error::{Error, Result};
use crate::memory::device::{DeviceMemory, DeviceSliceMut};
use crate::stream::{Stream, StreamKind};
use crate::types::pod::{Pod, bytes_of};

/// A pattern that `cuMemset` can repeat.
#[derive(Clone, Copy)]
enum Pattern {
    D8(u8),
    D16(u16),
    D32(u32),
}

impl Pattern {
    /// Its bytes, the call that fills a row, and the call that fills several.
    fn parts(self) -> (usize, &'static str, &'static str) {
        match self {
            Self::D8(_) => (1, "cuMemsetD8Async", "cuMemsetD2D8Async"),
            Self::D16(_) => (2, "cuMemsetD16Async", "cuMemsetD2D16Async"),
            Self::D32(_) => (4, "cuMemsetD32Async", "cuMemsetD2D32Async"),
        }
    }

    /// The pattern whose repetition gives `bytes`, a value of the element type.
    fn of(bytes: &[u8]) -> Option<Self> {
        let repeats = |width: usize| bytes.chunks(width).all(|chunk| chunk == &bytes[..width]);
        match *bytes {
            // A value of more than four bytes only if it repeats a narrower pattern, as zero does.
            [a, b, c, d, ..] if bytes.len() % 4 == 0 && repeats(4) => {
                Some(Self::D32(u32::from_ne_bytes([a, b, c, d])))
            }
            [a, b, ..] if bytes.len() % 2 == 0 && repeats(2) => {
                Some(Self::D16(u16::from_ne_bytes([a, b])))
            }
            [a, ..] if repeats(1) => Some(Self::D8(a)),
            _ => None,
        }
    }

    /// Refuses rows that this pattern would not end with, or an address that it is not aligned to.
    #[inline]
    fn check(self, op: &'static str, bytes: usize, address: CUdeviceptr) -> Result<()> {
        let (width, ..) = self.parts();
        // A width is a power of two: a mask is faster than a division, which the fill would wait for.
        if (bytes as u64 | address) & (width as u64 - 1) != 0 {
            return Err(indivisible(op, width, bytes, address));
        }
        Ok(())
    }

    /// Enqueues the fill of `count` elements of this width.
    ///
    /// # Safety
    /// They are at `to`, aligned to their width, and stay allocated until the fill is done.
    #[inline]
    unsafe fn fill(self, to: CUdeviceptr, count: usize, stream: CUstream) -> CUresult {
        match self {
            // SAFETY: the caller promises that there are `count` bytes, until the fill is done.
            Self::D8(value) => unsafe { cu::cuMemsetD8Async(to, value, count, stream) },
            // SAFETY: the caller promises that there are `count` elements of two bytes, aligned to
            // that, until the fill is done.
            Self::D16(value) => unsafe { cu::cuMemsetD16Async(to, value, count, stream) },
            // SAFETY: the caller promises that there are `count` elements of four bytes, aligned to
            // that, until the fill is done.
            Self::D32(value) => unsafe { cu::cuMemsetD32Async(to, value, count, stream) },
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
        match self {
            // SAFETY: the caller promises that there are these rows of `n` bytes, until the fill is
            // done.
            Self::D8(v) => unsafe { cu::cuMemsetD2D8Async(to, pitch, v, n, rows, stream) },
            // SAFETY: the caller promises that there are these rows of `n` elements of two bytes,
            // aligned to that, until the fill is done.
            Self::D16(v) => unsafe { cu::cuMemsetD2D16Async(to, pitch, v, n, rows, stream) },
            // SAFETY: the caller promises that there are these rows of `n` elements of four bytes,
            // aligned to that, until the fill is done.
            Self::D32(v) => unsafe { cu::cuMemsetD2D32Async(to, pitch, v, n, rows, stream) },
        }
    }
}

impl<K: StreamKind> Stream<K> {
    /// Sets every element to `value`, asynchronously: `cuMemsetD8Async`, `cuMemsetD16Async` or
    /// `cuMemsetD32Async`.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a value of more than 4 bytes that is no repeated pattern of 1, 2
    /// or 4; [`Error::WrongDevice`].
    ///
    /// ```no_run
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// let mut buffer = stream.alloc::<f32>(1000)?;
    /// stream.fill(&mut buffer, 1.5)?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn fill<'b, T: Pod>(
        &self,
        destination: impl Into<DeviceSliceMut<'b, T>>,
        value: T,
    ) -> Result<()> {
        let destination = destination.into();
        if destination.byte_len() == 0 {
            return Ok(());
        }
        let Some(pattern) = Pattern::of(bytes_of(&[value])) else {
            return Err(unfillable("cuMemsetAsync", size_of::<T>()));
        };
        self.fill_with(destination, pattern)
    }

    /// Sets every byte to `value`, asynchronously: `cuMemsetD8Async`.
    ///
    /// # Errors
    /// [`Error::WrongDevice`].
    ///
    /// ```no_run
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// let mut buffer = stream.alloc::<f64>(1000)?;
    /// stream.fill_bytes(&mut buffer, 0xff)?; // NaN, all of them
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn fill_bytes<'b, T: Pod>(
        &self,
        destination: impl Into<DeviceSliceMut<'b, T>>,
        value: u8,
    ) -> Result<()> {
        self.fill_with(destination.into(), Pattern::D8(value))
    }

    /// Repeats a pattern of 2 bytes over memory of any element type: `cuMemsetD16Async`.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the memory is not a whole number of patterns or does not begin at
    /// a multiple of 2; [`Error::WrongDevice`].
    ///
    /// ```no_run
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// let mut halves = stream.alloc::<u16>(1000)?;
    /// stream.fill_u16(&mut halves, 0x3c00)?; // 1.0 as a half
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn fill_u16<'b, T: Pod>(
        &self,
        destination: impl Into<DeviceSliceMut<'b, T>>,
        value: u16,
    ) -> Result<()> {
        self.fill_with(destination.into(), Pattern::D16(value))
    }

    /// Repeats a pattern of 4 bytes over memory of any element type: `cuMemsetD32Async`.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the memory is not a whole number of patterns or does not begin at
    /// a multiple of 4; [`Error::WrongDevice`].
    ///
    /// ```no_run
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// let mut buffer = stream.alloc::<[f32; 3]>(1000)?;
    /// stream.fill_u32(&mut buffer, 1.0f32.to_bits())?; // each of the three
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn fill_u32<'b, T: Pod>(
        &self,
        destination: impl Into<DeviceSliceMut<'b, T>>,
        value: u32,
    ) -> Result<()> {
        self.fill_with(destination.into(), Pattern::D32(value))
    }

    /// Sets every element in rows to `value`, asynchronously: `cuMemsetD2D8Async`,
    /// `cuMemsetD2D16Async` or `cuMemsetD2D32Async`, once for each slice if there are gaps between
    /// slices. The gaps between rows are not written.
    ///
    /// # Errors
    /// [`Error::Invalid`] as [`Stream::fill`], and if the rows do not begin at multiples of the
    /// pattern's width; [`Error::WrongDevice`].
    ///
    /// ```no_run
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// let mut image = stream.context().alloc_pitched::<f32>(640, 480)?;
    /// stream.fill_pitched(image.pitched_mut()?, 0.5)?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn fill_pitched<T: Pod>(
        &self,
        mut destination: PitchedMut<'_, T, DeviceMemory>,
        value: T,
    ) -> Result<()> {
        let (bytes, geometry) = destination.parts();
        let pattern = match geometry.span {
            0 => Pattern::D8(0),
            _ => Pattern::of(bytes_of(&[value]))
                .ok_or_else(|| unfillable("cuMemsetD2DAsync", size_of::<T>()))?,
        };
        let (width, _, op) = pattern.parts();
        let core = self.core();
        at_home(op, core, &bytes.as_view())?;
        let address = bytes.as_raw();
        if geometry.span == 0 {
            return Ok(());
        }
        let (pitch, columns) = (geometry.pitch, geometry.row / width);
        pattern.check(op, pitch, address)?;
        let stream = core.bind(op)?;
        let call = |stream| {
            let mut codes = geometry.planes().map(|(start, rows)| {
                // SAFETY: the destination has these rows, each of `columns` elements of this width,
                // aligned to it, and stays allocated until the mark that is made of this fill has
                // completed.
                unsafe {
                    pattern.fill_rows((address + start as u64, pitch), (columns, rows), stream)
                }
            });
            let failed = codes.find(|code| *code != cuda_sys::CUDA_SUCCESS);
            failed.unwrap_or(cuda_sys::CUDA_SUCCESS)
        };
        stream.submit_copy(op, &mut [bytes.write()], call).1
    }

    fn fill_with<T: Pod>(
        &self,
        mut destination: DeviceSliceMut<'_, T>,
        pattern: Pattern,
    ) -> Result<()> {
        let (width, op, _) = pattern.parts();
        let core = self.core();
        at_home(op, core, &destination.as_view())?;
        let (address, bytes) = (destination.as_raw(), destination.byte_len());
        pattern.check(op, bytes, address)?;
        if bytes == 0 {
            return Ok(());
        }
        let stream = core.bind(op)?;
        // SAFETY: the destination has as many elements of this width, aligned to it, and stays
        // allocated until the mark that is made of this fill has completed.
        let call = |stream| unsafe { pattern.fill(address, bytes / width, stream) };
        stream.submit_copy(op, &mut [destination.write()], call).1
    }
}

#[cold]
fn indivisible(op: &'static str, width: usize, bytes: usize, address: CUdeviceptr) -> Error {
    let why =
        format!("a pattern of {width} bytes does not tile {bytes} bytes at address {address:#x}");
    Error::invalid(op, why)
}

#[cold]
fn unfillable(op: &'static str, width: usize) -> Error {
    let why = format!(
        "cannot fill with a value of {width} bytes that is not a repeated pattern of 1, 2 or 4 bytes"
    );
    Error::invalid(op, why)
}
