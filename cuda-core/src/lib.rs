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
//! * [`Device`]: what there is. [`Context`]: where things live. [`Guard`]: what is current.
//! * [`Stream`]: where work is enqueued. [`Event`]: points of it, for measuring and waiting.
//! * [`DeviceBuffer`], [`PinnedBuffer`], their views, [`Pod`]: memory.
//! * [`Stream::upload`], [`Stream::download`], [`Stream::copy`], [`Stream::fill`]: between buffers.
//! * [`Stream::upload_from`], [`Stream::download_to`], [`Stream::scope`]: borrowed slices.
//! * [`Error`]: what was asked and what stood in the way. [`drop_failures`], [`set_drop_hook`]:
//!   what a `Drop` could not do.

#![allow(
    clippy::result_large_err,
    reason = "`close` hands the value back with the error, and an error names what was asked"
)]

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
mod guard;
mod memory;
mod peer;
mod pool;
mod staged;
mod staging;
mod stream;
mod stream_core;
mod submit;
mod sync;
mod timeline;

pub use context::{Context, ContextFlags, MemoryInfo};
pub use current::{Current, UnknownContext};
pub use device::{Device, DeviceAttribute};
pub use driver::driver_version;
pub use drops::{
    DropFailure, DropHook, Resource, drop_failures, flush_deferred_drops, set_drop_hook,
};
pub use error::{Error, Result};
pub use event::{Event, EventFlags};
pub use guard::Guard;
pub use memory::Memory;
pub use memory::buffer::Buffer;
pub use memory::device::{DeviceBuffer, DeviceMemory, DeviceSlice, DeviceSliceMut};
pub use memory::ledger::Access;
pub use memory::pinned::{PinnedBuffer, PinnedMemory, PinnedSlice, PinnedSliceMut};
pub use memory::pod::Pod;
pub use memory::view::{Slice, SliceMut};
pub use staged::Scope;
pub use staging::trim_staging;
pub use stream::{Kind, PerThreadStream, Shared, Stream, StreamBuilder, ThreadBound};
