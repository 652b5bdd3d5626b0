//! Copies between the host and all devices at once.

use cuda_core::{DeviceBuffer, DeviceGroup, PinnedBuffer};
use cuda_sys::{cuMemcpyDtoHAsync_v2, cuMemcpyHtoDAsync_v2};

use super::team::Team;
use crate::bench::Measured;

pub(super) fn upload_all(team: &Team) -> anyhow::Result<Measured> {
    upload(team, team.len, 0, |group, host, to| group.upload_all(host, to))
}

pub(super) fn upload_slice(team: &Team) -> anyhow::Result<Measured> {
    let slice = vec![1; team.len];
    upload(team, team.len, 0, |group, _, to| group.upload_all(&slice, to))
}

pub(super) fn scatter(team: &Team) -> anyhow::Result<Measured> {
    upload(team, team.all(), team.len, |group, host, to| group.scatter(host, to))
}

pub(super) fn scatter_slice(team: &Team) -> anyhow::Result<Measured> {
    let slice = vec![1; team.all()];
    upload(team, team.all(), team.len, |group, _, to| group.scatter(&slice, to))
}

/// Measures the library's operation beside raw uploads of pinned memory, where each member's part begins
/// `stride` bytes after the previous member's.
fn upload(
    team: &Team,
    len: usize,
    stride: usize,
    ours: impl Fn(&DeviceGroup, &PinnedBuffer<u8>, &mut [DeviceBuffer<u8>]) -> cuda_core::Result<()>,
) -> anyhow::Result<Measured> {
    let host = team.pinned(len)?;
    let from = host.as_slice()?.as_ptr();
    let mut targets = team.group.alloc::<u8>(team.len)?;
    let ours = || ours(&team.group, &host, &mut targets);
    team.transfers(ours, |rank| {
        let (to, from) = (team.targets[rank].as_raw(), from.wrapping_add(rank * stride));
        // SAFETY: both sides have `team.len` bytes, which outlive the batch, which is waited for.
        unsafe { cuMemcpyHtoDAsync_v2(to, from.cast(), team.len, team.raw(rank, 0)) }
    })
}

pub(super) fn gather(team: &Team) -> anyhow::Result<Measured> {
    let mut host = team.pinned(team.all())?;
    download(team, || team.group.gather(&team.sources, &mut host))
}

pub(super) fn gather_slice(team: &Team) -> anyhow::Result<Measured> {
    let mut slice = vec![1; team.all()];
    download(team, || team.group.gather(&team.sources, &mut slice))
}

/// Measures the library's operation beside raw downloads of each member's bytes to pinned memory.
fn download(team: &Team, ours: impl FnMut() -> cuda_core::Result<()>) -> anyhow::Result<Measured> {
    let mut host = team.pinned(team.all())?;
    let to = host.as_mut_slice()?.as_mut_ptr();
    team.transfers(ours, |rank| {
        let (from, to) = (team.sources[rank].as_raw(), to.wrapping_add(rank * team.len));
        // SAFETY: as in `upload`.
        unsafe { cuMemcpyDtoHAsync_v2(to.cast(), from, team.len, team.raw(rank, 0)) }
    })
}
