//! Regenerates the checked-in bindings.

use std::path::PathBuf;

use crate::Outcome;
use crate::suite::build::workspace_root;

mod regenerate;

/// Regenerates the checked-in bindings from the newest cuda.h.
///
/// The header is fetched by pip into `.cuda-headers/` and kept there. Needs libclang.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Changes nothing and fails if the checked-in bindings, or the list of the functions that CUDA
    /// 11.8 has, differ from what the headers yield.
    #[arg(long)]
    check: bool,
    /// The directory of the cuda.h to use instead.
    #[arg(long, value_name = "DIR")]
    header: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<Outcome> {
    let root = workspace_root()?;
    if args.check {
        regenerate::check(&root, args.header.as_deref())
    } else {
        regenerate::write(&root, args.header.as_deref())
    }
}
