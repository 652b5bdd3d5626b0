//! Shared by the test suites: choosing a driver, declaring GPU tests, stalling streams, comparing bytes.
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
mod drop_hook;
#[cfg(unix)]
mod fork;
mod hashing;
pub mod judge;
pub mod kernels;
mod macros;
mod on_drop;
mod refusal;
mod report;
mod run;
pub mod sample;
mod staged;
mod stall;
mod streams;
mod sweep;
mod threads;
mod watchdog;

pub use block_on::{Alarm, block_on};
pub use bytes::{assert_bytes, assert_pattern, fill, pattern};
#[cfg(unix)]
pub use clock::thread_cpu_time;
pub use driver::{Driver, check, freed_behind_a_stall, simulator, simulator_in, trim_cache};
pub use drop_hook::{DropReports, Reported, sorted};
#[cfg(unix)]
pub use fork::in_a_fork;
pub use hashing::hash;
pub use macros::tags;
pub use on_drop::{OnDrop, WatchedHost};
pub use refusal::{compile_log, refusal};
pub use report::report;
pub use run::{Outcome, expect_drop_failures, run};
pub use staged::Staged;
pub use stall::{Stall, blocks, stall};
pub use streams::{one_stream, two_devices, two_streams};
pub use sweep::fails_a_call;
pub use threads::threads_named;
pub use watchdog::Watchdog;
