//! Packs what a machine without cargo needs.

use crate::Outcome;

/// Packs what a machine without cargo needs.
#[derive(clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(_args: &Args) -> anyhow::Result<Outcome> {
    anyhow::bail!("not built yet")
}
