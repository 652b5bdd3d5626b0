//! Memory: blocks on the device and on the host, each with a ledger of the streams that use it.

use std::mem::ManuallyDrop;

use cuda_sys::CUdeviceptr;

use crate::context::{Confined, Context, leave_behind};
use crate::device::Device;
use crate::error::{Error, LengthMismatch, Result};
use crate::process::{Failed, deferred, driver, held};
use crate::stream::{Stream, StreamKind};
use crate::timeline::ledger::{Access, Bytes, InGraphs, Ledger};
use crate::timeline::note_use;
use crate::types::Resource;
use crate::util::OnDrop;

pub(crate) mod attributes;
pub(crate) mod buffer;
pub(crate) mod device;
pub(crate) mod into_view;
pub(crate) mod shared;
pub(crate) mod view;

pub(crate) use attributes::{PointerAttributes, is_pinned};
pub(crate) use buffer::Buffer;
pub(crate) use device::{
    ALIGNMENT, DeviceBuffer, DeviceMemory, DeviceSlice, DeviceSliceMut, NOWHERE,
};
pub(crate) use into_view::{IntoView, views};
pub(crate) use shared::SharedSlice;
pub(crate) use view::{Slice, SliceMut, bounds};

/// A kind of memory: of the device ([`DeviceMemory`]), or pinned on the host
/// ([`PinnedMemory`](crate::PinnedMemory)). Copies [in rows](crate::Stream::copy_pitched) begin and
/// end at either. Sealed.
///
/// ```no_run
/// # let stream = cuda_core::Device::get(0)?.create_stream()?;
/// use cuda_core::{Buffer, Memory, Pod, Result, Slice};
///
/// fn ends<T: Pod, M: Memory>(buffer: &Buffer<T, M>) -> Result<[Slice<'_, T, M>; 2]> {
///     Ok([buffer.slice(..1)?, buffer.slice(buffer.len() - 1..)?])
/// }
/// let buffer = stream.alloc::<u64>(100)?;
/// let [first, last] = ends(&buffer)?;
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[allow(private_bounds, reason = "that bound is the seal")]
pub trait Memory: Located {}

impl<M: Located> Memory for M {}

/// The operations and types that differ between kinds of memory.
pub(crate) trait MemoryKind: Copy + 'static {
    /// The type of a block's address.
    type Address: Copy + Send + Sync;
    /// The value that keeps a block allocated.
    type Backing: Send + Sync;

    /// The resource as which a block that could not be freed is reported.
    const RESOURCE: Resource;

    /// The address of blocks of zero bytes.
    const NOWHERE: Self::Address;

    /// Frees a block after all work that uses it.
    fn free(block: &mut Block<Self>) -> Result<(), Failed>;

    /// Frees a block that only its home stream uses, if that takes no driver call and leaves no part of
    /// the block to drop. Returns whether the block was freed.
    #[inline]
    fn recycle(_block: &mut Block<Self>) -> bool {
        false
    }

    /// Whether freeing the block waits on the host for the work that uses it.
    fn frees_by_waiting(_block: &Block<Self>) -> bool {
        true
    }

    /// Whether the work that uses the block may wait for other processes, and so forever.
    fn waits_for_others(_block: &Block<Self>) -> bool {
        false
    }

    /// Calls `free` with the block: at once, or when all work on the block is done, so that no thread
    /// waits for each of many blocks.
    fn free_by(block: Block<Self>, free: fn(Block<Self>, Result<()>)) {
        free(block, Ok(()));
    }

    /// How a graph treats the memory.
    #[inline]
    fn in_graphs(_block: &Block<Self>) -> InGraphs {
        InGraphs::Kept
    }

    /// The context that the block is allocated in.
    fn context_of(backing: &Self::Backing) -> &Context;

    /// Returns the address as a number, for reports.
    fn number(address: Self::Address) -> u64;
}

/// A kind of memory that has addresses; arrays have none.
pub(crate) trait Located: MemoryKind {
    /// Returns the address of the byte at `offset`.
    fn place(block: &Block<Self>, offset: usize) -> Place;

    /// Whether streams of all devices use the block as if it were on their own device.
    #[cold]
    fn is_everywhere(_block: &Block<Self>) -> bool {
        false
    }

    /// Returns the device or context that the memory belongs to, if others need to be given access.
    fn confined_to(_block: &Block<Self>) -> Option<Confined> {
        None
    }

    /// Whether the memory's owner knows that kernels of the device have no such access to it. Called
    /// only for contexts other than the memory's.
    fn is_closed_to(_block: &Block<Self>, _device: Device, _access: Access) -> bool {
        false
    }
}

/// The address of memory.
#[derive(Clone, Copy)]
pub(crate) enum Place {
    Host(*mut u8),
    Device(CUdeviceptr),
}

