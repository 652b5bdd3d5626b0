//! Each operation through the safe layer, beside the raw driver calls behind it.

mod measure;
mod operations;
mod report;

use std::path::PathBuf;

use anyhow::{Context as _, bail};
use cuda_core::Device;

use crate::target::Target;
use crate::{Outcome, Refusal};
use measure::Effort;
use report::Report;

/// Times each operation through `cuda-core` beside the raw driver calls behind it.
///
/// Both run in turn in one process, in batches; the medians over all batches are compared. Exit code
/// 0: measured; with --check, 1: a goal was missed; 2: no GPU.
///
/// Goals: safe/raw at most 1.05 where a raw call takes over a microsecond, at most 30 ns more a call
/// where it takes less.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only operations whose name contains this.
    #[arg(long)]
    filter: Option<String>,
    /// The device to measure on.
    #[arg(long, default_value_t = 0)]
    device: u32,
    /// Fewer and smaller batches, for a look.
    #[arg(long)]
    quick: bool,
    /// Measures on the simulated driver with this many devices; the figures mean nothing.
    #[arg(long, value_name = "DEVICES", value_parser = clap::value_parser!(u32).range(1..=64))]
    sim: Option<u32>,
    /// Fails if an operation misses its goal.
    #[arg(long)]
    check: bool,
    /// Writes the result to this file as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<Outcome> {
    let driver = match args.sim {
        Some(devices) => {
            let config = cuda_sim::Config::default().devices(devices);
            cuda_sim::install(config).context("installing the simulated driver")?;
            format!("simulated driver, {devices} devices")
        }
        None => match Target::probe()? {
            Ok(target) => target.to_string(),
            Err(reason) => {
                eprintln!("error: {reason}\nWithout a GPU: --sim 1");
                return Ok(Outcome::CouldNotRun);
            }
        },
    };
    let effort = if args.quick || args.sim.is_some() {
        Effort::QUICK
    } else {
        Effort::FULL
    };
    let devices = Device::count()?;
    if args.device >= devices {
        bail!(Refusal(format!(
            "there is no device {}: there {} {}",
            args.device,
            if devices == 1 { "is" } else { "are" },
            devices
        )));
    }
    let device = Device::get(args.device)?;
    let mut report = Report::new(driver);
    println!("{}", report.heading());
    let wanted = |name: &str| {
        args.filter
            .as_deref()
            .is_none_or(|part| name.contains(part))
    };
    operations::run_all(device, effort, wanted, |row| {
        println!("{row}");
        report.rows.push(row);
    })?;
    if report.rows.is_empty() {
        bail!(Refusal("no operation has that in its name".to_owned()));
    }
    print!("{}", report.conclusion());
    if let Some(path) = &args.json {
        let text = serde_json::to_string_pretty(&report)?;
        std::fs::write(path, text).with_context(|| path.display().to_string())?;
    }
    Ok(if args.check && !report.all_met() {
        Outcome::Failed
    } else {
        Outcome::Passed
    })
}
