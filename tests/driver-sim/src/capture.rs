//! Stream capture: the work of a capturing stream is recorded, not run.
//!
//! Implements enough of CUDA's rules that a library meets the real errors when it captures, or calls the
//! driver beside a capture.

use std::collections::BTreeMap;

use cuda_sys::*;

use crate::call::{Call, Outcome};
use crate::engine::clock::{Clock, Point};
use crate::engine::stream::StreamKind;
use crate::engine::work::HostPtr;
use crate::graph::GraphOwner;
use crate::graph::node::Task;
use crate::handle::{Id, pointer};
use crate::state::State;
use crate::thread;

/// The mode of a capture (which threads' unsafe calls it forbids) or of a thread (which captures it
/// respects).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CaptureMode {
    Global,
    ThreadLocal,
    Relaxed,
}

#[derive(Debug)]
pub(crate) struct Capture {
    pub(crate) origin: Id,
    pub(crate) mode: CaptureMode,
    pub(crate) thread: u64,
    pub(crate) valid: bool,
    /// The graph that the capture records into.
    pub(crate) graph: Id,
    /// The participating streams.
    streams: BTreeMap<Id, Branch>,
    /// Number of operations of each stream; the streams' clocks count these during the capture.
    lengths: BTreeMap<Id, u64>,
    /// For each node, the operations that its dependents join.
    reached: BTreeMap<Id, Clock>,
}

/// A stream that participates in a capture.
#[derive(Debug, Default)]
struct Branch {
    /// The stream's clock from before the capture.
    outside: Clock,
    /// The nodes that the stream's next node depends on.
    ends: Vec<Id>,
    /// Handles of `ends`, and as many edge data, as the last query returned them.
    shown: (Vec<HostPtr>, Vec<CUgraphEdgeData>),
}

impl CaptureMode {
    pub(crate) fn from_raw(mode: CUstreamCaptureMode) -> Outcome<Self> {
        match mode {
            CU_STREAM_CAPTURE_MODE_GLOBAL => Ok(Self::Global),
            CU_STREAM_CAPTURE_MODE_THREAD_LOCAL => Ok(Self::ThreadLocal),
            CU_STREAM_CAPTURE_MODE_RELAXED => Ok(Self::Relaxed),
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }

    pub(crate) fn to_raw(self) -> CUstreamCaptureMode {
        match self {
            Self::Global => CU_STREAM_CAPTURE_MODE_GLOBAL,
            Self::ThreadLocal => CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
            Self::Relaxed => CU_STREAM_CAPTURE_MODE_RELAXED,
        }
    }
}

impl Capture {
    /// Returns whether an unsafe call of the calling thread invalidates the capture.
    fn minds_this_thread(&self) -> bool {
        let own = self.thread == thread::number() && self.mode != CaptureMode::Relaxed;
        match thread::capture_mode() {
            CaptureMode::Global => own || self.mode == CaptureMode::Global,
            CaptureMode::ThreadLocal => own,
            CaptureMode::Relaxed => false,
        }
    }
}

impl Capture {
    /// Returns the nodes that a stream's next node depends on.
    pub(crate) fn ends(&self, stream: Id) -> &[Id] {
        self.streams.get(&stream).map_or(&[], |branch| &branch.ends)
    }

    fn ends_mut(&mut self, stream: Id) -> Option<&mut Vec<Id>> {
        self.streams.get_mut(&stream).map(|branch| &mut branch.ends)
    }
}

impl State {
    /// Records an operation of a capturing stream as a node of the graph.
    pub(crate) fn capture_task(&mut self, capture: Id, stream: Id, task: Task) {
        let Some((graph, ends)) = self
            .captures
            .get(&capture)
            .map(|capture| (capture.graph, capture.ends(stream).to_vec()))
        else {
            return;
        };
        let node = self.add_node(graph, task, ends);
        if let Some(ends) = self.captures.get_mut(&capture).and_then(|c| c.ends_mut(stream)) {
            *ends = vec![node];
        }
        self.capture_point(capture, stream);
        let Self { captures, streams, .. } = self;
        if let (Some(capture), Some(stream)) = (captures.get_mut(&capture), streams.get(&stream)) {
            capture.reached.insert(node, stream.clock.clone());
        }
    }

    /// Makes the next node of a capturing stream depend on these nodes: instead of its former dependencies if
    /// `replaces`, else in addition. Replaced dependencies still count as joined.
    pub(crate) fn change_ends(&mut self, capture: Id, stream: Id, nodes: &[Id], replaces: bool) {
        let Self { captures, streams, .. } = self;
        let Some(capture) = captures.get_mut(&capture) else {
            return;
        };
        for before in nodes.iter().filter_map(|node| capture.reached.get(node)) {
            if let Some(stream) = streams.get_mut(&stream) {
                stream.clock.join(before);
            }
        }
        if let Some(ends) = capture.ends_mut(stream) {
            if replaces {
                ends.clear();
            }
            add_ends(ends, nodes);
        }
    }