impl Place {
    /// Returns the address in the address space that the host and all devices share.
    pub(crate) fn unified(self) -> CUdeviceptr {
        match self {
            Place::Host(pointer) => pointer.expose_provenance() as CUdeviceptr,
            Place::Device(address) => address,
        }
    }
}

/// An allocation with its ledger.
pub(crate) struct Block<M: MemoryKind> {
    // INVARIANT: unless `bytes` is zero, `address` is that of the first of `bytes` allocated bytes,
    // which are not freed before this block frees them.
    pub(crate) address: M::Address,
    pub(crate) bytes: usize,
    pub(crate) ledger: Ledger,
    pub(crate) backing: M::Backing,
}

impl<M: MemoryKind> Block<M> {
    /// Creates a block that no stream uses yet, of memory that the caller allocated.
    pub(crate) fn unused(address: M::Address, bytes: usize, backing: M::Backing) -> Self {
        Self { address, bytes, ledger: Ledger::default(), backing }
    }

    /// Frees the block as `Drop` does. If other code captures the stream of its last work, freeing is
    /// retried when later blocks are freed.
    fn free_or_keep(self)
    where
        M::Address: 'static,
        M::Backing: 'static,
    {
        M::free_by(self, |mut block, done| match done {
            Err(error) => block.leave_behind(error.into()),
            Ok(()) if block.free_unless_held().is_some() => {}
            Ok(()) => held::keep(move || block.free_or_keep()),
        });
    }

    /// Frees the block, or leaves it behind, and returns whether it was freed. Returns [`None`] if
    /// other code captures the stream of the block's last work: the caller must try again.
    fn free_unless_held(&mut self) -> Option<bool> {
        match M::free(self) {
            Err(Failed::Refused(error)) if held::is_held(&error) => None,
            freed => Some(freed.map_err(|why| self.leave_behind(why)).is_ok()),
        }
    }

    /// Frees a block whose buffer was dropped while graphs used it. The drop of the last graph does not
    /// wait for work that uses the memory.
    fn free_from_graphs(self) {
        let uses = self.ledger.last_uses(&self.whole());
        let waits = M::frees_by_waiting(&self) && !uses.are_known_reached();
        let free = move || self.free_or_keep();
        if waits || deferred::must_not_run_here() { deferred::run_elsewhere(free) } else { free() }
    }

    /// Ends a non-empty block when its owner is dropped.
    fn end(mut self) {
        // In a forked child, a thread that exists only in the parent may hold the shared ledger's lock.
        let shared = self.ledger.shared().filter(|_| !driver::is_gone());
        if let Some(shared) = shared.cloned() {
            return shared.take_over(OnDrop::new(move || self.free_from_graphs()));
        }
        if deferred::must_not_run_here() {
            return deferred::run_elsewhere(move || self.free_or_keep());
        }
        if M::waits_for_others(&self) {
            self.free_or_keep();
        } else if self.free_unless_held().is_some() {
            drop(self);
        } else {
            held::keep(move || self.free_or_keep());
        }
        held::retry();
    }

    fn leave_behind(&self, why: Failed) {
        let (context, address) = (M::context_of(&self.backing), M::number(self.address));
        leave_behind(context, M::RESOURCE, address, self.bytes, why);
    }

    pub(crate) fn whole(&self) -> Bytes {
        0..self.bytes
    }
}

/// An allocation that frees itself.
pub(crate) struct Storage<M: MemoryKind> {
    // INVARIANT: taken only by `Drop`.
    block: ManuallyDrop<Block<M>>,
    /// The block had bytes that may still be allocated; see [`crate::process::effect`].
    given_up: bool,
}

impl<M: MemoryKind> Storage<M> {
    pub(crate) fn new(block: Block<M>) -> Self {
        Self { block: ManuallyDrop::new(block), given_up: false }
    }

    #[inline]
    pub(crate) fn block(&self) -> &Block<M> {
        &self.block
    }

    #[inline]
    pub(crate) fn ledger_mut(&mut self) -> &mut Ledger {
        &mut self.block.ledger
    }

    pub(crate) fn backing_mut(&mut self) -> &mut M::Backing {
        &mut self.block.backing
    }

    /// Returns an error if the memory was given up; its length is then zero.
    #[inline]
    pub(crate) fn ensure(&self) -> Result<()> {
        if self.given_up { Err(Error::GivenUp { what: M::RESOURCE }) } else { Ok(()) }
    }

    /// The context that the memory belongs to.
    #[inline]
    pub(crate) fn context(&self) -> &Context {
        M::context_of(&self.block.backing)
    }

    /// Blocks the thread until no stream uses `range` any more.
    pub(crate) fn wait_for(&self, range: &Bytes) -> Result<()> {
        self.block.ledger.last_uses(range).wait_host()?;
        self.block.ledger.prune(range);
        Ok(())
    }

