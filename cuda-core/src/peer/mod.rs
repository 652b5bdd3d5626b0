//! Access of one device to another's memory.

mod gate;

use std::sync::Mutex;

use cuda_sys::symbol as cu;

use crate::context::{self, Context, RawContext};
use crate::device::{Device, Pool};
use crate::driver;
use crate::error::{Error, Result, check};
use crate::pool;
use crate::quiet::Quiet;
use crate::sync::lock;

pub(crate) use gate::{Closed, Crossing, crossing};

impl Device {
    /// Whether this device can be given access to `peer`'s memory: `cuDeviceCanAccessPeer`. A
    /// device is no peer of itself.
    ///
    /// # Errors
    /// The driver's, where a device has been lost. Devices that cannot are `Ok(false)`.
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
    pub fn can_access_peer(self, peer: Device) -> Result<bool> {
        driver::ensure()?;
        if self == peer {
            return Ok(false);
        }
        let mut can = 0;
        // SAFETY: both are handles that the driver gave; the call writes one int, to a local that
        // outlives it.
        check("cuDeviceCanAccessPeer", unsafe {
            cu::cuDeviceCanAccessPeer(&mut can, self.as_raw(), peer.as_raw())
        })?;
        Ok(can != 0)
    }
}

impl Context {
    /// Gives this context's device access to the memory of `peer`'s: `cuCtxEnablePeerAccess`, and
    /// `cuMemPoolSetAccess` on the default pool that `peer`'s buffers come from, without which
    /// copies between them run at a tenth. Once more does nothing.
    ///
    /// Access goes one way; copies are as fast as they can be when both devices have it.
    ///
    /// # Errors
    /// The driver's `PEER_ACCESS_UNSUPPORTED` for devices that cannot, and for the same device.
    ///
    /// ```no_run
    /// use cuda_core::Device;
    ///
    /// let (a, b) = (Device::get(0)?.context()?, Device::get(1)?.context()?);
    /// a.enable_peer_access(&b)?;
    /// b.enable_peer_access(&a)?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn enable_peer_access(&self, peer: &Context) -> Result<()> {
        let far = peer.live()?;
        let entered = self.enter_briefly()?;
        // SAFETY: `peer` is live; flags must be zero.
        let enabled = check("cuCtxEnablePeerAccess", unsafe {
            cu::cuCtxEnablePeerAccess(far.0, 0)
        });
        drop(entered);
        match enabled {
            Err(Error::Driver { code, .. })
                if code == cuda_sys::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED => {}
            other => other?,
        }
        let access = Access {
            context: self.raw(),
            device: self.device(),
            peer: peer.device(),
        };
        {
            let mut enabled = lock(&ENABLED);
            if !enabled.contains(&access) {
                enabled.push(access);
            }
        }
        pool::set_access(
            peer.device(),
            self.device(),
            cuda_sys::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        )
    }

    /// Takes the access away again, once the work of both devices has completed:
    /// `cuCtxDisablePeerAccess`, `cuMemPoolSetAccess`. Copies still work, more slowly.
    ///
    /// Waits for all contexts of both devices that this crate knows, since they share their
    /// device's pool, and again if another thread has enqueued a copy between the devices meanwhile,
    /// or a kernel that uses the other's memory.
    ///
    /// # Errors
    /// The driver's `PEER_ACCESS_NOT_ENABLED` if there was none; [`Error::PeerAccessInUse`] while
    /// other threads enqueue such work all the time.
    pub fn disable_peer_access(&self, peer: &Context) -> Result<()> {
        let far = peer.live()?;
        // Begun first, so that it ends last: a drop hook may copy between these very devices.
        let _quiet = Quiet::begin();
        let _closed = close(self.device(), peer.device())?;
        let this = |access: &Access| access.context == self.raw() && access.peer == peer.device();
        let same_devices =
            |access: &Access| access.device == self.device() && access.peer == peer.device();
        let entered = self.enter_briefly()?;
        // SAFETY: `peer` is live; no work that needs the access is queued.
        let disabled = check("cuCtxDisablePeerAccess", unsafe {
            cu::cuCtxDisablePeerAccess(far.0)
        });
        drop(entered);
        match disabled {
            // Once more after the pool could not be closed.
            Err(Error::Driver { code, .. })
                if code == cuda_sys::CUDA_ERROR_PEER_ACCESS_NOT_ENABLED
                    && lock(&ENABLED).iter().any(this) => {}
            other => other?,
        }
        let needed_by_others = lock(&ENABLED)
            .iter()
            .any(|access| same_devices(access) && !this(access));
        if !needed_by_others {
            pool::set_access(
                peer.device(),
                self.device(),
                cuda_sys::CU_MEM_ACCESS_FLAGS_PROT_NONE,
            )?;
        }
        lock(&ENABLED).retain(|access| !this(access));
        Ok(())
    }
}

/// Waits for the work of both devices, until none between them came while it waited; keeps such
/// work out for as long as the value lives.
pub(crate) fn close(device: Device, peer: Device) -> Result<Closed> {
    const ROUNDS: u32 = 100;
    for _ in 0..ROUNDS {
        let before = gate::enqueued(device, peer);
        for context in context::known_on(&[device, peer]) {
            context.synchronize()?;
        }
        if let Some(closed) = gate::close(device, peer, before) {
            return Ok(closed);
        }
    }
    Err(Error::PeerAccessInUse {
        device: device.ordinal(),
        peer: peer.ordinal(),
    })
}

/// A context that was given access to another device's memory.
#[derive(PartialEq)]
struct Access {
    context: RawContext,
    device: Device,
    peer: Device,
}

/// Pools are opened to devices, access is given to contexts: a pool is closed again with the last
/// context of a device that had access.
static ENABLED: Mutex<Vec<Access>> = Mutex::new(Vec::new());

/// A pool that was opened to another device by itself.
struct OpenPool {
    pool: Pool,
    owner: Device,
    to: Device,
}

static OPEN_POOLS: Mutex<Vec<OpenPool>> = Mutex::new(Vec::new());

/// `owner`'s pool was opened to the other device.
pub(crate) fn pool_opened(pool: Pool, owner: Device, to: Device) {
    let mut open = lock(&OPEN_POOLS);
    let known = |known: &OpenPool| known.pool.0 == pool.0 && known.to == to;
    if !open.iter().any(known) {
        open.push(OpenPool { pool, owner, to });
    }
}

/// The pool was closed to the device.
pub(crate) fn pool_closed(pool: Pool, to: Device) {
    lock(&OPEN_POOLS).retain(|open| open.pool.0 != pool.0 || open.to != to);
}

/// The pool is about to be destroyed.
pub(crate) fn forget_pool(pool: Pool) {
    lock(&OPEN_POOLS).retain(|open| open.pool.0 != pool.0);
}

/// Whether `device` was given access to memory of `peer`: all of its default pool, or that of
/// another pool. Stays so for as long as the caller holds a [`Crossing`] of the two.
pub(crate) fn has_access(device: Device, peer: Device) -> bool {
    let to_all = lock(&ENABLED)
        .iter()
        .any(|access| access.device == device && access.peer == peer);
    to_all
        || lock(&OPEN_POOLS)
            .iter()
            .any(|open| open.to == device && open.owner == peer)
}

/// The context is about to be destroyed, and what it had access to with it.
pub(crate) fn forget(context: RawContext) {
    lock(&ENABLED).retain(|access| access.context != context);
}
