//! Conditional nodes: parts of a graph that run if, or while, kernels set a condition.
//!
//! Only a running launch determines when a conditional node runs. So the launch enqueues one operation for
//! the node, which counts as everything that its bodies do. Once that operation is at the front of its
//! branch, it enqueues the nodes of a body on branches of its own, and again until its condition ends it.
//! Nodes of one body that conflict and are not ordered are reported at the launch.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use cuda_sys::{
    CU_GRAPH_COND_TYPE_SWITCH, CU_GRAPH_COND_TYPE_WHILE, CUgraphConditionalNodeType, CUresult,
};
use cuda_sys::{CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_SUPPORTED};

use crate::engine::clock::Clock;
use crate::engine::kernel::Memory;
use crate::engine::work::{Access, HostPtr, Work};
use crate::graph::exec::ExecNode;
use crate::graph::launch::Branches;
use crate::graph::node::NodeKind;
use crate::graph::{Graph, GraphOwner};
use crate::handle::{Id, pointer};
use crate::report::ViolationKind;
use crate::state::State;

/// The number of rounds after which a loop is taken for endless.
const MOST_ROUNDS: u32 = 100_000;

/// The condition that a conditional handle stands for.
#[derive(Debug)]
pub(crate) struct Condition {
    pub(crate) handle: u64,
    pub(crate) context: Id,
    /// The value at the start of each launch, unless the condition keeps its value.
    pub(crate) initial: Option<u32>,
    value: AtomicU32,
    /// Whether a node depends on it.
    pub(crate) used: AtomicBool,
    /// Number of launches that have begun and not completed.
    running: AtomicU32,
}

/// A conditional node.
#[derive(Debug, Clone)]
pub(crate) struct ConditionalNode {
    pub(crate) condition: Arc<Condition>,
    pub(crate) kind: CUgraphConditionalNodeType,
    /// Graphs that the node owns.
    pub(crate) bodies: Vec<Id>,
    /// Handles of `bodies`. The program may use this array while the node exists.
    pub(crate) shown: Vec<HostPtr>,
}

/// A conditional node of a launch.
#[derive(Debug, Clone)]
pub(crate) struct Rounds {
    condition: Arc<Condition>,
    kind: CUgraphConditionalNodeType,
    pub(crate) bodies: Vec<Vec<ExecNode>>,
    /// The clock of what happened before.
    pub(crate) clock: Clock,
    done: u32,
    /// The branches of the running round.
    pub(crate) branches: Vec<Id>,
}

impl Condition {
    pub(crate) fn new(handle: u64, context: Id, initial: Option<u32>) -> Self {
        let (value, running) = (AtomicU32::new(initial.unwrap_or(0)), AtomicU32::new(0));
        Self { handle, context, initial, value, used: AtomicBool::new(false), running }
    }

    /// Called when a launch begins.
    pub(crate) fn begin(&self) {
        self.running.fetch_add(1, Ordering::Relaxed);
        if let Some(initial) = self.initial {
            self.value.store(initial, Ordering::Relaxed);
        }
    }

