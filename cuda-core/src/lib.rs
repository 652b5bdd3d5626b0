//! A safe, asynchronous layer over the CUDA driver API.
//!
//! ```no_run
//! use cuda_core::{Device, PinnedBuffer};
//!
//! let device = Device::get(0)?;
//! let stream = device.create_stream()?;
//! let host = PinnedBuffer::from_slice(stream.context(), &[1.0f32; 1024])?;
//! let mut buffer = stream.alloc::<f32>(1024)?;
//! stream.upload(&host, &mut buffer)?; // asynchronous: returns at once
//! let mut back = vec![0.0; 1024];
//! stream.download(&buffer, &mut back)?; // waits
//! assert_eq!(back, [1.0; 1024]);
//! # Ok::<(), cuda_core::Error>(())
//! ```
//!
//! A kernel is declared with its types. Its launch is `unsafe`, since nothing checks its body:
//!
//! ```no_run
//! use cuda_core::{Device, Module, kernel};
//!
//! kernel! {
//!     fn saxpy(a: f32, x: &[f32], y: &mut [f32], n: u32);
//! }
//!
//! let stream = Device::get(0)?.create_stream()?;
//! # let ptx = "";
//! let saxpy = saxpy::load(&Module::from_ptx(stream.context(), ptx)?)?; // text, or by `nvrtc`
//! let x = stream.upload_new(&[1.0f32; 1000])?;
//! let mut y = stream.upload_new(&[2.0f32; 1000])?;
//! // SAFETY: `saxpy` reads and writes elements below `n`, which both have.
//! unsafe { saxpy.on(&stream, 3.0, &x, &mut y, 1000).elements(1000).launch() }?;
//! assert_eq!(stream.download_vec(&y)?, [5.0; 1000]); // waits
//! # Ok::<(), cuda_core::Error>(())
//! ```
//!
//! * **Safe and asynchronous.** Copies, fills and frees return at once, unless their documentation says
//!   what they wait for. Safe code can neither reach
//!   nor free memory that a device still uses, whatever is dropped or forgotten. Every buffer keeps
//!   a ledger of the streams that use it, so work on several streams and devices is ordered without
//!   events of your own.
//! * **One driver call per operation** of most kinds on a created stream. Where one stream must wait for
//!   another, an event is recorded; otherwise none is.
//! * **Invisible to its neighbours.** After every call, failed ones included, the current context
//!   of the thread is what it was before, except after calls that exist to change it:
//!   [`Context::set_current`], [`Device::set_current`], [`Context::push`], [`Context::pop`] and
//!   [`Context::new_current`]. [`Device::enter`], [`Context::enter`] and [`Stream::enter`] make one current
//!   for a scope and then restore what was there, *none* included.
//! * **Starts without a driver.** The driver is loaded at the first call that needs it; without one, such
//!   a call returns [`Error::NoDriver`].
//! * **Tested without a GPU.** With `CUDA_SYS_LIBRARY` set to the library of `cuda-driver-sim`, a
//!   simulated driver from this repository, programs and tests without kernels run on four simulated
//!   devices, which do work as late as CUDA permits and report missing order; a test with kernels
//!   installs the simulator itself, with a Rust function for each: see `tests/driver-sim/README.md`.
//!
//! # Tour
//! **Devices and contexts.** A [`Device`] names a GPU; asking about it creates nothing on it.
//! Memory, streams and code live in a [`Context`]. Each device has a primary one,
//! [`Device::context`], which few programs name; [`Context::new`] makes more, and
//! [`Context::current`] finds a context that other code made current. A [`Guard`] or
//! [`Device::with`] makes a context current for *other* libraries, and a [`ContextLocal`] keeps
//! their handles, one for each thread and context. [`Context::new_green`] makes a context of some of the
//! multiprocessors. A [`ProfilerRange`] limits what profilers record, and [`nvtx`] names parts of it;
//! [`driver_version`] and [`runtime_version`] return what is installed.
//!
//! **Streams.** Work is enqueued on a [`Stream`] and runs in that order. A [`StreamBuilder`] sets
//! priority and kind, a [`StreamPool`] hands streams out round-robin, and a [`PerThreadStream`] is
//! the thread's default stream; [`Stream::enter`] makes a stream the thread's current one. An
//! [`Event`] is a point of a stream, to wait for and to measure from. A [`Signal`] is a number that
//! streams and the host write and wait for, and [`Stream::launch_host_func`] runs a closure between
//! other work.
//!
//! **Memory.** A [`DeviceBuffer`] is on a GPU; a [`PinnedBuffer`] is host memory that GPUs copy at full
//! speed. Their elements are [`Pod`], [`struct@f16`], [`Complex32`] and structs by [`pod!`] among them.
//! [`DeviceSlice`] and [`DeviceSliceMut`] borrow a part of a buffer; a [`SharedSlice`] is a part without a
//! lifetime, for reading: the buffer is freed after its last one. A
//! [`ManagedBuffer`](managed::ManagedBuffer) is usable from both sides, a [`PitchedBuffer`] has padded
//! rows, [`Registered`] pins existing memory, and a [`VirtualBuffer`](virtual_memory::VirtualBuffer) of
//! [`PhysicalMemory`](virtual_memory::PhysicalMemory) grows without moving. A
//! [`CudaArray`](image::CudaArray) or [`MipmappedArray`](image::MipmappedArray) holds images, which kernels
//! read through a [`Texture`](image::Texture) or access through a [`Surface`](image::Surface).
//! [`PointerAttributes`] describe an address, [`IpcMemoryHandle`](interop::IpcMemoryHandle) and
//! [`IpcEventHandle`](interop::IpcEventHandle) reach other processes, and
//! [`ExternalMemory`](interop::ExternalMemory) and [`ExternalSemaphore`](interop::ExternalSemaphore) come
//! from Vulkan.
//!
//! **Allocators.** Device memory comes from a [`CachingPool`] that all streams share. An
//! [`Allocator`] replaces this pool for the process ([`set_default_allocator`]), for a device, or
//! for a scope ([`with_allocator`]): a pool of your own, one of the driver's ([`MemoryPool`]), or
//! your own [`DeviceAllocator`]. [`adaptors`] count, limit, log and track allocations. A
//! [`PinnedPool`] keeps memory for pinned buffers, and [`trim()`] gives back all memory that is
//! kept for reuse ([`synchronize_and_trim`] waits for all work first).
//!
//! **Copies.** [`Stream::upload`], [`Stream::download`], [`Stream::copy`] and [`Stream::fill`] work
//! on buffers, of one device or two; the host's side may be any slice, and [`Stream::scope`] waits once
//! for many downloads. [`Stream::upload_new`], [`Stream::download_vec`], [`Stream::download_pinned`] and
//! [`Stream::copy_new`] allocate their destination; [`Stream::upload_owned`] and
//! [`Stream::download_owned`] take host memory that an [`InFlight`] gives back. [`Stream::copy_pitched`]
//! and a [`Shape`] copy rows with gaps between them, [`Stream::copy_to_array`] copies images, and a [`Batch`]
//! is many copies in one call. [`StagingOptions`](staging::StagingOptions) set which threads help with large
//! slices.
//!
//! **Several devices.** A [`DeviceGroup`] does one thing on all of them at once: an upload to all,
//! a ring of copies, access to each other's memory. [`Context::enable_peer_access`] gives such
//! access to one pair, and [`PeerAccess`] says how far it goes. With NCCL, [`nccl::Ranks`] are the devices
//! of one process, and an [`nccl::Communicator`] is one rank among processes.
//!
//! **Kernels.** A [`Module`] is code, from PTX or a binary; [`nvrtc`] compiles CUDA C++ while the
//! program runs, a [`Linker`](jit::Linker) joins code that comes in pieces, and a [`Library`] is a
//! module for all contexts at once. A [`Function`] is a kernel with its attributes and occupancy,
//! and [`Stream::kernel`] begins its [`Launch`], which is `unsafe` at the end: this crate cannot
//! check what a kernel does. [`kernel!`] declares a kernel's parameters once, and the compiler
//! checks the arguments of each launch.
//!
//! **Graphs.** [`Graph::capture`] records what a closure enqueues on a stream, and
//! [`Graph::capture_by_access`] the widest graph with the same result; [`Graph::build`] takes the nodes one
//! by one. [`Graph::instantiate`] makes a [`GraphExec`], whose launch is one driver call. A graph keeps the
//! memory that it uses, and a launch is ordered with all other work like a kernel that uses this memory. A
//! [`Condition`] lets a kernel decide how often a part runs.
//!
//! **Threads.** Streams, buffers, events, modules, functions and graphs can be sent to and shared by all
//! threads, and no thread has to make a context current first. Operations that several threads enqueue on one
//! stream run in the order in which the calls are made. Guards, and a [`PerThreadStream`], stay on the thread
//! that made them.
//!
//! **Waiting and failing.** [`Buffer::ready`], [`Stream::ready`] and [`Event::ready`] are futures
//! for any executor. An [`Error`] names the operation and the cause. [`drops::failures`] counts
//! failures of a `Drop`, and the hook of [`drops::set_hook`] gets them; owners also have a fallible
//! `close`.
//!
//! **Raw handles.** `as_raw` returns the driver's handles. `from_raw` accepts a handle of another library
//! with an owner: a value of any type, dropped when the handle is no longer needed. The `from_raw` of
//! [`ExternalSemaphore`](interop::ExternalSemaphore) and of [`ExternalMemory`](interop::ExternalMemory) takes
//! the handle over instead. `into_raw` hands an [`Event`] over to other code, or a [`DeviceBuffer`] whose
//! memory is an allocation of the driver's ([`DeviceBuffer::into_raw`]). Streams, contexts, modules and
//! pinned memory cannot be handed over: buffers refer to their streams, contexts are shared, functions keep
//! their modules loaded, and pinned memory is a part of a larger block. [`dlpack`] has tensors of other
//! libraries, [`Stream::work`] orders what they enqueue, and [`sys`] has the handles' types and everything
//! else of the driver API.
//!
//! # What depends on the driver
//! The crate compiles with any CUDA toolkit installed, or none. What works depends on the driver that the
//! program runs on: a function that needs a driver newer than that of CUDA 11.8 says so, and fails with
//! `CALL_REQUIRES_NEWER_DRIVER` (36) on an older driver.
//!
//! # More
//! The repository has programs for common problems (`docs/cookbook.md`), and a table of what CuPy,
//! cudarc, cust and CUDA C++ call the names here (`docs/coming-from.md`).

