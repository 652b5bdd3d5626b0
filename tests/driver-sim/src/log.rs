//! What was called: counters, trace, faults, violations.

use std::collections::BTreeMap;
use std::time::Instant;

use crate::fault::Fault;
use crate::handle::Id;
use crate::hold::Held;
use crate::origin::{CHANGES_CURRENT, Origin};
use crate::report::{Violation, ViolationKind};
use crate::thread;

/// One call of a driver function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    /// The symbol.
    pub name: &'static str,
    /// Number of the calling thread, as [`thread_number`](crate::thread_number) gives it.
    pub thread: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Log {
    /// Calls of a whole program, by symbol.
    pub(crate) counts: BTreeMap<&'static str, u64>,
    /// Calls of a session, in order.
    pub(crate) trace: Vec<Call>,
    pub(crate) faults: Vec<Fault>,
    pub(crate) held: Option<Held>,
    pub(crate) violations: Vec<Violation>,
    /// Whether there is a session, so that somebody may ask for the order.
    pub(crate) traces: bool,
    /// So are their callers, where somebody did ask.
    pub(crate) keeps_origins: bool,
    /// Who made the objects that there are or were.
    pub(crate) origins: BTreeMap<Id, Origin>,
    /// From then on streams wait for no value any more.
    pub(crate) waits_end: Option<Instant>,
    /// Who changed what is current, by thread.
    pub(crate) switches: Vec<(u64, Origin)>,
}

impl Log {
    pub(crate) fn count(&mut self, name: &'static str) {
        if self.traces {
            self.trace.push(Call {
                name,
                thread: thread::number(),
            });
        } else {
            *self.counts.entry(name).or_default() += 1;
        }
        if self.keeps_origins && CHANGES_CURRENT.contains(&name) {
            self.switches.push((thread::number(), Origin::here()));
        }
    }

    pub(crate) fn violation(&mut self, kind: ViolationKind, call: &'static str, message: String) {
        self.violations.push(Violation {
            kind,
            call,
            message,
            thread: thread::number(),
        });
    }
}
