//! Access of one device to another's memory.

mod gate;

use std::sync::{Mutex, MutexGuard};

use cuda_sys::symbol as cu;

use crate::context::{self, Context, RawContext};
use crate::device::default_pool::RawPool;
use crate::device::{Device, default_pool};
use crate::error::{Error, PeerAccessInUse, Result, asked};
use crate::process::{DeferForeignCode, driver};
use crate::util::{lock, raw_enum};

pub(crate) use gate::{ClosedGate, Crossing, Exposed, Moment, crossed_by_graphs, crossing};

raw_enum! {
    /// What another device may do with memory.
    ///
    /// ```no_run
    /// use cuda_core::{Device, PeerAccess, virtual_memory::VirtualBuffer};
    ///
    /// let (one, two) = (Device::get(0)?, Device::get(1)?);
    /// let mut table = VirtualBuffer::<f32>::new(&one.context()?, 1 << 30)?;
    /// table.grow_to(1 << 20)?;
    /// table.set_access(two, PeerAccess::ReadWrite)?; // also to what comes later
    /// assert_eq!(table.access(two)?, PeerAccess::ReadWrite);
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    PeerAccess: CUmemAccess_flags {
        /// Nothing.
        None = CU_MEM_ACCESS_FLAGS_PROT_NONE,
        /// Read it.
        Read = CU_MEM_ACCESS_FLAGS_PROT_READ,
        /// Read and write it.
        ReadWrite = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
    }
}

/// # Access to other devices
impl Device {
    /// Whether this device can be given access to `peer`'s memory: `cuDeviceCanAccessPeer`. A
    /// device is no peer of itself.
    ///
    /// # Errors
    /// The driver's, if a device has been lost. Devices without support are `Ok(false)`.
    ///
    /// ```no_run
    /// use cuda_core::Device;
    ///
    /// let (one, two) = (Device::get(0)?, Device::get(1)?);
    /// if one.can_access_peer(two)? {
    ///     one.context()?.enable_peer_access(&two.context()?)?;
    /// }
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuDeviceCanAccessPeer", "cudaDeviceCanAccessPeer"))]
    pub fn can_access_peer(self, peer: Device) -> Result<bool> {
        driver::ensure()?;
        if self == peer {
            return Ok(false);
        }
        // SAFETY: both are handles that the driver gave; the call writes one int, to a borrow of one.
        let can = asked("cuDeviceCanAccessPeer", 0, |can| unsafe {
            cu::cuDeviceCanAccessPeer(can, self.as_raw(), peer.as_raw())
        })?;
        Ok(can != 0)
    }
}

/// # Access to other devices
impl Context {
    /// Gives this context access to the memory of `peer`, a context of another device:
    /// `cuCtxEnablePeerAccess`. Also gives this context's device access to the default pool of `peer`'s
    /// device: `cuMemPoolSetAccess`. Without access, copies run at a tenth of the speed. A second call does
    /// nothing.
    ///
    /// Memory of `peer` from [caching pools](crate::CachingPool) and [`Context::alloc`] belongs to that
    /// context: a kernel needs access for its own context. Memory from the driver's pool becomes accessible
    /// to all contexts of this device.
    ///
    /// Access is one-way; copies are fastest when both devices have it. Green contexts share the access of
    /// their device's primary context: giving or revoking it affects all of them.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a context of the same device; the driver's `PEER_ACCESS_UNSUPPORTED` for
    /// devices without support.
    ///
    /// ```no_run
    /// use cuda_core::Device;
    ///
    /// let (a, b) = (Device::get(0)?.context()?, Device::get(1)?.context()?);
    /// a.enable_peer_access(&b)?;
    /// b.enable_peer_access(&a)?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuCtxEnablePeerAccess", "cuMemPoolSetAccess"))]
    #[doc(alias("cudaDeviceEnablePeerAccess", "cudaMemPoolSetAccess"))]
    pub fn enable_peer_access(&self, peer: &Context) -> Result<()> {
        let (op, far) = ("cuCtxEnablePeerAccess", peer.live()?);
        let (device, owner) = (self.device(), peer.device());
        let same =
            "both contexts are of the same device: access is given to another device's memory";
        Error::unless(device != owner, op, same)?;
        let _changes = Changes::begin();
        // SAFETY: `peer` is live; flags must be zero.
        let enabled = self.call(op, (), |()| unsafe { cu::cuCtxEnablePeerAccess(far.0, 0) });
        match enabled {
            Err(Error::Driver { code, .. })
                if code == cuda_sys::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED => {}
            other => other?,
        }
        default_pool::set_access(owner, device, cuda_sys::CU_MEM_ACCESS_FLAGS_PROT_READWRITE)?;
        let (context, far) = (self.address_space(), peer.address_space());
        let (pool, ending) = (true, false);
        let mut enabled = lock(&ENABLED);
        enabled.retain(|access| !access.is_of(context, far));
        enabled.push(ContextAccess { context, far, device, peer: owner, pool, ending });
        Ok(())
    }

