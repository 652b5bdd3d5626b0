//! Runs the suite on real GPUs.

use crate::Outcome;

/// Runs the suite on real GPUs.
#[derive(clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(_args: &Args) -> anyhow::Result<Outcome> {
    anyhow::bail!("not built yet")
}
