//! Connecting: the first operation between ranks waits until all of them have begun it.
//!
//! "Every NCCL call may have to block, waiting for other threads/ranks to arrive, before effectively posting
//! the NCCL operation on the given stream": since 2.22, NCCL connects the ranks of a communicator in the call
//! of their first collective, and two ranks in the call of their first message in a direction.

use crate::call::Call;
use crate::handle::Id;
use crate::nccl::group::{Item, What};
use crate::nccl::raw::{Answer, Code};
use crate::state::State;

impl State {
    /// Records which ranks the operations of a group connect. Other ranks may wait for this.
    pub(crate) fn begin_to_connect(&mut self, items: &[Item]) {
        for item in items {
            let Some((clique, rank)) = self.place_of(item.communicator) else {
                continue;
            };
            let Some(clique) = self.nccl.cliques.get_mut(&clique) else {
                continue;
            };
            match &item.what {
                What::Collective(_) => clique.connects[rank] = true,
                What::Transfer(transfer) => {
                    let lane = clique.lanes.entry(transfer.lane(rank)).or_default();
                    match transfer.sends {
                        true => lane.sender_connects = true,
                        false => lane.receiver_connects = true,
                    }
                }
            }
        }
        crate::state::CHANGED.notify_all();
    }

    /// Returns whether all ranks that the operations of a group need are connected.
    pub(crate) fn is_connected(&self, items: &[Item]) -> bool {
        items.iter().all(|item| {
            // An aborted operation waits for nothing.
            let Some((clique, rank)) = self.place_of(item.communicator) else {
                return true;
            };
            self.nccl.cliques.get(&clique).is_none_or(|clique| match &item.what {
                What::Collective(_) => clique.connects.iter().all(|connects| *connects),
                What::Transfer(transfer) => {
                    let lane = clique.lanes.get(&transfer.lane(rank));
                    lane.is_some_and(|lane| lane.sender_connects && lane.receiver_connects)
                }
            })
        })
    }

    fn place_of(&self, communicator: Id) -> Option<(Id, usize)> {
        let own = self.nccl.communicators.get(&communicator)?;
        own.clique.map(|clique| (clique, own.rank))
    }
}

impl Call {
    /// Waits, like a blocking call, until the operations of a group can be enqueued.
    pub(super) fn await_connected(&mut self, items: &[Item]) -> Answer {
        while !self.is_connected(items) {
            self.wait(None);
            for item in items {
                let own = self.nccl.communicators.get(&item.communicator);
                // Another thread has aborted the communicator meanwhile.
                let own = own.ok_or(Code::INTERNAL_ERROR)?;
                own.error.map_or(Ok(()), Err)?;
            }
        }
        Ok(())
    }
}
