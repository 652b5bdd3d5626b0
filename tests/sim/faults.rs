//! Every scenario once more with a fault at its N-th driver call, for every N; see [`harness::sweep`].

mod contexts;
mod copies;
mod drops;
pub(crate) mod harness;
mod ordering;
mod process;
pub(crate) mod stack;
mod staged;
mod threads;
