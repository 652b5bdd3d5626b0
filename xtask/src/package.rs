//! Checks every way in which the crates are consumed.
//!
//! Each row builds its own consumers outside of the workspace, in an environment with only the
//! parts of CUDA that the row adds, and checks the result: which bindings, from which header, how
//! many crates, and that a program moves bytes through the simulated driver.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::bail;
use indicatif::{ProgressBar, ProgressStyle};

use crate::{Outcome, Refusal};

mod build;
mod consumer;
mod headers;
mod machine;
mod report;
mod rows;
mod workshop;

use report::{Finished, NotRun, Verdict};
use rows::Row;
use workshop::Workshop;

/// Checks every way in which the crates are consumed.
#[derive(clap::Args)]
#[command(after_help = "Exit code: 0 every row that ran passed, 1 one failed, 2 none could run.")]
pub(crate) struct Args {
    /// Run this row alone; may be given more than once
    #[arg(long, value_name = "ROW")]
    only: Vec<String>,
    /// Lists the rows
    #[arg(long)]
    list: bool,
    /// Keep the work folder, and print its path
    #[arg(long)]
    keep: bool,
    /// Print the results as JSON
    #[arg(long)]
    json: bool,
    /// Also time other CUDA bindings from crates.io
    #[arg(long)]
    peers: bool,
    /// Make toolkits of this cuda.h; by default, of those that `cargo xtask headers` keeps
    #[arg(long, value_name = "FILE")]
    header: Vec<PathBuf>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<Outcome> {
    let rows = chosen(&args.only, args.peers)?;
    if args.list {
        for row in rows {
            println!("{:24} {}", row.name, row.about);
        }
        return Ok(Outcome::Passed);
    }
    let workshop = Workshop::open(&args.header)?;
    let progress = ProgressBar::new(rows.len() as u64);
    if let Ok(style) = ProgressStyle::with_template("{spinner} {pos}/{len} {msg} {elapsed}") {
        progress.set_style(style);
    }
    progress.enable_steady_tick(Duration::from_millis(120));
    let mut finished = Vec::new();
    for row in rows {
        progress.set_message(row.name);
        let start = Instant::now();
        let verdict = match (row.run)(&workshop) {
            Ok(detail) => Verdict::Passed(detail),
            Err(error) => match error.downcast::<NotRun>() {
                Ok(NotRun(reason)) => Verdict::NotRun(reason),
                Err(error) => Verdict::Failed(format!("{error:#}")),
            },
        };
        let row = Finished { name: row.name, verdict, time: start.elapsed() };
        progress.suspend(|| eprintln!("{row}"));
        progress.inc(1);
        finished.push(row);
    }
    progress.finish_and_clear();
    if args.json {
        println!("{}", report::json(&finished));
    } else {
        print!("\n{}", report::table(&finished));
    }
    workshop.close(args.keep)?;
    Ok(report::outcome(&finished))
}

/// The rows that run unless others are asked for.
pub(crate) fn usual_rows() -> Vec<&'static str> {
    let rows = chosen(&[], false).unwrap_or_default();
    rows.iter().map(|row| row.name).collect()
}

/// The rows named, or all; peers only on request.
fn chosen(only: &[String], peers: bool) -> anyhow::Result<Vec<&'static Row>> {
    for name in only {
        if !rows::ALL.iter().any(|row| row.name == name) {
            bail!(Refusal(format!(
                "there is no row `{name}`; `cargo xtask package --list` lists them"
            )));
        }
    }
    Ok(rows::ALL
        .iter()
        .filter(|row| {
            if only.is_empty() {
                peers || !row.name.starts_with("peer-")
            } else {
                only.iter().any(|name| name == row.name)
            }
        })
        .collect())
}
