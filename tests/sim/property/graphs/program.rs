//! The steps of a program with graphs. Numbers select objects by their position, modulo their count.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use crate::property::program::{Part, part};

#[derive(Debug, Clone)]
pub(super) enum Step {
    Alloc { stream: u8, allocator: u8, value: u8 },
    Pin { value: u8 },
    ReplaceStream { stream: u8 },
    Drop(What, u8),
    Run { stream: u8, work: Work },
    Read { stream: u8, buffer: u8 },
    ReadPinned { buffer: u8 },
    Record { how: How, all: Vec<Planned> },
    Instantiate { graph: u8 },
    Set { exec: u8, node: u8, all: Vec<Operands> },
    Enable { exec: u8, node: u8, enabled: bool },
    Update { exec: u8, all: Vec<Operands> },
    Launch { exec: u8, stream: u8, lent: u8 },
}

#[derive(Debug, Clone, Copy)]
pub(super) enum What {
    Buffer,
    Pinned,
    Graph,
    Exec,
}

/// An operation on memory.
#[derive(Debug, Clone, Copy)]
pub(super) struct Work {
    pub(super) kind: Kind,
    pub(super) on: Operands,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Operands {
    pub(super) from: Part,
    pub(super) to: Part,
    pub(super) value: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Fill,
    Copy,
    Upload,
    Download,
}

/// The way in which a graph is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum How {
    /// Step by step, each after the previous one.
    Chain,
    /// Step by step, each after those that it conflicts with.
    Steps,
    Streams,
    ByAccess,
}

/// An operation planned for a graph.
#[derive(Debug, Clone, Copy)]
pub(super) struct Planned {
    /// Whether it is captured on the second of two streams.
    pub(super) second: bool,
    pub(super) inside: Inside,
    pub(super) work: Work,
    /// The number of the operation's call that the driver refuses, unless it makes fewer.
    pub(super) fails: Option<u8>,
}

/// The construct that contains an operation of a graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Inside {
    Nothing,
    Graph,
    Condition,
    /// A copy through memory that the graph allocates, and frees at once or at its end.
    Scratch {
        freed: bool,
    },
}

/// The largest number of operations in a graph.
const LONGEST: usize = 5;

/// Generates up to `longest` steps.
pub(super) fn steps(longest: usize) -> impl Strategy<Value = Vec<Step>> {
    vec(step(), 1..=longest)
}

fn step() -> impl Strategy<Value = Step> {
    let small = any::<u8>;
    let memory = prop_oneof![
        3 => (small(), small(), small())
            .prop_map(|(stream, allocator, value)| Step::Alloc { stream, allocator, value }),
        2 => small().prop_map(|value| Step::Pin { value }),
        5 => (small(), work()).prop_map(|(stream, work)| Step::Run { stream, work }),
        4 => (small(), small()).prop_map(|(stream, buffer)| Step::Read { stream, buffer }),
        4 => small().prop_map(|buffer| Step::ReadPinned { buffer }),
        1 => small().prop_map(|stream| Step::ReplaceStream { stream }),
    ];
    let drops = prop_oneof![
        3 => small().prop_map(|at| Step::Drop(What::Buffer, at)),
        1 => small().prop_map(|at| Step::Drop(What::Pinned, at)),
        1 => small().prop_map(|at| Step::Drop(What::Graph, at)),
        1 => small().prop_map(|at| Step::Drop(What::Exec, at)),
    ];
    let how = select(&[How::Chain, How::Chain, How::Steps, How::Streams, How::ByAccess][..]);
    let lent = prop_oneof![4 => Just(u8::MAX), 1 => small()];
    let graphs = prop_oneof![
        4 => (how, vec(planned(), 1..=LONGEST)).prop_map(|(how, all)| Step::Record { how, all }),
        3 => small().prop_map(|graph| Step::Instantiate { graph }),
        6 => (small(), small(), vec(operands(), 1..=2))
            .prop_map(|(exec, node, all)| Step::Set { exec, node, all }),
        2 => (small(), small(), any::<bool>())
            .prop_map(|(exec, node, enabled)| Step::Enable { exec, node, enabled }),
        2 => (small(), vec(operands(), LONGEST)).prop_map(|(exec, all)| Step::Update { exec, all }),
        9 => (small(), small(), lent)
            .prop_map(|(exec, stream, lent)| Step::Launch { exec, stream, lent }),
    ];
    prop_oneof![4 => memory, 1 => drops, 6 => graphs]
}

fn work() -> impl Strategy<Value = Work> {
    let kind = select(&[Kind::Fill, Kind::Copy, Kind::Upload, Kind::Download][..]);
    (kind, operands()).prop_map(|(kind, on)| Work { kind, on })
}

fn operands() -> impl Strategy<Value = Operands> {
    (part(), part(), any::<u8>()).prop_map(|(from, to, value)| Operands { from, to, value })
}

fn planned() -> impl Strategy<Value = Planned> {
    let inside = prop_oneof![
        6 => Just(Inside::Nothing),
        1 => Just(Inside::Graph),
        1 => Just(Inside::Condition),
        1 => any::<bool>().prop_map(|freed| Inside::Scratch { freed }),
    ];
    let fails = prop_oneof![9 => Just(None), 1 => (1..=4u8).prop_map(Some)];
    (any::<bool>(), inside, work(), fails).prop_map(|(second, inside, mut work, fails)| {
        if let Inside::Scratch { .. } = inside {
            work.kind = Kind::Copy;
        }
        Planned { second, inside, work, fails }
    })
}
