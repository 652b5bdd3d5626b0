//! The suite that needs the simulated driver's eyes: call counts, faults, quarantine, schedules.

mod ad_contexts;
mod ad_streams;
mod counts;
mod en_drops;
mod en_lost;
mod en_memory;
mod en_told;
mod faults;
mod in_flight;
mod nvrtc;
mod property;
mod soundness;
