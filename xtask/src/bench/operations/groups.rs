//! Several devices at once, beside one raw call for each copy.

use std::time::Instant;

use anyhow::ensure;
use cuda_core::{Context, Device, DeviceBuffer, DeviceGroup, PinnedBuffer, Stream};
use cuda_sys::{
    CUDA_SUCCESS, CUresult, CUstream, cuDeviceGet, cuDevicePrimaryCtxRetain, cuMemcpyDtoHAsync_v2,
    cuMemcpyHtoDAsync_v2, cuMemcpyPeerAsync, cuStreamSynchronize,
};

use crate::bench::goal::Goal;
use crate::bench::measure::{Effort, Measured, pair};
use crate::bench::operation::{Fixture, Operation, Sample};

/// Devices of a group.
const SIZES: [u32; 3] = [2, 4, 8];

/// Bytes of each device.
const LEN: usize = 512 << 20;

/// Transfers that take milliseconds.
const BATCHES: usize = 15;

pub(super) fn operations() -> Vec<Operation> {
    let mut all = vec![
        // The raw way takes one after the other.
        contexts(8).goal(Goal::Ratio(0.75)),
        contexts(4).without_goal("the driver makes few contexts no faster at once than one by one"),
    ];
    for size in SIZES {
        let mut add = |what: &str, goal: Goal, run: fn(&Team) -> anyhow::Result<Measured>| {
            let name = format!("{what}, {size} devices");
            let measure = move |fixture: &Fixture| Team::new(size, fixture.effort)?.measure(run);
            all.push(Operation::new(name, measure).goal(goal).gpus(size));
        };
        let none = |why: &str| Goal::None(why.to_owned());
        add("upload to all, pinned", Goal::Share(0.95), upload_all);
        add(
            "upload to all, borrowed slice",
            none("the raw calls upload pinned memory"),
            upload_all_from,
        );
        add("gather, pinned", Goal::Share(0.95), gather);
        add(
            "gather, borrowed slice",
            none("the raw calls download to pinned memory"),
            gather_to,
        );
        add("ring of peer copies", Goal::Share(0.97), rotate);
        add("all-to-all of peer copies", Goal::Share(0.97), all_to_all);
        add(
            "broadcast from one device",
            none("the raw call copies to one device"),
            broadcast,
        );
    }
    all
}

/// Each time in a fresh process, where there are none yet.
fn contexts(size: u32) -> Operation {
    let (ours, raw): (Sample, Sample) = match size {
        8 => (at_once::<8>, one_by_one::<8>),
        _ => (at_once::<4>, one_by_one::<4>),
    };
    Operation::fresh(
        format!("contexts of {size} devices, at once"),
        ours,
        Some(raw),
    )
    .gpus(size)
}

/// Nanoseconds that primary contexts take from as many threads as there are devices.
fn at_once<const SIZE: u32>(_: Device, _: Effort) -> anyhow::Result<f64> {
    let devices: Vec<Device> = Device::all()?.take(SIZE as usize).collect();
    let start = Instant::now();
    Device::contexts(devices)?;
    Ok(start.elapsed().as_nanos() as f64)
}

/// Nanoseconds that they take one after the other.
fn one_by_one<const SIZE: u32>(_: Device, _: Effort) -> anyhow::Result<f64> {
    let count = Device::count()?.min(SIZE);
    let start = Instant::now();
    for ordinal in 0..count {
        let mut device = 0;
        // SAFETY: the call writes one handle, to a local that outlives it; an ordinal that there is
        // not is an error.
        let found = unsafe { cuDeviceGet(&mut device, ordinal as i32) };
        let mut context = std::ptr::null_mut();
        // SAFETY: the call writes one context, to a local that outlives it; a handle of no device
        // is an error.
        let retained = unsafe { cuDevicePrimaryCtxRetain(&mut context, device) };
        ensure!(
            (found, retained) == (CUDA_SUCCESS, CUDA_SUCCESS),
            "error {}",
            retained.0
        );
    }
    Ok(start.elapsed().as_nanos() as f64)
}

/// A group, and room on each of its devices.
struct Team {
    group: DeviceGroup,
    /// For the raw calls: one for each copy that a device makes at the same time.
    streams: Vec<Vec<Stream>>,
    sources: Vec<DeviceBuffer<u8>>,
    targets: Vec<DeviceBuffer<u8>>,
    len: usize,
    effort: Effort,
}

