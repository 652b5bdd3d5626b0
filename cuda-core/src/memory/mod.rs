//! Memory: blocks of the device and of the host, each with a ledger of the streams that use it.

use std::mem::ManuallyDrop;

use cuda_sys::CUdeviceptr;

use crate::context::{Confined, Context, leave_behind};
use crate::device::Device;
use crate::error::{Error, LengthMismatch, Result};
use crate::process::{FailedRelease, deferred, driver, held};
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

/// What differs between kinds of memory.
pub(crate) trait MemoryKind: Copy + 'static {
    /// The type of a block's address.
    type Address: Copy + Send + Sync;
    /// What keeps a block allocated.
    type Backing: Send + Sync;

    /// What a block that could not be freed is reported as.
    const RESOURCE: Resource;

    /// The address of blocks of no bytes.
    const NOWHERE: Self::Address;

    /// Frees a block after all work that uses it.
    fn free(block: &mut Block<Self>) -> Result<(), FailedRelease>;

    /// Frees a block that only its home stream uses, if that takes no driver call and leaves
    /// nothing of the block to be dropped. Returns whether it did.
    #[inline]
    fn recycle(_block: &mut Block<Self>) -> bool {
        false
    }

    /// Whether freeing the block waits on the host for the work that uses it.
    fn frees_by_waiting(_block: &Block<Self>) -> bool {
        true
    }

    /// Whether that work may wait for other processes, and so for ever.
    fn waits_for_others(_block: &Block<Self>) -> bool {
        false
    }

    /// Frees the block by that function: at once, or when all its work is done, so that no thread waits
    /// for each of many blocks.
    fn free_by(block: Block<Self>, free: fn(Block<Self>, Result<()>)) {
        free(block, Ok(()));
    }

    /// What a graph does with the memory.
    #[inline]
    fn in_graphs(_block: &Block<Self>) -> InGraphs {
        InGraphs::Kept
    }

    /// The context that the block is allocated in.
    fn context_of(backing: &Self::Backing) -> &Context;

    /// The address as a number, for reports.
    fn number(address: Self::Address) -> u64;
}

/// A kind of memory that has addresses, as arrays have not.
pub(crate) trait Located: MemoryKind {
    /// The address of the byte at that offset.
    fn place(block: &Block<Self>, offset: usize) -> Place;

    /// Whether streams of all devices use the block as if it were their own device's.
    #[cold]
    fn is_everywhere(_block: &Block<Self>) -> bool {
        false
    }

    /// The device or context that the memory belongs to, if others need to be given access.
    fn confined_to(_block: &Block<Self>) -> Option<Confined> {
        None
    }

    /// Whether the memory's owner knows that kernels of the device do not reach it for that access. Asked for other
    /// contexts than the memory's.
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
    /// The address in the address space that the host and all devices share.
    pub(crate) fn unified(self) -> CUdeviceptr {
        match self {
            Place::Host(pointer) => pointer.expose_provenance() as CUdeviceptr,
            Place::Device(address) => address,
        }
    }
}

/// An allocation with its ledger.
pub(crate) struct Block<M: MemoryKind> {
    // INVARIANT: unless `bytes` is zero, the first of `bytes` allocated bytes that are not freed
    // before this block frees them.
    pub(crate) address: M::Address,
    pub(crate) bytes: usize,
    pub(crate) ledger: Ledger,
    pub(crate) backing: M::Backing,
}

impl<M: MemoryKind> Block<M> {
    /// A block that no stream uses yet. The caller allocated it.
    pub(crate) fn unused(address: M::Address, bytes: usize, backing: M::Backing) -> Self {
        Self { address, bytes, ledger: Ledger::default(), backing }
    }

    /// What `Drop` does. A block whose last work is on a stream that other code captures is tried
    /// again when later blocks are freed.
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

    /// Frees the block, or leaves it behind, and returns whether it is free; [`None`] if other code
    /// captures the stream of its last work, so that it has to be tried again.
    fn free_unless_held(&mut self) -> Option<bool> {
        match M::free(self) {
            Err(FailedRelease::Kept(error)) if held::is_held(&error) => None,
            freed => Some(freed.map_err(|why| self.leave_behind(why)).is_ok()),
        }
    }

    /// Frees the block, whose buffer was dropped while graphs used it. Dropping the last graph does not
    /// wait for work that uses the memory.
    fn free_from_graphs(self) {
        let uses = self.ledger.last_uses(&self.whole());
        let waits = M::frees_by_waiting(&self) && !uses.are_known_reached();
        let free = move || self.free_or_keep();
        if waits || deferred::must_not_run_here() { deferred::run_elsewhere(free) } else { free() }
    }

