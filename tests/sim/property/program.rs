//! The steps of a program. Numbers select objects by their position, modulo their count, so that every list
//! of steps is a program, and so is every part of one.

use proptest::collection::vec;
use proptest::prelude::*;

use super::failing::Failure;
use super::steps::contexts::{self, ContextOp};
use super::steps::copies::{self, Copying};
use super::steps::drops::{self, DropOp};
use super::steps::flights::{self, FlightOp};
use super::steps::groups::{self, GroupOp};
use super::steps::host::{self, HostOp};
use super::steps::memory::{self, MemoryOp};
use super::steps::order::{self, Ordering};
use super::steps::parts::{self, Splitting};
use super::steps::settings::{self, SettingOp};
use super::steps::streams::{self, StreamOp};

/// A step of one of the threads.
#[derive(Debug, Clone)]
pub(super) struct Step {
    pub(super) thread: u8,
    pub(super) op: Op,
    /// A driver call that fails from this step on.
    pub(super) failure: Option<Failure>,
}

/// A stream, as seen from a thread.
#[derive(Debug, Clone, Copy)]
pub(super) enum On {
    Created(u8),
    Legacy(u8),
    PerThread(u8),
}

/// A range of elements of a buffer: a start and a length, cut to the buffer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Part {
    pub(super) buffer: u8,
    pub(super) start: u16,
    pub(super) len: u16,
}

impl Part {
    /// Returns the range within `len` elements.
    pub(super) fn of(self, len: usize) -> std::ops::Range<usize> {
        let start = usize::from(self.start).min(len);
        start..(start + usize::from(self.len)).min(len)
    }
}

#[derive(Debug, Clone)]
pub(super) enum Op {
    Context(ContextOp),
    Stream(StreamOp),
    Memory(MemoryOp),
    Drop(DropOp),
    Host(HostOp),
    Flight(FlightOp),
    Group(GroupOp),
    Setting(SettingOp),
    /// An operation on one stream.
    On(On, Work),
    /// Operations of two streams on the parts of one buffer.
    OnTwo([On; 2], Splitting),
}

#[derive(Debug, Clone)]
pub(super) enum Work {
    Order(Ordering),
    Copy(Copying),
}

/// Generates programs of up to `longest` steps, the first of which allocate memory to work with.
pub(super) fn programs(
    longest: usize,
    failure: impl Strategy<Value = Option<Failure>> + 'static,
) -> impl Strategy<Value = Vec<Step>> {
    let of = |op: BoxedStrategy<Op>, failure| {
        (0..3u8, op, failure).prop_map(|(thread, op, failure)| Step { thread, op, failure })
    };
    let first = of(memory::ops().prop_map(Op::Memory).boxed(), Just(None).boxed());
    let rest = of(op().boxed(), failure.boxed());
    let room = longest / 6;
    (vec(first, 0..=room), vec(rest, 1..=longest - room)).prop_map(|(mut all, rest)| {
        all.extend(rest);
        all
    })
}

/// Selects a device; most programs use two.
pub(super) fn device() -> impl Strategy<Value = u8> {
    prop_oneof![4 => 0..2u8, 1 => 0..4u8]
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => contexts::ops().prop_map(Op::Context),
        2 => streams::ops().prop_map(Op::Stream),
        4 => memory::ops().prop_map(Op::Memory),
        3 => drops::ops().prop_map(Op::Drop),
        3 => host::ops().prop_map(Op::Host),
        2 => flights::ops().prop_map(Op::Flight),
        1 => groups::ops().prop_map(Op::Group),
        2 => settings::ops().prop_map(Op::Setting),
        3 => (on(), order::work()).prop_map(|(stream, work)| Op::On(stream, Work::Order(work))),
        9 => (on(), copies::work()).prop_map(|(stream, work)| Op::On(stream, Work::Copy(work))),
        1 => ([on(), on()], parts::work()).prop_map(|(streams, work)| Op::OnTwo(streams, work)),
    ]
}

pub(super) fn on() -> impl Strategy<Value = On> {
    prop_oneof![
        6 => any::<u8>().prop_map(On::Created),
        1 => any::<u8>().prop_map(On::Legacy),
        1 => any::<u8>().prop_map(On::PerThread),
    ]
}

pub(super) fn part() -> impl Strategy<Value = Part> {
    let start = prop_oneof![1 => Just(0), 1 => 0..24u16];
    let len = prop_oneof![1 => 0..24u16, 1 => Just(u16::MAX)];
    (any::<u8>(), start, len).prop_map(|(buffer, start, len)| Part { buffer, start, len })
}

/// Generates lengths of buffers: a few elements, or more than fit a chunk of the smallest size.
pub(super) fn len() -> impl Strategy<Value = u16> {
    prop_oneof![9 => 0..24u16, 1 => 300..9000u16]
}
