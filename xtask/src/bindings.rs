//! Regenerates the checked-in bindings.

use crate::Outcome;

/// Regenerates the checked-in bindings.
#[derive(clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(_args: &Args) -> anyhow::Result<Outcome> {
    anyhow::bail!("not built yet")
}
