//! A simulated NCCL, for the devices of one process.
//!
//! An operation of a communicator is an operation of a stream, which waits at the front of its stream
//! until those of all ranks are at theirs. Then what they read is read at once, and each rank's stream
//! writes its own result when it goes on: as late as any work.

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

use crate::engine::schedule::Draw;
use crate::handle::{Handles, Id};
use crate::nccl::clique::Clique;
use crate::nccl::communicator::Communicator;
use crate::nccl::group::Group;
use crate::nccl::job::Job;
use crate::table::Table;

/// What NCCL knows in this process.
#[derive(Debug)]
pub(crate) struct Nccl {
    pub(crate) communicators: Table<Communicator>,
    pub(crate) handles: Handles,
    pub(crate) cliques: Table<Clique>,
    /// By thread.
    pub(crate) groups: Table<Group>,
    pub(crate) jobs: Table<Job>,
    /// The block of each registered buffer.
    pub(crate) registered: Table<Registered>,
    pub(crate) registered_handles: Handles,
    /// How many unique ids were made.
    pub(crate) ids: u64,
    /// How long what is not awaited takes.
    pub(crate) draw: Draw,
    /// The message of the last error. A program holds pointers into it until the next error.
    pub(crate) last_error: CString,
}

/// A buffer that a communicator knows.
#[derive(Debug)]
pub(crate) struct Registered {
    pub(crate) communicator: Id,
    pub(crate) handle: usize,
    pub(crate) block: Option<Id>,
    pub(crate) range: Range<usize>,
}

impl Nccl {
    pub(crate) fn new(draw: Draw) -> Self {
        Self {
            communicators: Table::new(),
            handles: Handles::new(0x6800_0000),
            cliques: Table::new(),
            groups: Table::new(),
            jobs: Table::new(),
            registered: Table::new(),
            registered_handles: Handles::new(0x6c00_0000),
            ids: 0,
            draw,
            last_error: CString::default(),
        }
    }

    /// Whether a communicator knows any of these bytes.
    pub(crate) fn knows(&self, block: Id, range: &Range<usize>) -> bool {
        self.registered.values().any(|known| {
            let overlap = known.range.start < range.end && range.start < known.range.end;
            known.block == Some(block) && overlap
        })
    }

    /// For how many polls something is not done although it could be.
    pub(crate) fn patience(&mut self, mode: crate::Mode) -> u32 {
        match mode {
            crate::Mode::Eager => 0,
            _ => 1 + self.draw.below(2) as u32,
        }
    }
}
