//! Cliques: the ranks whose communicators run the same operations.

use std::collections::{BTreeMap, BTreeSet};

use crate::handle::Id;
use crate::nccl::lane::Lane;
use crate::nccl::operation::Round;
use crate::nccl::raw::{Code, NO_COLOR, UniqueId};
use crate::state::State;
use crate::table::Table;

#[derive(Debug)]
pub(crate) struct Clique {
    /// The unique ids by which the ranks meet; none if one call joins all ranks.
    pub(crate) ids: Vec<UniqueId>,
    /// The communicator of each rank that has joined. It may be gone.
    pub(crate) ranks: Vec<Option<Id>>,
    /// Collectives that some rank has enqueued and not all ranks have completed.
    pub(crate) rounds: Table<Round>,
    /// Number of collectives that each rank has enqueued.
    pub(crate) issued: Vec<u64>,
    /// Whether each rank has begun a collective, in which all ranks [connect](super::connect).
    pub(crate) connects: Vec<bool>,
    /// Messages from one rank to another, by sender and receiver.
    pub(crate) lanes: BTreeMap<(usize, usize), Lane>,
    pub(crate) splits: BTreeMap<SplitKey, Split>,
    /// Whether missing ranks were reported.
    pub(crate) lacks_ranks: bool,
    /// The id by which new ranks join, and the ranks of this clique that have taken part in that growth.
    pub(crate) growth: Option<(UniqueId, BTreeSet<usize>)>,
}

/// The ranks that a split leaves out, and how many splits have left out the same ranks before.
pub(crate) type SplitKey = (Vec<usize>, u64);

/// New communicators for ranks of a clique. The split waits for all of these ranks.
#[derive(Debug, Default)]
pub(crate) struct Split {
    /// For each rank: color, key, and the future communicator, if the color asks for one.
    parts: BTreeMap<usize, (i32, i32, Option<Id>)>,
}

impl Clique {
    pub(crate) fn new(ids: &[UniqueId], size: usize) -> Self {
        Self {
            ids: ids.to_vec(),
            ranks: vec![None; size],
            rounds: Table::new(),
            issued: vec![0; size],
            connects: vec![false; size],
            lanes: BTreeMap::new(),
            splits: BTreeMap::new(),
            lacks_ranks: false,
            growth: None,
        }
    }

    pub(crate) fn is_whole(&self) -> bool {
        self.ranks.iter().all(Option::is_some)
    }
}

impl State {
    /// Adds a rank to its clique. Two ranks on one device are an error of all ranks.
    pub(crate) fn join_clique(&mut self, clique_id: Id, rank: usize, communicator: Id) {
        let Some(clique) = self.nccl.cliques.get_mut(&clique_id) else {
            return;
        };
        clique.ranks[rank] = Some(communicator);
        if !clique.is_whole() {
            return;
        }
        let members: Vec<Id> = clique.ranks.iter().copied().flatten().collect();
        let known = |id: &Id| self.nccl.communicators.get(id).map(|comm| comm.device);
        let mut devices: Vec<usize> = members.iter().filter_map(known).collect();
        devices.sort_unstable();
        let twice = devices.windows(2).any(|pair| pair[0] == pair[1]);
        for id in members {
            let patience = self.nccl.patience(self.mode);
            if let Some(comm) = self.nccl.communicators.get_mut(&id) {
                comm.patience = patience;
                if twice {
                    comm.error = Some(Code::INVALID_USAGE);
                }
            }
        }
        crate::state::CHANGED.notify_all();
    }

    /// Adds a rank to a split. The last rank gives the new communicators their ranks.
    pub(crate) fn join_split(
        &mut self,
        clique_id: Id,
        (number, rank): (SplitKey, usize),
        (color, key): (i32, i32),
        child: Option<Id>,
    ) {
        let Some(clique) = self.nccl.cliques.get_mut(&clique_id) else {
            return;
        };
        let taking_part = clique.ranks.len() - number.0.len();
        let split = clique.splits.entry(number.clone()).or_default();
        split.parts.insert(rank, (color, key, child));
        if split.parts.len() < taking_part {
            return;
        }
        let Some(split) = clique.splits.remove(&number) else {
            return;
        };
        let mut colors: BTreeMap<i32, Vec<(i32, usize, Id)>> = BTreeMap::new();
        for (rank, (color, key, child)) in split.parts {
            if let Some(child) = child.filter(|_| color != NO_COLOR) {
                colors.entry(color).or_default().push((key, rank, child));
            }
        }
        for mut members in colors.into_values() {
            members.sort_unstable();
            let new = self.new_id();
            self.nccl.cliques.insert(new, Clique::new(&[], members.len()));
            for (rank, (_, _, child)) in members.into_iter().enumerate() {
                if let Some(comm) = self.nccl.communicators.get_mut(&child) {
                    (comm.clique, comm.rank) = (Some(new), rank);
                }
                self.join_clique(new, rank, child);
            }
        }
        crate::state::CHANGED.notify_all();
    }

    /// Removes a clique that no communicator belongs to.
    pub(crate) fn forget_clique(&mut self, id: Id) {
        let members = self.nccl.communicators.values();
        let is_used = members.filter(|comm| comm.clique == Some(id)).count() > 0;
        let waits = |clique: &Clique| clique.ranks.iter().any(Option::is_none);
        let waited = self.nccl.cliques.get(&id).is_some_and(waits);
        // Operations that its ranks have enqueued may still need it.
        let pending = self.nccl.cliques.get(&id).is_some_and(Clique::is_pending);
        if !is_used && !waited && !pending {
            self.nccl.cliques.remove(&id);
        }
    }
}
