//! Runs the operations of ranks: what each waits for, and what it does.

use crate::engine::clock::Point;
use crate::engine::work::Place;
use crate::handle::Id;
use crate::nccl::clique::Clique;
use crate::nccl::lane::Message;
use crate::nccl::number::{Given, reduce};
use crate::nccl::operation::{Collective, Factor, Kind, Operation, Task, Transfer};
use crate::report::{Violation, ViolationKind};
use crate::state::State;

/// Whether the operation at the front of a stream can run, and if not, what it waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Meeting {
    Held,
    Needs(Point),
    Waits,
}

impl State {
    /// Determines whether the operation at the front of a stream can run: the operations of all its ranks
    /// must be at the fronts of their streams. If so, reads a collective's data.
    pub(crate) fn meet(&mut self, call: &'static str, operation: &Operation) -> Meeting {
        let Some(own) = self.nccl.communicators.get(&operation.communicator) else {
            return Meeting::Held;
        };
        if own.error.is_some() {
            return Meeting::Waits;
        }
        match &operation.task {
            Task::Collective(collective) => self.meet_all(call, operation, collective),
            Task::Exchange(transfers) => {
                for transfer in transfers {
                    let meeting = self.meet_peer(operation, transfer);
                    if meeting != Meeting::Held {
                        return meeting;
                    }
                }
                Meeting::Held
            }
        }
    }

    /// Determines whether an operation is at the front of its stream, with all its dependencies complete.
    fn arrived(&self, at: Point) -> Meeting {
        let Some(stream) = self.streams.get(&at.stream) else {
            return Meeting::Held;
        };
        if stream.completed + 1 < at.seq {
            return Meeting::Needs(Point { stream: at.stream, seq: at.seq - 1 });
        }
        let deps = stream.queue.front().map(|op| op.deps.as_slice()).unwrap_or_default();
        let missing = deps.iter().find(|dep| !self.is_complete(**dep));
        missing.map_or(Meeting::Held, |dep| Meeting::Needs(*dep))
    }

    /// Returns whether a rank takes part: it was not aborted, and no error stopped it.
    fn takes_part(&self, communicator: Id) -> bool {
        let comm = self.nccl.communicators.get(&communicator);
        comm.is_some_and(|comm| comm.error.is_none())
    }

    fn meet_all(
        &mut self,
        call: &'static str,
        operation: &Operation,
        collective: &Collective,
    ) -> Meeting {
        let round = self.nccl.cliques.get(&operation.clique);
        let Some(round) = round.and_then(|clique| clique.rounds.get(&collective.round)) else {
            return Meeting::Held;
        };
        if round.result.is_some() {
            return Meeting::Held;
        }
        for part in &round.parts {
            let Some(part) = part.as_ref().filter(|part| self.takes_part(part.communicator)) else {
                return Meeting::Waits;
            };
            let meeting = self.arrived(part.at);
            if meeting != Meeting::Held {
                return meeting;
            }
        }
        let (shape, broken) = (round.shape, round.broken);
        let parts = round.parts.iter().flatten().map(|part| part.collective.clone());
        let parts: Vec<Collective> = parts.collect();
        let ranks = parts.len();
        let result = if broken {
            self.noise(shape.bytes() * ranks)
        } else {
            let mut given = Vec::with_capacity(ranks);
            for (rank, part) in parts.iter().enumerate() {
                let bytes = self.taken(call, part.from.as_ref(), shape.sizes(ranks, rank).0);
                let factor = match &part.factor {
                    Factor::None => Vec::new(),
                    Factor::Number(bytes) => bytes.clone(),
                    Factor::At(place) => self.taken(call, Some(place), shape.number.width()),
                };
                given.push(Given { bytes, factor });
            }
            match (shape.kind, shape.reduction) {
                (Kind::Broadcast, _) => given.swap_remove(shape.root).bytes,
                (_, Some(reduction)) => reduce(shape.number, reduction, &given),
                (_, None) => given.into_iter().flat_map(|given| given.bytes).collect(),
            }
        };
        if let Some(round) = self.round(operation.clique, collective.round) {
            round.result = Some(result);
        }
        Meeting::Held
    }

    fn round(&mut self, clique: Id, number: u64) -> Option<&mut crate::nccl::operation::Round> {
        self.nccl.cliques.get_mut(&clique)?.rounds.get_mut(&number)
    }

    fn message(&mut self, operation: &Operation, transfer: &Transfer) -> Option<&mut Message> {
        let clique = self.nccl.cliques.get_mut(&operation.clique)?;
        let lane = clique.lanes.get_mut(&transfer.lane(operation.rank))?;
        lane.messages.get_mut(&transfer.index)
    }

