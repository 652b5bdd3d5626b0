//! Resizing of buffers.

use crate::error::{Error, Result};
use crate::memory::DeviceBuffer;
use crate::process::driver;
use crate::stream::Stream;
use crate::types::Pod;

/// # Growing and shrinking
/// A buffer has room for at least as many elements as its length. To get more room, or to give some
/// back, the elements move to memory that is allocated on the stream given by the caller, which becomes
/// the buffer's home. Earlier addresses are then invalid; the borrow rules ensure that no views exist.
impl<T: Pod> DeviceBuffer<T> {
    /// Returns the number of elements that the memory has room for.
    ///
    /// ```no_run
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// let list = stream.alloc::<u32>(1000)?;
    /// assert_eq!(list.capacity(), 1000); // no more than was asked for
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn capacity(&self) -> usize {
        match size_of::<T>() {
            0 => usize::MAX,
            size => self.storage.block().bytes / size,
        }
    }

    /// Drops the elements from `len` on, if there are any. The capacity and the address stay; no driver
    /// call.
    ///
    /// ```no_run
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// let mut list = stream.alloc_zeroed::<u32>(1000)?;
    /// list.truncate(10); // frees nothing
    /// assert_eq!((list.len(), list.capacity() >= 1000), (10, true));
    /// list.shrink_to_fit(&stream)?; // does, by way of a copy
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn truncate(&mut self, len: usize) {
        self.set_len(self.len().min(len));
    }

    /// Makes room for at least `additional` more elements, on `stream`, if the capacity is too small:
    /// [`Stream::alloc`], then `cuMemcpyDtoDAsync_v2`.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the elements would move while a graph uses the memory, since its launches
    /// would use the old memory; a graph being [captured](crate::Graph::capture) on the stream is an
    /// exception. Those of [`Stream::alloc`] and [`Stream::copy`]. The buffer is then unchanged.
    ///
    /// ```no_run
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// let mut buffer = stream.alloc_zeroed::<u32>(100)?;
    /// buffer.reserve(&stream, 900)?;
    /// assert_eq!(buffer.len(), 100);
    /// assert!(buffer.capacity() >= 1000);
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuMemcpyDtoDAsync", "cudaMemcpyAsync"))]
    pub fn reserve(&mut self, stream: &Stream, additional: usize) -> Result<()> {
        let wanted = self.len().checked_add(additional);
        let wanted =
            wanted.ok_or(Error::SizeOverflow { len: usize::MAX, element_size: size_of::<T>() })?;
        if wanted <= self.capacity() {
            return Ok(());
        }
        self.relocate("DeviceBuffer::reserve", stream, wanted)
    }

    /// Changes the length to `len`, on `stream`. Elements that stay keep their values; new ones
    /// have unspecified values.
    ///
    /// # Errors
    /// Those of [`DeviceBuffer::reserve`]; the buffer is then unchanged.
    ///
    /// ```no_run
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// let mut list = stream.alloc_zeroed::<u32>(100)?;
    /// list.resize(&stream, 1000)?; // the first hundred are zero still
    /// assert_eq!((list.len(), list.capacity() >= 1000), (1000, true));
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn resize(&mut self, stream: &Stream, len: usize) -> Result<()> {
        self.reserve(stream, len.saturating_sub(self.len()))?;
        self.set_len(len);
        Ok(())
    }

    /// Moves the elements to memory of exactly their size, on `stream`, unless the memory already has
    /// that size.
    ///
    /// # Errors
    /// Those of [`DeviceBuffer::reserve`]; the buffer is then unchanged.
    ///
    /// ```no_run
    /// # let stream = cuda_core::Device::get(0)?.create_stream()?;
    /// let mut list = stream.alloc_zeroed::<u32>(1 << 20)?;
    /// list.truncate(1000);
    /// list.shrink_to_fit(&stream)?; // copies a thousand elements, and frees 4 MiB
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn shrink_to_fit(&mut self, stream: &Stream) -> Result<()> {
        if self.storage.block().bytes == self.byte_len() {
            return Ok(());
        }
        self.relocate("DeviceBuffer::shrink_to_fit", stream, self.len())
    }

    /// Moves the elements to new memory on `stream` with room for `capacity` elements, at least the
    /// length.
    fn relocate(&mut self, op: &'static str, stream: &Stream, capacity: usize) -> Result<()> {
        driver::ensure()?;
        let ledger = &self.storage.block().ledger;
        let free = match stream.core().timeline().recording() {
            // The copy is one of the graph's operations.
            Some(recording) => recording.alone_uses(ledger),
            None => !ledger.is_in_graphs(),
        };
        let why = "a graph uses the memory, and its launches would use the old place: call this before \
                   the capture, or drop the graph and its executables first";
        Error::unless(free, op, why)?;
        let len = self.len();
        let mut moved = stream.alloc::<T>(capacity)?;
        stream.copy(&*self, moved.slice_mut(..len)?)?;
        moved.set_len(len);
        // The old memory is freed after the copy, by its own ledger.
        *self = moved;
        Ok(())
    }
}
