//! The suite that runs on real GPUs and on the simulated driver alike, one module a chapter of the
//! behaviours: `cargo xtask test-gpu`, and in the simulator `cargo xtask test`.

mod capture;
mod contexts;
mod copies;
mod devices;
mod errors;
mod events;
mod forms;
mod guards;
mod harness;
mod memory;
mod peers;
mod pinned;
mod runtime;
mod soundness;
mod stack;
mod staged;
mod streams;
mod threads;
