//! Launches of execs.
//!
//! A launch is one operation of its stream. Its nodes run on branches: streams of its own, one for each chain
//! of nodes that depend on each other. So the engine orders nodes as it orders any work, and the checker sees
//! which nodes are not ordered. Which of the nodes that may run next does is drawn from the seed.

use std::collections::BTreeMap;

use cuda_sys::CUDA_ERROR_LAUNCH_FAILED;

use crate::Mode;
use crate::call::Outcome;
use crate::engine::clock::{Clock, Point};
use crate::engine::stream::{Recorded, Stream, StreamKind};
use crate::engine::work::{Op, Work};
use crate::graph::exec::ExecNode;
use crate::graph::node::{NodeKind, Task};
use crate::handle::Id;
use crate::report::ViolationKind;
use crate::state::State;

/// The branches of a launch that is being enqueued.
pub(crate) struct Branches {
    context: Id,
    device: usize,
    /// The points that the first nodes run after.
    deps: Vec<Point>,
    clock: Clock,
    /// For each node, its point on its branch, and the clock of what happened before its end.
    done: Vec<(Point, Clock)>,
    /// The last node of each branch, by its index.
    tails: BTreeMap<Id, usize>,
}

impl Branches {
    /// Creates a launch without branches. The first nodes run after `deps`.
    pub(crate) fn new(context: Id, device: usize, deps: Vec<Point>, clock: Clock) -> Self {
        Self { context, device, deps, clock, done: Vec::new(), tails: BTreeMap::new() }
    }

    pub(crate) fn into_streams(self) -> Vec<Id> {
        self.tails.into_keys().collect()
    }
}

impl State {
    /// Enqueues a launch of an exec.
    pub(crate) fn launch(&mut self, call: &'static str, exec: Id, stream: Id) -> Outcome {
        if self.is_cut_off(&self.graphs.execs[&exec]) {
            let message = "a copy between devices goes by access that was revoked since".to_owned();
            self.log.violation(ViolationKind::Crash, call, message);
            return Err(CUDA_ERROR_LAUNCH_FAILED);
        }
        let last = self.graphs.execs[&exec].last.clone();
        let mut steps = self.graphs.execs[&exec].steps.clone();
        let mut start = self.start_of(stream, last)?;
        let uploads = self.graphs.execs[&exec].uploads.iter().copied();
        start.deps.extend(uploads.filter(|&point| !self.is_complete(point)));
        self.admit_memory(&mut steps, self.graphs.execs[&exec].frees_first)?;
        let (context, device) = (self.streams[&stream].context, self.streams[&stream].device);
        let mut deps = start.deps.clone();
        let before = Point { stream, seq: start.point.seq - 1 };
        deps.extend(Some(before).filter(|&before| !self.is_complete(before)));
        let conditions = ExecNode::conditions(&steps);
        if !conditions.is_empty() {
            let work = Work::Assign { conditions: conditions.clone() };
            ExecNode::prepend(&mut steps, Task { call, work, ..Task::nothing() });
        }
        let mut branches = Branches::new(context, device, deps, start.clock.clone());
        for step in &steps {
            self.check_bodies(step);
            self.enqueue_node(&mut branches, step, Some(start.point));
        }
        let mut clock = start.clock;
        for (_, after) in &branches.done {
            clock.join(after);
        }
        let branches = branches.into_streams();
        let objects = self.graphs.execs[&exec].objects.clone();
        for &object in &objects {
            self.retain_object(object, 1);
        }
        if let Some(exec) = self.graphs.execs.get_mut(&exec) {
            exec.last = Some((start.point, clock.clone()));
            exec.uploads.clear();
        }
        let op = Op {
            seq: start.point.seq,
            call,
            deps: start.deps,
            tells: None,
            work: Work::Graph { branches, objects, conditions },
        };
        self.append(stream, op, clock);
        if self.mode == Mode::Eager {
            self.advance_all();
        }
        Ok(())
    }

