//! Times each operation of the safe layer and, for comparison, the raw driver calls that it makes.

mod axis;
mod ends;
mod goal;
pub(crate) mod measure;
mod operation;
mod operations;
mod pageable;
pub(crate) mod peers;
mod plot;
pub(crate) mod raw;
mod report;
mod run;
mod scale;
mod table;

use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use cuda_core::Device;
use fs_err as fs;

use crate::process::cargo;
use crate::progress::Progress;
use crate::table::Table;
use crate::target::Target;
use crate::{Outcome, Refusal, refuse};
use goal::Goal;
use measure::{Effort, Measured, Unit};
use operation::{Fixture, Operation, Way};
use report::{Report, Verdict};
use run::{Plan, Side};

/// Times each operation of `cuda-core` beside the raw driver calls that it makes.
///
/// Both run in turn in one process, in batches; medians over all batches are compared. One table
/// shows the times, whether each met its goal, and the times of CuPy, PyTorch and cuda.core, where
/// Python has them, and of cudarc; another table shows what several devices reach together, beside
/// each of them alone.
#[derive(clap::Args)]
#[command(
    after_help = "Exit code: 0 measured; 1 an operation failed, or, with --check, a goal was missed; \
        2 there is no GPU, or nothing that was asked for.\n\
        docs/bench.md says how it measures and how to read it."
)]
pub(crate) struct Args {
    /// Only operations with this in their name or their group's name; may be given again.
    #[arg(long, value_name = "PATTERN")]
    only: Vec<String>,
    /// Lists the operations and their goals, and measures nothing.
    #[arg(long)]
    list: bool,
    /// The device to measure on.
    #[arg(long, default_value_t = 0)]
    device: u32,
    /// Fewer batches, for a quick look.
    #[arg(long)]
    quick: bool,
    /// Runs the operations on the simulated driver, with 4 devices by default; the times mean
    /// nothing.
    #[arg(long, value_name = "DEVICES", num_args = 0..=1, default_missing_value = "4",
          value_parser = clap::value_parser!(u32).range(1..=64))]
    sim: Option<u32>,
    /// Measures, on a driver that does nothing, whether operations cost the same however many
    /// streams exist, or existed. Fails if one does not.
    #[arg(long, conflicts_with_all = ["list", "sim", "check", "json", "svg", "markdown"])]
    scale: bool,
    /// Fails if a goal is missed; with a file that --json wrote, checks that run instead of a new
    /// one.
    #[arg(long, value_name = "RESULTS", num_args = 0..=1)]
    check: Option<Option<PathBuf>>,
    /// Writes the results as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Draws the results as SVG.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Writes the table in Markdown.
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Leaves the other libraries out.
    #[arg(long)]
    no_peers: bool,
    /// Measures once, in this process, an operation that needs a fresh process: this program calls
    /// itself with it.
    #[arg(long, hide = true)]
    sample: Option<Side>,
    /// The same for --scale.
    #[arg(long, hide = true, num_args = 2)]
    scale_of: Vec<String>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<Outcome> {
    if let Some(side) = args.sample {
        return args.sample(side);
    }
    if let [mode, size] = &args.scale_of[..] {
        return scale::sample(mode, size.parse()?);
    }
    if args.list {
        print!("{}", list(&args.operations()?));
        return Ok(Outcome::Passed);
    }
    let earlier = args.check.as_ref().and_then(Option::as_deref);
    let measures = args.sim.is_none() && earlier.is_none();
    if measures && cfg!(debug_assertions) {
        if !args.scale {
            // Checked before the program below is built.
            Target::asked_or_real(None)?;
        }
        // Runs the same bench in an optimised program, which cargo builds first.
        let mut optimised = cargo("run --release --package xtask --features xtask/driver --");
        let status =
            optimised.args(env::args_os().skip(1)).status().context("cannot start cargo")?;
        return Ok(Outcome::of_exit(status.code()));
    }
    if args.scale {
        return scale::run(|mode| args.wants("", mode));
    }
    let report = earlier.map_or_else(|| args.measure(), |results| args.read(results))?;
    print!("{}\n{}", table::text(&report), table::conclusion(&report));
    let files = [
        (&args.json, serde_json::to_string_pretty(&report)? + "\n"),
        (&args.svg, plot::render(&report)),
        (&args.markdown, table::markdown(&report)),
    ];
    for (path, content) in files {
        if let Some(path) = path {
            fs::write(path, content)?;
        }
    }
    judge(&report, args.check.is_some())
}

/// Returns the outcome of the task: missed goals count only if goals are checked.
fn judge(report: &Report, check: bool) -> anyhow::Result<Outcome> {
    let no_error = report.count(Verdict::Failed) == 0;
    if !(no_error && check) {
        return Ok(Outcome::of(no_error));
    }
    let (met, goals) = report.goals();
    ensure!(!report.simulated, refuse("figures of a simulated driver meet no goal"));
    ensure!(goals > 0, refuse("nothing that has a goal was measured"));
    Ok(Outcome::of(met == goals))
}

fn list(operations: &[(&str, Operation)]) -> String {
    let mut table = Table::new(["operation", "goal", "devices"]);
    for (group, Operation { name, goal, gpus, .. }) in operations {
        table.title(group);
        table.row([name.clone(), goal.to_string(), gpus.to_string()]);
    }
    table.to_string()
}

