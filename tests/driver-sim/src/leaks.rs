//! Finds the objects that a session left behind.

use crate::context::ContextKind;
use crate::engine::stream::StreamKind;
use crate::engine::work::Work;
use crate::graph::GraphOwner;
use crate::handle::Id;
use crate::memory::pinned::Origin;
use crate::report::{Leak, LeakKind};
use crate::state::State;

/// The id of leaks that are no objects with an identity.
const NO_ID: Id = 0;

/// Returns the objects made since `baseline` that still exist. A block with a queued free is no leak.
pub(crate) fn find(state: &State, baseline: Id, dropped_before: u64) -> Vec<Leak> {
    let mut leaks = Vec::new();
    let mut leak = |id: Id, kind, handle: u64, bytes, call| {
        leaks.push(Leak { kind, handle, bytes, call, origin: state.log.origins.get(&id).cloned() });
    };
    for (&id, context) in state.contexts.from(baseline) {
        let call = match context.kind {
            ContextKind::Primary => continue,
            ContextKind::Created => "cuCtxCreate",
            ContextKind::Green => "cuGreenCtxCreate",
        };
        leak(id, LeakKind::Context, context.handle as u64, 0, call);
    }
    for (&id, stream) in state.streams.iter() {
        let created = matches!(stream.kind, StreamKind::Blocking | StreamKind::NonBlocking);
        if id >= baseline && created && !stream.destroyed {
            let handle = stream.handle as u64;
            leak(id, LeakKind::Stream, handle, 0, "cuStreamCreate");
        }
        // The driver need not call a host function of a graph.
        let queue = stream.queue.iter().filter(|_| stream.kind != StreamKind::Branch);
        for op in queue {
            if let Work::Call { data, .. } = op.work {
                let data = data.0.addr() as u64;
                leak(NO_ID, LeakKind::HostFunction, data, 0, op.call);
            }
        }
    }
    for (&id, event) in state.events.from(baseline) {
        leak(id, LeakKind::Event, event.handle as u64, 0, "cuEventCreate");
    }
    for (&id, pool) in state.pools.from(baseline) {
        if !pool.destroyed && !pool.is_default {
            leak(id, LeakKind::Pool, pool.handle as u64, 0, "cuMemPoolCreate");
        }
    }
    for (&id, graph) in state.graphs.graphs.from(baseline) {
        if graph.owner == GraphOwner::Program {
            leak(id, LeakKind::Graph, graph.handle as u64, 0, graph.call);
        }
    }
    for (&id, exec) in state.graphs.execs.from(baseline) {
        leak(id, LeakKind::GraphExec, exec.handle as u64, 0, "cuGraphInstantiate");
    }
    for (&id, object) in state.graphs.objects.from(baseline) {
        leak(id, LeakKind::UserObject, object.handle as u64, 0, "cuUserObjectCreate");
    }
    // Until a split has completed, its new communicator belongs to the one that is split.
    let all = state.nccl.communicators.iter();
    let split_off: Vec<usize> =
        all.filter_map(|(_, comm)| comm.split_off.as_ref().map(|(_, handle)| *handle)).collect();
    for (&id, comm) in state.nccl.communicators.from(baseline) {
        if split_off.contains(&comm.handle) {
            continue;
        }
        leak(id, LeakKind::Communicator, comm.handle as u64, 0, comm.call);
    }
    for (&id, registered) in state.nccl.registered.from(baseline) {
        let (handle, bytes) = (registered.handle as u64, registered.range.len());
        leak(id, LeakKind::Registration, handle, bytes, "ncclCommRegister");
    }
    for (&id, module) in state.modules.from(baseline) {
        if !state.libraries.has(id) {
            let handle = module.handle as u64;
            leak(id, LeakKind::Module, handle, 0, "cuModuleLoadData");
        }
    }
    for (&id, library) in state.libraries.loaded.from(baseline) {
        let handle = library.handle as u64;
        leak(id, LeakKind::Module, handle, 0, "cuLibraryLoadData");
    }
    for (&id, link) in state.links.from(baseline) {
        leak(id, LeakKind::Linker, link.handle as u64, 0, "cuLinkCreate");
    }
    for (&id, block) in state.space.blocks.from(baseline) {
        if state.virtual_memory.reservations.contains_key(&id) {
            leak(id, LeakKind::Addresses, block.address, block.size, block.call);
        } else if block.is_held()
            && !state.images.holds(id)
            && !state.is_global(id)
            && !state.is_semaphore(id)
        {
            leak(id, LeakKind::Device, block.address, block.size, block.call);
        }
    }
    let images = &state.images;
    for (&id, array) in images.arrays.from(baseline) {
        if !array.is_level {
            leak(id, LeakKind::Array, array.handle as u64, 0, "cuArray3DCreate");
        }
    }
    for (&id, mipmap) in images.mipmaps.from(baseline) {
        leak(id, LeakKind::Array, mipmap.handle as u64, 0, "cuMipmappedArrayCreate");
    }
    for (&id, object) in images.objects.from(baseline) {
        let call = if object.kind == LeakKind::Texture {
            "cuTexObjectCreate"
        } else {
            "cuSurfObjectCreate"
        };
        leak(id, object.kind, object.handle as u64, 0, call);
    }
    for (&id, memory) in state.virtual_memory.physical.from(baseline) {
        // One leak per count that was taken; memory that is only mapped belongs to its addresses.
        for _ in 0..memory.holders {
            let handle = memory.handle as u64;
            leak(id, LeakKind::Physical, handle, memory.size, "cuMemCreate");
        }
    }
    for (&id, memory) in state.external.imported.from(baseline) {
        let handle = memory.handle as u64;
        leak(id, LeakKind::External, handle, memory.size, "cuImportExternalMemory");
    }
    for (&id, semaphore) in state.external.semaphores.from(baseline) {
        let (kind, handle) = (LeakKind::Semaphore, semaphore.handle as u64);
        leak(id, kind, handle, 0, "cuImportExternalSemaphore");
    }
    for (&id, block) in state.pinned.blocks.from(baseline) {
        let kind = match block.origin {
            Origin::Managed => LeakKind::Device,
            Origin::Allocated | Origin::Registered => LeakKind::Pinned,
        };
        leak(id, kind, block.base.0.addr() as u64, block.size, block.call);
    }
    for _ in dropped_before..state.dropped_calls {
        leak(NO_ID, LeakKind::HostFunction, 0, 0, "cuLaunchHostFunc");
    }
    leaks
}
