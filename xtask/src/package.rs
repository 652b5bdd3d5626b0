//! Checks all ways in which the crates are consumed.
//!
//! Each row builds consumers of its own outside of the workspace, in an environment that has only the parts
//! of CUDA that the row adds. It checks which bindings were used, from which header, the number of crates,
//! and that a program moves bytes through the simulated driver.

use std::path::PathBuf;

use crate::Outcome;
use crate::checks::{self, Finished};
use crate::progress::Progress;

mod consumer;
mod machine;
mod rows;
mod workshop;

use consumer::{Consumer, Crates, Features, Source};
use rows::Row;
use workshop::Workshop;

/// Checks every way in which the crates are consumed.
#[derive(clap::Args)]
#[command(after_help = "Exit code: 0 every row that ran passed, 1 one failed, 2 none could run.")]
pub(crate) struct Args {
    /// Run this row alone; may be given more than once
    #[arg(long, value_name = "ROW", value_parser = rows::ALL.each_ref().map(|row| row.name))]
    only: Vec<String>,
    /// Lists the rows
    #[arg(long)]
    list: bool,
    /// Keep the work folder, and print its path
    #[arg(long)]
    keep: bool,
    /// Also time other CUDA bindings from crates.io
    #[arg(long)]
    peers: bool,
    /// Make toolkits of this cuda.h; by default, of those that `cargo xtask headers` keeps
    #[arg(long, value_name = "FILE")]
    header: Vec<PathBuf>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<Outcome> {
    let rows = chosen(&args.only, args.peers);
    if args.list {
        for row in rows {
            println!("{:24} {}", row.name, row.about);
        }
        return Ok(Outcome::Passed);
    }
    let workshop = Workshop::open(&args.header)?;
    let progress = Progress::new(rows.len());
    let mut finished = Vec::new();
    for row in rows {
        progress.step(row.name.to_owned());
        let row = Finished::of(row.name, || Ok((Outcome::Passed, (row.run)(&workshop)?)));
        progress.suspend(|| eprintln!("{row}"));
        finished.push(row);
    }
    progress.finish();
    print!("\n{}", checks::table("row", &finished));
    workshop.close(args.keep)?;
    Ok(checks::outcome(&finished, false))
}

/// The rows that run by default.
pub(crate) fn usual_rows() -> Vec<&'static str> {
    chosen(&[], false).iter().map(|row| row.name).collect()
}

/// Returns the named rows, or all; peers only on request.
fn chosen(only: &[String], peers: bool) -> Vec<&'static Row> {
    let wanted = |row: &&Row| match only {
        [] => peers || !row.name.starts_with("peer-"),
        _ => only.iter().any(|name| name == row.name),
    };
    rows::ALL.iter().filter(wanted).collect()
}
