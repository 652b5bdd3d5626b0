//! Communicators: one rank's end of a clique.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicPtr;

use crate::call::Call;
use crate::engine::clock::{Clock, Point};
use crate::handle::{Id, pointer};
use crate::nccl::Registered;
use crate::nccl::clique::SplitKey;
use crate::nccl::number::Number;
use crate::nccl::operation::Factor;
use crate::nccl::raw::{Answer, Code, RawComm};
use crate::report::ViolationKind;
use crate::state::State;

#[derive(Debug)]
pub(crate) struct Communicator {
    pub(crate) handle: usize,
    /// None until all ranks of the split that makes it have called.
    pub(crate) clique: Option<Id>,
    pub(crate) rank: usize,
    pub(crate) device: usize,
    pub(crate) blocking: bool,
    /// The program has not seen that all ranks have joined.
    pub(crate) joins: bool,
    /// For how many polls what is in progress goes on although it could end.
    pub(crate) patience: u32,
    /// Its asynchronous error.
    pub(crate) error: Option<Code>,
    /// A group that was ended and whose operations are not enqueued.
    pub(crate) job: Option<Id>,
    /// How many splits it has taken part in, by the ranks that these left out, and the one that may be in
    /// progress.
    pub(crate) splits: BTreeMap<Vec<usize>, u64>,
    pub(crate) splitting: Option<SplitKey>,
    /// Where the handle of the communicator that is split off is written when that is over, and the handle.
    pub(crate) split_off: Option<(AtomicPtr<RawComm>, usize)>,
    /// The communicator that it grows from, which NCCL uses until it is made.
    pub(crate) grows_from: Option<Id>,
    /// The communicator that it has failed to make, whose memory its own end uses.
    pub(crate) linked: Option<Id>,
    pub(crate) finalized: bool,
    /// The program has seen that it is finalized, and all its work done.
    pub(crate) flushed: bool,
    /// The last operation on each stream, and what happened before its end.
    pub(crate) last: BTreeMap<Id, (Point, Clock)>,
    /// Reductions that the program made, by number.
    pub(crate) reductions: BTreeMap<i32, (Number, Factor)>,
    pub(crate) call: &'static str,
}

impl Communicator {
    /// Gives the program the communicator that is split off.
    pub(crate) fn publish(&mut self) {
        if let Some((place, handle)) = self.split_off.take() {
            // SAFETY: the caller of `ncclCommSplit` or `ncclCommShrink` keeps the place until the call is over.
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
        let handle = self.nccl.handles.issue(id);
        let comm = Communicator {
            handle,
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
        self.nccl.communicators.insert(id, comm);
        id
    }

    /// The asynchronous state of a communicator, as the program knows it.
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

    /// The asynchronous state, after what can go on has gone on.
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

    /// Whether what is in progress needs no call of another rank.
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

    /// Ends what is in progress. The end of finalising is seen when all its work is done.
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

    /// Removes a communicator, with what it knows of memory.
    pub(crate) fn remove_communicator(&mut self, id: Id) {
        self.retire_communicator(id);
        self.forget_registered(id);
    }

    /// Retires a communicator. Its operations in streams go on, with results that mean nothing.
    pub(crate) fn retire_communicator(&mut self, id: Id) {
        let Some(mut comm) = self.nccl.communicators.remove(&id) else {
            return;
        };
        super::call::end_visits(comm.handle);
        if self.nccl.communicators.values().any(|other| other.grows_from == Some(id)) {
            let message =
                "another communicator is growing from it: NCCL uses memory of it".to_owned();
            self.log.violation(ViolationKind::UseAfterFree, comm.call, message);
        }
        if comm.grows_from.is_some() {
            // As NCCL does at the end of a growth that has failed, too.
            comm.publish();
        }
        if comm.linked.is_some_and(|linked| !self.nccl.communicators.contains_key(&linked)) {
            let message = "it has failed to make another communicator, which is freed: NCCL uses memory of that"
                .to_owned();
            self.log.violation(ViolationKind::UseAfterFree, comm.call, message);
        }
        self.nccl.handles.retire(comm.handle);
        // A split that is in progress ends with it.
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

    /// Ends the registrations of a communicator.
    pub(crate) fn forget_registered(&mut self, id: Id) {
        let goes = |of: &Registered| (of.communicator == id).then_some(of.handle);
        self.nccl.registered_handles.retire_all(&mut self.nccl.registered, goes);
    }
}

impl Call {
    /// Ends what the program has enqueued with a communicator, with results that mean nothing, and waits for
    /// that. It is as if another communicator went by its handle from now on.
    pub(super) fn cut_off(&mut self, comm: RawComm) -> Answer {
        let id = self.communicator(comm)?;
        let new = self.new_id();
        let Some(comm) = self.nccl.communicators.remove(&id) else {
            return Ok(());
        };
        self.nccl.handles.rename(comm.handle, new);
        for known in self.nccl.registered.values_mut().filter(|known| known.communicator == id) {
            known.communicator = new;
        }
        let clique = comm.clique.and_then(|clique| self.nccl.cliques.get_mut(&clique));
        if let Some(clique) = clique {
            clique.ranks[comm.rank] = Some(new);
        }
        let last: Vec<(Point, Clock)> = comm.last.values().cloned().collect();
        self.nccl.communicators.insert(new, comm);
        crate::state::CHANGED.notify_all();
        for (point, clock) in last {
            self.drive(point);
            self.host_join(&clock);
        }
        Ok(())
    }
}
