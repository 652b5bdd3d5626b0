//! The operations, each with the raw calls that do the same work.

mod allocation;
mod enqueues;
mod groups;
mod guards;
mod launches;
mod pageable;
mod peer_copies;
mod pinned;
mod streams;
mod transfers;

use super::operation::{Group, When};

/// Enqueues of one batch: well below the depth of the driver's queue.
const BATCH: usize = 100;

/// Bytes of a small transfer.
const SMALL: usize = 4096;

/// All groups, in the order of the table.
pub(crate) const GROUPS: [Group; 12] = [
    Group { name: "contexts and guards", operations: guards::operations, when: When::Always },
    Group { name: "streams and events", operations: streams::operations, when: When::Always },
    Group { name: "enqueues", operations: enqueues::operations, when: When::Always },
    Group { name: "launches", operations: launches::operations, when: When::Always },
    Group { name: "allocation", operations: allocation::operations, when: When::Always },
    Group { name: "pinned memory", operations: pinned::operations, when: When::Always },
    Group { name: "pinned transfers", operations: transfers::operations, when: When::Always },
    Group { name: "pageable copies", operations: pageable::operations, when: When::Always },
    Group {
        name: "large pageable copies",
        operations: crate::bench::pageable::goals,
        when: When::Always,
    },
    Group {
        name: "pageable copies by threads and chunks",
        operations: crate::bench::pageable::matrix,
        when: When::Asked,
    },
    Group { name: "peer copies", operations: peer_copies::operations, when: When::Always },
    Group { name: "groups of devices", operations: groups::operations, when: When::Always },
];

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::bench::operation::Operation;

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
