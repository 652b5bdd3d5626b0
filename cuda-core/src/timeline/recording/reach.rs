//! What captured operations reach on other devices by access that threads may revoke.

use std::sync::Arc;

use super::{KeptAlive, Recording};
use crate::context::Context;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::peer::{self, Confined, Crossing};
use crate::util::sync::lock;

/// Memory that an operation reaches from another device.
#[derive(Clone, PartialEq)]
pub(crate) struct Reached {
    devices: [Device; 2],
    /// The access that serves, any of it; none where the driver needs none, but uses what there is.
    ways: [Option<(Context, Confined)>; 2],
}

impl Reached {
    /// What a kernel reaches, which needs access.
    pub(crate) fn by_kernel(context: &Context, memory: Confined) -> Self {
        let devices = [context.device(), memory.device];
        Self { devices, ways: [Some((context.clone(), memory)), None] }
    }

    /// What a copy between two devices reaches. A graph copies between the driver's pools by way of
    /// either device's access to the other's pool, and without any its launch fails.
    pub(crate) fn by_copy(ends: [(&Context, Option<Confined>); 2]) -> Self {
        let [(near, of_near), (far, of_far)] = ends;
        let of_pools =
            of_near.zip(of_far).filter(|(one, other)| one.is_of_a_pool() && other.is_of_a_pool());
        let ways = of_pools.map(|(of_near, of_far)| [(far, of_near), (near, of_far)]);
        let way = |at: usize| ways.map(|ways| (ways[at].0.clone(), ways[at].1));
        Self { devices: [near.device(), far.device()], ways: [way(0), way(1)] }
    }
}

impl KeptAlive for Reached {
    fn may_end(&self) -> bool {
        true
    }

    fn admits(&self, op: &'static str) -> Result<Option<Crossing>> {
        let [one, other] = self.devices;
        let crossing = peer::crossing(one, other);
        let mut ways = self.ways.iter().flatten();
        if self.ways[0].is_none() || ways.any(|(by, memory)| peer::has_access(by, *memory)) {
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
    /// Notes what an operation reaches: without the access that it needs, the graph is neither
    /// instantiated nor launched, and each launch holds the access that there is.
    pub(crate) fn note_reached(&self, reached: Reached) {
        let [one, other] = reached.devices;
        peer::crossed_by_graphs(one, other);
        if let Some(recorded) = lock(&self.recorded).as_mut() {
            if !recorded.reached.contains(&reached) {
                recorded.reached.push(reached.clone());
                recorded.uses.owners.push(Arc::new(reached));
            }
        }
    }
}
