//! Every scenario once more with a fault at its N-th driver call, for every N; see [`harness::sweep`].

mod arrays;
mod asynchronous;
mod belated;
mod contexts;
mod copies;
mod drops;
pub(crate) mod harness;
mod launches;
mod managed;
mod memory;
mod ordering;
mod pools;
mod process;
pub(crate) mod stack;
mod staged;
mod streams;
mod threads;
mod transfers;
mod virtual_memory;
