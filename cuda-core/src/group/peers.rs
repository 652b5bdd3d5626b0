//! Access of all members to each other's memory.

use crate::context::Context;
use crate::device::Device;
use crate::error::Result;
use crate::group::DeviceGroup;

/// # Access
impl DeviceGroup {
    /// Gives every device of the group access to every other's memory, if the hardware allows it:
    /// [`Context::enable_peer_access`] both ways. This includes `cuMemPoolSetAccess`, without which
    /// copies between devices run at a tenth of the speed. Calling it again does nothing. Returns
    /// the pairs whose first device cannot access the second's memory, for lack of hardware
    /// support: copies between them go through the host. A device is no peer of itself.
    ///
    /// The access outlives the group: [`DeviceGroup::disable_all_peers`] revokes it.
    ///
    /// # Errors
    /// The driver's, as [`Error::OnDevice`](crate::Error::OnDevice) of the device that was to be
    /// given access. Pairs that were connected before stay connected.
    ///
    /// ```no_run
    /// use cuda_core::DeviceGroup;
    ///
    /// let group = DeviceGroup::all()?;
    /// for (device, peer) in group.enable_all_peers()? {
    ///     eprintln!("{device:?} copies from {peer:?} by way of the host");
    /// }
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuMemPoolSetAccess", "cudaMemPoolSetAccess"))]
    pub fn enable_all_peers(&self) -> Result<Vec<(Device, Device)>> {
        let mut unreachable = Vec::new();
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
                // Several contexts of one device report it once.
                _ if unreachable.contains(&(device, other)) => {}
                _ => unreachable.push((device, other)),
            }
        }
        Ok(unreachable)
    }

    /// Revokes all access between the group's devices, whatever call gave it:
    /// [`Context::disable_peer_access`] of each pair, which waits for the work of both, even if
    /// there was no access.
    ///
    /// # Errors
    /// The first error of [`Context::disable_peer_access`], as
    /// [`Error::OnDevice`](crate::Error::OnDevice), after trying all pairs.
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

    /// Returns all ordered pairs of contexts on different devices.
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
