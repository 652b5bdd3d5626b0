//! Device memory as a kind of memory, and the names of its buffers and views.

use cuda_sys::CUdeviceptr;

use crate::memory::{Buffer, Slice, SliceMut};

/// Memory of a device.
///
/// ```no_run
/// # let stream = cuda_core::Device::get(0)?.create_stream()?;
/// use cuda_core::{Buffer, DeviceBuffer, DeviceMemory};
///
/// let buffer: Buffer<f32, DeviceMemory> = stream.alloc(100)?;
/// let same: DeviceBuffer<f32> = buffer;
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub enum DeviceMemory {}

/// Elements on a device. Any stream of the device may use them; the crate makes streams wait for
/// each other where needed.
///
/// [`Stream::alloc`] allocates in the order of a stream, which is the buffer's *home*: the buffer keeps
/// it alive, and is allocated and freed in its order. Dropping the buffer frees the memory after all
/// work that uses it. That does not block, unless the memory came from an [allocator](crate::Allocator)
/// without streams: [`Allocator::plain`], [`Allocator::from_functions`]. [`Stream::alloc_from`]
/// allocates from a [`MemoryPool`](crate::MemoryPool).
///
/// Memory that belongs to no stream comes from [`Context::alloc`], from other code
/// ([`DeviceBuffer::from_raw`]) or from another process ([`DeviceBuffer::open_ipc`]). Dropping such
/// a buffer blocks until the work that uses it is done, and the driver, which frees that of
/// [`Context::alloc`], until all work of the device is.
///
/// [`Buffer`] documents what every buffer has, such as `len`, `slice`, `chunks` and `ready`.
///
/// [`Stream::alloc`]: crate::Stream::alloc
/// [`Stream::alloc_from`]: crate::Stream::alloc_from
/// [`Context::alloc`]: crate::Context::alloc
/// [`Allocator::plain`]: crate::Allocator::plain
/// [`Allocator::from_functions`]: crate::Allocator::from_functions
///
/// ```no_run
/// use cuda_core::Device;
///
/// let stream = Device::get(0)?.create_stream()?;
/// let mut buffer = stream.alloc::<u32>(1024)?;
/// stream.upload(&[7; 1024], &mut buffer)?;
/// let mut back = [0; 1024];
/// stream.download(&buffer, &mut back)?;
/// assert_eq!(back, [7; 1024]);
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[doc(alias("CUdeviceptr", "CudaSlice", "ndarray"))]
pub type DeviceBuffer<T> = Buffer<T, DeviceMemory>;

/// A shared view of a [`DeviceBuffer`].
///
/// ```no_run
/// # let stream = cuda_core::Device::get(0)?.create_stream()?;
/// use cuda_core::{DeviceSlice, Result, Stream};
///
/// fn sum(stream: &Stream, values: DeviceSlice<'_, f32>) -> Result<f32> {
///     let mut copy = vec![0.0; values.len()];
///     stream.download(values, &mut copy)?;
///     Ok(copy.iter().sum())
/// }
/// let buffer = stream.alloc_zeroed::<f32>(100)?;
/// assert_eq!(sum(&stream, buffer.slice(..50)?)?, 0.0);
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[doc(alias("CudaView", "MemoryPointer"))]
pub type DeviceSlice<'a, T> = Slice<'a, T, DeviceMemory>;

/// An exclusive view of a [`DeviceBuffer`].
///
/// ```no_run
/// # let stream = cuda_core::Device::get(0)?.create_stream()?;
/// use cuda_core::{DeviceSliceMut, Result, Stream};
///
/// fn clear(stream: &Stream, values: DeviceSliceMut<'_, f32>) -> Result<()> {
///     stream.fill(values, 0.0)
/// }
/// let mut buffer = stream.alloc::<f32>(100)?;
/// clear(&stream, buffer.slice_mut(50..)?)?;
/// clear(&stream, buffer.as_view_mut())?;
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[doc(alias("CudaViewMut"))]
pub type DeviceSliceMut<'a, T> = SliceMut<'a, T, DeviceMemory>;

/// Alignment of every allocation: "aligned to at least 256 bytes".
pub(crate) const ALIGNMENT: usize = 256;

/// The address of empty buffers: arbitrary, but aligned and not null.
pub(crate) const NOWHERE: CUdeviceptr = ALIGNMENT as CUdeviceptr;
