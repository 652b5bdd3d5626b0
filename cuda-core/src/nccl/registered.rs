//! Memory that is registered with a communicator.

use std::ffi::c_void;
use std::mem;
use std::ptr;
use std::sync::Arc;

use cuda_sys::CUdeviceptr;

use super::communicator::Communicator;
use super::joined::Joined;
use super::library::{Deregister, missing};
use super::polling::NcclScope;
use super::ranks::Ranks;
use super::remains::free_after;
use crate::alloc::plain::Plain;
use crate::alloc::{DeviceBacking, MemoryOwner, OwnerTraits};
use crate::device::Device;
use crate::error::{Error, Rejected, Result, WrongContext};
use crate::memory::{Buffer, DeviceMemory, Storage};
use crate::process::{Failed, Handle, deferred, driver};
use crate::timeline::ledger::Access;
use crate::types::Pod;

/// Device memory registered with a communicator, made by [`Communicator::register`]: a buffer of
/// fixed size, with the same views as others.
///
/// **Drop** does not wait for the work that uses the memory: when that work has completed, the
/// memory is deregistered and freed. Drop waits at most for a call of the communicator that another
/// thread is making, which has no limit if it [blocks](super::CommunicatorOptions::blocking). Work
/// that waits for a lost rank never completes: call [`Communicator::abort`]. Graphs keep the memory
/// registered. If an abort waits for graphs, the memory is freed after the abort, later than a
/// `close` or [`drops::flush`](crate::drops::flush) that follows. The memory keeps the
/// communicator, unless that was aborted.
pub type RegisteredBuffer<T> = Buffer<T, DeviceMemory, Registration>;

/// Marks a [`RegisteredBuffer`], as opposed to a [`DeviceBuffer`](crate::DeviceBuffer).
#[derive(Debug)]
pub struct Registration(());

/// The owner of registered memory.
struct RegisteredOwner {
    joined: Arc<Joined>,
    // INVARIANT: a registration with `joined`, or null. Freeing the communicator also ends it.
    handle: Handle<*mut c_void>,
    deregister: Deregister,
    owner: Box<dyn MemoryOwner>,
    bytes: usize,
}

impl MemoryOwner for RegisteredOwner {
    fn release(&mut self, address: CUdeviceptr) -> Result<(), Failed> {
        if !self.deregister()? {
            let Self { joined, owner, bytes, .. } = self;
            let free = || free_after(taken(owner), address, *bytes);
            if joined.ending.takes(joined.rank, free).map_err(Failed::Unknown)? {
                return Ok(());
            }
        }
        self.owner.release(address)
    }

    fn traits(&self) -> OwnerTraits {
        OwnerTraits { waits_for_others: true, plain: false, ..self.owner.traits() }
    }

    fn is_open_to(&self, device: Device, access: Access) -> bool {
        self.owner.is_open_to(device, access)
    }

    fn is_registered_with(&self, communicator: usize) -> bool {
        let own = Arc::as_ptr(&self.joined).addr() == communicator;
        own || self.owner.is_registered_with(communicator)
    }
}

/// Takes the owner out of its place, and leaves a placeholder that must not be asked to release
/// anything.
fn taken(owner: &mut Box<dyn MemoryOwner>) -> Box<dyn MemoryOwner> {
    mem::replace(owner, Box::new(Plain))
}

impl RegisteredOwner {
    /// Ends the registration. Returns false if the communicator was aborted, which ends the
    /// registration, too.
    fn deregister(&mut self) -> Result<bool, Failed> {
        if self.handle.0.is_null() {
            return Ok(true);
        }
        let _scope = NcclScope::relaxed(&self.joined.context)?;
        // A thread that calls the communicator may wait for a drop that is queued behind this one.
        deferred::hand_over();
        let mut held = self.joined.hold_as_it_is();
        let handle = mem::replace(&mut self.handle, Handle(ptr::null_mut()));
        if held.raw().is_null() {
            return Ok(false);
        }
        // SAFETY: the communicator is live and locked; by the invariant the registration belongs to
        // it, and is ended once. The work that used the memory has completed.
        let code = unsafe { (self.deregister)(held.raw(), handle.0) };
        held.finish("ncclCommDeregister", code).map_err(Failed::Unknown)?;
        Ok(true)
    }
}

/// NCCL registers whole host pages: at most 64 KiB on the machines that CUDA supports.
const PAGE: u64 = 64 << 10;

/// The registering function, as errors name it.
const REGISTER: &str = "ncclCommRegister";

