//! Joins ranks, and makes communicators from others.

use std::collections::BTreeSet;
use std::env;
use std::ffi::c_int;
use std::slice;
use std::sync::atomic::AtomicPtr;

use cuda_sys::CUDA_ERROR_INVALID_DEVICE;

use crate::call::Call;
use crate::handle::{Id, pointer};
use crate::nccl::call::{argument, cuda, put};
use crate::nccl::clique::Clique;
use crate::nccl::raw::{
    Answer, Code, Config, MAGIC, NO_COLOR, RawComm, SHRINK_ABORT, SHRINK_DEFAULT, UNDEFINED,
    UniqueId,
};
use crate::report::ViolationKind;

nccl_entries! {
    ncclGetUniqueId(id: *mut UniqueId) |call| {
        let new = new_id(call);
        // SAFETY: the caller passes a place for the id.
        unsafe { put(id, new) }
    }

    ncclCommGetUniqueId(comm: RawComm, id: *mut UniqueId) of comm |call| {
        let own = call.ready_communicator(comm)?;
        let new = new_id(call);
        let clique = call.nccl.communicators[&own].clique;
        let clique = clique.and_then(|clique| call.nccl.cliques.get_mut(&clique));
        let growth = &mut clique.ok_or(Code::INVALID_ARGUMENT)?.growth;
        if growth.is_some() {
            return Err(Code::INVALID_USAGE);
        }
        *growth = Some((new, BTreeSet::new()));
        crate::state::CHANGED.notify_all();
        // SAFETY: the caller passes a place for the id.
        unsafe { put(id, new) }
    }

    ncclCommInitRank(comm: *mut RawComm, ranks: c_int, id: UniqueId, rank: c_int) |call| {
        // SAFETY: the caller passes a place for the communicator.
        unsafe { join(call, comm, (ranks, &[id], rank), true) }
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
        unsafe { join(call, comm, (ranks, &[id], rank), blocking.unwrap_or(true)) }
    }

    ncclCommInitRankScalable(
        comm: *mut RawComm,
        ranks: c_int,
        rank: c_int,
        count: c_int,
        ids: *const UniqueId,
        config: *const Config,
    ) |call| {
        let known = usize::try_from(count).ok().filter(|_| (1..=ranks).contains(&count));
        let known = known.filter(|_| !ids.is_null()).ok_or(Code::INVALID_ARGUMENT)?;
        // SAFETY: not null, so the caller passes `count` ids.
        let ids = unsafe { slice::from_raw_parts(ids, known) };
        // SAFETY: the caller passes null or a configuration.
        let blocking = unsafe { blocks(config) }?;
        // SAFETY: the caller passes a place for the communicator.
        unsafe { join(call, comm, (ranks, ids, rank), blocking.unwrap_or(true)) }
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
            // SAFETY: not null, so the caller passes `count` ordinals.
            let place = unsafe { devices.add(rank) };
            // SAFETY: this is one of the caller's ordinals.
            ordinals.push(unsafe { place.read() });
        }
        let known = ordinals.iter().map(|ordinal| call.device(*ordinal));
        let known: Result<Vec<usize>, _> = known.collect();
        let known = known.map_err(|_| cuda(CUDA_ERROR_INVALID_DEVICE))?;
        let clique = call.new_id();
        call.nccl.cliques.insert(clique, Clique::new(&[], ranks));
        for (rank, device) in known.into_iter().enumerate() {
            let name = call.name;
            let new = call.new_communicator((Some(clique), rank), device, true, name);
            let handle = call.nccl.communicators[&new].handle;
            // SAFETY: the caller passes places for `count` communicators.
            let place = unsafe { comms.add(rank) };
            // SAFETY: this is one of the caller's places.
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
        if color < 0 && color != NO_COLOR {
            return Err(Code::INVALID_ARGUMENT);
        }
        let parent = call.ready_communicator(comm)?;
        // SAFETY: the caller passes a place for the communicator, and null or a configuration.
        unsafe { derive(call, parent, Vec::new(), (color, key), new, config) }
    }

    ncclCommShrink(
        comm: RawComm,
        excluded: *mut c_int,
        count: c_int,
        new: *mut RawComm,
        config: *const Config,
        flags: c_int,
    ) of comm |call| {
        match flags {
            SHRINK_DEFAULT => {}
            SHRINK_ABORT => call.cut_off(comm)?,
            _ => return Err(Code::INVALID_ARGUMENT),
        }
        let parent = call.ready_communicator(comm)?;
        let count = usize::try_from(count).ok().filter(|count| *count > 0 && !excluded.is_null());
        let count = count.ok_or(Code::INVALID_ARGUMENT)?;
        // SAFETY: not null, so the caller passes `count` ranks.
        let excluded = unsafe { slice::from_raw_parts_mut(excluded, count) };
        excluded.sort_unstable();
        let own = &call.nccl.communicators[&parent];
        let size = own.clique.map_or(0, |clique| call.nccl.cliques[&clique].ranks.len());
        let known = |rank: &c_int| usize::try_from(*rank).ok().filter(|rank| *rank < size);
        let known: Option<Vec<usize>> = excluded.iter().map(known).collect();
        let twice = excluded.windows(2).any(|pair| pair[0] == pair[1]);
        let known = known.filter(|known| !known.contains(&own.rank) && !twice);
        let (known, key) = (known.ok_or(Code::INVALID_ARGUMENT)?, own.rank as c_int);
        // SAFETY: the caller passes a place for the communicator, and null or a configuration.
        unsafe { derive(call, parent, known, (0, key), new, config) }
    }

    ncclCommGrow(
        comm: RawComm,
        size: c_int,
        id: *const UniqueId,
        rank: c_int,
        new: *mut RawComm,
        config: *const Config,
    ) |call| {
        // SAFETY: the caller passes null or a configuration.
        let blocking = unsafe { blocks(config) }?.unwrap_or(true);
        let (id, rank, from) = if comm.is_null() {
            if id.is_null() {
                return Err(Code::INVALID_ARGUMENT);
            }
            // SAFETY: not null, so the caller passes an id.
            (unsafe { id.read() }, rank, None)
        } else {
            if rank != -1 {
                return Err(Code::INVALID_ARGUMENT);
            }
            let (id, rank) = growth(call, comm, size)?;
            (id, rank as c_int, Some(call.communicator(comm)?))
        };
        // SAFETY: the caller passes a place for the communicator.
        let joined = unsafe { join(call, new, (size, &[id], rank), blocking) };
        if joined == Err(Code::IN_PROGRESS) {
            // SAFETY: `join` has written the communicator there.
            let handle = unsafe { new.read() };
            let own = call.communicator(handle)?;
            if let Some(own) = call.nccl.communicators.get_mut(&own) {
                own.grows_from = from;
                // NCCL writes the handle again when the growth has completed.
                own.split_off = Some((AtomicPtr::new(new), handle.addr()));
            }
        }
        joined
    }
}

