//! Enqueues work on a stream: finds what the work waits for, and checks that its accesses are ordered.

use cuda_sys::{CUDA_ERROR_INVALID_HANDLE, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, CUresult};

use crate::engine::clock::{Clock, Point};
use crate::engine::order::{Conflict, History};
use crate::engine::stream::StreamKind;
use crate::engine::work::{Access, AccessKind, Op, Target, Work};
use crate::graph::node::{NodeKind, Task};
use crate::handle::Id;
use crate::memory::block::{Block, Phase};
use crate::memory::pinned::PinnedMap;
use crate::memory::space::Space;
use crate::report::ViolationKind;
use crate::state::{State, is_retired};
use crate::{Mode, log::Log};

/// Work that a call hands to a stream.
pub(crate) struct Submission {
    pub(crate) stream: Id,
    /// The kind of the graph node, if the stream captures.
    pub(crate) kind: NodeKind,
    pub(crate) work: Work,
    pub(crate) accesses: Vec<Access>,
    /// A point of another stream that the work waits for, and the clock of what happened before that.
    pub(crate) waits: Option<(Point, Clock)>,
}

impl Submission {
    pub(crate) fn new(stream: Id, kind: NodeKind, work: Work) -> Self {
        Self { stream, kind, work, accesses: Vec::new(), waits: None }
    }

    pub(crate) fn of(stream: Id, task: Task) -> Self {
        let Task { kind, work, accesses, .. } = task;
        Self { stream, kind, work, accesses, waits: None }
    }
}

/// The position of a stream's next operation.
pub(crate) struct Start {
    pub(crate) point: Point,
    /// The clock of what happened before the operation, and of the operation itself.
    pub(crate) clock: Clock,
    /// The points that the operation waits for.
    pub(crate) deps: Vec<Point>,
}

/// The length above which a clock is searched for points that every later operation covers.
const LONG_CLOCK: usize = 32;

impl State {
    /// Appends work to its stream. Work of a capturing stream is recorded in the capture instead,
    /// and the result is `None`.
    pub(crate) fn enqueue(
        &mut self,
        call: &'static str,
        submission: Submission,
    ) -> Result<Option<Point>, CUresult> {
        let Submission { stream: id, kind, work, accesses, waits } = submission;
        let stream = self.streams.get(&id).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        if let Some(capture) = stream.capture {
            if !self.captures_still(capture) {
                return Err(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
            }
            self.capture_task(capture, id, Task { call, kind, work, accesses });
            return Ok(None);
        }
        let Start { point, clock, deps } = self.start_of(id, waits)?;
        for access in accesses {
            self.check_access(call, access, point, &clock);
        }
        let tells = work.shows().then(|| clock.clone());
        self.append(id, Op { seq: point.seq, call, deps, tells, work }, clock);
        if self.mode == Mode::Eager {
            self.advance_all();
        }
        self.overfull = self.streams.get(&id).filter(|stream| stream.is_overfull()).map(|_| id);
        Ok(Some(point))
    }

    /// Returns the position of the next operation of a stream that does not capture. The operation also waits
    /// for a point of another stream, if `waits` names one.
    pub(crate) fn start_of(
        &mut self,
        id: Id,
        waits: Option<(Point, Clock)>,
    ) -> Result<Start, CUresult> {
        let stream = self.streams.get(&id).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        let (context, kind, seq) = (stream.context, stream.kind, stream.issued + 1);
        let mut clock = stream.clock.clone();
        if kind == StreamKind::Legacy {
            self.forbid_implicit(context)?;
        }
        self.host.tell(&mut clock);
        let mut deps = Vec::new();
        if let Some((point, before)) = waits {
            clock.join(&before);
            deps.push(point);
        }
        for other in self.implicit_dependencies(id, context, kind) {
            let other_stream = &self.streams[&other];
            clock.join(&other_stream.clock);
            deps.push(Point { stream: other, seq: other_stream.issued });
        }
        deps.retain(|&dep| !self.is_complete(dep));
        if clock.len() > LONG_CLOCK {
            clock.forget_all(|stream| is_retired(&self.streams, &self.dead, stream));
        }
        let point = Point { stream: id, seq };
        clock.set(point);
        Ok(Start { point, clock, deps })
    }

    /// Appends an operation to the queue of its stream.
    pub(crate) fn append(&mut self, id: Id, mut op: Op, clock: Clock) {
        self.bind(id, &mut op, &clock);
        self.values_awaited |= op.work.waits();
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.issued = op.seq;
            stream.clock = clock;
            stream.calls += usize::from(matches!(op.work, Work::Call { .. }));
            stream.queue.push_back(op);
        }
    }

