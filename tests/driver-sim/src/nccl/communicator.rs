//! Communicators: each is one rank of a clique.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicPtr;

use crate::call::Call;
use crate::engine::clock::{Clock, Point};
use crate::handle::{Id, pointer};
use crate::nccl::clique::SplitKey;
use crate::nccl::number::Number;
use crate::nccl::operation::Factor;
use crate::nccl::raw::{Answer, Code, RawComm};
use crate::report::ViolationKind;
use crate::state::State;

#[derive(Debug)]
pub(crate) struct Communicator {
    /// `None` until all ranks of the split that makes it have called.
    pub(crate) clique: Option<Id>,
    pub(crate) rank: usize,
    pub(crate) device: usize,
    pub(crate) blocking: bool,
    /// Whether the program has not yet seen that all ranks have joined.
    pub(crate) joins: bool,
    /// For how many more polls the operation in progress continues although it could end.
    pub(crate) patience: u32,
    /// The asynchronous error.
    pub(crate) error: Option<Code>,
    /// A group that was ended, but whose operations are not enqueued yet.
    pub(crate) job: Option<Id>,
    /// Number of splits that it has taken part in, by the ranks that they left out; and the split that may be
    /// in progress.
    pub(crate) splits: BTreeMap<Vec<usize>, u64>,
    pub(crate) splitting: Option<SplitKey>,
    /// Where the handle of the split-off communicator is written when the split has completed, and the
    /// handle.
    pub(crate) split_off: Option<(AtomicPtr<RawComm>, usize)>,
    /// The communicator that it grows from. NCCL uses that one until the growth has completed.
    pub(crate) grows_from: Option<Id>,
    /// The communicator that it failed to make, whose memory its own end uses.
    pub(crate) linked: Option<Id>,
    pub(crate) finalized: bool,
    /// Whether the program has seen that it is finalised and all its work complete.
    pub(crate) flushed: bool,
    /// For each stream, the last operation, and the clock of what happened before its end.
    pub(crate) last: BTreeMap<Id, (Point, Clock)>,
    /// Reductions that the program created, by number.
    pub(crate) reductions: BTreeMap<i32, (Number, Factor)>,
    pub(crate) call: &'static str,
}

impl Communicator {
    /// Stores the handle of the split-off communicator for the program.
    pub(crate) fn publish(&mut self) {
        if let Some((place, handle)) = self.split_off.take() {
            // SAFETY: the caller of `ncclCommSplit` or `ncclCommShrink` keeps the place until the call has
            // completed.
            unsafe { place.into_inner().write(pointer(handle)) };
        }
    }
}

impl State {
    pub(crate) fn new_communicator(
        &mut self,
        (clique, rank): (Option<Id>, usize),
        device: usize,
        blocking: bool,
        call: &'static str,
    ) -> Id {
        let id = self.new_id();
        let comm = Communicator {
            clique,
            rank,
            device,
            blocking,
            joins: true,
            patience: 0,
            error: None,
            job: None,
            splits: BTreeMap::new(),
            splitting: None,
            split_off: None,
            grows_from: None,
            linked: None,
            finalized: false,
            flushed: false,
            last: BTreeMap::new(),
            reductions: BTreeMap::new(),
            call,
        };
        self.nccl.communicators.add(id, comm);
        id
    }

    /// Returns the asynchronous state of a communicator, as the program knows it.
    pub(crate) fn status(&self, id: Id) -> Code {
        let Some(comm) = self.nccl.communicators.get(&id) else {
            return Code::INVALID_ARGUMENT;
        };
        match comm.error {
            Some(error) => error,
            None if comm.joins || comm.job.is_some() || comm.splitting.is_some() => {
                Code::IN_PROGRESS
            }
            None if comm.finalized && !comm.flushed => Code::IN_PROGRESS,
            None => Code::SUCCESS,
        }
    }

    /// Advances what can advance, and returns the asynchronous state.
    pub(crate) fn poll_communicator(&mut self, id: Id) -> Code {
        let Some(comm) = self.nccl.communicators.get(&id) else {
            return Code::INVALID_ARGUMENT;
        };
        if let Some(job) = comm.job {
            self.poll_job(job);
        } else if self.status(id) == Code::IN_PROGRESS && self.could_end(id) {
            if let Some(comm) = self.nccl.communicators.get_mut(&id) {
                if comm.patience > 0 {
                    comm.patience -= 1;
                } else {
                    self.end_progress(id);
                }
            }
        }
        self.status(id)
    }