    /// Returns the handles of the nodes that a stream's next node depends on, and as many edge data. The
    /// arrays stay in place until the next query.
    pub(crate) fn show_ends(
        &mut self,
        capture: Id,
        stream: Id,
    ) -> (*const CUgraphNode, *const CUgraphEdgeData, usize) {
        let Self { captures, graphs, .. } = self;
        let branch = captures.get_mut(&capture).and_then(|c| c.streams.get_mut(&stream));
        let Some(Branch { ends, shown, .. }) = branch else {
            return (std::ptr::null(), std::ptr::null(), 0);
        };
        let handles = ends.iter().map(|id| HostPtr(pointer(graphs.nodes[id].handle)));
        *shown = (handles.collect(), vec![CUgraphEdgeData::default(); ends.len()]);
        (shown.0.as_ptr().cast(), shown.1.as_ptr(), ends.len())
    }

    /// Makes the next node of a capturing stream depend also on these nodes of another stream, which `before`
    /// covers.
    pub(crate) fn capture_wait(&mut self, capture: Id, stream: Id, nodes: &[Id], before: &Clock) {
        if let Some(stream) = self.streams.get_mut(&stream) {
            stream.clock.join(before);
        }
        if let Some(ends) = self.captures.get_mut(&capture).and_then(|c| c.ends_mut(stream)) {
            add_ends(ends, nodes);
        }
        self.capture_point(capture, stream);
    }

    /// Counts an operation of a capturing stream; it must be joined before the capture ends.
    pub(crate) fn capture_point(&mut self, capture: Id, stream: Id) {
        let Some(capture) = self.captures.get_mut(&capture) else {
            return;
        };
        let length = capture.lengths.entry(stream).or_default();
        *length += 1;
        if let Some(state) = self.streams.get_mut(&stream) {
            state.clock.set(Point { stream, seq: *length });
        }
    }

    /// Returns whether the capture is active and valid.
    pub(crate) fn captures_still(&self, capture: Id) -> bool {
        let capture = self.captures.get(&capture);
        capture.is_some_and(|capture| capture.valid)
    }

    /// Invalidates the captures of streams that the legacy stream is ordered after, as any use of the legacy
    /// stream does.
    pub(crate) fn forbid_implicit(&mut self, context: Id) -> Outcome {
        let captures = self.implicit_captures(context);
        for &capture in &captures {
            self.invalidate(capture);
        }
        match captures.is_empty() {
            true => Ok(()),
            false => Err(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT),
        }
    }

    /// Returns the captures of streams that the context's legacy stream is ordered after.
    pub(crate) fn implicit_captures(&self, context: Id) -> Vec<Id> {
        let here = self.streams.values().filter(|stream| stream.context == context);
        here.filter(|stream| stream.joins_legacy()).filter_map(|stream| stream.capture).collect()
    }

    pub(crate) fn invalidate(&mut self, capture: Id) {
        if let Some(capture) = self.captures.get_mut(&capture) {
            capture.valid = false;
        }
    }

    /// Ends a capture without a graph, because one of its streams is destroyed.
    pub(crate) fn abandon_capture(&mut self, stream: Id) {
        let Some(capture) = self.streams.get(&stream).and_then(|stream| stream.capture) else {
            return;
        };
        if let Some(graph) = self.leave_capture(capture) {
            self.drop_captured(graph);
        }
    }

    /// Removes the graph of a capture that failed, unless the capture only added to it.
    fn drop_captured(&mut self, graph: Id) {
        let owner = self.graphs.graphs.get(&graph).map(|graph| graph.owner);
        if owner == Some(GraphOwner::Capture) {
            self.destroy_graph(graph);
        }
    }

