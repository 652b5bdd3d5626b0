//! Access of all members to each other's memory.

use crate::context::Context;
use crate::device::Device;
use crate::error::Result;
use crate::group::DeviceGroup;

/// What [`DeviceGroup::enable_all_peers`] found: which devices cannot reach which.
///
/// ```no_run
/// let group = cuda_core::DeviceGroup::all()?;
/// let report = group.enable_all_peers()?;
/// for (device, peer) in report.unreachable() {
///     println!("{device:?} copies from {peer:?} by way of the host");
/// }
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct PeerReport {
    unreachable: Vec<(Device, Device)>,
}

impl PeerReport {
    /// Whether every device of the group reaches every other.
    pub fn is_complete(&self) -> bool {
        self.unreachable.is_empty()
    }

    /// Pairs whose first device cannot be given access to the second's memory. Copies between them
    /// work, through the host, at a tenth of the speed of NVLink.
    pub fn unreachable(&self) -> &[(Device, Device)] {
        &self.unreachable
    }

    /// Adds a pair once, even if several contexts of one device report it.
    fn add(&mut self, device: Device, peer: Device) {
        if !self.unreachable.contains(&(device, peer)) {
            self.unreachable.push((device, peer));
        }
    }
}

/// # Access
impl DeviceGroup {
    /// Gives every device of the group access to every other's memory, if the hardware allows it:
    /// [`Context::enable_peer_access`] both ways, `cuMemPoolSetAccess` included, without which
    /// copies between devices run at a tenth of the speed. Calling it again does nothing. Pairs
    /// without hardware support are reported, which is no error; a device is no peer of itself.
    ///
    /// The access outlives the group: [`DeviceGroup::disable_all_peers`] revokes it.
    ///
    /// # Errors
    /// The driver's, as [`Error::OnDevice`](crate::Error::OnDevice) of the device that was to be
    /// given access. Pairs that were connected before stay so.
    ///
    /// ```no_run
    /// use cuda_core::DeviceGroup;
    ///
    /// let group = DeviceGroup::all()?;
    /// for (device, peer) in group.enable_all_peers()?.unreachable() {
    ///     eprintln!("{device:?} cannot reach {peer:?}");
    /// }
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuMemPoolSetAccess", "cudaMemPoolSetAccess"))]
    pub fn enable_all_peers(&self) -> Result<PeerReport> {
        let mut report = PeerReport::default();
        for (context, peer) in self.pairs() {
            let (device, other) = (context.device(), peer.device());
            let reached = match device.can_access_peer(other) {
                Ok(true) => context.enable_peer_access(peer).map(|()| true),
                unreached => unreached,
            };
            let of_the_hardware =
                [cuda_sys::CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, cuda_sys::CUDA_ERROR_TOO_MANY_PEERS];
            match reached {
                Ok(true) => {}
                Err(error) if !of_the_hardware.map(Some).contains(&error.code()) => {
                    return Err(error.on(device));
                }
                _ => report.add(device, other),
            }
        }
        Ok(report)
    }

    /// Revokes all access between the group's devices, whatever call gave it:
    /// [`Context::disable_peer_access`] of each pair that has it, which waits for the work of both.
    ///
    /// # Errors
    /// Those of [`Context::disable_peer_access`], as [`Error::OnDevice`](crate::Error::OnDevice):
    /// the first, after trying all pairs.
    ///
    /// ```no_run
    /// let group = cuda_core::DeviceGroup::all()?;
    /// group.enable_all_peers()?;
    /// // … kernels that use each other's memory …
    /// group.disable_all_peers()?; // waits for them
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuCtxDisablePeerAccess", "cudaDeviceDisablePeerAccess"))]
    pub fn disable_all_peers(&self) -> Result<()> {
        let disable = |(context, peer): (&Context, &Context)| {
            let not_enabled = Some(cuda_sys::CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
            match context.disable_peer_access(peer) {
                Err(error) if error.code() == not_enabled => Ok(()),
                other => other.map_err(|error| error.on(context.device())),
            }
        };
        self.pairs().into_iter().map(disable).fold(Ok(()), Result::and)
    }

    /// All ordered pairs of contexts on two devices.
    fn pairs(&self) -> Vec<(&Context, &Context)> {
        let mut contexts: Vec<&Context> = Vec::new();
        for context in self.contexts() {
            if !contexts.contains(&context) {
                contexts.push(context);
            }
        }
        let pairs = contexts.iter().flat_map(|one| contexts.iter().map(|peer| (*one, *peer)));
        pairs.filter(|(one, peer)| one.device() != peer.device()).collect()
    }
}
