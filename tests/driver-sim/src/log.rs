//! What was called: counters, trace, faults, violations.

use std::collections::BTreeMap;

use crate::fault::Fault;
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
    pub(crate) counts: BTreeMap<&'static str, u64>,
    pub(crate) trace: Vec<Call>,
    pub(crate) faults: Vec<Fault>,
    pub(crate) violations: Vec<Violation>,
    /// Calls are traced only where somebody may ask: a session, not a whole program.
    pub(crate) traces: bool,
}

impl Log {
    pub(crate) fn count(&mut self, name: &'static str) {
        *self.counts.entry(name).or_default() += 1;
        if self.traces {
            self.trace.push(Call {
                name,
                thread: thread::number(),
            });
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