    /// Called when a launch ends.
    pub(crate) fn end(&self) {
        self.running.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Rounds {
    /// Returns the body to run next.
    fn next(&mut self) -> Option<usize> {
        let value = self.condition.value.load(Ordering::Relaxed) as usize;
        let (first, size) = (self.done == 0, self.bodies.len());
        self.done += 1;
        match self.kind {
            CU_GRAPH_COND_TYPE_WHILE => (value != 0).then_some(0),
            CU_GRAPH_COND_TYPE_SWITCH => (first && value < size).then_some(value),
            _ if value != 0 => first.then_some(0),
            _ => (first && size > 1).then_some(1),
        }
    }

    /// Returns whether the node can be changed to `other`.
    pub(crate) fn can_become(&self, other: &Self) -> bool {
        self.kind == other.kind && self.bodies.len() == other.bodies.len()
    }
}

impl Memory<'_> {
    /// Sets a condition of the graph that the kernel is part of: `cudaGraphSetConditional`.
    pub fn set_condition(&mut self, handle: u64, value: u32) {
        let conditions = &self.state.graphs.conditions;
        let condition = conditions.get(&handle).and_then(std::sync::Weak::upgrade);
        let fault = match &condition {
            None => "no graph has this condition",
            Some(known) if known.context != self.context => "it is of another context",
            Some(known) if known.running.load(Ordering::Relaxed) == 0 => "its graph does not run",
            Some(known) => {
                known.value.store(value, Ordering::Relaxed);
                return;
            }
        };
        let message = format!("a kernel sets the condition {handle}: {fault}");
        self.state.log.violation(ViolationKind::DanglingHandle, self.call, message);
    }
}

impl Graph {
    pub(crate) fn condition(&self, handle: u64) -> Option<&Arc<Condition>> {
        self.conditions.iter().find(|condition| condition.handle == handle)
    }
}

impl State {
    /// Returns the outermost graph that contains this one as a body, at any depth, or this one.
    pub(crate) fn outermost(&self, graph: Id) -> Id {
        match self.graphs.graphs[&graph].owner {
            GraphOwner::Body(outer) => self.outermost(outer),
            _ => graph,
        }
    }

    /// Adds a condition to a graph, and returns its handle.
    pub(crate) fn new_condition(&mut self, graph: Id, context: Id, initial: Option<u32>) -> u64 {
        let (handle, outermost) = (self.new_id(), self.outermost(graph));
        let condition = Arc::new(Condition::new(handle, context, initial));
        self.graphs.conditions.retain(|_, known| known.strong_count() > 0);
        self.graphs.conditions.insert(handle, Arc::downgrade(&condition));
        if let Some(graph) = self.graphs.graphs.get_mut(&outermost) {
            graph.conditions.push(condition);
        }
        handle
    }

    /// Creates a conditional node with empty bodies.
    pub(crate) fn new_conditional(
        &mut self,
        call: &'static str,
        graph: Id,
        condition: Arc<Condition>,
        (kind, size): (CUgraphConditionalNodeType, u32),
    ) -> ConditionalNode {
        let owner = GraphOwner::Body(graph);
        let bodies: Vec<Id> = (0..size).map(|_| self.new_graph(owner, call)).collect();
        let handles = bodies.iter().map(|body| HostPtr(pointer(self.graphs.graphs[body].handle)));
        let shown = handles.collect();
        ConditionalNode { condition, kind, bodies, shown }
    }

    /// Returns the work and the accesses of a conditional node of an exec.
    pub(crate) fn rounds(&self, node: &ConditionalNode) -> (Work, Vec<Access>) {
        let bodies: Vec<_> = node.bodies.iter().map(|body| self.flatten(*body)).collect();
        let steps = bodies.iter().flatten();
        let accesses = steps.flat_map(|step| step.task.accesses.iter().cloned()).collect();
        let (condition, kind) = (node.condition.clone(), node.kind);
        let (clock, branches) = (Clock::default(), Vec::new());
        let rounds = Rounds { condition, kind, bodies, clock, done: 0, branches };
        (Work::Conditional(Box::new(rounds)), accesses)
    }

    /// Checks that a graph's conditions permit instantiating it.
    pub(crate) fn check_conditions(&self, graph: Id) -> Result<(), CUresult> {
        let unused = |condition: &Arc<Condition>| !condition.used.load(Ordering::Relaxed);
        if self.graphs.graphs[&graph].conditions.iter().any(unused) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let steps = self.flatten(graph);
        let bodies = steps.iter().flat_map(|step| step.task.work.bodies()).flatten();
        let allowed = bodies.flat_map(ExecNode::with_bodies).all(|step| {
            let kind = &step.task.kind;
            matches!(
                kind,
                NodeKind::Empty
                    | NodeKind::Kernel(_)
                    | NodeKind::Memcpy(_)
                    | NodeKind::Memset(_)
                    | NodeKind::Conditional(_)
            )
        });
        if allowed { Ok(()) } else { Err(CUDA_ERROR_INVALID_VALUE) }
    }

