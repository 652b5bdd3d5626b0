//! How ranks join, and how communicators split.

use std::ffi::c_int;

use cuda_sys::CUDA_ERROR_INVALID_DEVICE;

use crate::call::Call;
use crate::handle::{Id, pointer};
use crate::nccl::call::{argument, cuda, put};
use crate::nccl::clique::Clique;
use crate::nccl::raw::{Answer, Code, Config, MAGIC, NO_COLOR, RawComm, UNDEFINED, UniqueId};
use crate::report::ViolationKind;

nccl_entries! {
    ncclGetUniqueId(id: *mut UniqueId) |call| {
        call.nccl.ids += 1;
        let mut bytes = [0x5a; 128];
        bytes[..8].copy_from_slice(&call.nccl.ids.to_le_bytes());
        // SAFETY: the caller passes a place for the id.
        unsafe { put(id, UniqueId { internal: bytes }) }
    }

    ncclCommInitRank(comm: *mut RawComm, ranks: c_int, id: UniqueId, rank: c_int) |call| {
        // SAFETY: the caller passes a place for the communicator.
        unsafe { join(call, comm, (ranks, id, rank), true) }
    }

    ncclCommInitRankConfig(
        comm: *mut RawComm,
        ranks: c_int,
        id: UniqueId,
        rank: c_int,
        config: *const Config,
    ) |call| {
        // SAFETY: the caller passes null or a configuration.
        let blocking = unsafe { blocks(config) }?;
        // SAFETY: the caller passes a place for the communicator.
        unsafe { join(call, comm, (ranks, id, rank), blocking.unwrap_or(true)) }
    }

    ncclCommInitAll(comms: *mut RawComm, count: c_int, devices: *const c_int) |call| {
        let ranks = usize::try_from(count).ok().filter(|ranks| *ranks > 0);
        let ranks = ranks.filter(|_| !comms.is_null()).ok_or(Code::INVALID_ARGUMENT)?;
        let mut ordinals = Vec::with_capacity(ranks);
        for rank in 0..ranks {
            if devices.is_null() {
                ordinals.push(rank as c_int);
                continue;
            }
            // SAFETY: not null, so the caller passes `count` of them.
            let place = unsafe { devices.add(rank) };
            // SAFETY: one of the caller's ordinals.
            ordinals.push(unsafe { place.read() });
        }
        let known = ordinals.iter().map(|ordinal| call.device(*ordinal));
        let known: Result<Vec<usize>, _> = known.collect();
        let known = known.map_err(|_| cuda(CUDA_ERROR_INVALID_DEVICE))?;
        let clique = call.new_id();
        call.nccl.cliques.insert(clique, Clique::new(None, ranks));
        for (rank, device) in known.into_iter().enumerate() {
            let name = call.name;
            let new = call.new_communicator((Some(clique), rank), device, true, name);
            let handle = call.nccl.communicators[&new].handle;
            // SAFETY: the caller passes places for `count` communicators.
            let place = unsafe { comms.add(rank) };
            // SAFETY: one of the caller's places.
            unsafe { put(place, pointer(handle)) }?;
            call.join_clique(clique, rank, new);
        }
        let members: Vec<Id> = call.nccl.cliques[&clique].ranks.iter().flatten().copied().collect();
        members.into_iter().try_for_each(|id| call.await_ranks(id))
    }

    ncclCommSplit(
        comm: RawComm,
        color: c_int,
        key: c_int,
        new: *mut RawComm,
        config: *const Config,
    ) of comm |call| {
        let parent = call.ready_communicator(comm)?;
        if new.is_null() || (color < 0 && color != NO_COLOR) {
            return Err(Code::INVALID_ARGUMENT);
        }
        // SAFETY: the caller passes null or a configuration.
        let blocking = unsafe { blocks(config) }?;
        let name = call.name;
        let own = call.nccl.communicators.get_mut(&parent).ok_or(Code::INVALID_ARGUMENT)?;
        own.splits += 1;
        own.splitting = true;
        let (number, rank, device) = (own.splits, own.rank, own.device);
        let (clique, blocking) = (own.clique, blocking.unwrap_or(own.blocking));
        let clique = clique.ok_or(Code::INVALID_ARGUMENT)?;
        let child = (color != NO_COLOR)
            .then(|| call.new_communicator((None, 0), device, blocking, name));
        let handle = child.map_or(0, |child| call.nccl.communicators[&child].handle);
        // SAFETY: the caller passes a place for the communicator.
        unsafe { put(new, pointer(0)) }?;
        if let Some(parent) = call.nccl.communicators.get_mut(&parent) {
            parent.split_off = Some((new.expose_provenance(), handle));
        }
        call.join_split(clique, (number, rank), (color, key), child);
        let taken = call.take_member(parent);
        let taken = taken.and(child.map_or(Ok(()), |child| call.take_member(child)));
        // As NCCL 2.28 does.
        if taken == Err(Code::IN_PROGRESS) { Ok(()) } else { taken }
    }
}

