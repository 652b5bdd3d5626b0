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

use super::Operation;

/// The number of enqueues in a batch: well below the depth of the driver's queue.
const BATCH: usize = 100;

/// The number of batches of transfers that take milliseconds.
const TRANSFERS: usize = 15;

/// Bytes of a small transfer.
const SMALL: usize = 4096;

/// A group of operations, which a table or plot shows together: its name and its operations.
type Group = (&'static str, fn() -> Vec<Operation>);

/// All groups, in the order of the table.
pub(crate) const GROUPS: [Group; 15] = [
    ("contexts and guards", objects::contexts_and_guards),
    ("streams and events", objects::streams_and_events),
    ("enqueues", enqueues::operations),
    ("launches", launches::operations),
    ("graphs", graphs::operations),
    ("allocation", allocation::operations),
    ("pinned memory", pinned::operations),
    ("pinned transfers", pinned::transfers),
    ("pageable copies", enqueues::pageable),
    ("large pageable copies", super::pageable::operations),
    ("fills of any width", enqueues::wide_fills),
    ("peer copies", peer_copies::operations),
    ("groups of devices", groups::operations),
    ("collectives of NCCL", collectives::operations),
    ("tensors", tensors::operations),
];

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_two_operations_share_a_name() {
        let mut seen = HashSet::new();
        for (_, operations) in GROUPS {
            for Operation { name, .. } in operations() {
                assert!(seen.insert(name.clone()), "{name}");
                assert!(name.chars().count() <= 60, "a plot has no room for {name}");
            }
        }
    }
}