#![warn(clippy::missing_errors_doc, missing_debug_implementations)]

// The rooms, as the modules here are called. Rustdoc shows the `impl`s of a type in the order of their
// modules. So what a program needs first is first here, after the rooms that all others are built on.
// The picture in ARCHITECTURE.md shows which room may use which.

// Containers, locks and macros, and whether the process may call the driver.
mod util;

// Plain data, which errors carry.
mod types;

// One error for every operation.
mod error;

// The driver, deferred drops, capture modes, the end of the process.
mod process;

// Devices, their properties and attributes.
mod device;

// Blocks, buffers and views of any kind of memory.
mod memory;

// Device, managed and imported memory.
mod device_memory;

// Pinned and registered memory of the host.
mod host;

// Copies and fills.
mod copy;

// Device code: compiling, loading, launching.
mod module;

// Streams, events and host functions.
mod stream;

// The order of each stream's work, and the ledgers of which stream uses which bytes.
mod timeline;

// Contexts, and what is current on a thread.
mod context;

// Futures, and the threads that wait for devices.
mod wait;

// Allocators of device memory: caching, the driver's, one's own.
mod alloc;

// Signals, values in memory, semaphores.
mod signal;

pub mod image;

// Several devices as one.
mod group;

pub mod nccl;

// Work that is described once and launched many times.
mod graph;