    /// Revokes the access, once the work of both devices has completed: `cuCtxDisablePeerAccess`,
    /// `cuMemPoolSetAccess`. Copies still work, more slowly.
    ///
    /// Launches of graphs with kernels that need the access are refused until it is given again. Executable
    /// graphs with copies between the two devices are refused permanently, since they may depend on the
    /// access: instantiate the graph again. Capture the graph again if it copies memory of the
    /// [driver's pools](crate::MemoryPool) between the devices, or has kernels that use such memory of the
    /// other device.
    ///
    /// Waits for all contexts of both devices that this crate knows, since they share their device's pool.
    /// Once a graph that needs the access was captured, waits for the contexts of all devices. Waits again if
    /// another thread meanwhile enqueues a copy between the devices, or a kernel or a graph that uses the
    /// other's memory; work of other libraries counts once it is enqueued. The pool stays open while another
    /// context of the device has access, or if
    /// [`MemoryPool::set_access`](crate::MemoryPool::set_access) opened it.
    ///
    /// # Errors
    /// The driver's `PEER_ACCESS_NOT_ENABLED` if there was none; [`Error::PeerAccessInUse`] while both
    /// contexts have a rank of [NCCL](crate::nccl), which may give itself this access and use it, or if other
    /// threads keep enqueuing such work; those of [`Context::synchronize`] of each context that is waited
    /// for. After any other driver error, launches treat the access as revoked until it is enabled again.
    #[doc(alias("cuCtxDisablePeerAccess", "cuMemPoolSetAccess"))]
    #[doc(alias("cudaDeviceDisablePeerAccess", "cudaMemPoolSetAccess"))]
    pub fn disable_peer_access(&self, peer: &Context) -> Result<()> {
        let far = peer.live()?;
        let (to, owner) = (self.device(), peer.device());
        // Begun first, so that it ends last: a drop hook may copy between these two devices.
        let _quiet = DeferForeignCode::begin();
        let unless_exposed = || match gate::are_exposed(self, peer) {
            true => Err(in_use(to, owner, "NCCL has ranks on both, and may use it")),
            false => Ok(()),
        };
        // Checked before the wait, too: work of ranks may wait for a rank that has failed.
        unless_exposed()?;
        let closed = close(to, owner)?;
        unless_exposed()?;
        let _changes = Changes::begin();
        let spaces = (self.address_space(), peer.address_space());
        let this = |access: &ContextAccess| access.is_of(spaces.0, spaces.1);
        let disabled = self.call("cuCtxDisablePeerAccess", (), |()| {
            for access in lock(&ENABLED).iter_mut().filter(|access| this(access)) {
                access.ending = true;
            }
            // SAFETY: `peer` is live; no work that needs the access is queued.
            unsafe { cu::cuCtxDisablePeerAccess(far.0) }
        });
        let refused = disabled.as_ref().err().and_then(Error::code);
        let was_none = refused == Some(cuda_sys::CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
        // With an entry left, this is a repeated call, after closing the pool failed.
        if was_none && !lock(&ENABLED).iter().any(this) {
            return disabled;
        }
        closed.note_revocation();
        if !was_none {
            disabled?;
        }
        let needed_by_others = lock(&ENABLED).iter().any(|access| access.opens_pool(to, owner));
        let open = |pool| lock(&OPEN_POOLS).contains(&OpenPool { pool, owner, to });
        if !needed_by_others && !owner.default_pool()?.is_some_and(open) {
            default_pool::set_access(owner, to, cuda_sys::CU_MEM_ACCESS_FLAGS_PROT_NONE)?;
        }
        lock(&ENABLED).retain(|access| !this(access));
        Ok(())
    }
}

/// Held by the one thread that gives or revokes access, and records the effect. That thread does not wait
/// meanwhile.
pub(crate) struct Changes {
    _one: MutexGuard<'static, ()>,
    /// Ends last: a drop hook may give or revoke access, too.
    _quiet: DeferForeignCode,
}

impl Changes {
    pub(crate) fn begin() -> Self {
        static CHANGES: Mutex<()> = Mutex::new(());
        let _quiet = DeferForeignCode::begin();
        Self { _one: lock(&CHANGES), _quiet }
    }
}

/// Waits for the work of both devices, and of all devices if graphs work between the two, until no work
/// between them was enqueued during the wait. The returned value keeps such work out while it lives.
pub(crate) fn close(device: Device, peer: Device) -> Result<ClosedGate> {
    const ROUNDS: u32 = 100;
    for _ in 0..ROUNDS {
        let before = gate::enqueued(device, peer);
        let by_graphs = gate::is_crossed_by_graphs(device, peer);
        let mut contexts = context::all_known()
            .filter(|context| by_graphs || [device, peer].contains(&context.device()));
        contexts.try_for_each(|context| context.synchronize())?;
        if let Some(closed) = gate::close(device, peer, before) {
            return Ok(closed);
        }
    }
    Err(in_use(device, peer, "work that needs it keeps being enqueued"))
}

fn in_use(device: Device, peer: Device, reason: &'static str) -> Error {
    Error::from(PeerAccessInUse { device: device.ordinal(), peer: peer.ordinal(), reason })
}

/// A context's access to the memory of another device's context `far`; both are stored as address spaces.
struct ContextAccess {
    context: RawContext,
    far: RawContext,
    device: Device,
    peer: Device,
    /// Whether the peer's default pool was opened to the device, too, and
    /// [`MemoryPool::set_access`](crate::MemoryPool::set_access) has not closed it since.
    pool: bool,
    /// Whether the access is being revoked, or could not be revoked completely: no work may rely on it.
    ending: bool,
}

impl ContextAccess {
    fn is_of(&self, context: RawContext, far: RawContext) -> bool {
        self.context == context && self.far == far
    }

