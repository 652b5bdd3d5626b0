//! The demo between two devices: host → device → peer → host.

use cuda_core::{Device, PinnedBuffer};
use cuda_sys::cuMemcpyPeerAsync;
use serde::Serialize;

use super::data;
use super::transfer::{Rate, compare};

/// One direction between two devices.
#[derive(Serialize)]
pub(crate) struct PeerReport {
    pub(crate) from: u32,
    pub(crate) to: u32,
    /// Whether the devices have direct access to each other's memory.
    pub(crate) access: bool,
    pub(crate) copy: Rate,
    /// Whether every byte that returned to the host compared equal.
    pub(crate) verified: bool,
}

pub(crate) fn measure(from: Device, to: Device, size: usize) -> anyhow::Result<PeerReport> {
    let (near, far) = (from.context()?, to.context()?);
    let access = from.can_access_peer(to)? && to.can_access_peer(from)?;
    if access {
        near.enable_peer_access(&far)?;
        far.enable_peer_access(&near)?;
    }
    let (here, there) = (from.create_stream()?, to.create_stream()?);
    let mut host = PinnedBuffer::new(&near, size)?;
    data::fill(host.as_mut_slice()?, data::MEASURED);
    let mut source = here.alloc::<u8>(size)?;
    let mut target = there.alloc::<u8>(size)?;
    here.upload(&host, &mut source)?;
    // Warms up both buffers, so that they are allocated for the raw calls.
    here.copy(&source, &mut target)?;
    here.synchronize()?;

    let (into, of) = (target.as_raw(), source.as_raw());
    let copy = compare(
        size,
        &here,
        || here.copy(&source, &mut target),
        || {
            // SAFETY: both sides have `size` bytes, nothing else uses them, and the stream is
            // waited for before anything else does; contexts and stream are live.
            unsafe { cuMemcpyPeerAsync(into, far.as_raw(), of, near.as_raw(), size, here.as_raw()) }
        },
    )?;

    // The verified copy, by the safe layer alone: two streams, two devices, and no explicit wait
    // until the bytes are compared. The raw calls have left another pattern.
    let seed = data::seed_of_pair(from.ordinal(), to.ordinal());
    data::fill(host.as_mut_slice()?, seed);
    let mut back = PinnedBuffer::zeroed(&far, size)?;
    here.upload(&host, &mut source)?;
    here.copy(&source, &mut target)?;
    there.download(&target, &mut back)?;
    Ok(PeerReport {
        from: from.ordinal(),
        to: to.ordinal(),
        access,
        copy,
        verified: data::is_filled(back.as_slice()?, seed),
    })
}
