//! Jobs: groups of non-blocking communicators, whose operations NCCL's own thread enqueues.

use std::collections::BTreeMap;

use crate::engine::enqueue::Submission;
use crate::engine::host::Arrival;
use crate::engine::work::{Access, Work};
use crate::graph::node::NodeKind;
use crate::handle::Id;
use crate::nccl::group::{Item, What};
use crate::nccl::operation::{Operation, Task, Transfer};
use crate::nccl::raw::{Answer, Code};
use crate::report::ViolationKind;
use crate::state::State;

#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) items: Vec<Item>,
    members: Vec<Id>,
    /// The arrival of the call that made the job, whatever call enqueues it.
    arrival: Arrival,
    /// For how many more polls nothing is enqueued.
    patience: u32,
}

/// The sends and receives of a group on one communicator.
struct Exchange {
    call: &'static str,
    transfers: Vec<Transfer>,
    accesses: Vec<Access>,
    streams: Vec<Id>,
}

impl State {
    pub(crate) fn new_job(&mut self, items: Vec<Item>, members: &[Id]) {
        let id = self.new_id();
        let patience = self.nccl.patience(self.mode);
        for member in members {
            if let Some(comm) = self.nccl.communicators.get_mut(member) {
                comm.job = Some(id);
            }
        }
        let (members, arrival) = (members.to_vec(), self.host.arrival());
        self.nccl.jobs.insert(id, Job { items, members, arrival, patience });
        // Wakes waiting calls, which let the job run.
        crate::state::CHANGED.notify_all();
    }

    pub(crate) fn poll_job(&mut self, id: Id) {
        let waits = self.nccl.jobs.get(&id).is_some_and(|job| !self.is_connected(&job.items));
        match self.nccl.jobs.get_mut(&id) {
            // The job waits for other ranks, however often it is polled.
            Some(_) if waits => {}
            Some(job) if job.patience > 0 => job.patience -= 1,
            _ => self.run_job(id),
        }
    }

    /// Enqueues the operations of jobs, because a call waits. Returns whether any job could run.
    pub(crate) fn run_jobs(&mut self) -> bool {
        let jobs = self.nccl.jobs.iter().filter(|(_, job)| self.is_connected(&job.items));
        let jobs: Vec<Id> = jobs.map(|(&id, _)| id).collect();
        for &id in &jobs {
            self.run_job(id);
        }
        !jobs.is_empty()
    }

    fn run_job(&mut self, id: Id) {
        let Some(job) = self.nccl.jobs.remove(&id) else {
            return;
        };
        let caller = self.host.arrival();
        self.host.readmit(job.arrival);
        let error = self.enqueue_items(job.items).err();
        self.host.readmit(caller);
        for member in job.members {
            if let Some(comm) = self.nccl.communicators.get_mut(&member) {
                comm.job = None;
                comm.error = comm.error.or(error);
            }
        }
    }

    /// Removes an aborted communicator's operations from its job.
    pub(crate) fn leave_job(&mut self, job: Id, communicator: Id) {
        if let Some(job) = self.nccl.jobs.get_mut(&job) {
            job.items.retain(|item| item.communicator != communicator);
            job.members.retain(|member| *member != communicator);
        }
    }

    /// Enqueues the operations of a group: first the collectives in their order, then the sends and receives,
    /// as one operation per communicator, since they run at the same time.
    pub(crate) fn enqueue_items(&mut self, items: Vec<Item>) -> Answer {
        for item in &items {
            self.admit_item(item)?;
        }
        let mut exchanges: BTreeMap<Id, Exchange> = BTreeMap::new();
        for item in items {
            let Item { communicator, stream, call, what, accesses, .. } = item;
            match what {
                What::Collective(collective) => {
                    let task = Task::Collective(collective);
                    self.submit(call, (communicator, stream), task, accesses)?;
                }
                What::Transfer(transfer) => {
                    let exchange = exchanges.entry(communicator).or_insert_with(|| Exchange {
                        call,
                        transfers: Vec::new(),
                        accesses: Vec::new(),
                        streams: Vec::new(),
                    });
                    exchange.transfers.push(transfer);
                    exchange.accesses.extend(accesses);
                    if !exchange.streams.contains(&stream) {
                        exchange.streams.push(stream);
                    }
                }
            }
        }
        for (communicator, exchange) in exchanges {
            let Exchange { call, transfers, accesses, streams } = exchange;
            let (home, others) = (streams[0], &streams[1..]);
            // Orders the operation as if it were on each of the streams.
            for &other in others {
                self.follow(call, home, other)?;
            }
            self.submit(call, (communicator, home), Task::Exchange(transfers), accesses)?;
            for &other in others {
                self.follow(call, other, home)?;
            }
        }
        Ok(())
    }

    /// Checks that an operation's stream is in the same state as when the call was made.
    fn admit_item(&mut self, item: &Item) -> Answer {
        let stream = self.streams.get(&item.stream).filter(|stream| !stream.destroyed);
        let message = match stream.map(|stream| stream.capture == item.capture) {
            Some(true) => return Ok(()),
            Some(false) => "the stream began or ended a capture before NCCL enqueued the operation",
            None => "the stream was destroyed before NCCL enqueued the operation",
        };
        self.log.violation(ViolationKind::NotReady, item.call, message.to_owned());
        Err(Code::UNHANDLED_CUDA_ERROR)
    }

    fn submit(
        &mut self,
        call: &'static str,
        (communicator, stream): (Id, Id),
        task: Task,
        accesses: Vec<Access>,
    ) -> Answer {
        let Some(comm) = self.nccl.communicators.get(&communicator) else {
            return Ok(());
        };
        let Some(clique) = comm.clique else {
            return Err(Code::INTERNAL_ERROR);
        };
        let operation = Operation { communicator, clique, rank: comm.rank, task };
        let work = Work::Communicate(Box::new(operation));
        let mut submission = Submission::new(stream, NodeKind::Communicate, work);
        submission.accesses = accesses;
        let enqueued = self.enqueue(call, submission);
        enqueued.map(drop).map_err(crate::nccl::call::cuda)
    }

    /// Makes the next work of a stream wait for another stream.
    fn follow(&mut self, call: &'static str, stream: Id, other: Id) -> Answer {
        use crate::engine::clock::Point;
        let mut submission = Submission::new(stream, NodeKind::Empty, Work::Nothing);
        let behind = self.streams.get(&other).ok_or(Code::UNHANDLED_CUDA_ERROR)?;
        if behind.capture.is_some() {
            // One group on several capturing streams: not simulated.
            return Err(Code::INVALID_USAGE);
        }
        let point = Point { stream: other, seq: behind.issued };
        submission.waits = Some((point, behind.clock.clone()));
        self.enqueue(call, submission).map(drop).map_err(crate::nccl::call::cuda)
    }
}
