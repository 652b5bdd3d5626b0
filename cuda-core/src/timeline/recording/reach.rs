//! What captured operations reach on other devices by access that threads may revoke.

use super::KeptAlive;
use crate::context::peer;
use crate::context::{Confined, Context, Crossing, Moment};
use crate::error::{Error, Result};

/// Memory of another device that kernels of a context reach.
#[derive(Clone, PartialEq)]
pub(crate) struct Reached {
    by: Context,
    memory: Confined,
    /// For memory of a pool, when it was captured: whether the context still has access to that very pool is
    /// not known after a revocation.
    at: Option<Moment>,
}

impl Reached {
    /// To be called while the crossing of the two devices is held, of a context that has access.
    pub(crate) fn captured(by: &Context, memory: Confined) -> Self {
        // Before the graph has the kernel.
        peer::crossed_by_graphs(by.device(), memory.device);
        Self { by: by.clone(), memory, at: memory.is_of_a_pool().then(Moment::now) }
    }
}

impl KeptAlive for Reached {
    fn admits(&self, op: &'static str) -> Result<Option<Crossing>> {
        let Self { by, memory, at } = self;
        let crossing = peer::crossing(by.device(), memory.device);
        let cure = if at.is_some_and(|at| crossing.was_revoked_since(at)) {
            "give it, and capture the graph again"
        } else if peer::has_access(by, *memory) {
            return Ok(Some(crossing));
        } else {
            "`Context::enable_peer_access` or `DeviceGroup::enable_all_peers` gives it"
        };
        let why = format!(
            "the graph needs access between device {} and device {}, which was not given or was revoked: {cure}",
            by.device().ordinal(),
            memory.device.ordinal()
        );
        Err(Error::invalid(op, why))
    }
}

/// Copies of a graph from one device to another.
///
/// Driver 580 chooses the route of a copy, directly or through the host, by the access between the devices at
/// that time, and an update of the executable does not change the route. A launch after that access was revoked
/// fails, and the contexts are lost. If access of contexts was given again meanwhile, the launch fails, crashes
/// the process, or copies something else. Access that is given later does no harm.
#[derive(Clone, PartialEq)]
pub(crate) struct CopiesBetween {
    /// From the first one to the second one, of another device.
    ends: [Context; 2],
    way: Way,
}

/// When the driver chooses how a copy goes.
#[derive(Clone, PartialEq)]
enum Way {
    /// When the graph is instantiated: both ends are memory of contexts.
    Instantiated,
    /// When it was captured, with this context current.
    Captured { by: Context, at: Moment },
}

/// An end of a copy: its context, and the device or context that its memory belongs to, if others need
/// access to that.
pub(crate) type CopyEnd<'a> = (&'a Context, Option<Confined>);

impl CopiesBetween {
    /// A copy on a stream of `near`. To be called while the crossing of the two devices is held.
    ///
    /// # Errors
    /// [`Error::Invalid`] without access from the stream's device to the other's pool, which the driver
    /// needs to capture it.
    pub(crate) fn captured(
        op: &'static str,
        near: &Context,
        ends: [CopyEnd<'_>; 2],
    ) -> Result<Self> {
        let mut pools = ends.iter().filter_map(|(_, memory)| memory.filter(|it| it.is_of_a_pool()));
        let far = pools.find(|memory| memory.device != near.device());
        if let Some(far) = far.filter(|far| !peer::has_access(near, *far)) {
            let why = format!(
                "to capture it, device {near} needs access to the pool on device {far}: \
                 `Context::enable_peer_access` or `MemoryPool::set_access` gives it",
                near = near.device().ordinal(),
                far = far.device.ordinal(),
            );
            return Err(Error::invalid(op, why));
        }
        // Before the graph has the copy.
        let [from, to] = ends.map(|(context, _)| context.device());
        peer::crossed_by_graphs(from, to);
        let captured = || Self {
            ends: ends.map(|(context, _)| context.clone()),
            way: Way::Captured { by: near.clone(), at: Moment::now() },
        };
        Ok(Self::of_contexts(ends).unwrap_or_else(captured))
    }

    /// A copy of memory of contexts; [`None`] for any other memory.
    pub(crate) fn of_contexts(ends: [CopyEnd<'_>; 2]) -> Option<Self> {
        let of_context = |(_, memory): &CopyEnd<'_>| memory.is_some_and(|it| !it.is_of_a_pool());
        let ends = ends.iter().all(of_context).then(|| ends.map(|(context, _)| context.clone()));
        Some(Self { ends: ends?, way: Way::Instantiated })
    }

    /// Whether both go the same way as far as contexts are concerned.
    fn goes_as(&self, other: &Self) -> bool {
        let same = match (&self.way, &other.way) {
            (Way::Captured { by, .. }, Way::Captured { by: other, .. }) => by == other,
            (one, other) => one == other,
        };
        same && self.ends == other.ends
    }

    /// Refuses to change an executable with copies `made` so that it has this one, unless all of them from
    /// the same context go as this one does: the driver keeps the source of a copy, and how it goes.
    pub(crate) fn require_as_made(&self, op: &'static str, made: &[Self]) -> Result<()> {
        let mut same = made.iter().filter(|copies| copies.ends[0] == self.ends[0]).peekable();
        if same.peek().is_some() && same.all(|copies| copies.goes_as(self)) {
            return Ok(());
        }
        let [from, to] = self.ends.each_ref().map(|end| end.device().ordinal());
        let why = format!(
            "the executable was not instantiated for copies of such memory from device {from} to device \
             {to}, or also for others from there: instantiate the graph"
        );
        Err(Error::invalid(op, why))
    }

    /// Refuses the call `op`, which makes an executable, or launches or changes one that was made at that
    /// moment, if access was revoked since that the copies may use. None is revoked while the result lives.
    pub(crate) fn admit(&self, op: &'static str, made: Option<Moment>) -> Result<Crossing> {
        let [from, to] = self.ends.each_ref().map(Context::device);
        let crossing = peer::crossing(from, to);
        let captured = match &self.way {
            Way::Captured { at, .. } => Some(*at),
            Way::Instantiated => None,
        };
        let revoked =
            |moment: Option<Moment>| moment.is_some_and(|it| crossing.was_revoked_since(it));
        let cure = match (revoked(captured), revoked(made)) {
            (true, _) => "capture it again",
            (false, true) => "instantiate it again",
            (false, false) => return Ok(crossing),
        };
        let (from, to) = (from.ordinal(), to.ordinal());
        let why = format!(
            "the graph copies from device {from} to device {to}, between which access was revoked: {cure}"
        );
        Err(Error::invalid(op, why))
    }
}
