//! Copies between the host and all devices at once.

use cuda_sys::{CUresult, cuMemcpyDtoHAsync_v2, cuMemcpyHtoDAsync_v2};

use super::team::Team;
use crate::bench::measure::Measured;

/// A raw upload of a member's bytes.
fn upload(team: &Team, rank: usize, from: *const u8) -> CUresult {
    let to = team.targets[rank].as_raw();
    // SAFETY: both sides have `len` bytes, which outlive the batch, which is waited for.
    unsafe { cuMemcpyHtoDAsync_v2(to, from.cast(), team.len, team.raw(rank, 0)) }
}

/// A raw download of a member's bytes.
fn download(team: &Team, rank: usize, to: *mut u8) -> CUresult {
    let from = team.sources[rank].as_raw();
    // SAFETY: both sides have `len` bytes, which outlive the batch, which is waited for.
    unsafe { cuMemcpyDtoHAsync_v2(to.cast(), from, team.len, team.raw(rank, 0)) }
}

pub(super) fn upload_all(team: &Team) -> anyhow::Result<Measured> {
    let host = team.pinned(team.len)?;
    let from = host.as_slice()?.as_ptr();
    let mut targets = team.group.alloc::<u8>(team.len)?;
    team.transfers(
        || {
            team.group.upload_all(&host, &mut targets)?;
            team.group.synchronize()
        },
        |rank| upload(team, rank, from),
    )
}

pub(super) fn upload_all_from(team: &Team) -> anyhow::Result<Measured> {
    let host = team.pinned(team.len)?;
    let from = host.as_slice()?.as_ptr();
    let slice = vec![1; team.len];
    let mut targets = team.group.alloc::<u8>(team.len)?;
    team.transfers(
        || {
            team.group.upload_all_from(&slice, &mut targets)?;
            team.group.synchronize()
        },
        |rank| upload(team, rank, from),
    )
}

pub(super) fn scatter(team: &Team) -> anyhow::Result<Measured> {
    let host = team.pinned(team.all())?;
    let from = host.as_slice()?.as_ptr();
    let mut targets = team.group.alloc::<u8>(team.len)?;
    team.transfers(
        || {
            team.group.scatter(&host, &mut targets)?;
            team.group.synchronize()
        },
        |rank| upload(team, rank, from.wrapping_add(rank * team.len)),
    )
}

pub(super) fn scatter_from(team: &Team) -> anyhow::Result<Measured> {
    let host = team.pinned(team.all())?;
    let from = host.as_slice()?.as_ptr();
    let slice = vec![1; team.all()];
    let mut targets = team.group.alloc::<u8>(team.len)?;
    team.transfers(
        || {
            team.group.scatter_from(&slice, &mut targets)?;
            team.group.synchronize()
        },
        |rank| upload(team, rank, from.wrapping_add(rank * team.len)),
    )
}

pub(super) fn gather(team: &Team) -> anyhow::Result<Measured> {
    let mut other = team.pinned(team.all())?;
    let to = other.as_mut_slice()?.as_mut_ptr();
    let mut host = team.pinned(team.all())?;
    team.transfers(
        || {
            team.group.gather(&team.sources, &mut host)?;
            team.group.synchronize()
        },
        |rank| download(team, rank, to.wrapping_add(rank * team.len)),
    )
}

pub(super) fn gather_to(team: &Team) -> anyhow::Result<Measured> {
    let mut other = team.pinned(team.all())?;
    let to = other.as_mut_slice()?.as_mut_ptr();
    let mut slice = vec![1; team.all()];
    team.transfers(
        || team.group.gather_to(&team.sources, &mut slice),
        |rank| download(team, rank, to.wrapping_add(rank * team.len)),
    )
}
