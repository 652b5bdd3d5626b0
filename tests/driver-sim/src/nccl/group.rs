//! Groups: the operations that a thread collects between `ncclGroupStart` and `ncclGroupEnd`.

use std::mem;

use crate::call::Call;
use crate::context::Entry;
use crate::engine::work::Access;
use crate::handle::Id;
use crate::nccl::operation::{Collective, Transfer};
use crate::nccl::raw::{Answer, Code};
use crate::thread;

#[derive(Debug, Default)]
pub(crate) struct Group {
    pub(crate) depth: u32,
    /// The code of the first failed call inside. With it, the group does nothing.
    pub(crate) error: Option<Code>,
    pub(crate) items: Vec<Item>,
    /// The communicators that the group uses or makes.
    pub(crate) members: Vec<Id>,
}

/// A call that enqueues an operation.
#[derive(Debug)]
pub(crate) struct Item {
    pub(crate) communicator: Id,
    pub(crate) stream: Id,
    /// The capture that the stream was in at the time of the call.
    pub(crate) capture: Option<Id>,
    pub(crate) call: &'static str,
    pub(crate) what: What,
    pub(crate) accesses: Vec<Access>,
}

#[derive(Debug)]
pub(crate) enum What {
    Collective(Collective),
    Transfer(Transfer),
}

impl Call {
    /// Returns the open group of the calling thread.
    pub(super) fn group(&mut self) -> Option<&mut Group> {
        self.nccl.groups.get_mut(&thread::number())
    }

    pub(super) fn start_group(&mut self) {
        self.nccl.groups.row(thread::number()).depth += 1;
    }

    /// Adds a call's operation to the open group, or begins it at once.
    pub(super) fn take_item(&mut self, item: Item) -> Answer {
        let communicator = item.communicator;
        if let Some(group) = self.group() {
            group.items.push(item);
            if !group.members.contains(&communicator) {
                group.members.push(communicator);
            }
            return Ok(());
        }
        self.begin(vec![item], vec![communicator])
    }

    /// Adds a communicator that is being made to the open group, or waits for it if it blocks.
    pub(super) fn take_member(&mut self, communicator: Id) -> Answer {
        if let Some(group) = self.group() {
            group.members.push(communicator);
            return Ok(());
        }
        self.begin(Vec::new(), vec![communicator])
    }

    /// Ends the calling thread's group, if this is the outermost end. Returns `None` if there is no group.
    pub(super) fn end_group(&mut self) -> Option<Answer> {
        let group = self.group()?;
        group.depth -= 1;
        if group.depth > 0 {
            return Some(Ok(()));
        }
        // The group stays in the table until this call returns: no other thread may use its members.
        let (items, members) = (mem::take(&mut group.items), group.members.clone());
        let answer = match group.error {
            Some(error) => Err(error),
            None => self.begin(items, members),
        };
        self.nccl.groups.remove(&thread::number());
        Some(answer)
    }

    /// Enqueues the operations of a group, or begins a job that enqueues them later.
    fn begin(&mut self, items: Vec<Item>, members: Vec<Id>) -> Answer {
        let blocks = |id: &Id| self.nccl.communicators.get(id).map(|comm| comm.blocking);
        let kinds: Vec<bool> = members.iter().filter_map(blocks).collect();
        if kinds.windows(2).any(|pair| pair[0] != pair[1]) {
            return Err(Code::INVALID_ARGUMENT);
        }
        let blocking = kinds.first() == Some(&true);
        let captures = items.iter().any(|item| item.capture.is_some());
        self.begin_to_connect(&items);
        if blocking {
            self.await_connected(&items)?;
        }
        let waits = !self.is_connected(&items);
        let later = waits || !items.is_empty() && !blocking && !captures && self.takes_time();
        if later {
            self.new_job(items, &members);
        } else {
            self.enqueue_items(items)?;
        }
        if blocking {
            members.into_iter().try_for_each(|id| self.await_ranks(id))?;
            self.end_on_device_0();
            return Ok(());
        }
        // A later poll sees the errors of other ranks.
        let done = |id: &Id| self.status(*id) == Code::SUCCESS;
        if members.iter().all(done) { Ok(()) } else { Err(Code::IN_PROGRESS) }
    }

    /// Leaves the thread's context as a blocking call does. It uses its ranks' devices, then restores the
    /// current one, or makes device 0 current if none was.
    fn end_on_device_0(&mut self) {
        if let (Some(context), Err(_)) = (self.devices[0].primary, self.current()) {
            let handle = self.contexts[&context].handle;
            self.stacks.row(thread::number()).push(Entry { context, handle });
        }
    }

    /// Waits until all ranks have joined a communicator.
    pub(super) fn await_ranks(&mut self, id: Id) -> Answer {
        loop {
            match self.status(id) {
                Code::SUCCESS => return Ok(()),
                Code::IN_PROGRESS if self.could_end(id) => self.end_progress(id),
                Code::IN_PROGRESS => self.wait(None),
                error => return Err(error),
            }
        }
    }

    /// Draws whether to postpone what need not be done at once.
    fn takes_time(&mut self) -> bool {
        self.mode != crate::Mode::Eager && self.nccl.draw.below(2) == 0
    }
}