impl Joined {
    /// Registers the first `bytes` of memory, and makes its owner end the registration on release.
    fn register(self: &Arc<Self>, storage: &mut Storage<DeviceMemory>, bytes: usize) -> Result<()> {
        driver::ensure()?;
        storage.ensure()?;
        let block = storage.block();
        let whole = block.bytes;
        self.context.device().require_same(REGISTER, block.backing.device())?;
        block.backing.require_home_in(REGISTER, &self.context)?;
        if bytes == 0 {
            return Ok(());
        }
        let (Some(register), Some(deregister)) = (self.nccl.register, self.nccl.deregister) else {
            return Err(missing(REGISTER));
        };
        let pages = block.address % PAGE == 0 && block.bytes as u64 % PAGE == 0;
        let is_owned = matches!(block.backing, DeviceBacking::Owned { .. });
        let own = is_owned && !block.backing.traits().freed_by_work;
        let why =
            "NCCL registers whole pages, and other memory may share these: use a `VirtualBuffer`";
        Error::unless(own && pages, REGISTER, why)?;
        let address = ptr::without_provenance_mut(block.address as usize);
        let mut handle = ptr::null_mut();
        let _scope = NcclScope::relaxed(&self.context)?;
        let mut held = self.hold(REGISTER)?;
        // SAFETY: the communicator is live and locked, with its context current; the memory is of
        // its device, and is freed after it is deregistered, since its owner does both. The call
        // writes one handle, to a local that outlives it.
        let code = unsafe { register(held.raw(), address, bytes, &mut handle) };
        let registered = held.finish(REGISTER, code);
        if registered.is_err() && !handle.is_null() && !held.raw().is_null() {
            // The caller gets the memory back, and may unmap pages of it.
            // SAFETY: as above; the registration is ended once, and nothing has used it.
            let code = unsafe { deregister(held.raw(), handle) };
            if held.finish("ncclCommDeregister", code).is_ok() {
                handle = ptr::null_mut();
            }
        }
        drop(held);
        if registered.is_err() && handle.is_null() {
            return registered;
        }
        // Also done if the registration could not be ended, as during an abort: the memory is then
        // freed after the abort.
        if let DeviceBacking::Owned { owner, .. } = storage.backing_mut() {
            let (joined, handle, inner) = (self.clone(), Handle(handle), taken(owner));
            *owner = Box::new(RegisteredOwner {
                joined,
                handle,
                deregister,
                owner: inner,
                bytes: whole,
            });
        }
        registered
    }
}

/// # Registering memory
impl Communicator {
    /// Lets NCCL use the memory without copies through buffers of its own: `ncclCommRegister`. If
    /// the machine does not allow this, operations work as with other memory.
    ///
    /// All ranks must register alike: see the promise of [`init_rank`](Self::init_rank). Memory
    /// that is registered with one communicator can also be registered with others.
    ///
    /// # Errors
    /// [`Error::Invalid`] for memory that is freed in the order of a stream, and unless the memory
    /// begins and ends at multiples of 64 KiB: use a
    /// [`VirtualBuffer`](crate::virtual_memory::VirtualBuffer); [`Error::WrongDevice`],
    /// [`Error::WrongContext`]; [`NcclError::Missing`](crate::NcclError::Missing) before NCCL 2.19;
    /// [`Error::Nccl`]. The error holds the buffer itself.
    ///
    /// ```no_run
    /// use cuda_core::interop::ShareableHandle;
    /// use cuda_core::nccl::{Communicator, Reduction};
    /// use cuda_core::virtual_memory::{PhysicalMemory, VirtualBuffer};
    ///
    /// # fn step(communicator: Communicator, stream: cuda_core::Stream) -> cuda_core::Result<()> {
    /// let context = communicator.context();
    /// let memory = PhysicalMemory::new(context, 64 << 20, ShareableHandle::PosixFd)?;
    /// let mut gradients = VirtualBuffer::<f32>::new(context, 16 << 20)?;
    /// gradients.append(memory)?;
    /// let mut gradients = communicator.register(gradients)?;
    /// stream.fill(&mut gradients, 1.0)?;
    /// communicator.on(&stream)?.all_reduce_in_place(&mut gradients, Reduction::Average)?;
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias("ncclCommRegister", "ncclCommDeregister", "ncclMemAlloc"))]
    pub fn register<T: Pod, X>(
        &self,
        mut buffer: Buffer<T, DeviceMemory, X>,
    ) -> Result<RegisteredBuffer<T>, Rejected<Buffer<T, DeviceMemory, X>>> {
        let (len, bytes) = (buffer.len(), buffer.byte_len());
        let registered = self.0.register(&mut buffer.storage, bytes);
        let ((), buffer) = Rejected::unless(registered, buffer)?;
        Ok(Buffer::with_extra(buffer.storage, len, Registration(())))
    }
}

/// # Registering memory
impl Ranks {
    /// Runs [`Communicator::register`] at the rank of the memory's device. Operations take
    /// registered memory at all ranks, or at none. NCCL uses it without copies if the parts that an
    /// operation takes lie at the same place in all registered buffers.
    ///
    /// # Errors
    /// As [`Communicator::register`]; [`Error::WrongContext`] for memory of a device without a
    /// rank.
    ///
    /// ```no_run
    /// # let contexts = cuda_core::Device::contexts(cuda_core::Device::all()?)?;
    /// # let streams = contexts.iter().map(|it| it.create_stream()).collect::<Result<Vec<_>, _>>()?;
    /// # let ranks = cuda_core::nccl::Ranks::init_all(&contexts)?;
    /// use cuda_core::interop::ShareableHandle;
    /// use cuda_core::nccl::Reduction;
    /// use cuda_core::virtual_memory::{PhysicalMemory, VirtualBuffer};
    ///
    /// let mut gradients = Vec::new();
    /// for context in &contexts {
    ///     let mut memory = VirtualBuffer::<f32>::new(context, 16 << 20)?;
    ///     memory.append(PhysicalMemory::new(context, 64 << 20, ShareableHandle::PosixFd)?)?;
    ///     gradients.push(ranks.register(memory)?);
    /// }
    /// ranks.on(&streams)?.all_reduce_in_place(&mut gradients, Reduction::Average)?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("ncclCommRegister", "ncclCommDeregister"))]
    pub fn register<T: Pod, X>(
        &self,
        buffer: Buffer<T, DeviceMemory, X>,
    ) -> Result<RegisteredBuffer<T>, Rejected<Buffer<T, DeviceMemory, X>>> {
        match self.of(buffer.device()) {
            Some(rank) => rank.register(buffer),
            None => {
                let error = Error::from(WrongContext { op: REGISTER, what: "memory".into() });
                Err(Rejected::new(error, buffer))
            }
        }
    }
}