/// The raw bindings, of the exact version that this crate's types come from.
pub use cuda_sys as sys;

pub use alloc::choice::{default_allocator, set_default_allocator, with_allocator};
pub use alloc::functions::{AllocFunction, FreeFunction};
pub use alloc::{Allocator, CachingPool, DeviceAllocator, MemoryPool, PitchedBuffer, adaptors};
pub use context::Context;
pub use context::context_local::ContextLocal;
pub use context::current::{Current, UnknownContext};
pub use context::green::{SmResource, SmSplit};
pub use context::guard::Guard;
pub use context::peer::PeerAccess;
pub use context::primary::PrimaryState;
pub use context::profiler::ProfilerRange;
pub use context::settings::ContextFlags;
pub use copy::batch::Batch;
pub use copy::borrowed::Scope;
pub use copy::in_flight::{InFlight, InFlightFuture};
pub use copy::trim::{synchronize_and_trim, trim};
pub use copy::{HostSlice, HostSliceMut, Pitched, PitchedMut, Shape};
pub use device::attributes::DeviceAttributes;
pub use device::p2p::P2pAttribute;
pub use device::runtime::runtime_version;
pub use device::{Device, DeviceAttribute};
pub use device_memory::{dlpack, virtual_memory};
pub use error::{AllocatorError, Error, LaunchError, ModuleError, NcclError, Rejected, Result};
pub use graph::{
    Graph, GraphBuilder, GraphContexts, GraphExec, GraphNode, InnerGraph, LentLaunch, NodeId,
    NodeKind,
};
pub use group::{DeviceGroup, Whole, WholeMut};
pub use host::{PinnedBuffer, PinnedMemory, PinnedPool, PinnedSlice, PinnedSliceMut, Registered};
pub use memory::Memory;
pub use memory::attributes::{MemoryType, PointerAttributes, is_pinned};
pub use memory::buffer::Buffer;
pub use memory::device::{DeviceBuffer, DeviceMemory, DeviceSlice, DeviceSliceMut};
pub use memory::into_view::IntoView;
pub use memory::shared::SharedSlice;
pub use memory::view::{Slice, SliceMut};
pub use module::launch::{
    Argument, DeviceVisible, Dimensions, Launch, Launchable, MemorySyncDomain,
};
pub use module::work::StreamWork;
pub use module::{
    BlockSize, Function, FunctionAttribute, FunctionAttributes, Kernel, Library, Module, kernel,
    nvrtc, tensor_map,
};
pub use process::driver::driver_version;
pub use process::nvtx;
pub use signal::Signal;
pub use signal::value::{StreamValue, WaitValue};
pub use stream::event::Event;
pub use stream::{
    AnyThread, OneThread, PerThreadStream, Stream, StreamBuilder, StreamGuard, StreamKind,
    StreamPool,
};
pub use timeline::event::EventFlags;
pub use timeline::ledger::Access;
pub use timeline::recording::Condition;
pub use types::{
    Complex32, Complex64, Extent, MemoryInfo, Origin, Pod, PoolUsage, Resource, Uuid, Version,
    bf16, f16,
};
pub use wait::future::Ready;

