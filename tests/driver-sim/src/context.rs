//! Contexts, and each thread's context stack.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;

use cuda_sys::CUresult;

use crate::engine::clock::Clock;
use crate::engine::stream::{Stream, StreamKind};
use crate::engine::work::Work;
use crate::handle::Id;
use crate::state::State;
use crate::table::Table;
use crate::thread;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ContextKind {
    Primary,
    Created,
    Green,
}

#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) device: usize,
    pub(crate) kind: ContextKind,
    pub(crate) flags: u32,
    pub(crate) limits: BTreeMap<u32, usize>,
    pub(crate) cache_config: u32,
    /// Contexts whose memory this one may access.
    pub(crate) peers: BTreeSet<Id>,
    pub(crate) legacy: Id,
    pub(crate) per_thread: Table<Id>,
    /// The last points of destroyed streams that the host has not waited for.
    pub(crate) buried: Clock,
    /// The error that every call of this context returns from now on.
    pub(crate) lost: Option<CUresult>,
}

/// One entry of a thread's stack. It stores the handle and the identity: once the context is destroyed, the
/// entry still means the old context, even if its handle is reused for another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) context: Id,
    pub(crate) handle: usize,
}

/// `CUlimit` values with the device's defaults.
const LIMITS: [(u32, usize); 7] =
    [(0, 1024), (1, 7 << 20), (2, 8 << 20), (3, 2), (4, 2048), (5, 128), (6, 0)];

impl State {
    pub(crate) fn new_context(&mut self, device: usize, kind: ContextKind, flags: u32) -> Id {
        let id = self.new_id();
        let legacy = self.new_stream(Stream::new(id, device, StreamKind::Legacy, 0));
        let context = Context {
            device,
            kind,
            flags,
            limits: LIMITS.into_iter().collect(),
            cache_config: 0,
            peers: BTreeSet::new(),
            legacy,
            per_thread: Table::new(),
            buried: Clock::default(),
            lost: None,
        };
        self.contexts.add(id, context);
        id
    }

    /// Returns whether the calling thread has no current context.
    pub(crate) fn is_nothing_current(&self) -> bool {
        let stack = self.stacks.get(&thread::number());
        stack.is_none_or(Vec::is_empty)
    }

    /// Removes a context with everything that was made in it. Its work must be complete or abandoned.
    pub(crate) fn destroy_context(&mut self, id: Id, call: &'static str) {
        if self.contexts.remove(&id).is_none() {
            return;
        }
        for other in self.contexts.values_mut() {
            other.peers.remove(&id);
        }
        let streams = self.streams.iter().filter(|(_, stream)| stream.context == id);
        for stream in streams.map(|(&stream, _)| stream).collect::<Vec<_>>() {
            if let Some(stream) = self.streams.get_mut(&stream) {
                let calls = mem::take(&mut stream.calls) as u64;
                // The driver need not call a host function of a graph.
                if stream.kind != StreamKind::Branch {
                    self.dropped_calls += calls;
                }
                let queue = mem::take(&mut stream.queue);
                stream.completed = stream.issued;
                for op in queue {
                    if let Work::Graph { objects, .. } = op.work {
                        self.release_objects(&objects);
                    }
                }
            }
            self.bury(stream);
        }
        self.events.retain(|event| event.context != id);
        self.links.retain(|link| link.context != id);
        self.forget_images(id);
        self.forget_all_imported(id);
        let modules = self.modules.iter();
        let modules = modules.filter(|(_, module)| module.context == id);
        for module in modules.map(|(&module, _)| module).collect::<Vec<_>>() {
            self.unload(module, call);
        }
        let blocks = self.space.blocks.iter().filter(|(_, block)| block.context == Some(id));
        for block in blocks.map(|(&block, _)| block).collect::<Vec<_>>() {
            self.release_block(block, call);
        }
        let pinned = self.pinned.blocks.iter().filter(|(_, block)| block.context == id);
        for block in pinned.map(|(&block, _)| block).collect::<Vec<_>>() {
            self.pinned.remove(block, call);
        }
    }
}
