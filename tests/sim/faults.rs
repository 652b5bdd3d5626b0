//! Runs every scenario with a fault at its N-th driver call, for every N; see [`harness::sweep`].

mod adaptors;
mod arrays;
mod asynchronous;
mod belated;
mod cache;
mod contexts;
mod copies;
mod drops;
mod given_up;
pub(crate) mod harness;
mod launches;
mod managed;
mod many;
mod memory;
mod ordering;
mod pinned_cache;
mod pools;
mod process;
pub(crate) mod stack;
mod staged;
mod streams;
mod threads;
mod transfers;
mod virtual_memory;
