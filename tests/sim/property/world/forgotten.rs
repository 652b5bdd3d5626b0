//! What a program forgot on purpose.
//!
//! It is not dropped as long as there is anything else of the program, and compared and dropped then:
//! so it must still be there, and nothing must be left afterwards.

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
    /// How many contexts forgotten guards keep at most.
    contexts: usize,
    /// Primary contexts that have access to each other's memory, which outlives the program.
    pub(super) peers: Vec<(Context, Context)>,
    pub(super) calls: Calls,
}

/// What of a program is left for good.
pub(in crate::property) struct Left {
    pub(in crate::property) peers: Vec<(Context, Context)>,
    contexts: usize,
    calls: Calls,
}

impl Forgotten {
    /// A guard is of one thread, which forgets it for good.
    pub(in crate::property) fn guard(&mut self) {
        self.contexts += 2;
    }

    /// Nobody has freed it, or written to it.
    pub(in crate::property) fn compare(&self) -> Done {
        compare(&self.device, &self.host)
    }

    pub(in crate::property) fn into_left(self) -> Left {
        Left {
            peers: self.peers,
            contexts: self.contexts,
            calls: self.calls,
        }
    }
}

impl Left {
    /// Every host function has run, and nothing is left but contexts of forgotten guards.
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

    /// Whether host functions have all been called or dropped.
    pub(in crate::property) fn calls_are_gone(&self) -> bool {
        self.calls.are_gone()
    }
}
