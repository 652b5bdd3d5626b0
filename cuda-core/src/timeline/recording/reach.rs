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
    fn may_end(&self) -> bool {
        true
    }

    fn admits_launch(&self, op: &'static str) -> Result<Option<Crossing>> {
        let Some((context, memory)) = self.0.first() else {
            return Ok(None);
        };
        let (one, other) = (context.device(), memory.device);
        let crossing = peer::crossing(one, other);
        if self.0.iter().any(|(context, memory)| peer::has_access(context, *memory)) {
            return Ok(Some(crossing));
        }
        let why = format!(
            "there is no access between device {} and device {}, which the graph was captured with: give it \
             again, or `update` to a graph without it",
            one.ordinal(),
            other.ordinal()
        );
        Err(Error::invalid(op, why))
    }
}

impl Recording {
    /// Notes what an operation reaches: each launch of the graph is refused without access to it, and
    /// holds the access.
    pub(crate) fn note_reached(&self, reached: Reached) {
        if let Some(recorded) = lock(&self.recorded).as_mut() {
            if !recorded.reached.contains(&reached) {
                if let Some((context, memory)) = reached.0.first() {
                    peer::crossed_by_graphs(context.device(), memory.device);
                }
                recorded.reached.push(reached.clone());
                recorded.uses.owners.push(Arc::new(reached));
            }
        }
    }
}
