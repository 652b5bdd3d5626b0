//! Finalises, destroys and aborts communicators.

use std::time::Duration;

use crate::call::Call;
use crate::engine::clock::Point;
use crate::engine::work::Work;
use crate::graph::node::Task;
use crate::handle::Id;
use crate::nccl::raw::{Code, RawComm};
use crate::report::ViolationKind;
use crate::state::is_retired;
use crate::thread;

nccl_entries! {
    ncclCommFinalize(comm: RawComm) of comm |call| {
        let id = call.ready_communicator(comm)?;
        let patience = { let mode = call.mode; call.nccl.patience(mode) };
        let own = call.nccl.communicators.get_mut(&id).ok_or(Code::INVALID_ARGUMENT)?;
        if own.finalized {
            return Err(Code::INVALID_USAGE);
        }
        (own.finalized, own.patience) = (true, patience);
        if own.blocking {
            flush(call, id);
            // In NCCL 2.31 the ranks of a machine wait for each other. In a group the calls are made at once.
            while !call.nccl.groups.contains_key(&thread::number()) && is_alone(call, id) {
                call.wait(None);
            }
            return Ok(());
        }
        Err(Code::IN_PROGRESS)
    }

    ncclCommDestroy(comm: RawComm) of comm |call| {
        if comm.is_null() {
            return Ok(());
        }
        let id = call.ready_communicator(comm)?;
        if let Some(stream) = in_flight(call, id) {
            let message = format!(
                "its work on stream #{stream} is not waited for: ncclCommFinalize does, or a wait for \
                 the stream"
            );
            call.violation(ViolationKind::InFlight, message);
        }
        call.remove_communicator(id);
        Ok(())
    }

    ncclCommAbort(comm: RawComm) |call| {
        if comm.is_null() {
            return Ok(());
        }
        let id = call.communicator(comm)?;
        // NCCL does not run the operations of a single rank.
        let has_peers = |id: &Id| call.nccl.cliques.get(id).is_some_and(|it| it.ranks.len() > 1);
        let clique = call.nccl.communicators[&id].clique.filter(has_peers);
        call.retire_communicator(id);
        // The last rank of a process waits for graphs before it releases memory.
        while clique.is_some_and(|clique| is_only_in_graphs(call, clique)) {
            call.wait(Some(Duration::from_millis(1)));
        }
        call.forget_registered(id);
        Ok(())
    }
}

/// Returns whether another rank of this process is not finalised yet.
fn is_alone(call: &Call, id: Id) -> bool {
    let all = &call.nccl.communicators;
    let clique = all.get(&id).and_then(|own| own.clique);
    clique.is_some() && all.values().any(|other| other.clique == clique && !other.finalized)
}

/// Returns whether graphs have operations of a clique without communicators.
fn is_only_in_graphs(call: &Call, clique: Id) -> bool {
    let is_alive = call.nccl.communicators.values().any(|other| other.clique == Some(clique));
    let is_of_it = |task: &Task| match &task.work {
        Work::Communicate(operation) => operation.clique == clique,
        _ => false,
    };
    let nodes = call.graphs.nodes.values().map(|node| &node.task);
    let steps = call.graphs.execs.values().flat_map(|exec| &exec.steps).map(|step| &step.task);
    !is_alive && nodes.chain(steps).any(is_of_it)
}

/// Returns a stream with work of a communicator that the host has not waited for.
fn in_flight(call: &Call, id: Id) -> Option<Id> {
    let covers = call.host.covers();
    let waited =
        |point: Point| covers(point) || is_retired(&call.streams, &call.dead, point.stream);
    let mut last = call.nccl.communicators[&id].last.values();
    last.find(|(point, _)| !waited(*point)).map(|(point, _)| point.stream)
}

/// Waits for all work of a communicator.
fn flush(call: &mut Call, id: Id) {
    let last: Vec<_> = call.nccl.communicators[&id].last.values().cloned().collect();
    for (point, clock) in last {
        call.drive(point);
        call.host_join(&clock);
    }
    if let Some(own) = call.nccl.communicators.get_mut(&id) {
        own.flushed = true;
    }
}
