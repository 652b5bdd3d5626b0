//! Checks every way in which the crates are consumed.

use crate::Outcome;

/// Checks every way in which the crates are consumed.
#[derive(clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(_args: &Args) -> anyhow::Result<Outcome> {
    anyhow::bail!("not built yet")
}
