//! The suite that runs on real GPUs and on the simulated driver alike, one module a chapter of the
//! behaviours: `cargo xtask test-gpu`, and in the simulator `cargo xtask test`.

mod harness;