impl Args {
    fn wants(&self, group: &str, name: &str) -> bool {
        let wanted = |part: &String| group.contains(part.as_str()) || name.contains(part.as_str());
        self.only.is_empty() || self.only.iter().any(wanted)
    }

    /// Returns the selected operations, each with its group's name.
    fn operations(&self) -> anyhow::Result<Vec<(&'static str, Operation)>> {
        let mut selected = Vec::new();
        for (group, operations) in operations::GROUPS {
            let wanted = operations().into_iter().filter(|it| self.wants(group, &it.name));
            selected.extend(wanted.map(|operation| (group, operation)));
        }
        ensure!(!selected.is_empty(), nothing_of_that_name());
        Ok(selected)
    }

    /// Reads the results of an earlier run.
    fn read(&self, results: &Path) -> anyhow::Result<Report> {
        let what =
            "--check with results of an earlier run measures nothing: no --sim, --quick, --json";
        let measures = self.sim.is_some() || self.quick || self.json.is_some();
        ensure!(!measures, refuse(what));
        // Goals that could not be checked must not count as missed.
        let mut report = Report::read(results).map_err(|error| refuse(format!("{error:#}")))?;
        report.rows.retain(|row| self.wants(&row.group, &row.name));
        ensure!(!report.rows.is_empty(), nothing_of_that_name());
        Ok(report)
    }

    fn effort(&self) -> Effort {
        match (self.sim, self.quick) {
            (Some(_), _) => Effort::SIMULATED,
            (None, true) => Effort::QUICK,
            (None, false) => Effort::FULL,
        }
    }

    fn measure(&self) -> anyhow::Result<Report> {
        let operations = self.operations()?;
        let target = Target::asked_or_real(self.sim)?;
        let devices = target.devices();
        let there = if devices == 1 { "is" } else { "are" };
        let what = format!("there is no device {}: there {there} {devices}", self.device);
        ensure!(self.device < devices, refuse(what));
        let effort = self.effort();
        let mut report = Report::new(target.to_string(), self.sim.is_some(), effort.batches);
        let are_left_out = self.no_peers || self.sim.is_some();
        let peers = if are_left_out { &[] } else { &peers::NAMES[..] };
        let progress = Progress::new(operations.len() + peers.len());
        target.install()?;
        let plan = Plan { device: Device::get(self.device)?, effort, words: self.words() };
        report.rows = plan.run(&operations, &progress)?;
        self.forget_races();
        report.judge();
        for peer in peers {
            progress.step((*peer).to_owned());
            let remarks = peers::measure(peer, &mut report);
            progress.suspend(|| remarks.iter().for_each(|remark| eprintln!("{remark}")));
        }
        progress.finish();
        Ok(report)
    }

    /// Makes the simulated driver forget the races of the raw calls, which nothing orders.
    fn forget_races(&self) {
        if self.sim.is_some() {
            drop(cuda_sim::Session::begin());
        }
    }

    /// The arguments with which another process measures in the same way.
    fn words(&self) -> Vec<String> {
        let device = format!("--device={}", self.device);
        let simulated = self.sim.map(|devices| format!("--sim={devices}"));
        let quick = self.quick.then(|| "--quick".to_owned());
        [Some(device), simulated, quick].into_iter().flatten().collect()
    }

    /// Prints the measured number on standard output, for the process that started this one.
    fn sample(&self, side: Side) -> anyhow::Result<Outcome> {
        let operations = self.operations()?;
        let named = operations.iter().find(|(_, operation)| self.only.contains(&operation.name));
        let Some((_, Operation { way: Way::Fresh(sample), .. })) = named else {
            bail!(nothing_of_that_name());
        };
        if let Some(devices) = self.sim {
            Target::Simulated { devices, without_nvrtc: None }.install()?;
        }
        let took = sample(Device::get(self.device)?, self.effort(), side)?;
        self.forget_races();
        println!("{took}");
        Ok(Outcome::Passed)
    }
}

fn nothing_of_that_name() -> Refusal {
    Refusal("no operation has that in its name: --list shows them".to_owned())
}

#[cfg(test)]
mod tests {
    use super::report::tests::sample;
    use super::*;

    #[test]
    fn a_missed_goal_fails_where_goals_are_checked() {
        let mut report = sample();
        // A failed operation fails the task, whether or not goals are checked.
        assert_eq!(judge(&report, false).unwrap(), Outcome::Failed);
        report.rows.retain(|row| row.verdict != Verdict::Failed);
        assert_eq!(judge(&report, false).unwrap(), Outcome::Passed);
        assert_eq!(judge(&report, true).unwrap(), Outcome::Failed);
        report.rows.retain(|row| row.verdict != Verdict::Missed);
        assert_eq!(judge(&report, true).unwrap(), Outcome::Passed);
    }

    #[test]
    fn where_there_is_no_goal_there_is_nothing_to_check() {
        let mut report = sample();
        report.rows.retain(|row| row.verdict == Verdict::NotRun);
        assert_eq!(judge(&report, false).unwrap(), Outcome::Passed);
        assert!(judge(&report, true).unwrap_err().is::<Refusal>());
        let mut simulated = sample();
        simulated.rows.truncate(1);
        simulated.simulated = true;
        simulated.judge();
        let error = judge(&simulated, true).unwrap_err();
        assert!(error.is::<Refusal>() && error.to_string().contains("simulated"));
    }
}
