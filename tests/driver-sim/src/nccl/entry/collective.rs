//! Collectives, and sends and receives.

use std::ffi::{c_int, c_void};

use cuda_sys::CUstream;

use crate::call::Call;
use crate::engine::work::{Access, Place};
use crate::handle::Id;
use crate::nccl::call::{argument, cuda};
use crate::nccl::group::{Item, What};
use crate::nccl::number::{Number, Reduction};
use crate::nccl::operation::{Collective, Factor, Kind, Shape, Transfer};
use crate::nccl::raw::{Answer, Code, RawComm};
use crate::report::ViolationKind;

nccl_entries! {
    ncclReduce(
        from: *const c_void,
        to: *mut c_void,
        count: usize,
        number: c_int,
        op: c_int,
        root: c_int,
        comm: RawComm,
        stream: CUstream,
    ) of comm |call| {
        let how = How { kind: Kind::Reduce, count, number, op: Some(op), root };
        collect(call, (from, to), &how, (comm, stream))
    }

    ncclBroadcast(
        from: *const c_void,
        to: *mut c_void,
        count: usize,
        number: c_int,
        root: c_int,
        comm: RawComm,
        stream: CUstream,
    ) of comm |call| {
        let how = How { kind: Kind::Broadcast, count, number, op: None, root };
        collect(call, (from, to), &how, (comm, stream))
    }

    ncclAllReduce(
        from: *const c_void,
        to: *mut c_void,
        count: usize,
        number: c_int,
        op: c_int,
        comm: RawComm,
        stream: CUstream,
    ) of comm |call| {
        let how = How { kind: Kind::AllReduce, count, number, op: Some(op), root: 0 };
        collect(call, (from, to), &how, (comm, stream))
    }

    ncclReduceScatter(
        from: *const c_void,
        to: *mut c_void,
        count: usize,
        number: c_int,
        op: c_int,
        comm: RawComm,
        stream: CUstream,
    ) of comm |call| {
        let how = How { kind: Kind::ReduceScatter, count, number, op: Some(op), root: 0 };
        collect(call, (from, to), &how, (comm, stream))
    }

    ncclAllGather(
        from: *const c_void,
        to: *mut c_void,
        count: usize,
        number: c_int,
        comm: RawComm,
        stream: CUstream,
    ) of comm |call| {
        let how = How { kind: Kind::AllGather, count, number, op: None, root: 0 };
        collect(call, (from, to), &how, (comm, stream))
    }

    ncclSend(
        from: *const c_void,
        count: usize,
        number: c_int,
        peer: c_int,
        comm: RawComm,
        stream: CUstream,
    ) of comm |call| {
        transfer(call, true, from, (count, number), peer, (comm, stream))
    }

    ncclRecv(
        to: *mut c_void,
        count: usize,
        number: c_int,
        peer: c_int,
        comm: RawComm,
        stream: CUstream,
    ) of comm |call| {
        transfer(call, false, to.cast_const(), (count, number), peer, (comm, stream))
    }
}

/// The arguments that determine what a collective does.
struct How {
    kind: Kind,
    count: usize,
    number: c_int,
    op: Option<c_int>,
    root: c_int,
}

/// A rank of a communicator, for a call that enqueues.
struct Rank {
    communicator: Id,
    device: usize,
    ranks: usize,
    rank: usize,
    stream: Id,
    capture: Option<Id>,
}

fn rank(call: &mut Call, comm: RawComm, stream: CUstream) -> Answer<Rank> {
    let communicator = call.ready_communicator(comm)?;
    let own = &call.nccl.communicators[&communicator];
    if own.finalized {
        return Err(Code::INVALID_USAGE);
    }
    let (device, rank) = (own.device, own.rank);
    let clique = own.clique.ok_or(Code::INVALID_ARGUMENT)?;
    let ranks = call.nccl.cliques[&clique].ranks.len();
    let stream = call.stream(stream).map_err(cuda)?;
    let (there, capture) = (call.streams[&stream].device, call.streams[&stream].capture);
    if there != device {
        let message = format!("a stream of device {there}, for a communicator of device {device}");
        call.violation(ViolationKind::WrongDevice, message);
        return Err(Code::INVALID_ARGUMENT);
    }
    Ok(Rank { communicator, device, ranks, rank, stream, capture })
}

