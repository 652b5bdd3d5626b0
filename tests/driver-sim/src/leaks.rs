//! Finds what a session left behind.

use crate::context::ContextKind;
use crate::engine::stream::StreamKind;
use crate::engine::work::Work;
use crate::handle::Id;
use crate::report::{Leak, LeakKind};
use crate::state::State;

/// Objects made since `baseline` that still exist. A block whose free is queued is none.
pub(crate) fn find(state: &State, baseline: Id, dropped_before: u64) -> Vec<Leak> {
    let mut leaks = Vec::new();
    let mut leak = |kind, handle: u64, bytes, call| {
        leaks.push(Leak {
            kind,
            handle,
            bytes,
            call,
        });
    };
    for context in state.contexts.range(baseline..).map(|(_, context)| context) {
        if context.kind == ContextKind::Created {
            leak(LeakKind::Context, context.handle as u64, 0, "cuCtxCreate");
        }
    }
    for (&id, stream) in &state.streams {
        let created = matches!(stream.kind, StreamKind::Blocking | StreamKind::NonBlocking);
        if id >= baseline && created && !stream.destroyed {
            leak(LeakKind::Stream, stream.handle as u64, 0, "cuStreamCreate");
        }
        for op in &stream.queue {
            if let Work::Call { data, .. } = op.work {
                leak(LeakKind::HostFunction, data.0.addr() as u64, 0, op.call);
            }
        }
    }
    for event in state.events.range(baseline..).map(|(_, event)| event) {
        leak(LeakKind::Event, event.handle as u64, 0, "cuEventCreate");
    }
    for pool in state.pools.range(baseline..).map(|(_, pool)| pool) {
        if !pool.destroyed && !pool.is_default {
            leak(LeakKind::Pool, pool.handle as u64, 0, "cuMemPoolCreate");
        }
    }
    for graph in state.graphs.range(baseline..).map(|(_, graph)| graph) {
        leak(
            LeakKind::Graph,
            graph.handle as u64,
            0,
            "cuStreamEndCapture",
        );
    }
    for block in state.space.blocks.range(baseline..).map(|(_, block)| block) {
        if block.is_held() {
            leak(LeakKind::Device, block.address, block.size, block.call);
        }
    }
    for block in state
        .pinned
        .blocks
        .range(baseline..)
        .map(|(_, block)| block)
    {
        leak(
            LeakKind::Pinned,
            block.base.0.addr() as u64,
            block.size,
            block.call,
        );
    }
    for _ in dropped_before..state.dropped_calls {
        leak(LeakKind::HostFunction, 0, 0, "cuLaunchHostFunc");
    }
    leaks
}
