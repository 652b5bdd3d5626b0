//! A safe, asynchronous layer over the CUDA driver API.
//!
//! ```no_run
//! use cuda_core::{Device, PinnedBuffer};
//!
//! let device = Device::get(0)?;
//! let stream = device.create_stream()?;
//! let host = PinnedBuffer::from_slice(&device.context()?, &[1.0f32; 1024])?;
//! let mut buffer = stream.alloc::<f32>(1024)?;
//! stream.upload(&host, &mut buffer)?; // asynchronous
//! let mut back = vec![0.0; 1024];
//! stream.download_to(&buffer, &mut back)?; // waits
//! assert_eq!(back, [1.0; 1024]);
//! # Ok::<(), cuda_core::Error>(())
//! ```
//!
//! * **Safe and asynchronous.** Copies, fills and frees return at once; no memory that a device
//!   still uses can be reached or freed from safe code, whatever is dropped or forgotten. Every
//!   buffer keeps a ledger of the streams that use it, so work on several streams and devices is
//!   ordered without events of the caller's.
//! * **One driver call per operation** on a created stream. Streams are ordered by an event that is
//!   recorded only when one of them has to wait.
//! * **Invisible to its neighbours.** No call leaves another context current than it found, on
//!   success or on error. [`Device::guard`] and [`Context::enter`] make one current for a scope and
//!   bring back what was there, *none* included.
//! * **No driver, no failure to start.** The driver is loaded at the first call; without one every
//!   operation returns [`Error::NoDriver`].
//!
//! # Tour
//! **Where things are.** [`Device`]: what there is, without making a context. [`Context`]: where
//! things live; a device's own is [`Device::context`], and hardly ever has to be named. [`Guard`],
//! [`Device::with`]: what is current, for the sake of other libraries; [`ContextLocal`]: their
//! handles.
//!
//! **When things happen.** [`Stream`]: where work is enqueued; [`StreamBuilder`], [`StreamPool`],
//! [`PerThreadStream`]: its kinds; [`Stream::enter`]: the thread's current one. [`Event`]: points of
//! a stream, for measuring and waiting. [`Signal`]: what streams and the host tell each other.
//! [`Stream::launch_host_func`]: the host's turn.
//!
//! **Memory.** [`DeviceBuffer`], [`PinnedBuffer`], their views, [`Pod`]: what there is most of.
//! [`ManagedBuffer`], [`PitchedBuffer`], [`Registered`]: memory that is the host's too, that lies in
//! rows, that existed before. [`VirtualBuffer`]: device memory that grows where it is.
//! [`CudaArray`], [`MipmappedArray`]: images; [`Texture`], [`Surface`]: how kernels see them.
//! [`CachingPool`], [`MemoryPool`]: where device memory comes from; [`Allocator`],
//! [`with_allocator`]: where else it may; [`adaptors`]: how it is counted, limited, logged and
//! tracked. [`PointerAttributes`]: what an address is. [`IpcMemoryHandle`], [`IpcEventHandle`]:
//! other processes.
//!
//! **Copies.** [`Stream::upload`], [`Stream::download`], [`Stream::copy`], [`Stream::fill`]: between
//! buffers, of one device or two. [`Stream::upload_from`], [`Stream::download_to`],
//! [`Stream::scope`]: borrowed slices. [`Stream::upload_owned`], [`Stream::download_owned`],
//! [`InFlight`]: host memory that the copy owns. [`Stream::copy_pitched`], [`Stream::fill_pitched`],
//! [`Shape`]: rows with gaps between them. [`Stream::copy_to_array`]: images. [`Batch`]: many copies
//! in one call.
//!
//! **Several devices.** [`DeviceGroup`]: what is done on all of them at once, such as an upload to
//! all, a ring of copies, or access to each other's memory.
//!
//! **Kernels.** [`nvrtc`]: CUDA C++ compiled while the program runs. [`Module`]: code, as PTX or
//! binary; `Library`, from CUDA 12.0 on: the same for all contexts at once. [`Function`]: a kernel,
//! its attributes and its occupancy. [`Stream::kernel`], [`Launch`]: its launch, `unsafe`, since
//! nobody can check what a kernel does.
//!
//! **Waiting and failing.** [`Buffer::ready`], [`Stream::finished`], [`Event::reached`]: waiting
//! without blocking, with any executor. [`Error`]: what was asked and what stood in the way.
//! [`drop_failures`], [`set_drop_hook`]: what a `Drop` could not do; owners have a fallible twin of
//! it, `close`.
//!
//! The repository's `docs/cookbook.md` has runnable programs for common problems; `docs/coming-from.md`
//! says what CuPy, cudarc, cust and CUDA C++ call them.

#![warn(clippy::missing_errors_doc)]
#![allow(
    clippy::result_large_err,
    reason = "`close` hands the value back with the error, and an error names what was asked"
)]

