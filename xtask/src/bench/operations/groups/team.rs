//! A group of devices, and the raw calls that do the same work.

use std::ops::Range;

use anyhow::Result;
use cuda_core::{Device, DeviceBuffer, DeviceGroup, PinnedBuffer, Stream};
use cuda_sys::{CUresult, CUstream, cuMemcpyPeerAsync, cuStreamSynchronize};

use super::super::TRANSFERS;
use crate::bench::measure::{Alone, Links, Many, pair_and_alone};
use crate::bench::raw::first_error;
use crate::bench::{Effort, Measured};

/// The number of bytes on each device.
const LEN: usize = 512 << 20;

/// A group, and buffers on each of its devices.
pub(super) struct Team {
    pub(super) group: DeviceGroup,
    /// Streams for the raw calls: one for each copy that a device makes at the same time.
    streams: Vec<Vec<Stream>>,
    pub(super) sources: Vec<DeviceBuffer<u8>>,
    pub(super) targets: Vec<DeviceBuffer<u8>>,
    pub(super) len: usize,
    pub(super) effort: Effort,
}

/// The division of the raw calls among the members.
pub(super) struct Parts {
    /// The members that take part.
    pub(super) ranks: Range<usize>,
    /// The copies of each member, and their streams.
    pub(super) steps: Range<usize>,
    /// The number of bytes that each member moves in all of its copies.
    pub(super) bytes: usize,
}

impl Team {
    pub(super) fn new(size: u32, effort: Effort) -> Result<Self> {
        let group = DeviceGroup::new(Device::all()?.take(size as usize))?;
        let len = effort.bytes(LEN);
        let row = |stream: &Stream| (0..size).map(|_| stream.context().create_stream()).collect();
        let streams: cuda_core::Result<_> = group.streams().iter().map(row).collect();
        Ok(Self {
            streams: streams?,
            sources: group.alloc_zeroed(len)?,
            targets: group.alloc_zeroed(len)?,
            effort: effort.at_most(TRANSFERS),
            len,
            group,
        })
    }

    /// Runs the measurement with access between all devices that support it.
    pub(super) fn measure(self, run: fn(&Self) -> Result<Measured>) -> Result<Measured> {
        self.group.enable_all_peers()?;
        self.group.synchronize()?;
        let measured = run(&self);
        self.group.disable_all_peers()?;
        measured
    }

    pub(super) fn pinned(&self, len: usize) -> Result<PinnedBuffer<u8>> {
        let mut host = PinnedBuffer::new(self.group.streams()[0].context(), len)?;
        // Touches each page before the first transfer.
        host.as_mut_slice()?.fill(1);
        Ok(host)
    }

    /// The number of bytes of all members together.
    pub(super) fn all(&self) -> usize {
        self.len * self.group.len()
    }

    pub(super) fn ranks(&self) -> Range<usize> {
        0..self.group.len()
    }

    pub(super) fn raw(&self, rank: usize, step: usize) -> CUstream {
        self.streams[rank][step].as_raw()
    }

    /// Measures the library's operation beside a raw transfer of [`Self::len`] bytes between the host and
    /// each member.
    pub(super) fn transfers(
        &self,
        ours: impl FnMut() -> cuda_core::Result<()>,
        transfer: impl Fn(usize) -> CUresult,
    ) -> Result<Measured> {
        let parts = Parts { ranks: self.ranks(), steps: 0..1, bytes: self.len };
        let (measured, alone) = self.beside(&parts, ours, |rank, _| transfer(rank), Vec::new())?;
        let many = Some(Many::new(self.group.len(), parts.bytes, &alone, None));
        Ok(Measured { many, ..measured })
    }

    /// Measures the library's operation beside raw copies of members' parts to the members `step` ranks after
    /// them, and beside copies of single pairs.
    pub(super) fn copies(
        &self,
        parts: &Parts,
        ours: impl FnMut() -> cuda_core::Result<()>,
        copy: impl Fn(usize, usize) -> CUresult,
    ) -> Result<Measured> {
        let count = self.group.len();
        let hop = |from: usize, to: usize| self.peer(from, to, (0, 0), self.len);
        let one_way = self.ranks().map(|from| -> Alone<'_> {
            let to = (from + 1) % count;
            Box::new(move || first_error([hop(from, to), self.wait(from..from + 1, 1..2)]))
        });
        // Each member is in one pair.
        let both_ways = self.ranks().step_by(2).map(|from| -> Alone<'_> {
            let to = from + 1;
            Box::new(move || {
                let copies = first_error([hop(from, to), hop(to, from)]);
                let there = self.wait(from..to, 1..2);
                first_error([copies, there, self.wait(to..to + 1, count - 1..count)])
            })
        });
        let links = one_way.chain(both_ways).collect();
        let (measured, alone) = self.beside(parts, ours, copy, links)?;
        let (singles, links) = alone.split_at(parts.ranks.len());
        let (one_way, both_ways) = links.split_at(count);
        let links = Links::new(self.len, one_way, both_ways, parts.ranks.len());
        let many = Some(Many::new(count, parts.bytes, singles, Some(links)));
        Ok(Measured { many, ..measured })
    }

    /// Measures the library's operation and its wait beside all parts at once. Also returns the nanoseconds
    /// of each part alone, then of each of `others`.
    fn beside<'a>(
        &'a self,
        parts: &Parts,
        mut ours: impl FnMut() -> cuda_core::Result<()>,
        enqueue: impl Fn(usize, usize) -> CUresult,
        others: Vec<Alone<'a>>,
    ) -> Result<(Measured, Vec<f64>)> {
        let run = &|ranks: Range<usize>| {
            let steps = parts.steps.clone();
            let copies = steps.flat_map(|step| ranks.clone().map(move |rank| (rank, step)));
            let enqueued = first_error(copies.map(|(rank, step)| enqueue(rank, step)));
            first_error([enqueued, self.wait(ranks, parts.steps.clone())])
        };
        let each = parts.ranks.clone();
        let singles = each.map(|rank| -> Alone<'_> { Box::new(move || run(rank..rank + 1)) });
        let alone: Vec<Alone<'_>> = singles.chain(others).collect();
        let all = || run(parts.ranks.clone());
        let ours = || ours().and_then(|()| self.group.synchronize());
        let (measured, alone) = pair_and_alone(self.effort, 1, ours, all, || Ok(()), &alone)?;
        let bytes = parts.bytes * parts.ranks.len();
        Ok((measured.moving(bytes), alone))
    }

    /// Enqueues a raw copy of `len` bytes from one member to another.
    pub(super) fn peer(&self, from: usize, to: usize, at: (usize, usize), len: usize) -> CUresult {
        let step = (to + self.group.len() - from) % self.group.len();
        let target = self.targets[to].as_raw() + at.1 as u64;
        let source = self.sources[from].as_raw() + at.0 as u64;
        let streams = self.group.streams();
        let [there, here] = [to, from].map(|rank| streams[rank].context().as_raw());
        // SAFETY: both have `len` bytes there, which outlive the batch, which is waited for.
        unsafe { cuMemcpyPeerAsync(target, there, source, here, len, self.raw(from, step)) }
    }

    /// Waits for these streams of the raw calls.
    fn wait(&self, ranks: Range<usize>, steps: Range<usize>) -> CUresult {
        let rows = self.streams[ranks].iter();
        let streams = rows.flat_map(|row| &row[steps.clone()]);
        // SAFETY: the streams are live.
        first_error(streams.map(|stream| unsafe { cuStreamSynchronize(stream.as_raw()) }))
    }
}
