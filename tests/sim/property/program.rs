//! What a program may do. Numbers name objects by their position, modulo how many there are, so
//! that every list of steps is a program, and every part of one too.

use proptest::collection::vec;
use proptest::prelude::*;

/// One of the threads does something.
#[derive(Debug, Clone)]
pub(super) struct Step {
    pub(super) thread: u8,
    pub(super) op: Op,
}

/// A stream, as a thread names it.
#[derive(Debug, Clone, Copy)]
pub(super) enum On {
    Created(u8),
    Legacy(u8),
    PerThread(u8),
}

/// Some elements of a buffer: a start and a length, cut to what there is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Part {
    pub(super) buffer: u8,
    pub(super) start: u8,
    pub(super) len: u8,
}

#[derive(Debug, Clone)]
pub(super) enum Op {
    CreateContext {
        device: u8,
    },
    DropContext {
        context: u8,
    },
    Enter {
        context: u8,
    },
    Leave {
        guard: u8,
        explicit: bool,
    },
    ForgetGuard {
        guard: u8,
    },
    Push {
        context: u8,
    },
    SetCurrent {
        context: u8,
    },

    CreateStream {
        context: u8,
        blocking: bool,
    },
    DropStream {
        stream: u8,
        explicit: bool,
    },
    WaitStream {
        stream: On,
        other: On,
    },
    Checkpoint {
        stream: On,
    },
    Synchronize {
        stream: On,
    },
    Query {
        stream: On,
    },
    HostFunction {
        stream: On,
    },
    HostFunctionThatOwns {
        stream: On,
        buffer: u8,
    },

    Alloc {
        stream: On,
        len: u8,
        zeroed: bool,
    },
    DropDevice {
        buffer: u8,
        explicit: bool,
    },
    ForgetDevice {
        buffer: u8,
    },
    Pin {
        context: u8,
        len: u8,
    },
    DropPinned {
        buffer: u8,
        explicit: bool,
    },
    ForgetPinned {
        buffer: u8,
    },

    Upload {
        stream: On,
        from: Part,
        to: Part,
    },
    Download {
        stream: On,
        from: Part,
        to: Part,
    },
    Copy {
        stream: On,
        from: Part,
        to: Part,
    },
    CopyWithin {
        stream: On,
        buffer: u8,
        mid: u8,
    },
    Fill {
        stream: On,
        to: Part,
        value: u8,
    },
    FillHalves {
        streams: [On; 2],
        buffer: u8,
        mid: u8,
        value: u8,
    },
    UploadFrom {
        stream: On,
        to: Part,
        value: u8,
    },
    DownloadTo {
        stream: On,
        from: Part,
    },
    Scope {
        stream: On,
        parts: [Part; 2],
    },

    Read {
        from: Part,
    },
    TryRead {
        from: Part,
    },
    Write {
        to: Part,
        value: u8,
    },
}

/// Programs of up to `longest` steps.
pub(super) fn programs(longest: usize) -> impl Strategy<Value = Vec<Step>> {
    let step = (0..3u8, op()).prop_map(|(thread, op)| Step { thread, op });
    vec(step, 1..=longest)
}

pub(super) fn on() -> impl Strategy<Value = On> {
    prop_oneof![
        6 => any::<u8>().prop_map(On::Created),
        1 => any::<u8>().prop_map(On::Legacy),
        1 => any::<u8>().prop_map(On::PerThread),
    ]
}

pub(super) fn part() -> impl Strategy<Value = Part> {
    (any::<u8>(), 0..24u8, 0..24u8).prop_map(|(buffer, start, len)| Part { buffer, start, len })
}

fn op() -> impl Strategy<Value = Op> {
    let small = || any::<u8>();
    let contexts = prop_oneof![
        (0..4u8).prop_map(|device| Op::CreateContext { device }),
        small().prop_map(|context| Op::DropContext { context }),
        small().prop_map(|context| Op::Enter { context }),
        (small(), any::<bool>()).prop_map(|(guard, explicit)| Op::Leave { guard, explicit }),
        small().prop_map(|guard| Op::ForgetGuard { guard }),
        small().prop_map(|context| Op::Push { context }),
        small().prop_map(|context| Op::SetCurrent { context }),
    ];
    let streams = prop_oneof![
        2 => (small(), any::<bool>())
            .prop_map(|(context, blocking)| Op::CreateStream { context, blocking }),
        2 => (small(), any::<bool>())
            .prop_map(|(stream, explicit)| Op::DropStream { stream, explicit }),
        1 => (on(), on()).prop_map(|(stream, other)| Op::WaitStream { stream, other }),
        1 => on().prop_map(|stream| Op::Checkpoint { stream }),
        1 => on().prop_map(|stream| Op::Synchronize { stream }),
        1 => on().prop_map(|stream| Op::Query { stream }),
        1 => on().prop_map(|stream| Op::HostFunction { stream }),
        1 => (on(), small())
            .prop_map(|(stream, buffer)| Op::HostFunctionThatOwns { stream, buffer }),
    ];
    let memory = prop_oneof![
        4 => (on(), 0..24u8, any::<bool>())
            .prop_map(|(stream, len, zeroed)| Op::Alloc { stream, len, zeroed }),
        2 => (small(), any::<bool>())
            .prop_map(|(buffer, explicit)| Op::DropDevice { buffer, explicit }),
        1 => small().prop_map(|buffer| Op::ForgetDevice { buffer }),
        2 => (small(), 0..24u8).prop_map(|(context, len)| Op::Pin { context, len }),
        2 => (small(), any::<bool>())
            .prop_map(|(buffer, explicit)| Op::DropPinned { buffer, explicit }),
        1 => small().prop_map(|buffer| Op::ForgetPinned { buffer }),
    ];
    let copies = prop_oneof![
        3 => (on(), part(), part()).prop_map(|(stream, from, to)| Op::Upload { stream, from, to }),
        3 => (on(), part(), part())
            .prop_map(|(stream, from, to)| Op::Download { stream, from, to }),
        3 => (on(), part(), part()).prop_map(|(stream, from, to)| Op::Copy { stream, from, to }),
        1 => (on(), small(), 0..24u8)
            .prop_map(|(stream, buffer, mid)| Op::CopyWithin { stream, buffer, mid }),
        2 => (on(), part(), small())
            .prop_map(|(stream, to, value)| Op::Fill { stream, to, value }),
        1 => ([on(), on()], small(), 0..24u8, small()).prop_map(
            |(streams, buffer, mid, value)| Op::FillHalves { streams, buffer, mid, value }
        ),
        2 => (on(), part(), small())
            .prop_map(|(stream, to, value)| Op::UploadFrom { stream, to, value }),
        1 => (on(), part()).prop_map(|(stream, from)| Op::DownloadTo { stream, from }),
        1 => (on(), [part(), part()]).prop_map(|(stream, parts)| Op::Scope { stream, parts }),
    ];
    let host = prop_oneof![
        1 => part().prop_map(|from| Op::Read { from }),
        1 => part().prop_map(|from| Op::TryRead { from }),
        2 => (part(), small()).prop_map(|(to, value)| Op::Write { to, value }),
    ];
    prop_oneof![3 => contexts, 4 => streams, 4 => memory, 9 => copies, 3 => host]
}
