//! What the suites share: choosing a driver, declaring GPU tests, stalling streams, comparing
//! bytes.
//!
//! A GPU test is declared with [`gpu_test!`]; its body runs under [`run()`], on the real driver or,
//! with `CUDA_TESTS_SIM=<devices>` in the environment (and always under Miri), on the simulated one.
//! No test is skipped: a test that finds fewer devices than it needs, or lacks a library, fails.

#![allow(
    clippy::not_unsafe_ptr_arg_deref,
    reason = "handles that the driver checks; tests stay readable"
)]

mod block_on;
mod bytes;
pub mod child;
mod clock;
pub mod context;
mod driver;
#[cfg(unix)]
mod fork;
mod hashing;
pub mod judge;
pub mod kernels;
mod macros;
mod refusal;
mod report;
mod run;
pub mod sample;
mod stall;
mod sweep;
mod threads;
mod watchdog;

pub use block_on::{Alarm, block_on};
pub use bytes::{assert_bytes, assert_pattern, fill, pattern};
#[cfg(unix)]
pub use clock::thread_cpu_time;
pub use driver::{Driver, check, freed_behind_a_stall, simulator, trim_cache};
#[cfg(unix)]
pub use fork::in_a_fork;
pub use hashing::hash;
pub use macros::tags;
pub use refusal::refusal;
pub use report::report;
pub use run::{Outcome, expect_drop_failures, run};
pub use stall::{Stall, stall};
pub use sweep::fails_a_call;
pub use threads::threads_named;
pub use watchdog::Watchdog;
