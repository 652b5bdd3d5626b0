//! Memory that a graph allocates while it runs.

use cuda_sys::CUdeviceptr;

use super::GraphBuilder;
use super::capture::bind_captured;
use crate::alloc::{DeviceBacking, MemoryOwner, OwnerTraits};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::memory::{ALIGNMENT, Block, Buffer, DeviceBuffer, NOWHERE, Storage, byte_len};
use crate::process::Failed;
use crate::stream::Stream;
use crate::timeline::ledger::{Access, Ledger};
use crate::types::Pod;

/// The owner of memory that the graph frees.
struct OfGraph;

impl MemoryOwner for OfGraph {
    fn release(&mut self, _: CUdeviceptr) -> Result<(), Failed> {
        Ok(())
    }

    fn traits(&self) -> OwnerTraits {
        OwnerTraits { freed_by_work: true, ..OwnerTraits::default() }
    }

    /// Asked only about other devices, since this is memory of a device. The driver opens it to the
    /// devices that its pool was open to when the allocation was captured, which are not known
    /// here.
    fn is_open_to(&self, _device: Device, _access: Access) -> bool {
        false
    }
}

const NOT_CAPTURED: &str = "the stream is not captured: use `alloc`, and drop the buffer";

/// # Memory that a graph allocates
impl Stream {
    /// Allocates `len` elements of unspecified value at each launch of the graph, as an operation
    /// of it, and frees them at its end, or, in a graph that is ordered [by
    /// access](crate::Graph::capture_by_access), after the last operation that uses them, or where
    /// [`free_in_graph`](Self::free_in_graph) is called. Uses `cuMemAllocAsync` and
    /// `cuMemFreeAsync` on a captured stream, which become nodes.
    ///
    /// Use it for memory that only the graph needs: graphs that do not run at the same time share
    /// it, and [`Device::trim_graph_memory`](crate::Device::trim_graph_memory) gives it back
    /// between launches. In contrast, [`Stream::alloc`] in a capture allocates at once; its memory
    /// stays allocated, and can also be used outside of the graph.
    ///
    /// Only operations of this capture can use the buffer: all others return [`Error::Invalid`].
    /// The buffer may be dropped at any time. A graph with such memory has one
    /// [executable](crate::Graph::instantiate) at a time, and cannot be included in another graph.
    ///
    /// # Errors
    /// [`Error::SizeOverflow`]; [`Error::Invalid`] for a stream that is not captured by
    /// [`Graph::capture`](crate::Graph::capture); [`Error::NotCapturable`] in a body of a
    /// [`Condition`](crate::Condition); the driver's, after which the capture fails, too.
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// # let stream = context.create_stream()?;
    /// # let x = stream.alloc_zeroed::<u32>(100)?;
    /// # let mut y = stream.alloc_zeroed::<u32>(100)?;
    /// let graph = cuda_core::Graph::capture(&context, |stream| {
    ///     let mut scratch = stream.alloc_in_graph::<u32>(100)?;
    ///     stream.copy(&x, &mut scratch)?;
    ///     stream.copy(&scratch, &mut y)
    /// })?;
    /// let kinds: Vec<_> = graph.nodes()?.iter().map(ToString::to_string).collect();
    /// assert_eq!(kinds, ["allocation", "copy of 400 bytes", "copy of 400 bytes", "free"]);
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuGraphAddMemAllocNode", "cudaGraphAddMemAllocNode"))]
    #[doc(alias("cuMemAllocAsync", "cuMemFreeAsync", "cudaMallocAsync", "cudaFreeAsync"))]
    pub fn alloc_in_graph<T: Pod>(&self, len: usize) -> Result<DeviceBuffer<T>> {
        let op = "cuMemAllocAsync";
        let bytes = byte_len::<T>(len, ALIGNMENT)?;
        let (recording, bound) = bind_captured(self, op, NOT_CAPTURED)?;
        let (address, ledger) = match bytes {
            0 => (NOWHERE, Ledger::default()),
            _ => recording.allocate(&bound, bytes)?,
        };
        let context = self.context().clone();
        let backing = DeviceBacking::Owned { context, owner: Box::new(OfGraph) };
        Ok(Buffer::from_storage(Storage::new(Block { address, bytes, ledger, backing }), len))
    }

    /// Makes the graph free memory of [`alloc_in_graph`](Self::alloc_in_graph) at this point, after
    /// all operations that use it, so that later allocations of the graph can have it:
    /// `cuMemFreeAsync`. Otherwise it is freed as described there.
    ///
    /// # Errors
    /// [`Error::Invalid`], with the buffer dropped, for other memory, unless it has no bytes, and
    /// for a stream that is not captured; the driver's, after which the capture fails, too.
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// let graph = cuda_core::Graph::capture(&context, |stream| {
    ///     for _ in 0..10 {
    ///         let mut scratch = stream.alloc_in_graph::<u8>(1 << 20)?;
    ///         stream.fill(&mut scratch, 1)?;
    ///         stream.free_in_graph(scratch)?; // the next one may be at the same place
    ///     }
    ///     Ok(())
    /// })?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuGraphAddMemFreeNode", "cudaGraphAddMemFreeNode"))]
    #[doc(alias("cuMemFreeAsync", "cudaFreeAsync"))]
    pub fn free_in_graph<T: Pod>(&self, buffer: DeviceBuffer<T>) -> Result<()> {
        let op = "cuMemFreeAsync";
        let (recording, bound) = bind_captured(self, op, NOT_CAPTURED)?;
        // Frees all its memory: the buffer may have been truncated.
        match buffer.storage.block().bytes {
            0 => Ok(()),
            _ => recording.free(&bound, buffer.as_view().ledger()),
        }
    }
}

/// # Memory of the graph
impl GraphBuilder<'_> {
    /// Adds a step that is [`Stream::alloc_in_graph`].
    ///
    /// # Errors
    /// As [`Stream::alloc_in_graph`].
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// let graph = cuda_core::Graph::build(&context, |builder| {
    ///     let mut scratch = builder.alloc::<u32>(100)?;
    ///     builder.add(|stream| stream.fill(&mut scratch, 1))?; // after the allocation
    ///     builder.free(scratch)?;
    ///     Ok(())
    /// })?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuGraphAddMemAllocNode", "cudaGraphAddMemAllocNode"))]
    pub fn alloc<T: Pod>(&self, len: usize) -> Result<DeviceBuffer<T>> {
        let mut made = None;
        self.add(|stream| {
            made = Some(stream.alloc_in_graph(len)?);
            Ok(())
        })?;
        made.ok_or(Error::LostStream)
    }

    /// Adds a step that is [`Stream::free_in_graph`].
    ///
    /// # Errors
    /// As [`Stream::free_in_graph`].
    #[doc(alias("cuGraphAddMemFreeNode", "cudaGraphAddMemFreeNode"))]
    pub fn free<T: Pod>(&self, buffer: DeviceBuffer<T>) -> Result<()> {
        self.add(|stream| stream.free_in_graph(buffer)).map(drop)
    }
}
