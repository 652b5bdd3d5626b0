//! Values that a program forgot on purpose.
//!
//! They are kept until everything else of the program has been dropped, and are then compared and dropped. So
//! their memory must still exist, and nothing may remain afterwards.

use cuda_core::{Context, InFlight};
use cuda_sim::{Leak, LeakKind};

use super::Calls;
use super::memory::{Held, OfDevice, OfHost, compare};
use crate::property::outcome::{Contents, Done};

#[derive(Default)]
pub(in crate::property) struct Forgotten {
    pub(in crate::property) device: Vec<Held<OfDevice>>,
    pub(in crate::property) host: Vec<Held<OfHost>>,
    pub(in crate::property) flights: Vec<(InFlight<Vec<u8>>, Contents)>,
    /// The most contexts that forgotten guards may keep.
    contexts: usize,
    /// Primary contexts with access to each other's memory, which outlives the program.
    pub(super) peers: Vec<(Context, Context)>,
    pub(super) calls: Calls,
}

/// What a program leaves behind permanently.
pub(in crate::property) struct Left {
    pub(in crate::property) peers: Vec<(Context, Context)>,
    contexts: usize,
    calls: Calls,
}

impl Forgotten {
    /// Records a forgotten guard, which belongs to one thread, and is forgotten there permanently.
    pub(in crate::property) fn enter(&mut self) {
        self.contexts += 2;
    }

    /// Asserts that the memory was neither freed nor written.
    pub(in crate::property) fn compare(&self) -> Done {
        compare(&self.device, &self.host)
    }

    pub(in crate::property) fn into_left(self) -> Left {
        Left { peers: self.peers, contexts: self.contexts, calls: self.calls }
    }
}

impl Left {
    /// Asserts that every host function has run, and that only contexts of forgotten guards remain.
    pub(in crate::property) fn explain(&self, leaks: &[Leak]) -> Result<(), String> {
        self.calls.compare()?;
        if leaks.len() <= self.contexts && leaks.iter().all(|leak| self.keeps(leak)) {
            return Ok(());
        }
        Err(format!("leaked: {leaks:#?}"))
    }

    pub(in crate::property) fn keeps(&self, leak: &Leak) -> bool {
        leak.kind == LeakKind::Context && self.contexts > 0
    }

    /// Returns whether all host functions have been called or dropped.
    pub(in crate::property) fn calls_are_gone(&self) -> bool {
        self.calls.are_gone()
    }
}
