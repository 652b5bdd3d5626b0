//! The steps that a thread may take. Numbers select objects by their position, modulo their count.

use proptest::collection::vec;
use proptest::prelude::*;

use crate::property::program::{On, Part, on, part};

#[derive(Debug, Clone)]
pub(super) enum Step {
    Alloc { stream: On, len: u8, zeroed: bool },
    Pin { context: u8, len: u8 },
    Drop { buffer: u8, explicit: bool },
    DropPinned { buffer: u8, explicit: bool },
    GiveAway { buffer: u8 },
    GiveAwayPinned { buffer: u8 },
    TakeOver,
    DropInHostFunction { stream: On, buffer: u8 },
    CreateStream { context: u8 },
    DropStream { stream: u8 },
    Enter { context: u8 },
    Leave,
    WaitStream { stream: On, other: On },
    Read { from: Part },
    TryRead { from: Part },
    Write { to: Part, value: u8 },
    OnStream { stream: On, work: Work },
}

/// An operation on one stream.
#[derive(Debug, Clone)]
pub(super) enum Work {
    Checkpoint,
    Synchronize,
    Query,
    Upload { from: Part, to: Part },
    Download { from: Part, to: Part },
    Copy { from: Part, to: Part },
    Fill { to: Part, value: u8 },
    UploadFrom { to: Part, value: u8 },
    DownloadTo { from: Part },
}

/// Generates up to `longest` steps of one thread.
pub(super) fn steps(longest: usize) -> impl Strategy<Value = Vec<Step>> {
    vec(step(), 0..=longest)
}

fn step() -> impl Strategy<Value = Step> {
    let small = any::<u8>;
    let flag = any::<bool>;
    let memory = prop_oneof![
        3 => (on(), 0..24u8, flag())
            .prop_map(|(stream, len, zeroed)| Step::Alloc { stream, len, zeroed }),
        2 => (small(), 0..24u8).prop_map(|(context, len)| Step::Pin { context, len }),
        2 => (small(), flag()).prop_map(|(buffer, explicit)| Step::Drop { buffer, explicit }),
        1 => (small(), flag())
            .prop_map(|(buffer, explicit)| Step::DropPinned { buffer, explicit }),
        2 => small().prop_map(|buffer| Step::GiveAway { buffer }),
        1 => small().prop_map(|buffer| Step::GiveAwayPinned { buffer }),
        3 => Just(Step::TakeOver),
        1 => (on(), small())
            .prop_map(|(stream, buffer)| Step::DropInHostFunction { stream, buffer }),
    ];
    let streams = prop_oneof![
        2 => small().prop_map(|context| Step::CreateStream { context }),
        2 => small().prop_map(|stream| Step::DropStream { stream }),
        1 => small().prop_map(|context| Step::Enter { context }),
        1 => Just(Step::Leave),
        1 => (on(), on()).prop_map(|(stream, other)| Step::WaitStream { stream, other }),
    ];
    let host = prop_oneof![
        2 => part().prop_map(|from| Step::Read { from }),
        1 => part().prop_map(|from| Step::TryRead { from }),
        2 => (part(), small()).prop_map(|(to, value)| Step::Write { to, value }),
    ];
    let queued = (on(), work()).prop_map(|(stream, work)| Step::OnStream { stream, work });
    prop_oneof![4 => memory, 2 => streams, 4 => host, 10 => queued]
}

fn work() -> impl Strategy<Value = Work> {
    let small = any::<u8>;
    prop_oneof![
        1 => Just(Work::Checkpoint),
        1 => Just(Work::Synchronize),
        1 => Just(Work::Query),
        3 => (part(), part()).prop_map(|(from, to)| Work::Upload { from, to }),
        3 => (part(), part()).prop_map(|(from, to)| Work::Download { from, to }),
        3 => (part(), part()).prop_map(|(from, to)| Work::Copy { from, to }),
        2 => (part(), small()).prop_map(|(to, value)| Work::Fill { to, value }),
        2 => (part(), small()).prop_map(|(to, value)| Work::UploadFrom { to, value }),
        1 => part().prop_map(|from| Work::DownloadTo { from }),
    ]
}