/// The data that variants of [`Error`] hold, mostly boxed, so that an error is small.
///
/// ```no_run
/// use cuda_core::Error;
///
/// # let stream = cuda_core::Device::get(0)?.create_stream()?;
/// match stream.alloc::<u8>(1 << 50) {
///     Err(Error::PoolExhausted(it)) => println!("{} bytes are not there", it.requested),
///     other => drop(other?),
/// }
/// # Ok::<(), cuda_core::Error>(())
/// ```
pub mod errors {
    pub use crate::error::{
        GraphUpdate, Invalid, LengthMismatch, Nvrtc, Other, OutOfBounds, OutOfHostMemory,
        OutOfMemory, PeerAccessInUse, PoolExhausted, WrongContext, WrongDevice,
    };
}

/// Releases that failed in a `Drop`, and drops that have yet to run.
///
/// `Drop` cannot return an error. A release that fails is counted, and reported to a
/// [hook](drops::set_hook), if the program has set one. Where the driver must not be called, as in a
/// host function, drops are deferred to a thread of the library; [`flush`](drops::flush) waits for
/// them. To get errors as values, call `close` instead.
///
/// ```no_run
/// use cuda_core::drops;
///
/// drops::set_hook(|failure| eprintln!("{failure}"));
/// // …
/// drops::flush();
/// assert_eq!(drops::failures(), 0);
/// ```
pub mod drops {
    pub use crate::process::drop_hook::{
        DropFailure, DropHook, drop_failures as failures, set_drop_hook as set_hook,
        take_drop_hook as take_hook,
    };
    pub use crate::wait::flush::flush_deferred_drops as flush;
}

/// Memory, events and semaphores of other processes and other interfaces.
///
/// Another process opens memory and events by handles, which are bytes to be sent by any means:
/// [`IpcMemoryHandle`](interop::IpcMemoryHandle), [`IpcEventHandle`](interop::IpcEventHandle), and
/// for memory of the driver's pools [`PoolPointer`](interop::PoolPointer). Vulkan and others pass file
/// descriptors: [`ExternalMemory`](interop::ExternalMemory) and
/// [`ExternalSemaphore`](interop::ExternalSemaphore) are made from these. Opening is `unsafe`: this crate
/// does not know what the other side does with the memory.
///
/// ```no_run
/// # fn send(_bytes: &[u8]) {}
/// # let context = cuda_core::Device::get(0)?.context()?;
/// let shared = context.alloc::<f32>(1 << 20)?;
/// send(&shared.ipc_handle()?.to_bytes()); // the receiver calls `DeviceBuffer::open_ipc`
/// # Ok::<(), cuda_core::Error>(())
/// ```
pub mod interop {
    pub use crate::alloc::driver_pool::ipc::PoolPointer;
    pub use crate::device_memory::external::{ExternalMemory, ExternalMemoryKind};
    pub use crate::device_memory::ipc::IpcMemoryHandle;
    pub use crate::signal::semaphore::{ExternalSemaphore, ExternalSemaphoreKind};
    pub use crate::stream::event_ipc::IpcEventHandle;
    pub use crate::types::ShareableHandle;
}

