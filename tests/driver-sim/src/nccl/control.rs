//! How tests control NCCL.

use std::collections::BTreeMap;

use crate::handle::Id;
use crate::nccl::communicator::Communicator;
use crate::nccl::raw::Code;
use crate::session::Session;
use crate::state;

impl Session {
    /// Gives the rank `rank` of every existing communicator the asynchronous error `code`, an `ncclResult_t`,
    /// as if its process had died. Its operations no longer end, nor do operations of other ranks with it,
    /// until each is aborted. A communicator that it was making exists, but can only be aborted. Returns the
    /// number of communicators.
    ///
    /// # Panics
    /// If `code` is `ncclSuccess` or `ncclInProgress`, which are not errors.
    pub fn fail_rank(&self, rank: usize, code: i32) -> usize {
        let code = Code(code);
        assert!(code != Code::SUCCESS && code != Code::IN_PROGRESS, "{code:?} is no error");
        let mut state = state::lock();
        let all = state.nccl.communicators.iter();
        let made: BTreeMap<usize, Id> = all.map(|(&id, comm)| (comm.handle, id)).collect();
        let ranks = state.nccl.communicators.values_mut().filter(|comm| comm.rank == rank);
        let fail = |comm: &mut Communicator| {
            comm.error = Some(code);
            comm.linked = comm.split_off.as_ref().and_then(|(_, handle)| made.get(handle).copied());
            comm.publish();
        };
        ranks.map(fail).count()
    }

    /// Sets the version that `ncclGetVersion` returns for the rest of this session, such as 21803 for 2.18.3.
    pub fn set_nccl_version(&self, version: i32) {
        state::lock().log.nccl_version = Some(version);
    }
}
