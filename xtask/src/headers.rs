//! Builds and tests against every supported cuda.h.

use crate::Outcome;

/// Builds and tests against every supported cuda.h.
#[derive(clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(_args: &Args) -> anyhow::Result<Outcome> {
    anyhow::bail!("not built yet")
}
