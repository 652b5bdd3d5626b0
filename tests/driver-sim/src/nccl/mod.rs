//! A simulated NCCL, for the devices of one process.
//!
//! An operation of a communicator is an operation of a stream. It waits at the front of its stream until the
//! operations of all ranks are at the fronts of theirs. Then the inputs of all are read at once, and each
//! rank's stream writes its own result when it continues: as late as any work.

pub(crate) mod call;
pub(crate) mod clique;
pub(crate) mod communicator;
pub(crate) mod connect;
pub(crate) mod control;
pub(crate) mod entry;
pub(crate) mod group;
pub(crate) mod job;
pub(crate) mod lane;
pub(crate) mod meet;
pub(crate) mod missing;
pub(crate) mod number;
pub(crate) mod operation;
pub(crate) mod raw;

use std::ffi::CString;
use std::ops::Range;

use crate::engine::order::overlap;
use crate::engine::schedule::Draw;
use crate::handle::{Id, Objects};
use crate::nccl::clique::Clique;
use crate::nccl::communicator::Communicator;
use crate::nccl::group::Group;
use crate::nccl::job::Job;
use crate::table::Table;

/// The state of NCCL in this process.
#[derive(Debug)]
pub(crate) struct Nccl {
    pub(crate) communicators: Objects<Communicator>,
    pub(crate) cliques: Table<Clique>,
    /// The open groups, by thread.
    pub(crate) groups: Table<Group>,
    pub(crate) jobs: Table<Job>,
    /// The registered buffers.
    pub(crate) registered: Objects<Registered>,
    /// Number of unique ids that were made.
    pub(crate) ids: u64,
    /// Draws how long operations take that nothing waits for.
    pub(crate) draw: Draw,
    /// The message of the last error. A program holds pointers into it until the next error.
    pub(crate) last_error: CString,
}

/// A buffer that is registered with a communicator.
#[derive(Debug)]
pub(crate) struct Registered {
    pub(crate) communicator: Id,
    pub(crate) block: Option<Id>,
    pub(crate) range: Range<usize>,
}

impl Nccl {
    pub(crate) fn new(draw: Draw) -> Self {
        Self {
            communicators: Objects::new(0x6800_0000),
            cliques: Table::new(),
            groups: Table::new(),
            jobs: Table::new(),
            registered: Objects::new(0x6c00_0000),
            ids: 0,
            draw,
            last_error: CString::default(),
        }
    }

    /// Returns whether any of these bytes is registered with a communicator.
    pub(crate) fn knows(&self, block: Id, range: &Range<usize>) -> bool {
        let mut all = self.registered.values();
        all.any(|known| known.block == Some(block) && overlap(&known.range, range))
    }

    /// Draws for how many polls an operation is not completed although it could be.
    pub(crate) fn patience(&mut self, mode: crate::Mode) -> u32 {
        match mode {
            crate::Mode::Eager => 0,
            _ => 1 + self.draw.below(2) as u32,
        }
    }
}