/// Makes a unique id of this process.
fn new_id(call: &mut Call) -> UniqueId {
    call.nccl.ids += 1;
    let mut bytes = [0x5a; 128];
    bytes[..8].copy_from_slice(&call.nccl.ids.to_le_bytes());
    UniqueId { internal: bytes }
}

/// Joins this rank to a communicator's growth, and returns the growth's id and the rank. Waits until a rank
/// has made the id.
fn growth(call: &mut Call, comm: RawComm, size: c_int) -> Answer<(UniqueId, usize)> {
    loop {
        let own = call.ready_communicator(comm)?;
        let own = &call.nccl.communicators[&own];
        let (rank, clique) = (own.rank, own.clique.ok_or(Code::INVALID_ARGUMENT)?);
        let clique = call.nccl.cliques.get_mut(&clique).ok_or(Code::INVALID_ARGUMENT)?;
        let there = clique.ranks.len();
        if usize::try_from(size).is_ok_and(|size| size <= there) {
            return Err(Code::INVALID_ARGUMENT);
        }
        if let Some((id, ranks)) =
            clique.growth.as_mut().filter(|(_, known)| !known.contains(&rank))
        {
            let id = *id;
            ranks.insert(rank);
            if ranks.len() == there {
                clique.growth = None;
            }
            return Ok((id, rank));
        }
        call.wait(None);
    }
}