    /// Whether this access is a reason for `peer`'s default pool to be open to the device.
    fn opens_pool(&self, device: Device, peer: Device) -> bool {
        self.device == device && self.peer == peer && self.pool && !self.ending
    }
}

/// All access that was given. Contexts get access, but pools are opened to devices: a pool is closed again
/// when the last context of a device loses its access.
static ENABLED: Mutex<Vec<ContextAccess>> = Mutex::new(Vec::new());

/// A pool that was opened to another device by a call of its own.
#[derive(PartialEq)]
struct OpenPool {
    pool: RawPool,
    owner: Device,
    to: Device,
}

static OPEN_POOLS: Mutex<Vec<OpenPool>> = Mutex::new(Vec::new());

/// Notes that `owner`'s pool was opened to the other device.
pub(crate) fn pool_opened(pool: RawPool, owner: Device, to: Device) {
    let (mut all, open) = (lock(&OPEN_POOLS), OpenPool { pool, owner, to });
    if !all.contains(&open) {
        all.push(open);
    }
}

/// Notes that `owner`'s pool was closed to device `to`, and so to those of its contexts that have access.
pub(crate) fn pool_closed(pool: RawPool, owner: Device, to: Device) {
    lock(&OPEN_POOLS).retain(|open| *open != OpenPool { pool, owner, to });
    // No driver call: the caller has the pool, so the owner's default pool was looked up before and cached.
    let default = owner.default_pool().ok().flatten();
    if default == Some(pool) {
        let opened = |access: &&mut ContextAccess| access.opens_pool(to, owner);
        for access in lock(&ENABLED).iter_mut().filter(opened) {
            access.pool = false;
        }
    }
}

/// Forgets that the pool was opened. To be called before the pool is destroyed.
pub(crate) fn forget_pool(pool: RawPool) {
    lock(&OPEN_POOLS).retain(|open| open.pool != pool);
}

/// Memory of a device that others use only with access: a pool's memory needs a device's access, memory that
/// `cuMemAlloc` gave to another context needs a context's.
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct Confined {
    pub(crate) device: Device,
    /// The address space that the memory is in; [`None`] for memory of a pool.
    space: Option<AddressSpace>,
}

/// An address space.
#[derive(Clone, Copy, PartialEq)]
struct AddressSpace {
    of: RawContext,
    /// Whether the context is foreign. It may then be a green one, so its address space may be its own or the
    /// primary context's.
    is_foreign: bool,
}

impl Confined {
    #[inline]
    pub(crate) fn to_context(context: &Context) -> Self {
        let (of, is_foreign) = (context.address_space(), context.is_foreign());
        Self { device: context.device(), space: Some(AddressSpace { of, is_foreign }) }
    }

    #[inline]
    pub(crate) fn to_device(device: Device) -> Self {
        Self { device, space: None }
    }

    /// Whether the memory is a pool's.
    pub(crate) fn is_of_a_pool(self) -> bool {
        self.space.is_none()
    }

    /// Whether kernels of the context reach the memory as their own device's, without being given access.
    #[inline]
    pub(crate) fn is_at_home_in(self, context: &Context) -> bool {
        // As far as can be known.
        let same_space = |space: AddressSpace| {
            space.of == context.address_space() || space.is_foreign || context.is_foreign()
        };
        self.device == context.device() && self.space.is_none_or(same_space)
    }
}

/// Whether the context was given access to memory of another device: for a pool's memory, access to any pool
/// of that device, since the memory's pool is unknown; otherwise access to the memory's context. The answer
/// holds while the caller holds a [`Crossing`] of the two devices.
pub(crate) fn has_access(context: &Context, memory: Confined) -> bool {
    let device = context.device();
    let to_all = lock(&ENABLED).iter().any(|access| match memory.space {
        Some(space) => access.is_of(context.address_space(), space.of) && !access.ending,
        None => access.opens_pool(device, memory.device),
    });
    let to_pool = |open: &OpenPool| open.to == device && open.owner == memory.device;
    to_all || memory.space.is_none() && lock(&OPEN_POOLS).iter().any(to_pool)
}

/// Forgets the context's access to others' memory, and others' access to its memory. To be called before the
/// context is destroyed.
pub(crate) fn forget(context: RawContext) {
    lock(&ENABLED).retain(|access| access.context != context && access.far != context);
}
