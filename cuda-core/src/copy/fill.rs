//! Fills: a pattern of 1, 2 or 4 bytes over device memory.

use cuda_sys::symbol as cu;

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
    fn width(self) -> usize {
        match self {
            Pattern::D8(_) => 1,
            Pattern::D16(_) => 2,
            Pattern::D32(_) => 4,
        }
    }

    fn call(self) -> &'static str {
        match self {
            Pattern::D8(_) => "cuMemsetD8Async",
            Pattern::D16(_) => "cuMemsetD16Async",
            Pattern::D32(_) => "cuMemsetD32Async",
        }
    }

    fn call_2d(self) -> &'static str {
        match self {
            Pattern::D8(_) => "cuMemsetD2D8Async",
            Pattern::D16(_) => "cuMemsetD2D16Async",
            Pattern::D32(_) => "cuMemsetD2D32Async",
        }
    }

    /// The pattern whose repetition gives `bytes`, a value of the element type.
    fn of(bytes: &[u8]) -> Option<Self> {
        let repeats = |width: usize| bytes.chunks(width).all(|chunk| chunk == &bytes[..width]);
        match *bytes {
            [a] => Some(Pattern::D8(a)),
            [a, b] => Some(Pattern::D16(u16::from_ne_bytes([a, b]))),
            [a, b, c, d] => Some(Pattern::D32(u32::from_ne_bytes([a, b, c, d]))),
            // Wider values only if they repeat a narrower pattern, as zero does.
            [a, b, c, d, ..] if bytes.len() % 4 == 0 && repeats(4) => {
                Some(Pattern::D32(u32::from_ne_bytes([a, b, c, d])))
            }
            [a, b, ..] if bytes.len() % 2 == 0 && repeats(2) => {
                Some(Pattern::D16(u16::from_ne_bytes([a, b])))
            }
            [a, ..] if repeats(1) => Some(Pattern::D8(a)),
            _ => None,
        }
    }
}

impl<K: StreamKind> Stream<K> {
    /// Sets every element to `value`, asynchronously: `cuMemsetD8Async`, `cuMemsetD16Async` or
    /// `cuMemsetD32Async`.
    ///
    /// # Errors
    /// [`Error::FillWidth`] for a value of more than 4 bytes that is no repeated pattern of 1, 2
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
            return Err(Error::FillWidth { op: "cuMemsetAsync", width: size_of::<T>() });
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
    /// [`Error::Indivisible`] if the memory is not a whole number of patterns or does not begin at
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
    /// [`Error::Indivisible`] if the memory is not a whole number of patterns or does not begin at
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
    /// [`Error::FillWidth`] as [`Stream::fill`]; [`Error::Indivisible`] if the rows do not begin at
    /// multiples of the pattern's width; [`Error::WrongDevice`].
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
                .ok_or(Error::FillWidth { op: "cuMemsetD2DAsync", width: size_of::<T>() })?,
        };
        let (width, op) = (pattern.width(), pattern.call_2d());
        let core = self.core();
        at_home(op, core, &bytes.as_view())?;
        let address = bytes.as_raw();
        if geometry.span == 0 {
            return Ok(());
        }
        if geometry.pitch % width != 0 || address % width as u64 != 0 {
            return Err(Error::Indivisible { op, width, bytes: geometry.pitch, address });
        }
        let stream = core.bind(op)?;
        let (pitch, columns) = (geometry.pitch, geometry.row / width);
        let call = |stream| {
            for (start, rows) in geometry.planes() {
                let to = address + start as u64;
                let code = match pattern {
                    // SAFETY: the destination has these rows, each of `columns` elements of this
                    // width, aligned to it, and stays allocated until the mark that is made of this
                    // fill has completed.
                    Pattern::D8(value) => unsafe {
                        cu::cuMemsetD2D8Async(to, pitch, value, columns, rows, stream)
                    },
                    // SAFETY: the rows are whole elements of two bytes, aligned to that, and stay
                    // allocated until the mark that is made of this fill has completed.
                    Pattern::D16(value) => unsafe {
                        cu::cuMemsetD2D16Async(to, pitch, value, columns, rows, stream)
                    },
                    // SAFETY: the rows are whole elements of four bytes, aligned to that, and stay
                    // allocated until the mark that is made of this fill has completed.
                    Pattern::D32(value) => unsafe {
                        cu::cuMemsetD2D32Async(to, pitch, value, columns, rows, stream)
                    },
                };
                if code != cuda_sys::CUDA_SUCCESS {
                    return code;
                }
            }
            cuda_sys::CUDA_SUCCESS
        };
        stream.submit_copy(op, &mut [bytes.write()], call).1
    }

    fn fill_with<T: Pod>(
        &self,
        mut destination: DeviceSliceMut<'_, T>,
        pattern: Pattern,
    ) -> Result<()> {
        let (width, op) = (pattern.width(), pattern.call());
        let core = self.core();
        at_home(op, core, &destination.as_view())?;
        let (address, bytes) = (destination.as_raw(), destination.byte_len());
        if bytes % width != 0 || address % width as u64 != 0 {
            return Err(Error::Indivisible { op, width, bytes, address });
        }
        if bytes == 0 {
            return Ok(());
        }
        let stream = core.bind(op)?;
        let count = bytes / width;
        let call = |stream| match pattern {
            // SAFETY: the destination has `count` elements of this width, aligned to it, and stays
            // allocated until the mark that is made of this fill has completed.
            Pattern::D8(value) => unsafe { cu::cuMemsetD8Async(address, value, count, stream) },
            // SAFETY: the destination has `count` elements of two bytes, aligned to that, and stays
            // allocated until the mark that is made of this fill has completed.
            Pattern::D16(value) => unsafe { cu::cuMemsetD16Async(address, value, count, stream) },
            // SAFETY: the destination has `count` elements of four bytes, aligned to that, and
            // stays allocated until the mark that is made of this fill has completed.
            Pattern::D32(value) => unsafe { cu::cuMemsetD32Async(address, value, count, stream) },
        };
        stream.submit_copy(op, &mut [destination.write()], call).1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wide_value_is_filled_if_it_repeats_a_narrow_one() {
        let of = |bytes: &[u8]| Pattern::of(bytes).map(Pattern::width);
        assert_eq!(of(&[1]), Some(1));
        assert_eq!(of(&[1, 2]), Some(2));
        assert_eq!(of(&[1, 2, 3, 4]), Some(4));
        assert_eq!(of(&[0; 8]), Some(4));
        assert_eq!(of(&[1, 2, 3, 4, 1, 2, 3, 4]), Some(4));
        assert_eq!(of(&[1, 2, 3, 4, 1, 2, 3, 5]), None);
        assert_eq!(of(&[1, 2, 1, 2, 1, 2]), Some(2));
        assert_eq!(of(&[7, 7, 7]), Some(1));
        assert_eq!(of(&[7, 7, 8]), None);
        assert_eq!(of(&[]), None);
    }
}