/// Options of the driver's compiler, and its linker.
///
/// The driver compiles PTX when a module is loaded. [`JitOptions`](jit::JitOptions) say how, and ask
/// for its log. A [`Linker`](jit::Linker) joins code that comes in several pieces.
///
/// ```no_run
/// use cuda_core::{Device, Module, jit::JitOptions};
///
/// # let ptx = "";
/// let context = Device::get(0)?.context()?;
/// let module = Module::from_ptx_with(&context, ptx, &JitOptions::new().verbose(true))?;
/// println!("{}", module.log()); // registers, shared memory, spills
/// # Ok::<(), cuda_core::Error>(())
/// ```
pub mod jit {
    pub use crate::module::{JitCache, JitFallback, JitOptions, LinkInput, Linker};
}

/// Memory that the host and all devices use at the same address, and that moves between them.
///
/// A [`ManagedBuffer`](managed::ManagedBuffer) is a buffer of device memory that the host also
/// reads and writes, once the devices are done with it. The driver moves pages to where they are
/// used; prefetching and [`Advice`](managed::Advice) say in advance where they will be used.
///
/// ```no_run
/// use cuda_core::{Device, managed::ManagedBuffer};
///
/// let stream = Device::get(0)?.create_stream()?;
/// let mut values = ManagedBuffer::<f32>::new(stream.context(), 1000)?;
/// values.as_mut_slice()?.fill(1.0);
/// stream.fill(values.slice_mut(..500)?, 2.0)?;
/// assert_eq!(values.as_slice()?[499..501], [2.0, 1.0]); // waits for the fill
/// # Ok::<(), cuda_core::Error>(())
/// ```
pub mod managed {
    pub use crate::device_memory::managed::{Managed, ManagedBuffer};
    pub use crate::device_memory::placement::{
        Advice, ManagedAttach, ManagedAttributes, MemoryLocation,
    };
}

/// Flags and traits of pinned and registered memory.
///
/// [`StableHost`](pinned::StableHost) is implemented by owners whose memory stays where it is, such
/// as [`Vec`], which [`Registered`] pins and [`Stream::upload_owned`] copies from.
///
/// ```no_run
/// use cuda_core::{Device, Registered, pinned::RegisterFlags};
///
/// let context = Device::get(0)?.context()?;
/// let pinned = Registered::new(&context, vec![1.0f32; 1000], RegisterFlags::PORTABLE)?;
/// # Ok::<(), cuda_core::Error>(())
/// ```
pub mod pinned {
    pub use crate::host::{PinnedBackend, ReadOnly, RegisterFlags, StableHost, StableHostMut};
}

/// Builders, limits and reports of pools of device memory.
///
/// A [`CachingPool`] and a [`MemoryPool`] are made by builders, which set their limits and how much
/// they keep. A caching pool lists its [segments](pools::CacheSegment), the allocations of the
/// driver that it cuts its blocks from.
///
/// ```no_run
/// use cuda_core::{CachingPool, Device, pools::PoolLimit};
///
/// let pool = CachingPool::builder().limit(PoolLimit::Bytes(1 << 30)).build()?;
/// let stream = Device::get(0)?.create_stream()?;
/// let scratch = stream.alloc_with::<f32>(&pool.allocator(), 1 << 20)?;
/// # Ok::<(), cuda_core::Error>(())
/// ```
pub mod pools {
    pub use crate::alloc::caching::builder::CachingPoolBuilder;
    pub use crate::alloc::caching::limit::PoolLimit;
    pub use crate::alloc::caching::segments::{CacheBlock, CacheBlockState, CacheSegment};
    pub use crate::alloc::driver_pool::attributes::PoolReuse;
    pub use crate::alloc::driver_pool::memory_pool::MemoryPoolBuilder;
}

/// How copies of borrowed slices are staged in pinned memory.
///
/// [`Stream::upload`] and [`Stream::download`] copy plain slices through pinned chunks, which the
/// process keeps for reuse. [`StagingOptions`](staging::StagingOptions) set how large the chunks
/// are and how many threads help with large slices; [`trim`](staging::trim) gives the chunks back.
///
/// ```no_run
/// use cuda_core::staging::{self, StagingOptions};
///
/// staging::set_options(StagingOptions::new(3, 4 << 20))?; // three helpers, chunks of 4 MiB
/// // …
/// println!("{} bytes given back", staging::trim()?);
/// # Ok::<(), cuda_core::Error>(())
/// ```
pub mod staging {
    pub use crate::copy::borrowed::staging::options::{
        StagingOptions, set_staging_options as set_options, staging_options as options,
    };
    pub use crate::copy::borrowed::staging::trim_staging as trim;
}
