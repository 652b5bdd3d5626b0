//! Graphs and execs.

pub(super) mod exec;
pub(super) mod params;
pub(super) mod query;
