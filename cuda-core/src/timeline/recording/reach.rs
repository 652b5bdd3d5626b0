//! What captured operations reach on other devices by access that threads may revoke.

use std::sync::Arc;

use super::{KeptAlive, Recording};
use crate::context::Context;
use crate::error::{Error, Result};
use crate::peer::{self, Confined, Crossing};
use crate::util::sync::lock;

/// Memory that an operation reaches from another device's context: by any of these ways.
#[derive(Clone, PartialEq)]
pub(crate) struct Reached(pub(crate) Vec<(Context, Confined)>);

impl KeptAlive for Reached {
    fn admits_launch(&self, op: &'static str) -> Option<Result<Option<Crossing>>> {
        let (context, memory) = self.0.first()?;
        let devices = [memory.device, context.device()];
        let crossing = peer::crossing(devices[0], devices[1]);
        if self.0.iter().any(|(context, memory)| peer::has_access(context, *memory)) {
            return Some(Ok(Some(crossing)));
        }
        let [memory, device] = devices.map(|device| device.ordinal());
        let why = format!(
            "the access between device {device} and device {memory} was revoked, which the graph was captured \
             with: give it again, or capture the graph without it"
        );
        Some(Err(Error::invalid(op, why)))
    }
}

impl Recording {
    /// Notes what an operation reaches: each launch of the graph is refused without access to it, and
    /// holds the access.
    pub(crate) fn note_reached(&self, reached: Reached) {
        if let Some(recorded) = lock(&self.recorded).as_mut() {
            if !recorded.reached.contains(&reached) {
                recorded.reached.push(reached.clone());
                recorded.uses.owners.push(Arc::new(reached));
            }
        }
    }
}
