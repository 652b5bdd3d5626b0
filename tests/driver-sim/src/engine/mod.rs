//! Streams as queues of work, the order between them, and when each operation runs.

pub(crate) mod callback;
pub(crate) mod clock;
pub(crate) mod element;
pub(crate) mod enqueue;
pub(crate) mod host;
pub(crate) mod kernel;
pub(crate) mod mover;
pub(crate) mod order;
pub(crate) mod run;
pub(crate) mod schedule;
pub(crate) mod stream;
pub(crate) mod value;
pub(crate) mod work;
