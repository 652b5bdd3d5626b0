//! Ranks that are missing when a program ends: operations of the other ranks wait for them for ever.

use crate::handle::Id;
use crate::nccl::Nccl;
use crate::nccl::clique::Clique;
use crate::nccl::group::{Item, What};
use crate::nccl::operation::{Shape, Transfer};
use crate::report::ViolationKind;
use crate::state::State;

/// The call of an operation, and a description of what it waits for.
type Missed = (&'static str, String);

impl State {
    /// Reports, once per clique, an operation that only some ranks have begun. Leaves out cliques in which a
    /// test has made a rank fail.
    pub(crate) fn report_missing_ranks(&mut self) {
        // An operation that only waits for a poll is not missing.
        self.run_jobs();
        let Nccl { cliques, communicators, jobs, .. } = &mut self.nccl;
        let items: Vec<&Item> = jobs.values().flat_map(|job| &job.items).collect();
        let is_live = |id: Id| communicators.contains_key(&id);
        let mut missed = Vec::new();
        for clique in cliques.values_mut().filter(|clique| !clique.lacks_ranks) {
            let has_failed =
                |id: &Id| communicators.get(id).is_some_and(|comm| comm.error.is_some());
            if clique.ranks.iter().flatten().any(has_failed) {
                continue;
            }
            let rank =
                |item: &Item| clique.ranks.iter().position(|it| *it == Some(item.communicator));
            let mut begun = items.iter().filter_map(|item| Some((rank(item)?, *item)));
            let first = clique.missed(is_live);
            let first = first.or_else(|| begun.find_map(|(rank, item)| clique.unmet(rank, item)));
            clique.lacks_ranks = first.is_some();
            missed.extend(first);
        }
        for (call, message) in missed {
            self.log.violation(ViolationKind::MissingRank, call, message);
        }
    }
}

impl Clique {
    /// Returns an operation that an existing communicator has enqueued and that has not run.
    fn missed(&self, is_live: impl Fn(Id) -> bool) -> Option<Missed> {
        let mut rounds = self.rounds.values().filter(|round| round.result.is_none());
        let round = rounds.find_map(|round| {
            let waits = round.parts.iter().flatten().any(|part| is_live(part.communicator));
            let begun: Vec<bool> = round.parts.iter().map(Option::is_some).collect();
            waits.then(|| lacking(round.call, round.shape, &begun))?
        });
        let mut messages = self
            .lanes
            .iter()
            .flat_map(|(lane, it)| it.messages.values().map(move |message| (*lane, message)));
        round.or_else(|| {
            messages.find_map(|((from, to), message)| match (&message.send, &message.receive) {
                (Some(end), None) if is_live(end.communicator) => {
                    Some((end.call, one_sided(from, &end.transfer)))
                }
                (None, Some(end)) if is_live(end.communicator) => {
                    Some((end.call, one_sided(to, &end.transfer)))
                }
                _ => None,
            })
        })
    }

    /// Returns an operation that was not enqueued because not all ranks have connected.
    fn unmet(&self, rank: usize, item: &Item) -> Option<Missed> {
        match &item.what {
            What::Collective(collective) => lacking(item.call, collective.shape, &self.connects),
            What::Transfer(transfer) => {
                let lane = self.lanes.get(&transfer.lane(rank));
                let met = lane.is_some_and(|lane| lane.sender_connects && lane.receiver_connects);
                (!met).then(|| (item.call, one_sided(rank, transfer)))
            }
        }
    }
}

fn lacking(call: &'static str, shape: Shape, begun: &[bool]) -> Option<Missed> {
    let missing = begun.iter().enumerate().filter(|(_, begun)| !**begun);
    let missing: Vec<String> = missing.map(|(rank, _)| rank.to_string()).collect();
    let (ranks, all) = (missing.join(" and "), begun.len());
    let message =
        format!("{shape}, of {all} ranks: rank {ranks} is missing, for which the others wait");
    (!missing.is_empty()).then_some((call, message))
}

fn one_sided(rank: usize, transfer: &Transfer) -> String {
    let Transfer { peer, count, number, .. } = transfer;
    match transfer.sends {
        true => {
            format!("rank {rank} sends {count} {number:?} to rank {peer}, which does not receive")
        }
        false => {
            format!("rank {rank} receives {count} {number:?} from rank {peer}, which does not send")
        }
    }
}