fn collect(
    call: &mut Call,
    (from, to): (*const c_void, *mut c_void),
    how: &How,
    (comm, stream): (RawComm, CUstream),
) -> Answer {
    let own = rank(call, comm, stream)?;
    let number = Number::from_raw(how.number).ok_or(Code::INVALID_ARGUMENT)?;
    let root = usize::try_from(how.root).ok().filter(|root| *root < own.ranks);
    let root = root.ok_or(Code::INVALID_ARGUMENT)?;
    let (reduction, factor) = match how.op {
        None => (None, Factor::None),
        Some(op) => {
            let (reduction, factor) = reduction(call, own.communicator, op, number)?;
            (Some(reduction), factor)
        }
    };
    let most = own.ranks * number.width();
    if how.count.checked_mul(most).is_none_or(|bytes| bytes > isize::MAX as usize) {
        return Err(Code::INVALID_ARGUMENT);
    }
    // As in NCCL: there is nothing to do, and nothing that other ranks could wait for.
    if how.count == 0 {
        return Ok(());
    }
    let shape = Shape { kind: how.kind, count: how.count, number, reduction, root };
    let (reads, writes) = shape.sizes(own.ranks, own.rank);
    let from = place(call, from.addr(), reads, own.device)?;
    let to = place(call, to.addr(), writes, own.device)?;
    let collective = Collective { shape, from, to, factor, round: 0 };
    let accesses = collective.accesses(own.ranks, own.rank);
    check_overlap(call, &accesses, shape.in_place(own.rank));
    enqueue(call, &own, What::Collective(collective), accesses)
}

fn transfer(
    call: &mut Call,
    sends: bool,
    buffer: *const c_void,
    (count, number): (usize, c_int),
    peer: c_int,
    (comm, stream): (RawComm, CUstream),
) -> Answer {
    let own = rank(call, comm, stream)?;
    let number = Number::from_raw(number).ok_or(Code::INVALID_ARGUMENT)?;
    let peer = usize::try_from(peer).ok().filter(|peer| *peer < own.ranks);
    let peer = peer.ok_or(Code::INVALID_ARGUMENT)?;
    let bytes = count.checked_mul(number.width()).ok_or(Code::INVALID_ARGUMENT)?;
    let place = place(call, buffer.addr(), bytes, own.device)?;
    let transfer = Transfer { peer, sends, count, number, place, index: 0 };
    let accesses = transfer.access().into_iter().collect();
    enqueue(call, &own, What::Transfer(transfer), accesses)
}

fn enqueue(call: &mut Call, own: &Rank, what: What, accesses: Vec<Access>) -> Answer {
    let &Rank { communicator, stream, capture, .. } = own;
    let name = call.name;
    call.take_item(Item { communicator, stream, capture, call: name, what, accesses })
}

/// Returns the memory at an address, of the given device; `None` for no bytes.
fn place(call: &mut Call, address: usize, bytes: usize, device: usize) -> Answer<Option<Place>> {
    if bytes == 0 {
        return Ok(None);
    }
    let name = call.name;
    let place = call.device_place(name, address as u64, bytes).map_err(argument)?;
    call.same_device(&place, device)?;
    Ok(Some(place))
}

fn reduction(
    call: &mut Call,
    communicator: Id,
    op: c_int,
    number: Number,
) -> Answer<(Reduction, Factor)> {
    if let Some(built_in) = Reduction::from_raw(op) {
        return Ok((built_in, Factor::None));
    }
    match call.nccl.communicators[&communicator].reductions.get(&op) {
        Some((of, factor)) if *of == number => Ok((Reduction::Scaled, factor.clone())),
        Some(_) => Err(Code::INVALID_ARGUMENT),
        // NCCL only checks the range.
        None if op < 0 => Err(Code::INVALID_ARGUMENT),
        None => {
            let message = format!("the communicator has no reduction {op}");
            call.violation(ViolationKind::DanglingHandle, message);
            Err(Code::INVALID_ARGUMENT)
        }
    }
}

/// Reports overlapping input and output, unless they are placed as NCCL's in-place operations require.
fn check_overlap(call: &mut Call, accesses: &[Access], in_place: isize) {
    let (Some(read), Some(write)) = (accesses.first(), accesses.last()) else {
        return;
    };
    let (from, to) = (&read.range, &write.range);
    let alike = from.start as isize - to.start as isize == in_place;
    if read.kind != write.kind && read.overlaps(write) && !alike {
        let message = format!("reads bytes {from:?} and writes {to:?}, which is not in place");
        call.violation(ViolationKind::Overlap, message);
    }
}

impl Call {
    /// Checks that memory is of the communicator's device.
    pub(super) fn same_device(&mut self, place: &Place, device: usize) -> Answer {
        let Some(there) = self.device_of(place).filter(|there| *there != device) else {
            return Ok(());
        };
        let message = format!("memory of device {there}, for a communicator of device {device}");
        self.violation(ViolationKind::WrongDevice, message);
        Err(Code::INVALID_ARGUMENT)
    }
}
