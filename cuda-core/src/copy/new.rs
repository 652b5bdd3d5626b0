//! Copies into newly allocated memory.

use std::alloc::{Layout, alloc_zeroed};
use std::ptr::NonNull;

use crate::copy::{HostSlice, at_home};
use crate::error::{Error, OutOfHostMemory, Result};
use crate::host::PinnedBuffer;
use crate::memory::{DeviceBuffer, DeviceSlice, IntoView};
use crate::stream::{Stream, StreamKind};
use crate::types::Pod;

/// # Copies that allocate
impl Stream {
    /// Copies host memory to a new buffer: [`Stream::alloc`], [`Stream::upload`]. A borrowed slice may
    /// be changed at once.
    ///
    /// # Errors
    /// Those of the two methods.
    ///
    /// ```no_run
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// let buffer = stream.upload_new(&[1u32, 2, 3])?;
    /// assert_eq!(stream.download_vec(&buffer)?, [1, 2, 3]);
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuMemcpyHtoDAsync", "cudaMemcpyAsync"))]
    #[doc(alias("clone_htod", "htod_copy", "memcpy_stod", "asarray"))]
    pub fn upload_new<'a, T: Pod>(
        &self,
        source: impl IntoView<HostSlice<'a, T>>,
    ) -> Result<DeviceBuffer<T>> {
        let source = source.into();
        let mut buffer = self.alloc(source.len())?;
        self.upload(source, &mut buffer)?;
        Ok(buffer)
    }

    /// Copies device memory, possibly of another device, to a new buffer on this stream's device:
    /// [`Stream::alloc`], [`Stream::copy`].
    ///
    /// # Errors
    /// Those of the two methods.
    ///
    /// ```no_run
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// let buffer = stream.upload_new(&[1.0f32; 1000])?;
    /// let mut head = stream.copy_new(buffer.slice(..10)?)?;
    /// stream.fill(&mut head, 2.0)?; // `buffer` stays as it is
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuMemcpyDtoDAsync", "cudaMemcpyAsync"))]
    #[doc(alias("clone_dtod", "try_clone"))]
    pub fn copy_new<'a, T: Pod>(
        &self,
        source: impl IntoView<DeviceSlice<'a, T>>,
    ) -> Result<DeviceBuffer<T>> {
        let source = source.into();
        let mut buffer = self.alloc(source.len())?;
        self.copy(source, &mut buffer)?;
        Ok(buffer)
    }
}

/// # Copies
impl<K: StreamKind> Stream<K> {
    /// Copies device memory to a new vector: [`Stream::download`], so it blocks.
    ///
    /// # Errors
    /// [`Error::OutOfHostMemory`] if the vector cannot be allocated; those of [`Stream::download`].
    ///
    /// ```no_run
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// let buffer = stream.alloc_zeroed::<f32>(100)?;
    /// let tail: Vec<f32> = stream.download_vec(buffer.slice(90..)?)?;
    /// assert_eq!(tail, [0.0; 10]);
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuMemcpyDtoHAsync", "cudaMemcpyAsync"))]
    #[doc(alias("clone_dtoh", "asnumpy", "memcpy_dtov"))]
    pub fn download_vec<'a, T: Pod>(
        &self,
        source: impl IntoView<DeviceSlice<'a, T>>,
    ) -> Result<Vec<T>> {
        let source = source.into();
        at_home("cuMemcpyDtoHAsync", self.core(), &source)?;
        let mut elements = zeros(source.len())?;
        self.download(source, &mut elements)?;
        Ok(elements)
    }

    /// Copies device memory to a new pinned buffer, asynchronously: [`PinnedBuffer::new`],
    /// [`Stream::download`].
    ///
    /// # Errors
    /// Those of the two methods.
    ///
    /// ```no_run
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// let buffer = stream.alloc_zeroed::<f32>(100)?;
    /// let host = stream.download_pinned(&buffer)?; // returns at once
    /// assert_eq!(host.as_slice()?, [0.0; 100]); // waits
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuMemcpyDtoHAsync", "cudaMemcpyAsync"))]
    pub fn download_pinned<'a, T: Pod>(
        &self,
        source: impl IntoView<DeviceSlice<'a, T>>,
    ) -> Result<PinnedBuffer<T>> {
        let source = source.into();
        let mut host = PinnedBuffer::new(self.context(), source.len())?;
        self.download(source, &mut host)?;
        Ok(host)
    }
}

/// Allocates a zeroed vector as the destination of a copy. A large one is not written: fresh pages of
/// the system are zero.
fn zeros<T: Pod>(len: usize) -> Result<Vec<T>> {
    let layout = Layout::array::<T>(len)
        .map_err(|_| Error::SizeOverflow { len, element_size: size_of::<T>() })?;
    let start = match layout.size() {
        0 => NonNull::<T>::dangling().as_ptr(),
        // SAFETY: the layout has bytes.
        _ => unsafe { alloc_zeroed(layout) }.cast(),
    };
    if start.is_null() {
        return Err(OutOfHostMemory { op: "alloc_zeroed", requested: layout.size() }.into());
    }
    // SAFETY: just allocated by the global allocator, with the layout of an array of `len` elements, or
    // without bytes, for which a vector needs no allocation; all elements are zeros, which are values of
    // a `Pod` type.
    Ok(unsafe { Vec::from_raw_parts(start, len, len) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy)]
    struct Empty;
    // SAFETY: no bytes, so there is neither padding nor a bit pattern that is no value.
    unsafe impl Pod for Empty {}

    #[test]
    fn zeros_or_why_not() {
        assert!(zeros::<u16>(0).is_ok_and(|none| none.is_empty()));
        // No loop over the elements.
        assert!(zeros::<Empty>(usize::MAX).is_ok_and(|all| all.len() == usize::MAX));
        assert!(zeros::<u16>(3).is_ok_and(|zeros| zeros == [0; 3]));
        let too_many = zeros::<u16>(usize::MAX);
        assert!(matches!(too_many, Err(Error::SizeOverflow { .. })));
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks for all the memory there is")]
    fn memory_that_the_host_has_not() {
        let refused = zeros::<u8>(isize::MAX as usize);
        assert!(refused.is_err_and(|error| error.is_out_of_memory()));
    }
}
