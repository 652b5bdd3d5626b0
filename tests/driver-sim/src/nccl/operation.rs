//! Operations of communicators on streams, and how the operations of different ranks are matched.

use std::fmt;
use std::ops::Range;

use crate::engine::clock::{Clock, Point};
use crate::engine::work::{Access, AccessKind, Op, Place, Work};
use crate::handle::Id;
use crate::nccl::lane::End;
use crate::nccl::number::{Number, Reduction};
use crate::report::ViolationKind;
use crate::state::{State, is_retired};

/// Number of a communicator's streams from which on those that are gone are removed.
const MANY: usize = 16;

/// An operation of a communicator on a stream.
#[derive(Debug, Clone)]
pub(crate) struct Operation {
    pub(crate) communicator: Id,
    pub(crate) clique: Id,
    pub(crate) rank: usize,
    pub(crate) task: Task,
}

#[derive(Debug, Clone)]
pub(crate) enum Task {
    Collective(Collective),
    /// The sends and receives of a group.
    Exchange(Vec<Transfer>),
}

#[derive(Debug, Clone)]
pub(crate) struct Collective {
    pub(crate) shape: Shape,
    pub(crate) from: Option<Place>,
    pub(crate) to: Option<Place>,
    pub(crate) factor: Factor,
    /// The number of the collective in the clique. Each launch of a graph is another one.
    pub(crate) round: u64,
}

/// The arguments in which all ranks must agree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) kind: Kind,
    pub(crate) count: usize,
    pub(crate) number: Number,
    pub(crate) reduction: Option<Reduction>,
    pub(crate) root: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    AllReduce,
    Reduce,
    Broadcast,
    AllGather,
    ReduceScatter,
}

/// The factor by which a rank multiplies.
#[derive(Debug, Clone)]
pub(crate) enum Factor {
    None,
    Number(Vec<u8>),
    /// A factor in memory that is read when the collective runs.
    At(Place),
}

#[derive(Debug, Clone)]
pub(crate) struct Transfer {
    pub(crate) peer: usize,
    pub(crate) sends: bool,
    pub(crate) count: usize,
    pub(crate) number: Number,
    pub(crate) place: Option<Place>,
    /// The number of the transfer between the two ranks.
    pub(crate) index: u64,
}

/// The n-th collective of a clique.
#[derive(Debug)]
pub(crate) struct Round {
    pub(crate) shape: Shape,
    pub(crate) call: &'static str,
    pub(crate) parts: Vec<Option<Part>>,
    /// Whether the ranks disagree.
    pub(crate) broken: bool,
    /// The result, once the collective has run.
    pub(crate) result: Option<Vec<u8>>,
    /// How many ranks have written their results.
    pub(crate) done: usize,
}

/// A rank's part in a collective.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) communicator: Id,
    pub(crate) at: Point,
    pub(crate) collective: Collective,
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, count, number, reduction, root } = self;
        write!(f, "{kind:?} of {count} {number:?}")?;
        if let Some(reduction) = reduction {
            write!(f, ", {reduction:?}")?;
        }
        if matches!(kind, Kind::Reduce | Kind::Broadcast) {
            write!(f, ", root {root}")?;
        }
        Ok(())
    }
}

impl Shape {
    pub(crate) fn bytes(&self) -> usize {
        self.count * self.number.width()
    }

    /// Returns how many bytes a rank reads and writes.
    pub(crate) fn sizes(&self, ranks: usize, rank: usize) -> (usize, usize) {
        let bytes = self.bytes();
        let at_root = if rank == self.root { bytes } else { 0 };
        match self.kind {
            Kind::AllReduce => (bytes, bytes),
            Kind::Reduce => (bytes, at_root),
            Kind::Broadcast => (at_root, bytes),
            Kind::AllGather => (bytes, bytes * ranks),
            Kind::ReduceScatter => (bytes * ranks, bytes),
        }
    }

    /// Returns the part of the result that a rank writes, of `bytes` bytes.
    pub(crate) fn share(&self, rank: usize, bytes: usize) -> Range<usize> {
        let start = if self.kind == Kind::ReduceScatter { rank * bytes } else { 0 };
        start..start + bytes
    }

    /// Returns how far a rank's input lies behind its output in an in-place operation.
    pub(crate) fn in_place(&self, rank: usize) -> isize {
        let part = (rank * self.bytes()) as isize;
        match self.kind {
            Kind::AllGather => part,
            Kind::ReduceScatter => -part,
            _ => 0,
        }
    }
}