    /// Returns the streams that CUDA implicitly orders before new work of this one: the legacy stream before
    /// blocking ones, and vice versa.
    fn implicit_dependencies(&self, id: Id, context: Id, kind: StreamKind) -> Vec<Id> {
        if kind == StreamKind::NonBlocking {
            return Vec::new();
        }
        let is_legacy = kind == StreamKind::Legacy;
        let joins = self.streams.iter().filter(|&(&other, stream)| {
            other != id
                && stream.context == context
                && stream.capture.is_none()
                && if is_legacy { stream.joins_legacy() } else { stream.kind == StreamKind::Legacy }
        });
        joins.map(|(&other, _)| other).collect()
    }

    /// Reports earlier accesses that this one conflicts with and is not ordered after, and records it.
    pub(crate) fn check_access(
        &mut self,
        call: &'static str,
        access: Access,
        at: Point,
        clock: &Clock,
    ) {
        let Access { target, range, kind } = access;
        let Self { log, space, pinned, host, streams, dead, .. } = self;
        if let Target::Device(id) = target {
            if let Some(Block { phase: Phase::Condemned(free), address, .. }) =
                space.blocks.get(&id)
            {
                let at = address + range.start as u64;
                let message = format!("{at:#x} was already freed by {free}");
                log.violation(ViolationKind::UseAfterFree, call, message);
            }
        }
        let Some((history, what)) = history_of(space, pinned, target) else {
            return;
        };
        let ordered = |point: Point| {
            point.stream == at.stream
                || clock.covers(point)
                || is_retired(streams, dead, point.stream)
        };
        for conflict in history.conflicts(&range, kind, ordered) {
            report_race(log, call, kind, what, Some(at.stream), &conflict);
        }
        let forever =
            |point: Point| host.known().covers(point) || is_retired(streams, dead, point.stream);
        history.add(range, kind, at, call, forever);
    }

    /// Reports work on this memory that the host has not waited for. Called before the host frees the memory.
    pub(crate) fn check_host_free(&mut self, call: &'static str, target: Target) {
        self.check_host_access(call, target, 0..usize::MAX);
    }

    /// Like [`State::check_host_free`], for a range of bytes.
    pub(crate) fn check_host_access(
        &mut self,
        call: &'static str,
        target: Target,
        range: std::ops::Range<usize>,
    ) {
        let Self { log, space, pinned, host, streams, dead, .. } = self;
        let Some((history, what)) = history_of(space, pinned, target) else {
            return;
        };
        let covers = host.covers();
        let ordered = |point: Point| covers(point) || is_retired(streams, dead, point.stream);
        for conflict in history.conflicts(&range, AccessKind::Write, ordered) {
            report_race(log, call, AccessKind::Write, what, None, &conflict);
        }
    }
}

/// Returns the accesses to this memory, and what kind of memory it is.
fn history_of<'a>(
    space: &'a mut Space,
    pinned: &'a mut PinnedMap,
    target: Target,
) -> Option<(&'a mut History, &'static str)> {
    match target {
        Target::Device(id) => Some((&mut space.blocks.get_mut(&id)?.history, "device")),
        Target::Pinned(id) => Some((&mut pinned.blocks.get_mut(&id)?.history, "pinned")),
    }
}

fn report_race(
    log: &mut Log,
    call: &'static str,
    kind: AccessKind,
    what: &str,
    stream: Option<Id>,
    earlier: &Conflict,
) {
    let here = stream.map_or("the host".to_owned(), |id| format!("stream #{id}"));
    let message = format!(
        "its {kind:?} of {what} memory on {here} is not ordered after the {:?} of bytes {:?} by \
         {} on stream #{}",
        earlier.kind, earlier.range, earlier.call, earlier.stream
    );
    log.violation(ViolationKind::Race, call, message);
}