impl Team {
    fn new(size: u32, effort: Effort) -> anyhow::Result<Self> {
        let group = DeviceGroup::new(Device::all()?.take(size as usize))?;
        let len = effort.bytes(LEN);
        let row = |stream: &Stream| {
            (0..size)
                .map(|_| stream.context().create_stream())
                .collect()
        };
        let streams: cuda_core::Result<_> = group.streams().iter().map(row).collect();
        Ok(Self {
            streams: streams?,
            sources: group.alloc_zeroed(len)?,
            targets: group.alloc_zeroed(len)?,
            effort: effort.at_most(BATCHES),
            len,
            group,
        })
    }

    /// With access of all devices to each other, where there is any.
    fn measure(self, run: fn(&Self) -> anyhow::Result<Measured>) -> anyhow::Result<Measured> {
        self.group.enable_all_peers()?;
        self.group.synchronize()?;
        let measured = run(&self);
        self.group.disable_all_peers()?;
        measured
    }

    fn pinned(&self, len: usize) -> anyhow::Result<PinnedBuffer<u8>> {
        let mut host = PinnedBuffer::new(self.context(0), len)?;
        // Each page is there before the first transfer.
        host.as_mut_slice()?.fill(1);
        Ok(host)
    }

    fn context(&self, rank: usize) -> &Context {
        self.group.streams()[rank].context()
    }

    fn ranks(&self) -> std::ops::Range<usize> {
        0..self.group.len()
    }

    fn raw(&self, rank: usize, copy: usize) -> CUstream {
        self.streams[rank][copy].as_raw()
    }

    /// A part of a member's elements to another's, raw.
    fn peer(&self, from: usize, to: usize, at: (usize, usize), len: usize) -> CUresult {
        let step = (to + self.group.len() - from) % self.group.len();
        let target = self.targets[to].as_raw() + at.1 as u64;
        let source = self.sources[from].as_raw() + at.0 as u64;
        // SAFETY: both have `len` bytes there, which outlive the batch, which is waited for.
        unsafe {
            cuMemcpyPeerAsync(
                target,
                self.context(to).as_raw(),
                source,
                self.context(from).as_raw(),
                len,
                self.raw(from, step),
            )
        }
    }

    /// Waits for the raw calls' streams that were used.
    fn wait(&self, copies: std::ops::Range<usize>) -> CUresult {
        let streams = self.streams.iter().flat_map(|row| &row[copies.clone()]);
        // SAFETY: the streams are live.
        worst(streams.map(|stream| unsafe { cuStreamSynchronize(stream.as_raw()) }))
    }
}

fn worst(codes: impl Iterator<Item = CUresult>) -> CUresult {
    codes.fold(CUDA_SUCCESS, |worst, code| CUresult(worst.0 | code.0))
}

/// One raw upload to each device, and a wait for each.
fn raw_uploads(team: &Team, source: &PinnedBuffer<u8>, from: *const u8) -> CUresult {
    let len = source.len();
    let uploads = worst(team.ranks().map(|rank| {
        let to = team.targets[rank].as_raw();
        // SAFETY: both sides have `len` bytes, which outlive the batch, which is waited for.
        unsafe { cuMemcpyHtoDAsync_v2(to, from.cast(), len, team.raw(rank, 0)) }
    }));
    worst([uploads, team.wait(0..1)].into_iter())
}

fn upload_all(team: &Team) -> anyhow::Result<Measured> {
    let host = team.pinned(team.len)?;
    let from = host.as_slice()?.as_ptr();
    let mut targets = team.group.alloc::<u8>(team.len)?;
    let measured = pair(
        team.effort,
        1,
        || {
            team.group.upload_all(&host, &mut targets)?;
            team.group.synchronize()
        },
        || raw_uploads(team, &host, from),
        || Ok(()),
    )?;
    Ok(measured.moving(team.len * team.group.len()))
}

fn upload_all_from(team: &Team) -> anyhow::Result<Measured> {
    let host = team.pinned(team.len)?;
    let from = host.as_slice()?.as_ptr();
    let slice = vec![1; team.len];
    let mut targets = team.group.alloc::<u8>(team.len)?;
    let measured = pair(
        team.effort,
        1,
        || {
            team.group.upload_all_from(&slice, &mut targets)?;
            team.group.synchronize()
        },
        || raw_uploads(team, &host, from),
        || Ok(()),
    )?;
    Ok(measured.moving(team.len * team.group.len()))
}