    /// Enqueues an upload of an exec. An H200 with driver 580 orders it with launches of the exec on any
    /// stream. Only the order after earlier launches is documented, so the checker assumes no order.
    pub(crate) fn upload(&mut self, call: &'static str, exec: Id, stream: Id) -> Outcome {
        let mut start = self.start_of(stream, None)?;
        let known = &self.graphs.execs[&exec];
        let before =
            known.uploads.iter().copied().chain(known.last.as_ref().map(|(point, _)| *point));
        start.deps.extend(before.filter(|&point| !self.is_complete(point)));
        if let Some(exec) = self.graphs.execs.get_mut(&exec) {
            exec.uploads.push(start.point);
        }
        let op =
            Op { seq: start.point.seq, call, deps: start.deps, tells: None, work: Work::Nothing };
        self.append(stream, op, start.clock);
        if self.mode == Mode::Eager {
            self.advance_all();
        }
        Ok(())
    }

    /// Enqueues a node after those that it depends on. Checks the accesses of a node of a `launch`; those of
    /// a conditional node's bodies (`None`) were checked with its launch.
    pub(crate) fn enqueue_node(
        &mut self,
        branches: &mut Branches,
        step: &ExecNode,
        launch: Option<Point>,
    ) {
        let nothing = Task { call: step.task.call, ..Task::nothing() };
        let task = if step.enabled { &step.task } else { &nothing };
        let after = &step.after;
        let mut clock = if after.is_empty() { branches.clock.clone() } else { Clock::default() };
        let mut deps = if after.is_empty() { branches.deps.clone() } else { Vec::new() };
        for &at in after {
            let (point, before) = &branches.done[at];
            clock.join(before);
            deps.push(*point);
        }
        // The node continues a branch that ends with one of its dependencies, if there is one.
        let tail = |at: &&usize| branches.tails.get(&branches.done[**at].0.stream) == Some(*at);
        let branch = match after.iter().find(tail) {
            Some(&at) => branches.done[at].0.stream,
            None => {
                let kind = StreamKind::Branch;
                let branch = Stream::new(branches.context, branches.device, kind, 0);
                // Removed with its last node.
                self.new_stream(Stream { destroyed: true, ..branch })
            }
        };
        let point = Point { stream: branch, seq: self.streams[&branch].issued + 1 };
        if let NodeKind::Wait(event) | NodeKind::Record(event) = &task.kind {
            if self.events.get(event).is_none() {
                let message = "the event of the node was destroyed".to_owned();
                self.log.violation(ViolationKind::UseAfterFree, task.call, message);
            }
        }
        if let NodeKind::Wait(event) = &task.kind {
            let event = self.events.get(event).map(|event| &event.recorded);
            if let Some(Recorded::On { point, clock: before, .. }) = event {
                deps.push(*point);
                clock.join(before);
            }
        }
        if let Some(launch) = launch.filter(|_| step.enabled) {
            step.with_bodies().iter().for_each(|step| self.note_kernel(step, launch));
        }
        clock.set(point);
        if let NodeKind::Record(event) = task.kind {
            if let Some(event) = self.events.get_mut(&event) {
                event.recorded = Recorded::On { point, clock: clock.clone(), reached: None };
                event.polls = 0;
            }
        }
        for access in task.accesses.iter().filter(|_| launch.is_some()) {
            self.check_access(task.call, access.clone(), point, &clock);
        }
        deps.retain(|dep| dep.stream != branch);
        let mut work = task.work.clone();
        if let Work::Conditional(rounds) = &mut work {
            rounds.clock = clock.clone();
        }
        let tells = work.shows().then(|| clock.clone());
        let op = Op { seq: point.seq, call: task.call, deps, tells, work };
        self.append(branch, op, clock.clone());
        branches.tails.insert(branch, branches.done.len());
        branches.done.push((point, clock));
    }

    /// Records that a launch runs the kernel of a node.
    fn note_kernel(&mut self, step: &ExecNode, launch: Point) {
        let NodeKind::Kernel(kernel) = &step.task.kind else {
            return;
        };
        if !self.modules.contains_key(&kernel.module) {
            let message = "the module of the node's kernel was unloaded".to_owned();
            self.log.violation(ViolationKind::UseAfterFree, step.task.call, message);
        }
        self.note_launch(kernel.module, launch);
    }
}
