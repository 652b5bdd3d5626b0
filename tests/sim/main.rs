//! The suite that needs the simulated driver's checks: call counts, faults, quarantine, schedules.

mod adaptors;
mod cache;
mod contexts;
mod counts;
mod crowds;
mod drops;
mod elements;
// A file descriptor needs an operating system.
#[cfg(all(unix, not(miri)))]
mod external;
mod faults;
mod in_flight;
mod kernels;
mod libraries;
mod linker;
mod lost_context;
mod memory_errors;
mod owners;
mod pinned_cache;
mod property;
mod soundness;
mod staged_groups;
mod staged_large;
mod streams;
mod trim;
mod waiters;
