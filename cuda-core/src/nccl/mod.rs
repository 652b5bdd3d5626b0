//! NCCL: reductions and copies among devices, of one process or of many on many machines.
//!
//! The library, `libnccl.so.2` of version 2.18 or newer, is a package of its own. The first call loads it;
//! the environment variable `CUDA_CORE_NCCL` names another to use, and is ignored in a set-uid program.
//! Without it, each call returns [`NcclError::NotFound`](crate::NcclError::NotFound).
//!
//! * [`Ranks`] are all ranks of a communicator, where one process has all devices: nothing is `unsafe`.
//! * A [`Communicator`] is one rank, where each process, or thread, has one device. The ranks find each other
//!   by a [`UniqueId`]. A process that joins a rank promises once that all ranks make the same calls.
//!
//! Operations are enqueued like kernels. They are ordered, by the memory that they use, with all other work,
//! and their memory stays allocated until they are done: there is nothing to synchronise.
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
//! A call of NCCL returns within the limit of its communicator ([`CommunicatorOptions::limit`]), or when
//! another thread calls [`Communicator::abort`]. Calls that block, which are faster
//! ([`CommunicatorOptions::blocking`]), do not have this guarantee, and `abort` waits for them; those of [`Ranks`] block
//! by default, since this process makes the calls of all ranks at once. Such a call waits where a stream has no place
//! for more work: some thousand operations behind one that does not end. A program that goes on after such an operation
//! calls [`Ranks::wait`] now and then, or joins with `blocking(false)`.
//!
//! Work that is enqueued waits on its stream for the other ranks, without a limit: [`Communicator::wait`] waits for
//! the work with a limit, and returns the error of a rank that has failed. Then `abort` ends the work, and the
//! stream goes on; where the communicator was dropped, its work is ended when the limit has passed. A process that
//! exits while communicators are being freed waits for that, a second at most.
//!
//! Suppose that a rank enqueues its part of an operation only after another rank has sent it a message by other
//! means. If the sender has enqueued its own part before, and sending waits for earlier work on the same stream,
//! it also waits for the operation, and neither rank goes on. Call
//! [`Stream::checkpoint`](crate::Stream::checkpoint) before the operation: then sending waits only for the work
//! before that.
//!
//! With `CUDA_LAUNCH_BLOCKING=1`, operations of several ranks of one process hang: the launch of one rank
//! does not return before the others have launched.
//!
//! # Registered memory
//! From NCCL 2.19 on, memory can be [registered](Communicator::register): NCCL then sends from it and
//! receives into it without copies through buffers of its own, where the machine allows. For NVLink SHARP
//! that is a [`VirtualBuffer`](crate::virtual_memory::VirtualBuffer) of one
//! [`PhysicalMemory`](crate::virtual_memory::PhysicalMemory) that is shareable as a
//! [file descriptor](crate::interop::ShareableHandle::PosixFd), of a multiple of the size that
//! `cuMulticastGetGranularity` recommends: `ncclMemAlloc` makes such memory. For network cards use
//! [`PhysicalMemory::for_rdma`](crate::virtual_memory::PhysicalMemory::for_rdma), if the device supports
//! it.
//!
//! # Streams
//! NCCL works on threads of its own, so an operation takes a stream that was created, not a default one.
//!
//! Operations can be captured by [`Graph::capture`](crate::Graph::capture): those of a rank on its context,
//! those of all ranks of a process on all their contexts. The graph keeps the communicators.
//! NCCL connects ranks at their first operation; with NCCL 2.28 that may be a captured one. Where it is to run
//! with older ones, enqueue each kind of operation once before:
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
//! Of one [`Ranks`], one thread at a time enqueues operations or launches such a graph; others wait for it, except once
//! they have become [communicators](Ranks::into_communicators).
//! Graphs of several communicators that share devices may wait for each other in a circle, as their operations
//! may (NVIDIA's guide to NCCL, "Using NCCL with CUDA Graphs"): launch one after the work of the other.

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