    /// What the drop of its owner does with a block that has bytes.
    fn end(mut self) {
        // In a fork's child, a thread that does not exist there may hold the shared ledger's lock.
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

    fn leave_behind(&self, why: FailedRelease) {
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
    /// It had bytes, which may still be allocated; see [`crate::process::release`].
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

    /// Refuses memory that was given up, of which no bytes are left here.
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

    /// Refuses memory that a graph uses.
    pub(crate) fn require_no_graph(&self, op: &'static str) -> Result<()> {
        let free = !self.block.ledger.is_in_graphs();
        Error::unless(free, op, "a graph uses the memory")
    }

    /// [`note_use`] of these bytes.
    pub(crate) fn note_use<K: StreamKind>(
        &self,
        stream: &Stream<K>,
        range: &Bytes,
        access: Access,
    ) -> Result<()> {
        note_use(stream.core(), &self.block.ledger, range, access, M::in_graphs(&self.block))
    }

    /// What `Drop` does, but returns the error. Unless the block was kept, nothing of it is left.
    pub(crate) fn free(&mut self) -> Result<()> {
        self.ensure()?;
        let (address, bytes) = (self.block.address, self.block.bytes);
        if bytes == 0 {
            return Ok(());
        }
        self.require_no_graph("close")?;
        let freed = M::free(&mut self.block);
        if let Err(FailedRelease::Kept(error)) = freed {
            return Err(error);
        }
        self.block.address = M::NOWHERE;
        self.block.bytes = 0;
        self.given_up = freed.is_err();
        freed.map_err(|why| why.into_reported(M::RESOURCE, M::number(address), bytes))
    }

    /// Leaves the memory to the caller: it is not freed here any more.
    pub(crate) fn disown(&mut self) {
        self.block.address = M::NOWHERE;
        self.block.bytes = 0;
    }

    /// What `Drop` does, if it may run here; returns whether nothing is left of the memory, [`None`] if
    /// it has to be tried again.
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
        // SAFETY: the field is not touched after this, which is the end of the drop.
        let block = unsafe { ManuallyDrop::take(&mut self.block) };
        if block.bytes > 0 {
            block.end();
        }
    }
}

/// Size of `len` elements of `T`, if an object may have that many bytes and `T` fits memory that is
/// aligned to `alignment`.
pub(crate) fn byte_len<T>(len: usize, alignment: usize) -> Result<usize> {
    if align_of::<T>() > alignment {
        return Err(over_aligned(align_of::<T>(), alignment));
    }
    len.checked_mul(size_of::<T>())
        .filter(|bytes| *bytes <= isize::MAX as usize)
        .ok_or(Error::SizeOverflow { len, element_size: size_of::<T>() })
}

/// How many elements of type `T` the bytes at `address` are. No bytes are no elements of any size, but
/// their address must still be aligned for `T`.
pub(crate) fn elements<T>(bytes: usize, address: u64) -> Result<usize> {
    let len = bytes.checked_div(size_of::<T>()).unwrap_or(0);
    if len * size_of::<T>() == bytes && address % align_of::<T>() as u64 == 0 {
        return Ok(len);
    }
    Err(not_elements(bytes, address, size_of::<T>(), align_of::<T>()))
}

#[cold]
fn not_elements(bytes: usize, address: u64, size: usize, alignment: usize) -> Error {
    let why = format!(
        "{bytes} bytes at address {address:#x} are not a whole number of elements of {size} bytes \
         aligned to {alignment}"
    );
    Error::invalid("cast", why)
}

#[cold]
fn over_aligned(alignment: usize, available: usize) -> Error {
    let why =
        format!("elements aligned to {alignment} bytes do not fit memory aligned to {available}");
    Error::invalid("allocation", why)
}

/// Refuses the number of a thing, `what` in the singular, of which there are `len`.
pub(crate) fn within(op: &'static str, what: &str, index: usize, len: usize) -> Result<()> {
    let why = || format!("there is no {what} {index} among {len}, counted from 0");
    Error::unless_with(index < len, op, why)
}

/// Refuses a copy between slices of different length.
#[inline]
pub(crate) fn same_len(op: &'static str, source_len: usize, destination_len: usize) -> Result<()> {
    let differ = || LengthMismatch { op, source_len, destination_len }.into();
    if source_len == destination_len { Ok(()) } else { Err(differ()) }
}
