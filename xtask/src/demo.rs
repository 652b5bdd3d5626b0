//! Moves data between devices and verifies every byte.

use crate::Outcome;

/// Moves data between devices and verifies every byte.
#[derive(clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(_args: &Args) -> anyhow::Result<Outcome> {
    anyhow::bail!("not built yet")
}
