//! The suite that needs the simulated driver's eyes: call counts, faults, quarantine, schedules.

mod ad_contexts;
mod ad_streams;
mod adaptors;
mod cache;
mod counts;
mod en_drops;
mod en_lost;
mod en_memory;
mod en_owners;
mod en_told;
mod faults;
mod in_flight;
mod nvrtc;
mod pinned_cache;
mod property;
mod soundness;
mod staged_groups;
mod staged_large;