/// Whether communicators block that are made with a configuration, if it says.
///
/// # Safety
/// `config` is null or points to an `ncclConfig_t`.
unsafe fn blocks(config: *const Config) -> Answer<Option<bool>> {
    if config.is_null() {
        return Ok(None);
    }
    // SAFETY: not null, so a configuration, of which all versions have these fields.
    let config = unsafe { config.read() };
    if config.magic != MAGIC || config.size < size_of::<Config>() {
        return Err(Code::INVALID_ARGUMENT);
    }
    match config.blocking {
        UNDEFINED => Ok(None),
        0 => Ok(Some(false)),
        1 => Ok(Some(true)),
        _ => Err(Code::INVALID_ARGUMENT),
    }
}

/// A rank joins, on the current device.
///
/// # Safety
/// `comm` is null or has room for a handle.
unsafe fn join(
    call: &mut Call,
    comm: *mut RawComm,
    (ranks, id, rank): (c_int, UniqueId, c_int),
    blocking: bool,
) -> Answer {
    let name = call.name;
    let size = usize::try_from(ranks).ok().filter(|size| *size > 0);
    let size = size.filter(|_| !comm.is_null()).ok_or(Code::INVALID_ARGUMENT)?;
    let rank = usize::try_from(rank).ok().filter(|rank| *rank < size);
    let rank = rank.ok_or(Code::INVALID_ARGUMENT)?;
    let device = call.current_device().map_err(|code| {
        let message = "no context is current: NCCL takes device 0, whatever was meant".to_owned();
        call.log.violation(ViolationKind::WrongDevice, name, message);
        argument(code)
    })?;
    let mut issued = [0; 8];
    issued.copy_from_slice(&id.internal[..8]);
    let issued = u64::from_le_bytes(issued);
    if issued == 0 || issued > call.nccl.ids || id.internal[8..].iter().any(|byte| *byte != 0x5a) {
        // Of another process, which cannot be reached.
        return Err(Code::SYSTEM_ERROR);
    }
    let known = call.nccl.cliques.iter().find(|(_, clique)| clique.id == Some(id));
    let clique = known.map(|(&clique, _)| clique);
    let clique = clique.unwrap_or_else(|| {
        let new = call.new_id();
        call.nccl.cliques.insert(new, Clique::new(Some(id), size));
        new
    });
    let there = &call.nccl.cliques[&clique].ranks;
    let problem = if there.len() != size {
        format!("rank {rank} of {size} joins a communicator of {} ranks", there.len())
    } else if there[rank].is_some() {
        format!("rank {rank} has joined with this unique id before")
    } else {
        let new = call.new_communicator((Some(clique), rank), device, blocking, name);
        let handle = call.nccl.communicators[&new].handle;
        // SAFETY: the caller passes a place for the communicator.
        unsafe { put(comm, pointer(handle)) }?;
        call.join_clique(clique, rank, new);
        return call.take_member(new);
    };
    call.log.violation(ViolationKind::Mismatch, name, problem);
    Err(Code::INVALID_ARGUMENT)
}
