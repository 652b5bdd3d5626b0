//! The log of calls: counters, trace, faults, violations.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::fault::Fault;
use crate::handle::Id;
use crate::hold::Held;
use crate::origin::{CHANGES_CURRENT, Origin};
use crate::report::{Violation, ViolationKind};
use crate::thread;

/// One call of a driver function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    /// The function's symbol.
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
    /// How many of the violations the test has looked at.
    pub(crate) seen: usize,
    /// Whether a session exists. Calls are then traced, for tests that ask for the trace.
    pub(crate) traces: bool,
    /// Whether backtraces are recorded as well, because a test asked for them.
    pub(crate) keeps_origins: bool,
    /// The backtraces of the calls that made objects.
    pub(crate) origins: BTreeMap<Id, Origin>,
    /// The moment from which on streams no longer wait for values.
    pub(crate) waits_end: Option<Instant>,
    /// How long a call waits for room in a stream's queue, if a session has set it.
    pub(crate) queue_patience: Option<Duration>,
    /// The version of NCCL, if a session has set it.
    pub(crate) nccl_version: Option<i32>,
    /// The backtraces of calls that changed the current context, by thread.
    pub(crate) switches: Vec<(u64, Origin)>,
}

impl Log {
    pub(crate) fn count(&mut self, name: &'static str) {
        if self.traces {
            self.trace.push(Call { name, thread: thread::number() });
        } else {
            *self.counts.entry(name).or_default() += 1;
        }
        if self.keeps_origins && CHANGES_CURRENT.contains(&name) {
            self.switches.push((thread::number(), Origin::here()));
        }
    }

    pub(crate) fn violation(&mut self, kind: ViolationKind, call: &'static str, message: String) {
        self.violations.push(Violation { kind, call, message, thread: thread::number() });
    }
}
