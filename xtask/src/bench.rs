//! Times each operation beside the raw driver call.

use crate::Outcome;

/// Times each operation beside the raw driver call.
#[derive(clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(_args: &Args) -> anyhow::Result<Outcome> {
    anyhow::bail!("not built yet")
}
