//! Tests that lose the context, exit or fork: each runs in a process of its own, under `cargo xtask
//! test` and `cargo xtask test-gpu`.

mod absent;
mod copies_exit;
mod devices;
mod environment;
mod exit;
#[cfg(unix)]
mod fork;
#[cfg(unix)]
mod fork_absent;
mod groups;
mod illegal;
mod ipc_events;
mod narrow_values;
mod no_pools;
#[cfg(unix)]
mod page_exit;
#[cfg(unix)]
mod pools_fork;
#[cfg(target_os = "linux")]
mod privileged;
mod ranks_exit;
mod stream_exit;
mod waiting;