    /// Refuses a graph with conditions: it cannot be copied, and has at most one exec at a time.
    pub(crate) fn refuse_conditions(&self, graph: Id) -> Result<(), CUresult> {
        match self.graphs.graphs[&graph].conditions.is_empty() {
            true => Ok(()),
            false => Err(CUDA_ERROR_NOT_SUPPORTED),
        }
    }

    /// Reports nodes in the bodies of a node that conflict and are not ordered.
    pub(crate) fn check_bodies(&mut self, node: &ExecNode) {
        for steps in node.task.work.bodies() {
            // For each step, the steps that it comes after.
            let mut before: Vec<BTreeSet<usize>> = Vec::new();
            for (at, step) in steps.iter().enumerate() {
                let mut reached: BTreeSet<usize> = step.after.iter().copied().collect();
                step.after.iter().for_each(|at| reached.extend(&before[*at]));
                let others = (0..at).filter(|other| !reached.contains(other));
                let mut others = others.map(|other| &steps[other]);
                if let Some(other) = others.find(|other| other.conflicts_with(step)) {
                    let message = format!(
                        "it is not ordered after {} in the body of a conditional node",
                        other.task.call
                    );
                    self.log.violation(ViolationKind::Race, step.task.call, message);
                }
                before.push(reached);
                self.check_bodies(step);
            }
        }
    }

    /// Enqueues the next round of the conditional node at the front of this stream. Returns `false` if there
    /// is none.
    pub(crate) fn next_round(&mut self, id: Id) -> bool {
        let Some(stream) = self.streams.get_mut(&id) else {
            return false;
        };
        let (context, device) = (stream.context, stream.device);
        // The context is lost if a kernel of the loop has faulted.
        if self.contexts.get(&context).is_some_and(|context| context.lost.is_some()) {
            return false;
        }
        let Some(op) = stream.queue.front_mut() else {
            return false;
        };
        let Work::Conditional(rounds) = &mut op.work else {
            return false;
        };
        let Some(body) = rounds.next() else {
            return false;
        };
        if rounds.done > MOST_ROUNDS {
            let message = format!("a loop went round {MOST_ROUNDS} times");
            self.log.violation(ViolationKind::EndlessLoop, op.call, message);
            return false;
        }
        let (steps, clock) = (rounds.bodies[body].clone(), rounds.clock.clone());
        let mut branches = Branches::new(context, device, Vec::new(), clock);
        for step in &steps {
            self.enqueue_node(&mut branches, step, None);
        }
        let front = self.streams.get_mut(&id).and_then(|stream| stream.queue.front_mut());
        if let Some(Work::Conditional(rounds)) = front.map(|op| &mut op.work) {
            rounds.branches = branches.into_streams();
        }
        true
    }
}

impl Work {
    /// Returns the bodies of a conditional node.
    pub(crate) fn bodies(&self) -> &[Vec<ExecNode>] {
        match self {
            Self::Conditional(rounds) => &rounds.bodies,
            _ => &[],
        }
    }
}

impl ExecNode {
    /// Returns the node, and the nodes of its bodies at any depth.
    pub(crate) fn with_bodies(&self) -> Vec<&ExecNode> {
        let inner = self.task.work.bodies().iter().flatten();
        std::iter::once(self).chain(inner.flat_map(ExecNode::with_bodies)).collect()
    }

    /// Returns the conditions of these nodes, at any depth.
    pub(crate) fn conditions(steps: &[Self]) -> Vec<Arc<Condition>> {
        let all = steps.iter().flat_map(Self::with_bodies);
        let conditions = all.filter_map(|step| match &step.task.kind {
            NodeKind::Conditional(node) => Some(node.condition.clone()),
            _ => None,
        });
        conditions.collect()
    }

    fn conflicts_with(&self, other: &Self) -> bool {
        let mut accesses = self.task.accesses.iter();
        accesses.any(|one| other.task.accesses.iter().any(|two| one.conflicts_with(two)))
    }
}
