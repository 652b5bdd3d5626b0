//! Transfers by the safe layer, compared with raw driver calls on the same memory and stream.

use cuda_core::{Device, DeviceBuffer, PinnedBuffer, Stream};
use cuda_sys::{self as sys, CUresult, CUstream};
use serde::Serialize;

use super::data;
use crate::bench::measure::{Effort, pair};
use crate::bench::raw::wait;

/// The number of rounds of a measurement, after a warm-up; the median is used.
const ROUNDS: usize = 7;

/// Bandwidth in GB/s (10⁹ bytes per second).
#[derive(Serialize, Clone, Copy)]
pub(crate) struct Rate {
    /// By the safe layer, including the wait.
    pub(crate) safe: f64,
    /// By the raw driver call on the same memory, including the wait.
    pub(crate) raw: f64,
}

/// Pinned memory and two buffers of one device.
pub(crate) struct Bench {
    stream: Stream,
    /// The seed of the verified data.
    seed: u64,
    source: PinnedBuffer<u8>,
    target: PinnedBuffer<u8>,
    first: DeviceBuffer<u8>,
    second: DeviceBuffer<u8>,
}

impl Bench {
    pub(crate) fn new(device: Device, size: usize) -> anyhow::Result<Self> {
        let context = device.context()?;
        let stream = device.create_stream()?;
        let mut source = PinnedBuffer::new(&context, size)?;
        data::fill(source.as_mut_slice()?, data::MEASURED);
        Ok(Self {
            seed: data::seed_of(device.ordinal()),
            source,
            target: PinnedBuffer::zeroed(&context, size)?,
            first: stream.alloc_zeroed(size)?,
            second: stream.alloc_zeroed(size)?,
            stream,
        })
    }

    /// Copies from the host to the first buffer.
    pub(crate) fn upload(&mut self) -> anyhow::Result<Rate> {
        let (size, to) = (self.source.len(), self.first.as_raw());
        let from = self.source.as_slice()?.as_ptr();
        let safe = || self.stream.upload(&self.source, &mut self.first);
        // SAFETY: both sides have `size` bytes, and no other code uses them before the stream has been waited
        // for.
        let raw = |on| unsafe { sys::cuMemcpyHtoDAsync_v2(to, from.cast(), size, on) };
        compare(size, &self.stream, safe, raw)
    }

    /// Copies the first buffer to the second.
    pub(crate) fn copy(&mut self) -> anyhow::Result<Rate> {
        let (size, to, from) = (self.source.len(), self.second.as_raw(), self.first.as_raw());
        let safe = || self.stream.copy(&self.first, &mut self.second);
        // SAFETY: as in `upload`.
        let raw = |on| unsafe { sys::cuMemcpyDtoDAsync_v2(to, from, size, on) };
        compare(size, &self.stream, safe, raw)
    }

    /// Copies the second buffer to the host.
    pub(crate) fn download(&mut self) -> anyhow::Result<Rate> {
        let (size, from) = (self.source.len(), self.second.as_raw());
        let to = self.target.as_mut_slice()?.as_mut_ptr();
        let safe = || self.stream.download(&self.second, &mut self.target);
        // SAFETY: as in `upload`.
        let raw = |on| unsafe { sys::cuMemcpyDtoHAsync_v2(to.cast(), from, size, on) };
        compare(size, &self.stream, safe, raw)
    }

    /// Makes the verified copies with the safe layer alone, and returns whether the data that comes back is
    /// the data that was sent. The raw calls have left another pattern.
    pub(crate) fn verify(&mut self) -> anyhow::Result<bool> {
        data::fill(self.source.as_mut_slice()?, self.seed);
        self.stream.upload(&self.source, &mut self.first)?;
        self.stream.copy(&self.first, &mut self.second)?;
        self.stream.download(&self.second, &mut self.target)?;
        Ok(data::is_filled(self.target.as_slice()?, self.seed))
    }
}

/// Measures the medians of several rounds of both ways, alternating, so that both run under the same
/// conditions.
fn compare(
    bytes: usize,
    stream: &Stream,
    mut safe: impl FnMut() -> cuda_core::Result<()>,
    mut raw: impl FnMut(CUstream) -> CUresult,
) -> anyhow::Result<Rate> {
    let safe = || {
        safe()?;
        stream.synchronize()
    };
    let effort = Effort::FULL.at_most(ROUNDS);
    let raw = || wait(raw(stream.as_raw()), stream);
    let measured = pair(effort, 1, safe, raw, || Ok(()))?.moving(bytes);
    Ok(Rate { safe: measured.ours, raw: measured.raw.unwrap_or_default() })
}

/// The results of one direction between two devices.
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

pub(crate) fn between(from: Device, to: Device, size: usize) -> anyhow::Result<PeerReport> {
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
    // Warms up both buffers, so that they are allocated when the raw calls begin.
    here.copy(&source, &mut target)?;
    here.synchronize()?;

    let (into, of) = (target.as_raw(), source.as_raw());
    let raw = |on| {
        // SAFETY: both sides have `size` bytes, and no other code uses them before the stream has been waited
        // for; contexts and stream are live.
        unsafe { sys::cuMemcpyPeerAsync(into, far.as_raw(), of, near.as_raw(), size, on) }
    };
    let copy = compare(size, &here, || here.copy(&source, &mut target), raw)?;

    // The verified copy, with the safe layer alone: two streams, two devices, and no explicit wait before the
    // bytes are compared. The raw calls have left another pattern.
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
