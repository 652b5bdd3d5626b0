//! Copies between devices, all at once.

use cuda_core::Stream;
use cuda_core::nccl::Ranks;

use super::super::collectives::require_nccl;
use super::team::{Parts, Team};
use crate::bench::Measured;
use crate::bench::measure::pair;
use crate::bench::raw::code_of;

pub(super) fn rotate(team: &Team) -> anyhow::Result<Measured> {
    let count = team.group.len();
    let mut targets = team.group.alloc::<u8>(team.len)?;
    let parts = Parts { ranks: team.ranks(), steps: 1..2, bytes: team.len };
    let ours = || team.group.rotate(&team.sources, &mut targets, 1);
    team.copies(&parts, ours, |from, step| team.peer(from, (from + step) % count, (0, 0), team.len))
}

pub(super) fn all_to_all(team: &Team) -> anyhow::Result<Measured> {
    let count = team.group.len();
    let part = team.len / count;
    let mut targets = team.group.alloc::<u8>(team.len)?;
    // A part that stays on its device is not a peer copy, and is not measured.
    let apart = |rank: usize, other: usize| if rank == other { 0 } else { part };
    let sources = |rank: usize| {
        let slice = |to| team.sources[rank].slice(to * part..to * part + apart(rank, to));
        (0..count).map(slice).collect()
    };
    let sources = team.ranks().map(sources).collect::<cuda_core::Result<Vec<Vec<_>>>>()?;
    let parts = Parts { ranks: team.ranks(), steps: 1..count, bytes: part * (count - 1) };
    let ours = || {
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
        team.group.exchange(&sources, rows)
    };
    team.copies(&parts, ours, |from, step| {
        let to = (from + step) % count;
        team.peer(from, to, (to * part, from * part), part)
    })
}

pub(super) fn broadcast(team: &Team) -> anyhow::Result<Measured> {
    let mut buffers = team.group.alloc_zeroed::<u8>(team.len)?;
    // The bytes leave their device once, however many devices receive them.
    let parts = Parts { ranks: 0..1, steps: 1..2, bytes: team.len };
    let ours = || team.group.broadcast_in_place(&mut buffers, 0);
    team.copies(&parts, ours, |from, step| team.peer(from, from + step, (0, 0), team.len))
}

pub(super) fn broadcast_beside_nccl(team: &Team) -> anyhow::Result<Measured> {
    require_nccl()?;
    let (group, streams) = (&team.group, team.group.streams());
    let ranks = Ranks::init_all(streams.iter().map(Stream::context))?;
    let mut buffers = group.alloc_zeroed::<u8>(team.len)?;
    let mut theirs = group.alloc_zeroed::<u8>(team.len)?;
    let ours = || group.broadcast_in_place(&mut buffers, 0).and_then(|()| group.synchronize());
    let nccl = || {
        let done = ranks.on(streams).and_then(|on| on.broadcast_in_place(&mut theirs, 0));
        code_of(done.and_then(|()| group.synchronize()))
    };
    Ok(pair(team.effort, 1, ours, nccl, || Ok(()))?.moving(team.len))
}
