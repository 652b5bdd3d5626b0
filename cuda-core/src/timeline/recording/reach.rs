//! Memory and copies of captured operations across devices, which need peer access that threads may revoke.

use super::KeptAlive;
use crate::context::peer;
use crate::context::{Confined, Context, Crossing, Moment};
use crate::error::{Error, Result};

/// Memory of another device that a context's kernels reach.
#[derive(Clone, PartialEq)]
pub(crate) struct Reached {
    by: Context,
    memory: Confined,
    /// Set at the capture for memory of a pool: after a revocation it is unknown whether the context still
    /// has access to that very pool.
    at: Option<Moment>,
}

impl Reached {
    /// Called while the crossing of the two devices is held, for a context that has access.
    pub(crate) fn captured(by: &Context, memory: Confined) -> Self {
        // Called before the graph has the kernel.
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
/// the time of the choice, and an update of the executable does not change the route. A launch after
/// that access was revoked fails, and the contexts are lost. If contexts were given access again meanwhile,
/// the launch fails, crashes the process, or copies something else. Access that is given after the choice
/// does no harm.
#[derive(Clone, PartialEq)]
pub(crate) struct CopiesBetween {
    /// The contexts that are copied from and to, of different devices.
    ends: [Context; 2],
    /// The moment at which the driver chose the route, and the context that was current then, if it did so at
    /// the capture. If both ends are memory of contexts, it does so at the instantiation of the graph.
    captured: Option<(Context, Moment)>,
}

/// An end of a copy: its context, and the device or context that owns its memory, if others need access to
/// it.
pub(crate) type CopyEnd<'a> = (&'a Context, Option<Confined>);

impl CopiesBetween {
    /// Notes a copy on a stream of `near`. Called while the crossing of the two devices is held.
    ///
    /// # Errors
    /// [`Error::Invalid`] without access from the stream's device to the other device's pool, which the
    /// driver needs to capture the copy.
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
        // Called before the graph has the copy.
        let [from, to] = ends.map(|(context, _)| context.device());
        peer::crossed_by_graphs(from, to);
        let captured = || Self {
            ends: ends.map(|(context, _)| context.clone()),
            captured: Some((near.clone(), Moment::now())),
        };
        Ok(Self::of_contexts(ends).unwrap_or_else(captured))
    }

    /// Notes a copy between memory of contexts; [`None`] for any other memory.
    pub(crate) fn of_contexts(ends: [CopyEnd<'_>; 2]) -> Option<Self> {
        let of_context = |(_, memory): &CopyEnd<'_>| memory.is_some_and(|it| !it.is_of_a_pool());
        let ends = ends.iter().all(of_context).then(|| ends.map(|(context, _)| context.clone()));
        Some(Self { ends: ends?, captured: None })
    }

    /// Whether both take the same route as far as contexts are concerned.
    fn goes_as(&self, other: &Self) -> bool {
        let [by, other_by] =
            [self, other].map(|it| it.captured.as_ref().map(|(context, _)| context));
        by == other_by && self.ends == other.ends
    }

    /// Refuses to put this copy into an executable with copies `made`, unless all of those from the same
    /// context take this one's route: the driver keeps the source and the route of a copy.
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

    /// Refuses the call `op` if access that the copies may use was revoked. `op` makes an executable, or
    /// launches or changes one that was made at the moment `made`. No access is revoked while the result
    /// lives.
    pub(crate) fn admit(&self, op: &'static str, made: Option<Moment>) -> Result<Crossing> {
        let [from, to] = self.ends.each_ref().map(Context::device);
        let crossing = peer::crossing(from, to);
        let captured = self.captured.as_ref().map(|(_, at)| *at);
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