    /// [`Ledger::synchronize`] of the whole block.
    pub(crate) fn synchronize(&self, access: Access) -> Result<()> {
        self.block.ledger.synchronize(&self.block.whole(), access)
    }

    /// Returns an error if a graph uses the memory.
    pub(crate) fn require_no_graph(&self, op: &'static str) -> Result<()> {
        let free = !self.block.ledger.is_in_graphs();
        let why = "a graph uses the memory: drop the graph and its executables first";
        Error::unless(free, op, why)
    }

    /// Calls [`note_use`] for these bytes.
    pub(crate) fn note_use<K: StreamKind>(
        &self,
        stream: &Stream<K>,
        range: &Bytes,
        access: Access,
    ) -> Result<()> {
        note_use(stream.core(), &self.block.ledger, range, access, M::in_graphs(&self.block))
    }

    /// Frees the block as `Drop` does, but returns the error. Unless the block was
    /// [kept](Failed::Refused), the storage is then empty.
    pub(crate) fn free(&mut self) -> Result<()> {
        self.ensure()?;
        let (address, bytes) = (self.block.address, self.block.bytes);
        if bytes == 0 {
            return Ok(());
        }
        self.require_no_graph("close")?;
        let freed = M::free(&mut self.block);
        if let Err(Failed::Refused(error)) = freed {
            return Err(error);
        }
        self.block.address = M::NOWHERE;
        self.block.bytes = 0;
        self.given_up = freed.is_err();
        freed.map_err(|why| why.into_reported(M::RESOURCE, M::number(address), bytes))
    }

    /// Leaves the memory to the caller: this storage no longer frees it.
    pub(crate) fn disown(&mut self) {
        self.block.address = M::NOWHERE;
        self.block.bytes = 0;
    }

    /// Frees the block as `Drop` does; the caller ensures that this may run here. Returns whether the
    /// memory was freed, [`None`] if the caller must try again.
    pub(crate) fn free_or_give_up(&mut self) -> Option<bool> {
        if self.block.bytes > 0 {
            self.given_up = !self.block.free_unless_held()?;
            self.block.bytes = 0;
        }
        Some(!self.given_up)
    }
}

impl<M: MemoryKind> Drop for Storage<M> {
    #[inline]
    fn drop(&mut self) {
        if self.block.bytes > 0 && !driver::is_gone() && M::recycle(&mut self.block) {
            return;
        }
        // SAFETY: this is the end of the drop; nothing touches the field afterwards.
        let block = unsafe { ManuallyDrop::take(&mut self.block) };
        if block.bytes > 0 {
            block.end();
        }
    }
}

/// Returns the size of `len` elements of `T`, if an object may have that many bytes and `T` fits memory
/// aligned to `alignment`.
pub(crate) fn byte_len<T>(len: usize, alignment: usize) -> Result<usize> {
    if align_of::<T>() > alignment {
        return Err(over_aligned(align_of::<T>(), alignment));
    }
    len.checked_mul(size_of::<T>())
        .filter(|bytes| *bytes <= isize::MAX as usize)
        .ok_or(Error::SizeOverflow { len, element_size: size_of::<T>() })
}

/// Returns how many elements of type `T` the bytes at `address` hold. Zero bytes hold zero elements of
/// any type, but their address must still be aligned for `T`.
pub(crate) fn elements<T>(op: &'static str, bytes: usize, address: u64) -> Result<usize> {
    let len = bytes.checked_div(size_of::<T>()).unwrap_or(0);
    if len * size_of::<T>() == bytes && address % align_of::<T>() as u64 == 0 {
        return Ok(len);
    }
    Err(not_elements(op, bytes, address, size_of::<T>(), align_of::<T>()))
}

#[cold]
fn not_elements(
    op: &'static str,
    bytes: usize,
    address: u64,
    size: usize,
    alignment: usize,
) -> Error {
    let why = format!(
        "{bytes} bytes at address {address:#x} are not a whole number of elements of {size} bytes \
         aligned to {alignment}"
    );
    Error::invalid(op, why)
}

#[cold]
fn over_aligned(alignment: usize, available: usize) -> Error {
    let why =
        format!("elements aligned to {alignment} bytes do not fit memory aligned to {available}");
    Error::invalid("allocation", why)
}

/// Returns an error unless `index` is less than `len`; `what` names the thing in the singular.
pub(crate) fn within(op: &'static str, what: &str, index: usize, len: usize) -> Result<()> {
    let why = || format!("there is no {what} {index} among {len}, counted from 0");
    Error::unless_with(index < len, op, why)
}

/// Returns an error if source and destination differ in length.
#[inline]
pub(crate) fn same_len(op: &'static str, source_len: usize, destination_len: usize) -> Result<()> {
    let differ = || LengthMismatch { op, source_len, destination_len }.into();
    if source_len == destination_len { Ok(()) } else { Err(differ()) }
}