impl Collective {
    pub(crate) fn accesses(&self, ranks: usize, rank: usize) -> Vec<Access> {
        let (reads, writes) = self.shape.sizes(ranks, rank);
        let read = self.from.as_ref().and_then(|from| from.access(reads, AccessKind::Read));
        let write = self.to.as_ref().and_then(|to| to.access(writes, AccessKind::Write));
        let factor = match &self.factor {
            Factor::At(place) => place.access(self.shape.number.width(), AccessKind::Read),
            Factor::None | Factor::Number(_) => None,
        };
        [read, factor, write].into_iter().flatten().collect()
    }
}

impl Transfer {
    pub(crate) fn bytes(&self) -> usize {
        self.count * self.number.width()
    }

    pub(crate) fn access(&self) -> Option<Access> {
        let kind = if self.sends { AccessKind::Read } else { AccessKind::Write };
        self.place.as_ref()?.access(self.bytes(), kind)
    }

    /// Returns the sender and the receiver.
    pub(crate) fn lane(&self, rank: usize) -> (usize, usize) {
        if self.sends { (rank, self.peer) } else { (self.peer, rank) }
    }
}

impl State {
    /// Matches an operation with those of other ranks. Called when it is appended to its stream.
    pub(crate) fn bind(&mut self, stream: Id, op: &mut Op, clock: &Clock) {
        let Work::Communicate(operation) = &mut op.work else {
            return;
        };
        let (at, call) = (Point { stream, seq: op.seq }, op.call);
        let id = operation.communicator;
        // After an abort too, NCCL frees what a graph uses only when the last graph is gone.
        let Some(comm) = self.nccl.communicators.get_mut(&id) else {
            return;
        };
        if comm.last.len() >= MANY {
            // Branches of launches that the host knows to be complete.
            comm.last.retain(|&stream, _| !is_retired(&self.streams, &self.dead, stream));
        }
        comm.last.insert(stream, (at, clock.clone()));
        let (clique, rank) = (operation.clique, operation.rank);
        match &mut operation.task {
            Task::Collective(collective) => {
                self.bind_round(call, (id, clique, rank), at, collective)
            }
            Task::Exchange(transfers) => {
                for transfer in transfers {
                    self.bind_message(call, (id, clique, rank), at, transfer);
                }
            }
        }
        // Streams that wait for this rank can continue.
        crate::state::CHANGED.notify_all();
    }

    fn bind_round(
        &mut self,
        call: &'static str,
        (communicator, clique, rank): (Id, Id, usize),
        at: Point,
        collective: &mut Collective,
    ) {
        let Some(clique) = self.nccl.cliques.get_mut(&clique) else {
            return;
        };
        clique.issued[rank] += 1;
        let (number, shape) = (clique.issued[rank], collective.shape);
        collective.round = number;
        let part = Part { communicator, at, collective: collective.clone() };
        let Some(round) = clique.rounds.get_mut(&number) else {
            let mut parts: Vec<Option<Part>> = clique.ranks.iter().map(|_| None).collect();
            parts[rank] = Some(part);
            let round = Round { shape, call, parts, broken: false, result: None, done: 0 };
            clique.rounds.insert(number, round);
            return;
        };
        round.parts[rank] = Some(part);
        if round.shape != shape {
            round.broken = true;
            let message = format!(
                "rank {rank} does {shape} as operation {number} of the communicator, another {} by {}",
                round.shape, round.call
            );
            self.log.violation(ViolationKind::Mismatch, call, message);
        }
    }

    fn bind_message(
        &mut self,
        call: &'static str,
        (communicator, clique, rank): (Id, Id, usize),
        at: Point,
        transfer: &mut Transfer,
    ) {
        let Some(clique) = self.nccl.cliques.get_mut(&clique) else {
            return;
        };
        let lane = clique.lanes.entry(transfer.lane(rank)).or_default();
        let issued = if transfer.sends { &mut lane.sent } else { &mut lane.received };
        *issued += 1;
        transfer.index = *issued;
        let message = lane.messages.row(transfer.index);
        let end = End { communicator, at, transfer: transfer.clone(), call };
        *(if transfer.sends { &mut message.send } else { &mut message.receive }) = Some(end);
        let (Some(send), Some(receive)) = (&message.send, &message.receive) else {
            return;
        };
        let (out, into) = (&send.transfer, &receive.transfer);
        if (out.count, out.number) != (into.count, into.number) {
            message.broken = true;
            let text = format!(
                "rank {} sends {} {:?} to rank {}, which receives {} {:?}",
                into.peer, out.count, out.number, out.peer, into.count, into.number
            );
            self.log.violation(ViolationKind::Mismatch, call, text);
        }
    }
}