    fn meet_peer(&mut self, operation: &Operation, transfer: &Transfer) -> Meeting {
        let Some(message) = self.message(operation, transfer) else {
            return Meeting::Held;
        };
        if message.bytes.is_some() {
            return Meeting::Held;
        }
        let other = if transfer.sends { &message.receive } else { &message.send };
        let Some((communicator, at)) = other.as_ref().map(|end| (end.communicator, end.at)) else {
            return Meeting::Waits;
        };
        if self.takes_part(communicator) { self.arrived(at) } else { Meeting::Waits }
    }

    /// Reports operations that wait for each other in a cycle, once per session.
    pub(crate) fn report_circle(&mut self, at: Point) {
        let front = self.streams.get(&at.stream).and_then(|stream| stream.queue.front());
        let call = front.map_or("cuStreamWaitEvent", |op| op.call);
        let known = |violation: &Violation| violation.kind == ViolationKind::Deadlock;
        if !self.log.violations.iter().any(known) {
            let message = format!(
                "the operation at the front of stream #{} waits for itself: ranks enqueue operations of \
                 communicators in different orders",
                at.stream
            );
            self.log.violation(ViolationKind::Deadlock, call, message);
        }
    }

    /// Runs an operation. The results of an aborted one mean nothing.
    pub(crate) fn communicate(&mut self, call: &'static str, operation: &Operation) {
        match &operation.task {
            Task::Collective(collective) => self.write_share(call, operation, collective),
            Task::Exchange(transfers) => {
                // All messages are taken before any is written.
                for transfer in transfers {
                    self.take_message(operation, transfer);
                }
                for transfer in transfers {
                    self.end_transfer(call, operation, transfer);
                }
            }
        }
        self.forget_clique(operation.clique);
    }

    fn write_share(&mut self, call: &'static str, operation: &Operation, collective: &Collective) {
        let Some(clique) = self.nccl.cliques.get_mut(&operation.clique) else {
            return;
        };
        let (_, bytes) = collective.shape.sizes(clique.ranks.len(), operation.rank);
        let mut own = Vec::new();
        if let Some(round) = clique.rounds.get_mut(&collective.round) {
            round.done += 1;
            let share = round.result.as_ref();
            let share =
                share.and_then(|all| all.get(collective.shape.share(operation.rank, bytes)));
            own.extend_from_slice(share.unwrap_or_default());
            if round.done == round.parts.len() {
                clique.rounds.remove(&collective.round);
            }
        }
        if let (Some(to), true) = (&collective.to, bytes > 0) {
            if own.is_empty() {
                own = self.noise(bytes);
            }
            self.write(call, to, 0, &own);
        }
    }

    /// Takes a message from the sender's memory, unless an end has taken it or was aborted.
    fn take_message(&mut self, operation: &Operation, transfer: &Transfer) {
        let Some(message) = self.message(operation, transfer) else {
            return;
        };
        let (Some(send), Some(_), None) = (&message.send, &message.receive, &message.bytes) else {
            return;
        };
        let (call, sender, broken) = (send.call, send.transfer.clone(), message.broken);
        if !self.nccl.communicators.contains_key(&operation.communicator) {
            return;
        }
        let bytes = if broken {
            self.noise(transfer.bytes())
        } else {
            self.taken(call, sender.place.as_ref(), sender.bytes())
        };
        if let Some(message) = self.message(operation, transfer) {
            message.bytes = Some(bytes);
        }
    }

    fn end_transfer(&mut self, call: &'static str, operation: &Operation, transfer: &Transfer) {
        let Some(message) = self.message(operation, transfer) else {
            return;
        };
        message.done += 1;
        let (bytes, over) = (message.bytes.clone(), message.done == 2);
        if over {
            let lane = transfer.lane(operation.rank);
            let clique = self.nccl.cliques.get_mut(&operation.clique);
            let lane = clique.and_then(|clique| clique.lanes.get_mut(&lane));
            if let Some(lane) = lane {
                lane.messages.remove(&transfer.index);
            }
        }
        if let (Some(to), false) = (&transfer.place, transfer.sends) {
            let mut bytes = bytes.unwrap_or_default();
            if bytes.len() != transfer.bytes() {
                bytes = self.noise(transfer.bytes());
            }
            self.write(call, to, 0, &bytes);
        }
    }

    /// Returns the bytes at a place, or noise if it has none, which has been reported.
    fn taken(&mut self, call: &'static str, place: Option<&Place>, bytes: usize) -> Vec<u8> {
        let mut taken = vec![0; bytes];
        if let (Some(place), true) = (place, bytes > 0) {
            if !self.read(call, place, 0, &mut taken) {
                return self.noise(bytes);
            }
        }
        taken
    }

    /// Returns meaningless bytes.
    fn noise(&mut self, bytes: usize) -> Vec<u8> {
        (0..bytes).map(|_| self.nccl.draw.below(256) as u8).collect()
    }
}

impl Clique {
    /// Returns whether a rank has enqueued an operation that others have not completed.
    pub(crate) fn is_pending(&self) -> bool {
        let rounds = self.rounds.values().next().is_some();
        rounds || self.lanes.values().any(|lane| lane.messages.values().next().is_some())
    }
}
