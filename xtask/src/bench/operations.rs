//! The operations, each with the raw calls that do the same work.

mod allocation;
mod collectives;
mod enqueues;
mod graphs;
mod groups;
mod launches;
mod objects;
mod peer_copies;
mod pinned;
mod processes;
mod tensors;

use super::{Group, Operation};

/// Enqueues of one batch: well below the depth of the driver's queue.
const BATCH: usize = 100;

/// Bytes of a small transfer.
const SMALL: usize = 4096;

const fn group(name: &'static str, operations: fn() -> Vec<Operation>) -> Group {
    Group { name, operations }
}

/// All groups, in the order of the table.
pub(crate) const GROUPS: [Group; 15] = [
    group("contexts and guards", objects::contexts_and_guards),
    group("streams and events", objects::streams_and_events),
    group("enqueues", enqueues::operations),
    group("launches", launches::operations),
    group("graphs", graphs::operations),
    group("allocation", allocation::operations),
    group("pinned memory", pinned::operations),
    group("pinned transfers", pinned::transfers),
    group("pageable copies", enqueues::pageable),
    group("large pageable copies", crate::bench::pageable::operations),
    group("fills of any width", enqueues::wide_fills),
    group("peer copies", peer_copies::operations),
    group("groups of devices", groups::operations),
    group("collectives of NCCL", collectives::operations),
    group("tensors", tensors::operations),
];

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_two_operations_share_a_name() {
        let mut seen = HashSet::new();
        for group in GROUPS {
            for Operation { name, .. } in (group.operations)() {
                assert!(seen.insert(name.clone()), "{name}");
                assert!(name.chars().count() <= 60, "a plot has no room for {name}");
            }
        }
    }
}
