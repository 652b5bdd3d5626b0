//! External semaphores. Any descriptor stands for an unsignalled one.

use cuda_sys::*;

use crate::call::{Call, Outcome, list, put};
use crate::descriptor::close;
use crate::engine::enqueue::Submission;
use crate::engine::work::{Compare, Place, Work};
use crate::graph::node::NodeKind;
use crate::handle::{Id, pointer};
use crate::memory::external::Semaphore;
use crate::memory::place::Owner;
use crate::report::ViolationKind;

/// Bytes of a semaphore's value.
const WIDTH: usize = 8;

entries! {
    cuImportExternalSemaphore(semaphore, handle) |call| {
        let context = call.current()?;
        if semaphore.is_null() || handle.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: not null, so the caller passes a description.
        let handle = unsafe { handle.read() };
        let is_binary = match handle.type_ {
            CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD => true,
            CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD => false,
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        };
        // SAFETY: these kinds of handle are descriptors.
        let fd = unsafe { handle.handle.fd };
        if handle.flags != 0 || fd < 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        close(fd);
        let device = call.contexts[&context].device;
        let (block, _) = call.allocate(device, Owner::Context(context), WIDTH)?;
        if let Some(block) = call.space.blocks.get_mut(&block) {
            block.pages.write(0, &[0; WIDTH]);
        }
        let id = call.new_id();
        let value = call.external.semaphores.add(id, Semaphore { block, is_binary });
        // SAFETY: not null, so a place for the handle.
        unsafe { put(semaphore, pointer(value)) }
    }

    cuSignalExternalSemaphoresAsync(semaphores, values, count, stream) |call| {
        let stream = call.stream(stream)?;
        // SAFETY: the caller passes `count` semaphores.
        let semaphores = unsafe { list(semaphores, count as usize) }?;
        // SAFETY: the caller passes as many parameters.
        let values = unsafe { list(values, count as usize) }?;
        for (&semaphore, params) in semaphores.iter().zip(values) {
            let semaphore = find(call, semaphore)?;
            let value = params.params.fence.value;
            let (dst, is_binary) = place(call, semaphore);
            let value = if is_binary { 1 } else { value };
            enqueue(call, stream, NodeKind::Signal, Work::WriteValue { dst, value, width: WIDTH })?;
        }
        Ok(())
    }

    cuWaitExternalSemaphoresAsync(semaphores, values, count, stream) |call| {
        let stream = call.stream(stream)?;
        // SAFETY: the caller passes `count` semaphores.
        let semaphores = unsafe { list(semaphores, count as usize) }?;
        // SAFETY: the caller passes as many parameters.
        let values = unsafe { list(values, count as usize) }?;
        for (&semaphore, params) in semaphores.iter().zip(values) {
            let semaphore = find(call, semaphore)?;
            let value = params.params.fence.value;
            let (src, is_binary) = place(call, semaphore);
            let (value, compare) = match is_binary {
                true => (1, Compare::Eq),
                false => (value, Compare::Geq),
            };
            let work = Work::WaitValue { src, value, width: WIDTH, compare };
            enqueue(call, stream, NodeKind::Await, work)?;
            if is_binary {
                let (dst, _) = place(call, semaphore);
                let work = Work::WriteValue { dst, value: 0, width: WIDTH };
                enqueue(call, stream, NodeKind::Signal, work)?;
            }
        }
        Ok(())
    }

    cuDestroyExternalSemaphore(semaphore) |call| {
        call.current()?;
        let id = find(call, semaphore)?;
        let name = call.name;
        if let Some(stream) = call.user_of(id) {
            let message = format!("a signal or a wait is queued on stream #{stream}");
            call.violation(ViolationKind::UseAfterFree, message);
        }
        if let Some(semaphore) = call.external.semaphores.remove(&id) {
            call.release_block(semaphore.block, name);
        }
        Ok(())
    }
}

fn find(call: &mut Call, semaphore: CUexternalSemaphore) -> Outcome<Id> {
    let found = call.external.semaphores.resolve(semaphore);
    call.found(found, "semaphore", semaphore.addr(), |_| CUDA_ERROR_INVALID_HANDLE)
}

/// Returns the place of a semaphore's value, and whether the semaphore is binary.
fn place(call: &Call, semaphore: Id) -> (Place, bool) {
    let semaphore = &call.external.semaphores[&semaphore];
    let (block, offset) = (semaphore.block, 0);
    (Place::Device { block, offset }, semaphore.is_binary)
}

fn enqueue(call: &mut Call, stream: Id, kind: NodeKind, work: Work) -> Outcome {
    call.submit(Submission::new(stream, kind, work))?;
    Ok(())
}
