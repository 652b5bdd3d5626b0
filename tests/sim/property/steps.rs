//! Each kind of step: its data, its frequency, and its effect on the world and the model.

pub(super) mod contexts;
pub(super) mod copies;
pub(super) mod drops;
pub(super) mod flights;
pub(super) mod groups;
pub(super) mod host;
pub(super) mod memory;
pub(super) mod order;
pub(super) mod parts;
pub(super) mod settings;
pub(super) mod streams;

use super::outcome::Done;
use super::program::{On, Op, Work};
use super::threads::Local;
use super::world::World;
use drops::{DropOp, How};
use streams::StreamOp;

/// The most objects of one kind that a program has at once.
const MOST: usize = 6;

/// Runs an expression with a stream of either kind.
macro_rules! with_stream {
    ($world:expr, $local:expr, $on:expr, |$stream:ident| $body:expr) => {
        match $on {
            On::Created(index) => {
                let $stream = &$world.created(index)?;
                $body
            }
            On::Legacy(index) => {
                let $stream = &$world.context(index).default_stream()?;
                $body
            }
            On::PerThread(index) => {
                let $stream = &$local.per_thread(&$world.context(index))?;
                $body
            }
        }
    };
}

impl World {
    pub(super) fn act(&mut self, op: Op, local: &mut Local) -> Done {
        match op {
            Op::Context(op) => self.contexts(op, local),
            Op::Stream(StreamOp::Wait { stream, other }) => {
                with_stream!(self, local, stream, |stream| {
                    with_stream!(self, local, other, |other| Ok(stream.wait_stream(other)?))
                })
            }
            Op::Stream(op) => self.streams(op),
            Op::Memory(op) => self.memory(op),
            Op::Drop(DropOp { which, how }) => match how {
                How::HostFunction(stream) => with_stream!(self, local, stream, |stream| {
                    self.drop_in_host_function(stream, which)
                }),
                _ => self.drops(which, how),
            },
            Op::Host(op) => self.host(op),
            Op::Flight(op) => self.flights(op),
            Op::Group(op) => self.groups(op),
            Op::Setting(op) => self.settings(op),
            Op::On(stream, work) => with_stream!(self, local, stream, |stream| match work {
                Work::Order(work) => self.order(stream, work),
                Work::Copy(work) => self.copies(stream, work),
            }),
            Op::OnTwo([first, second], work) => with_stream!(self, local, first, |first| {
                with_stream!(self, local, second, |second| self.parts(first, second, work))
            }),
        }
    }
}
