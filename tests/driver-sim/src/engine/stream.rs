//! Streams and events.

use std::collections::VecDeque;
use std::mem;
use std::time::Instant;

use crate::engine::clock::{Clock, Point};
use crate::engine::mover::Moving;
use crate::engine::work::{Op, Work};
use crate::handle::Id;
use crate::state::State;

/// Number of copies, fills, launches and values that fit into a queue behind a wait for a value, on an H200
/// with driver 580.
const MOST_COMMANDS: usize = 1020;

/// Number of host functions that fit, each after such a command, on the same machine. Host functions, events,
/// allocations and frees alone fit in any number (5,000 were tried).
const MOST_CALLS: usize = 56;

/// The kind of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StreamKind {
    /// From `cuStreamCreate`, ordered with the legacy stream.
    Blocking,
    /// From `cuStreamCreate` with `CU_STREAM_NON_BLOCKING`.
    NonBlocking,
    /// The context's legacy default stream.
    Legacy,
    /// One thread's default stream of the context; ordered with the legacy stream.
    PerThread { thread: u64 },
    /// Nodes of one launch of a graph that run one after the other. No program has its handle.
    Branch,
}

#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) context: Id,
    pub(crate) device: usize,
    pub(crate) kind: StreamKind,
    pub(crate) priority: i32,
    pub(crate) issued: u64,
    pub(crate) completed: u64,
    pub(crate) queue: VecDeque<Op>,
    /// Number of host functions in the queue.
    pub(crate) calls: usize,
    /// Whether the operation at the front is a host function that runs on the callback thread.
    pub(crate) in_callback: bool,
    /// The operation that was at the front, while a thread moves host memory for it.
    pub(crate) moving: Option<Moving>,
    /// Whether the program has destroyed the stream. It is kept until its work is complete.
    pub(crate) destroyed: bool,
    /// The clock of what has happened before the next enqueued operation.
    pub(crate) clock: Clock,
    pub(crate) polls: u32,
    pub(crate) capture: Option<Id>,
}

impl Stream {
    pub(crate) fn new(context: Id, device: usize, kind: StreamKind, priority: i32) -> Self {
        Self {
            context,
            device,
            kind,
            priority,
            issued: 0,
            completed: 0,
            queue: VecDeque::new(),
            calls: 0,
            in_callback: false,
            moving: None,
            destroyed: false,
            clock: Clock::default(),
            polls: 0,
            capture: None,
        }
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.completed == self.issued
    }

    /// Returns whether a driver would not have accepted the last operation. A driver has room for
    /// [`MOST_COMMANDS`] commands behind the one that the device executes, and for [`MOST_CALLS`] host
    /// functions that follow a command.
    pub(crate) fn is_overfull(&self) -> bool {
        if self.queue.len() <= 1 + MOST_COMMANDS && self.calls <= MOST_CALLS {
            return false;
        }
        let (mut commands, mut calls, mut commanded) = (0, 0, false);
        for op in &self.queue {
            match op.work {
                Work::Nothing | Work::Record { .. } | Work::Alloc { .. } | Work::Free { .. } => {}
                Work::Call { .. } => calls += usize::from(mem::take(&mut commanded)),
                _ => {
                    commands += 1;
                    commanded = true;
                }
            }
        }
        commands > 1 + MOST_COMMANDS || calls > MOST_CALLS
    }

    /// Returns whether this stream and the legacy stream wait for each other.
    pub(crate) fn joins_legacy(&self) -> bool {
        matches!(self.kind, StreamKind::Blocking | StreamKind::PerThread { .. })
    }
}

#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) context: Id,
    pub(crate) timing: bool,
    pub(crate) recorded: Recorded,
    pub(crate) polls: u32,
}

/// The latest record of an event.
#[derive(Debug)]
pub(crate) enum Recorded {
    Never,
    On {
        point: Point,
        clock: Clock,
        reached: Option<Instant>,
    },
    Captured {
        capture: Id,
        clock: Clock,
        /// The nodes that work waiting for the event depends on.
        nodes: Vec<Id>,
    },
}

impl State {
    /// Returns the number of queued operations of all streams that are not complete. A launch of a graph is
    /// one.
    pub(crate) fn pending_ops(&self) -> u64 {
        let streams = self.streams.values();
        let streams = streams.filter(|stream| stream.kind != StreamKind::Branch);
        streams.map(|stream| stream.issued - stream.completed).sum()
    }
}
