//! Messages from one rank to another, in order.

use crate::engine::clock::Point;
use crate::handle::Id;
use crate::nccl::operation::Transfer;
use crate::table::Table;

#[derive(Debug, Default)]
pub(crate) struct Lane {
    /// Number of sends that were enqueued; next, of receives.
    pub(crate) sent: u64,
    pub(crate) received: u64,
    pub(crate) messages: Table<Message>,
    /// Whether each end has begun a message, in which the ends [connect](super::connect).
    pub(crate) sender_connects: bool,
    pub(crate) receiver_connects: bool,
}

/// A send and the receive that matches it.
#[derive(Debug, Default)]
pub(crate) struct Message {
    pub(crate) send: Option<End>,
    pub(crate) receive: Option<End>,
    /// The bytes, once either end took them from the sender's memory.
    pub(crate) bytes: Option<Vec<u8>>,
    /// How many ends have completed.
    pub(crate) done: u8,
    /// Whether the ends do not match.
    pub(crate) broken: bool,
}

#[derive(Debug)]
pub(crate) struct End {
    pub(crate) communicator: Id,
    pub(crate) at: Point,
    pub(crate) transfer: Transfer,
    pub(crate) call: &'static str,
}