/// One raw download from each device, and a wait for each.
fn raw_downloads(team: &Team, to: *mut u8) -> CUresult {
    let downloads = worst(team.ranks().map(|rank| {
        let from = team.sources[rank].as_raw();
        let to = to.wrapping_add(rank * team.len);
        // SAFETY: both sides have `len` bytes, which outlive the batch, which is waited for.
        unsafe { cuMemcpyDtoHAsync_v2(to.cast(), from, team.len, team.raw(rank, 0)) }
    }));
    worst([downloads, team.wait(0..1)].into_iter())
}

fn gather(team: &Team) -> anyhow::Result<Measured> {
    let all = team.len * team.group.len();
    let mut other = team.pinned(all)?;
    let to = other.as_mut_slice()?.as_mut_ptr();
    let mut host = team.pinned(all)?;
    let measured = pair(
        team.effort,
        1,
        || {
            team.group.gather(&team.sources, &mut host)?;
            team.group.synchronize()
        },
        || raw_downloads(team, to),
        || Ok(()),
    )?;
    Ok(measured.moving(all))
}

fn gather_to(team: &Team) -> anyhow::Result<Measured> {
    let all = team.len * team.group.len();
    let mut other = team.pinned(all)?;
    let to = other.as_mut_slice()?.as_mut_ptr();
    let mut slice = vec![1; all];
    let measured = pair(
        team.effort,
        1,
        || team.group.gather_to(&team.sources, &mut slice),
        || raw_downloads(team, to),
        || Ok(()),
    )?;
    Ok(measured.moving(all))
}

fn rotate(team: &Team) -> anyhow::Result<Measured> {
    let count = team.group.len();
    let mut targets = team.group.alloc::<u8>(team.len)?;
    let measured = pair(
        team.effort,
        1,
        || {
            team.group.rotate(&team.sources, &mut targets, 1)?;
            team.group.synchronize()
        },
        || {
            let next = |from| team.peer(from, (from + 1) % count, (0, 0), team.len);
            worst([worst(team.ranks().map(next)), team.wait(1..2)].into_iter())
        },
        || Ok(()),
    )?;
    Ok(measured.moving(team.len * count))
}

fn all_to_all(team: &Team) -> anyhow::Result<Measured> {
    let count = team.group.len();
    let part = team.len / count;
    let mut targets = team.group.alloc::<u8>(team.len)?;
    // What stays on its device is no peer copy, and not of interest.
    let apart = |rank: usize, other: usize| if rank == other { 0 } else { part };
    let sources = |rank: usize| {
        let source = &team.sources[rank];
        (0..count).map(move |to| source.slice(to * part..to * part + apart(rank, to)))
    };
    let sources: cuda_core::Result<Vec<Vec<_>>> =
        team.ranks().map(|r| sources(r).collect()).collect();
    let sources = sources?;
    let measured = pair(
        team.effort,
        1,
        || {
            let mut rows = Vec::with_capacity(count);
            for (rank, target) in targets.iter_mut().enumerate() {
                let mut row = Vec::with_capacity(count);
                let mut rest = target.as_view_mut();
                for from in 0..count {
                    let (mine, behind) = rest.split_at_mut(apart(rank, from))?;
                    row.push(mine);
                    rest = behind;
                }
                rows.push(row);
            }
            team.group.exchange(&sources, rows)?;
            team.group.synchronize()
        },
        || {
            let copies = (1..count).flat_map(|step| {
                team.ranks().map(move |from| {
                    let to = (from + step) % count;
                    team.peer(from, to, (to * part, from * part), part)
                })
            });
            worst([worst(copies), team.wait(1..count)].into_iter())
        },
        || Ok(()),
    )?;
    Ok(measured.moving(part * count * (count - 1)))
}

fn broadcast(team: &Team) -> anyhow::Result<Measured> {
    let mut buffers = team.group.alloc_zeroed::<u8>(team.len)?;
    let measured = pair(
        team.effort,
        1,
        || {
            team.group.broadcast(0, &mut buffers)?;
            team.group.synchronize()
        },
        || worst([team.peer(0, 1, (0, 0), team.len), team.wait(1..2)].into_iter()),
        || Ok(()),
    )?;
    Ok(measured.moving(team.len))
}