mod allocator;
mod array;
mod cache;
mod callback;
mod capture;
mod context;
mod copy;
mod current;
mod device;
mod driver;
mod drops;
mod error;
mod event;
mod fill;
mod future;
mod group;
mod guard;
mod in_flight;
mod launch;
mod local;
mod location;
mod memory;
mod module;
pub mod nvrtc;
mod peer;
mod pool;
mod profiler;
mod quiet;
mod release;
mod runtime;
mod slab;
mod staged;
mod staging;
mod stream;
mod stream_core;
mod submit;
mod sync;
mod texture;
mod timeline;
mod virtual_memory;
mod waiter;
mod workers;

pub use allocator::DeviceAllocator;
pub use allocator::adaptors;
pub use allocator::choice::{set_default_allocator, with_allocator};
pub use allocator::functions::{AllocFunction, FreeFunction};
pub use allocator::handle::Allocator;
pub use array::CudaArray;
pub use array::ends::{TexelDestination, TexelSource};
pub use array::mipmap::MipmappedArray;
pub use array::shape::{ArrayDescriptor, ArrayFlags, ArrayMemoryRequirements, ArrayShape, Extent};
pub use array::texel::{Half, Texel};
pub use array::view::{ArraySlice, ArraySliceMut};
pub use cache::limit::PoolLimit;
pub use cache::pool::{CachingPool, CachingPoolBuilder};
pub use cache::segments::{CacheBlock, CacheBlockState, CacheSegment};
pub use cache::usage::CacheUsage;
pub use context::Context;
#[cfg(cuda_12_4)]
pub use context::green::{SmResource, SmSplit};
pub use context::settings::{ContextFlags, MemoryInfo};
pub use copy::batch::Batch;
pub use copy::endpoint::Endpoint;
pub use copy::pitched::{Pitched, PitchedMut};
pub use copy::shape::Shape;
pub use current::{Current, UnknownContext};
pub use device::attributes::DeviceAttributes;
pub use device::p2p::P2pAttribute;
pub use device::primary::PrimaryState;
pub use device::uuid::Uuid;
pub use device::{Device, DeviceAttribute};
pub use driver::driver_version;
pub use drops::{
    DropFailure, DropHook, Resource, drop_failures, flush_deferred_drops, set_drop_hook,
    take_drop_hook,
};
pub use error::{AllocatorError, Error, LaunchError, ModuleError, Result};
pub use event::{Event, EventFlags, IpcEventHandle};
pub use future::Ready;
pub use group::{DeviceGroup, Divisible, PeerReport};
pub use guard::Guard;
pub use in_flight::{InFlight, Landing};
pub use launch::{Argument, DeviceVisible, Dimensions, Launch, MemorySyncDomain};
pub use local::ContextLocal;
pub use memory::Memory;
pub use memory::attributes::{MemoryType, PointerAttributes, host_pointer_of, is_pinned};
pub use memory::buffer::Buffer;
pub use memory::device::{DeviceBuffer, DeviceMemory, DeviceSlice, DeviceSliceMut};
pub use memory::host::{ReadOnly, StableHost, StableHostMut};
pub use memory::ipc::IpcMemoryHandle;
pub use memory::ledger::Access;
pub use memory::managed::ManagedBuffer;
pub use memory::pinned::{PinnedBuffer, PinnedFlags, PinnedMemory, PinnedSlice, PinnedSliceMut};
pub use memory::pitched::PitchedBuffer;
pub use memory::placement::{Advice, ManagedAttach, ManagedAttributes, MemoryLocation};
pub use memory::pod::Pod;
pub use memory::registered::{RegisterFlags, Registered};
pub use memory::view::{Slice, SliceMut};
pub use module::{
    BlockSize, Function, FunctionAttribute, FunctionAttributes, JitCache, JitFallback, JitOptions,
    Module,
};
#[cfg(cuda_12_0)]
pub use module::{Kernel, Library};
pub use pool::attributes::{PoolReuse, PoolUsage};
pub use pool::handle::{MemoryPool, MemoryPoolBuilder};
pub use pool::share::PoolPointer;
pub use profiler::ProfilerRange;
pub use runtime::runtime_version;
pub use slab::{
    PinnedBackend, PinnedUsage, pinned_usage, reset_pinned_peaks, set_pinned_backend,
    set_pinned_limit, trim_pinned,
};
pub use staged::Scope;
pub use staging::options::{StagingOptions, set_staging_options, staging_options};
pub use staging::trim_staging;
pub use stream::{
    AnyThread, OneThread, PerThreadStream, Signal, Stream, StreamBuilder, StreamGuard, StreamKind,
    StreamPool, StreamValue, WaitValue,
};
pub use texture::descriptor::{
    AddressMode, Coordinates, FilterMode, MipmapSampling, ReadMode, TextureDescriptor,
};
pub use texture::surface::{BoundSurface, Surface};
pub use texture::view::TextureSource;
pub use texture::{BoundTexture, Texture};
pub use virtual_memory::Granularity;
pub use virtual_memory::buffer::{PeerAccess, VirtualBuffer};
pub use virtual_memory::physical::{PhysicalMemory, ShareableHandle};