/// Joins a rank to a split of a communicator that leaves out the excluded ranks.
///
/// # Safety
/// `new` is null or has room for a handle; `config` is null or points to an `ncclConfig_t`.
unsafe fn derive(
    call: &mut Call,
    parent: Id,
    excluded: Vec<usize>,
    (color, key): (c_int, c_int),
    new: *mut RawComm,
    config: *const Config,
) -> Answer {
    // SAFETY: this function's contract.
    let blocking = unsafe { blocks(config) }?;
    // SAFETY: this function's contract.
    unsafe { put(new, pointer(0)) }?;
    let name = call.name;
    let own = call.nccl.communicators.get_mut(&parent).ok_or(Code::INVALID_ARGUMENT)?;
    let before = own.splits.entry(excluded.clone()).or_default();
    *before += 1;
    let number = (excluded, *before);
    own.splitting = Some(number.clone());
    let (rank, device) = (own.rank, own.device);
    let (clique, blocking) = (own.clique, blocking.unwrap_or(own.blocking));
    let clique = clique.ok_or(Code::INVALID_ARGUMENT)?;
    let child =
        (color != NO_COLOR).then(|| call.new_communicator((None, 0), device, blocking, name));
    let handle = child.map_or(0, |child| call.nccl.communicators[&child].handle);
    if let Some(parent) = call.nccl.communicators.get_mut(&parent) {
        parent.split_off = Some((AtomicPtr::new(new), handle));
    }
    call.join_split(clique, (number, rank), (color, key), child);
    let taken = call.take_member(parent);
    let taken = taken.and(child.map_or(Ok(()), |child| call.take_member(child)));
    // NCCL 2.28 returns success, too.
    if taken == Err(Code::IN_PROGRESS) { Ok(()) } else { taken }
}

/// Returns whether communicators made with a configuration block, if it specifies that.
///
/// # Safety
/// `config` is null or points to an `ncclConfig_t`.
unsafe fn blocks(config: *const Config) -> Answer<Option<bool>> {
    if config.is_null() {
        return Ok(None);
    }
    // SAFETY: not null, so a configuration, all versions of which have these fields.
    let config = unsafe { config.read() };
    // The environment takes precedence.
    if env::var_os("NCCL_COMM_BLOCKING").is_some_and(|text| text == "0") {
        return Ok(Some(false));
    }
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

/// Joins a rank, on the current device.
///
/// # Safety
/// `comm` is null or has room for a handle.
unsafe fn join(
    call: &mut Call,
    comm: *mut RawComm,
    (ranks, ids, rank): (c_int, &[UniqueId], c_int),
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
    let unknown = |id: &UniqueId| {
        let mut issued = [0; 8];
        issued.copy_from_slice(&id.internal[..8]);
        let issued = u64::from_le_bytes(issued);
        issued == 0 || issued > call.nccl.ids || id.internal[8..].iter().any(|byte| *byte != 0x5a)
    };
    if ids.iter().any(unknown) {
        // The id is of another process, which cannot be reached.
        return Err(Code::SYSTEM_ERROR);
    }
    let known = call.nccl.cliques.iter().find(|(_, clique)| clique.ids == ids);
    let clique = known.map(|(&clique, _)| clique);
    let clique = clique.unwrap_or_else(|| {
        let new = call.new_id();
        call.nccl.cliques.insert(new, Clique::new(ids, size));
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