    /// Ends a capture, and returns its graph.
    fn leave_capture(&mut self, capture: Id) -> Option<Id> {
        let capture = self.captures.remove(&capture)?;
        for (id, branch) in capture.streams {
            if let Some(stream) = self.streams.get_mut(&id) {
                stream.capture = None;
                stream.clock = branch.outside;
            }
        }
        Some(capture.graph)
    }
}

/// Appends those of the nodes that `ends` lacks.
fn add_ends(ends: &mut Vec<Id>, nodes: &[Id]) {
    for node in nodes {
        if !ends.contains(node) {
            ends.push(*node);
        }
    }
}

impl Call {
    /// Begins a capture, into a new graph or after these nodes of an existing one.
    pub(crate) fn begin_capture(
        &mut self,
        stream: Id,
        mode: CaptureMode,
        into: Option<(Id, Vec<Id>)>,
    ) -> Outcome {
        match self.streams[&stream].kind {
            StreamKind::Legacy => return Err(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED),
            _ if self.streams[&stream].capture.is_some() => return Err(CUDA_ERROR_ILLEGAL_STATE),
            _ => {}
        }
        let name = self.name;
        let (graph, ends) =
            into.unwrap_or_else(|| (self.new_graph(GraphOwner::Capture, name), Vec::new()));
        let id = self.new_id();
        let capture = Capture {
            origin: stream,
            mode,
            thread: thread::number(),
            valid: true,
            graph,
            streams: BTreeMap::new(),
            lengths: BTreeMap::new(),
            reached: BTreeMap::new(),
        };
        self.captures.insert(id, capture);
        self.join_capture(stream, id)?;
        self.change_ends(id, stream, &ends, true);
        Ok(())
    }

    /// Adds a stream to a capture.
    pub(crate) fn join_capture(&mut self, stream: Id, capture: Id) -> Outcome {
        let Some(joined) = self.captures.get(&capture) else {
            return Err(CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
        };
        match self.streams[&stream].capture {
            Some(own) if own == capture => return Ok(()),
            Some(own) => {
                self.invalidate(own);
                self.invalidate(capture);
                return Err(CUDA_ERROR_STREAM_CAPTURE_MERGE);
            }
            None if !joined.valid => return Err(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED),
            None => {}
        }
        let Some(state) = self.streams.get_mut(&stream) else {
            return Ok(());
        };
        state.capture = Some(capture);
        let outside = std::mem::take(&mut state.clock);
        if let Some(capture) = self.captures.get_mut(&capture) {
            capture.streams.insert(stream, Branch { outside, ..Default::default() });
        }
        Ok(())
    }

    /// Ends the capture that began on this stream.
    pub(crate) fn end_capture(&mut self, stream: Id) -> Outcome<Id> {
        let id = self.streams[&stream].capture.ok_or(CUDA_ERROR_ILLEGAL_STATE)?;
        let capture = &self.captures[&id];
        if capture.origin != stream {
            self.invalidate(id);
            return Err(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
        }
        if capture.mode != CaptureMode::Relaxed && capture.thread != thread::number() {
            return Err(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
        }
        let (valid, graph) = (capture.valid, capture.graph);
        let seen = &self.streams[&stream].clock;
        let mut lengths = capture.lengths.iter();
        let joined = lengths.all(|(&stream, &seq)| seen.covers(Point { stream, seq }));
        self.leave_capture(id);
        if !valid || !joined {
            self.drop_captured(graph);
        }
        if !valid {
            return Err(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        }
        if !joined {
            return Err(CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
        }
        if let Some(graph) = self.graphs.graphs.get_mut(&graph) {
            if graph.owner == GraphOwner::Capture {
                graph.owner = GraphOwner::Program;
            }
        }
        Ok(graph)
    }

    /// Refuses a call if any capture forbids it, and invalidates each capture that does.
    pub(crate) fn forbid_in_capture(&mut self) -> Outcome {
        let mut hit = false;
        for capture in self.captures.values_mut() {
            if capture.minds_this_thread() {
                capture.valid = false;
                hit = true;
            }
        }
        if hit { Err(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED) } else { Ok(()) }
    }

    /// Refuses a call that waits for a whole context while a stream of the context captures, in any mode, and
    /// invalidates those captures.
    pub(crate) fn forbid_capturing_context(&mut self, context: Id) -> Outcome {
        let streams = self.streams.values();
        let here = streams.filter(|stream| stream.context == context);
        let captures: Vec<Id> = here.filter_map(|stream| stream.capture).collect();
        for &capture in &captures {
            self.invalidate(capture);
        }
        if captures.is_empty() { Ok(()) } else { Err(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED) }
    }

    /// Refuses a call that waits for this stream or queries it, and invalidates the capture, while the stream
    /// captures, or, for the legacy stream, while a stream captures that the legacy stream would be ordered
    /// after.
    pub(crate) fn forbid_capturing(&mut self, stream: Id) -> Outcome {
        if let Some(capture) = self.streams[&stream].capture {
            self.invalidate(capture);
            return Err(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        }
        let Some(stream) = self.streams.get(&stream) else {
            return Ok(());
        };
        if stream.kind != StreamKind::Legacy {
            return Ok(());
        }
        let context = stream.context;
        self.forbid_implicit(context)
    }
}
