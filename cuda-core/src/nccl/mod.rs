//! NCCL: reductions and copies among devices of one process, or of many processes on many machines.
//!
//! The library, `libnccl.so.2` of version 2.18 or newer, is a package of its own. The first call
//! loads it. The environment variable `CUDA_CORE_NCCL` names another library to use, and is ignored
//! in a set-uid program. Without the library, each call returns
//! [`NcclError::NotFound`](crate::NcclError::NotFound).
//!
//! * [`Ranks`] are all ranks of a communicator, for one process that has all devices: nothing is
//!   `unsafe`.
//! * A [`Communicator`] is one rank, for processes or threads that each have one device. The ranks
//!   find each other by a [`UniqueId`]. A process that joins a rank promises once that all ranks
//!   make the same calls.
//!
//! Operations are enqueued like kernels. They are ordered with all other work by the memory that
//! they use, and their memory stays allocated until they have completed: there is nothing to
//! synchronise.
//!
//! ```no_run
//! use cuda_core::Device;
//! use cuda_core::nccl::{Ranks, Reduction};
//!
//! let contexts = Device::contexts(Device::all()?)?;
//! let streams = contexts.iter().map(|it| it.create_stream()).collect::<Result<Vec<_>, _>>()?;
//! let ranks = Ranks::init_all(&contexts)?;
//! let mut sums = Vec::new();
//! for stream in &streams {
//!     sums.push(stream.upload_new(&[1.0f32; 1000])?);
//! }
//! ranks.on(&streams)?.all_reduce_in_place(&mut sums, Reduction::Sum)?;
//! assert_eq!(streams[0].download_vec(&sums[0])?, [contexts.len() as f32; 1000]);
//! # Ok::<(), cuda_core::Error>(())
//! ```
//!
//! # Lost ranks
//! A call of NCCL returns within the limit of its communicator ([`CommunicatorOptions::limit`]), or
//! when another thread calls [`Communicator::abort`]. Calls that block, which are faster
//! ([`CommunicatorOptions::blocking`]), do not have this guarantee, and `abort` waits for them.
//! Calls of [`Ranks`] block by default, since this process makes the calls of all ranks at once. A
//! blocking call waits if a stream has no room for more work: some thousand operations behind one
//! that does not end. A program that continues after such an operation should call [`Ranks::wait`]
//! now and then, or join with `blocking(false)`.
//!
//! Enqueued work waits on its stream for the other ranks, without a limit. [`Communicator::wait`]
//! waits for the work with a limit, and returns the error of a rank that has failed. Then `abort`
//! ends the work, and the stream continues. If the communicator was dropped, its work is ended when
//! the limit has passed. A process that exits while communicators are being freed waits for that,
//! for a second at most.
//!
//! Two ranks can wait for each other: rank 0 enqueues its all-reduce, then waits on the host for
//! earlier work of the same stream, and then sends rank 1 a message; rank 1 enqueues its part only
//! after that message. The wait of rank 0 includes its all-reduce, so neither continues. On rank 0,
//! call [`Stream::checkpoint`](crate::Stream::checkpoint) before the all-reduce: then it waits only
//! for the work before the checkpoint.
//!
//! With `CUDA_LAUNCH_BLOCKING=1`, operations of several ranks of one process hang: the launch of one rank
//! does not return before the others have launched.
//!
//! # Registered memory
//! From NCCL 2.19 on, memory can be [registered](Communicator::register): NCCL then sends from it
//! and receives into it without copies through buffers of its own, where the machine allows. For
//! NVLink SHARP, register a [`VirtualBuffer`](crate::virtual_memory::VirtualBuffer) of one
//! [`PhysicalMemory`](crate::virtual_memory::PhysicalMemory) that is shareable as a [file
//! descriptor](crate::interop::ShareableHandle::PosixFd), and whose size is a multiple of what
//! `cuMulticastGetGranularity` recommends: `ncclMemAlloc` makes such memory. For network cards use
//! [`PhysicalMemory::for_rdma`](crate::virtual_memory::PhysicalMemory::for_rdma), if the device
//! supports it.
//!
//! # Streams
//! NCCL works on threads of its own, so an operation needs a created stream, not a default one.
//!
//! [`Graph::capture`](crate::Graph::capture) can capture operations: those of a rank on its
//! context, those of all ranks of a process on all their contexts. The graph keeps the
//! communicators. NCCL connects ranks at their first operation; with NCCL 2.28 that may be a
//! captured one. To run with older versions, enqueue each kind of operation once before the
//! capture:
//!
//! ```no_run
//! use cuda_core::nccl::{Ranks, Reduction};
//! use cuda_core::{DeviceGroup, Graph};
//!
//! # fn main() -> cuda_core::Result<()> {
//! let group = DeviceGroup::all()?;
//! let mut sums = group.alloc_zeroed::<f32>(1000)?;
//! let ranks = Ranks::init_all(group.contexts())?;
//! let contexts: Vec<_> = group.contexts().collect();
//! let graph = Graph::capture(contexts, |streams| {
//!     ranks.on(streams)?.all_reduce_in_place(&mut sums, Reduction::Sum)
//! })?;
//! graph.instantiate()?.launch(&group.streams()[0])?;
//! # group.synchronize()
//! # }
//! ```
//!
//! One thread at a time enqueues operations of one [`Ranks`] or launches such a graph. Other
//! threads wait for it, except once the ranks have become
//! [communicators](Ranks::into_communicators). Graphs of several communicators that share devices
//! may wait for each other in a circle, as their operations may (NVIDIA's guide to NCCL, "Using
//! NCCL with CUDA Graphs"): launch one after the other's work.

mod call;
mod communicator;
mod derived;
mod element;
mod failure;
mod group;
mod joined;
mod joining;
mod library;
mod on_stream;
mod on_streams;
mod options;
mod polling;
mod ranks;
mod raw;
mod reduction;
mod registered;
mod remains;
mod unique_id;

pub use communicator::Communicator;
pub use element::Element;
pub use group::{Group, group};
pub use library::{install, symbol, version};
pub use on_stream::OnStream;
pub use on_streams::OnStreams;
pub use options::CommunicatorOptions;
pub use ranks::Ranks;
pub use reduction::Reduction;
pub use registered::{RegisteredBuffer, Registration};
pub use unique_id::UniqueId;
