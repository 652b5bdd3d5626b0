//! Regenerates the checked-in bindings.

use std::path::PathBuf;

use crate::Outcome;
use crate::workspace;

mod regenerate;

/// Regenerates the checked-in bindings from the newest cuda.h.
///
/// pip fetches the header into `.cuda-headers/`, where it is kept. Needs libclang.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Writes nothing, and fails if the checked-in bindings, or the list of CUDA 11.8's functions,
    /// differ from what bindgen makes of the headers.
    #[arg(long)]
    check: bool,
    /// The directory of another cuda.h to use.
    #[arg(long, value_name = "DIR")]
    header: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<Outcome> {
    let root = workspace::root()?;
    if args.check {
        regenerate::check(&root, args.header.as_deref())
    } else {
        regenerate::write(&root, args.header.as_deref())
    }
}