    /// Returns whether the operation in progress needs no call of another rank.
    pub(crate) fn could_end(&self, id: Id) -> bool {
        let Some(comm) = self.nccl.communicators.get(&id) else {
            return true;
        };
        let Some(clique) = comm.clique.and_then(|clique| self.nccl.cliques.get(&clique)) else {
            return false;
        };
        let over = |member: &Option<Id>| {
            let member = member.and_then(|member| self.nccl.communicators.get(&member));
            member.is_none_or(|member| member.finalized)
        };
        if comm.joins {
            clique.is_whole()
        } else if let Some(split) = &comm.splitting {
            !clique.splits.contains_key(split)
        } else {
            clique.ranks.iter().all(over)
        }
    }

    /// Ends the operation in progress. Finalising ends once all work is complete.
    pub(crate) fn end_progress(&mut self, id: Id) {
        let Some(comm) = self.nccl.communicators.get_mut(&id) else {
            return;
        };
        (comm.joins, comm.splitting, comm.grows_from) = (false, None, None);
        comm.publish();
        if !comm.finalized || comm.flushed {
            return;
        }
        let last: Vec<(Point, Clock)> = comm.last.values().cloned().collect();
        let mut done = true;
        for (point, _) in &last {
            done &= self.advance(*point);
        }
        if done {
            for (_, clock) in &last {
                self.host_join(clock);
            }
            if let Some(comm) = self.nccl.communicators.get_mut(&id) {
                comm.flushed = true;
            }
        }
    }

    /// Removes a communicator and its registrations.
    pub(crate) fn remove_communicator(&mut self, id: Id) {
        self.retire_communicator(id);
        self.forget_registered(id);
    }

    /// Retires a communicator. Its operations in streams continue, with meaningless results.
    pub(crate) fn retire_communicator(&mut self, id: Id) {
        if let Some(comm) = self.nccl.communicators.get(&id) {
            super::call::end_visits(comm.handle);
        }
        let Some(mut comm) = self.nccl.communicators.remove(&id) else {
            return;
        };
        if self.nccl.communicators.values().any(|other| other.grows_from == Some(id)) {
            let message =
                "another communicator is growing from it: NCCL uses memory of it".to_owned();
            self.log.violation(ViolationKind::UseAfterFree, comm.call, message);
        }
        if comm.grows_from.is_some() {
            // NCCL also does this at the end of a failed growth.
            comm.publish();
        }
        if comm.linked.is_some_and(|linked| !self.nccl.communicators.contains_key(&linked)) {
            let message = "it has failed to make another communicator, which is freed: NCCL uses memory of that"
                .to_owned();
            self.log.violation(ViolationKind::UseAfterFree, comm.call, message);
        }
        // A split in progress ends with it.
        if let Some((_, handle)) = comm.split_off {
            let child = self.nccl.communicators.iter().find(|(_, child)| child.handle == handle);
            if let Some(child) = child.map(|(id, _)| *id) {
                self.remove_communicator(child);
            }
        }
        if let Some(job) = comm.job {
            self.leave_job(job, id);
        }
        for group in self.nccl.groups.values_mut() {
            group.items.retain(|item| item.communicator != id);
            group.members.retain(|member| *member != id);
        }
        if let Some(clique) = comm.clique {
            self.forget_clique(clique);
        }
        crate::state::CHANGED.notify_all();
    }

    /// Removes the registrations of a communicator.
    pub(crate) fn forget_registered(&mut self, id: Id) {
        self.nccl.registered.retain(|of| of.communicator != id);
    }
}

impl Call {
    /// Ends what the program has enqueued with a communicator, with meaningless results, and waits for that.
    /// From now on the handle stands for another communicator.
    pub(super) fn cut_off(&mut self, comm: RawComm) -> Answer {
        let id = self.communicator(comm)?;
        let new = self.new_id();
        let nccl = &mut self.nccl;
        nccl.communicators.rename(&id, new);
        let Some(comm) = nccl.communicators.get(&new) else {
            return Ok(());
        };
        for known in nccl.registered.values_mut().filter(|known| known.communicator == id) {
            known.communicator = new;
        }
        let clique = comm.clique.and_then(|clique| nccl.cliques.get_mut(&clique));
        if let Some(clique) = clique {
            clique.ranks[comm.rank] = Some(new);
        }
        let last: Vec<(Point, Clock)> = comm.last.values().cloned().collect();
        crate::state::CHANGED.notify_all();
        for (point, clock) in last {
            self.drive(point);
            self.host_join(&clock);
        }
        Ok(())
    }
}
