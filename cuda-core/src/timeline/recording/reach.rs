//! What captured operations reach on other devices by access that threads may revoke.

use std::sync::Arc;

use super::{KeptAlive, Recording};
use crate::context::Context;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::peer::{self, Confined, Crossing};
use crate::util::sync::lock;

/// Memory that an operation reaches from the context of another device.
#[derive(Clone, PartialEq)]
pub(crate) struct Reached {
    pub(crate) way: (Context, Confined),
    /// Another way, which serves as well.
    pub(crate) or: Option<(Context, Confined)>,
}

impl Reached {
    fn devices(&self) -> [Device; 2] {
        let (context, memory) = &self.way;
        [context.device(), memory.device]
    }
}

impl KeptAlive for Reached {
    fn may_end(&self) -> bool {
        true
    }

    fn admits(&self, op: &'static str) -> Result<Option<Crossing>> {
        let [one, other] = self.devices();
        let crossing = peer::crossing(one, other);
        let has_access = |(context, memory): &_| peer::has_access(context, *memory);
        if has_access(&self.way) || self.or.as_ref().is_some_and(has_access) {
            return Ok(Some(crossing));
        }
        let why = format!(
            "the graph needs access between device {} and device {}, which was not given or was revoked: \
             `Context::enable_peer_access` or `DeviceGroup::enable_all_peers` gives it",
            one.ordinal(),
            other.ordinal()
        );
        Err(Error::invalid(op, why))
    }
}

impl Recording {
    /// Notes what an operation reaches: without access to it, the graph is neither instantiated nor
    /// launched, and each launch holds the access.
    pub(crate) fn note_reached(&self, reached: Reached) {
        let [one, other] = reached.devices();
        peer::crossed_by_graphs(one, other);
        if let Some(recorded) = lock(&self.recorded).as_mut() {
            if !recorded.reached.contains(&reached) {
                recorded.reached.push(reached.clone());
                recorded.uses.owners.push(Arc::new(reached));
            }
        }
    }
}
