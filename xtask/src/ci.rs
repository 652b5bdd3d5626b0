//! Runs the checks of continuous integration.

mod beside;
mod full_run;
mod named;
mod steps;
mod tidy;

use std::time::{Duration, Instant};

use crate::Outcome;
use crate::suite::build::workspace_root;
use crate::suite::queue;
use crate::suite::table::Table;
use crate::test::Depth;
use steps::{STEPS, Step, Verdict};

/// Runs the checks beside `cargo xtask test`: file-level rules, format and lints, docs, the oldest
/// Rust, bindings, headers, packaging, failing driver calls, Miri.
///
/// Without --full, long steps run a sample, and the rotation selects another one for each commit. A
/// step that cannot run here is printed as not run, with the reason.
#[derive(clap::Args)]
#[command(
    after_help = "Exit code: 0 nothing is wrong, 1 a step found something, 2 no step ran, or \
                        one did not run and --strict asks for all."
)]
pub(crate) struct Args {
    /// Runs this step only; may be repeated.
    #[arg(long = "step", value_name = "NAME", value_parser = parse_step)]
    steps: Vec<&'static Step>,
    /// A step that cannot run is an error.
    #[arg(long)]
    strict: bool,
    /// Runs no samples: every header, every way of packaging, every driver call, all of Miri. If
    /// all steps pass, writes the commit to .ci/last-full-run.
    #[arg(long, conflicts_with = "rotation")]
    full: bool,
    /// The rotation to use, to repeat a run; the number of commits by default.
    #[arg(long, value_name = "NUMBER")]
    rotation: Option<u64>,
}

fn parse_step(name: &str) -> Result<&'static Step, String> {
    STEPS.iter().find(|step| step.name == name).ok_or_else(|| {
        let names: Vec<_> = STEPS.iter().map(|step| step.name).collect();
        format!("the steps are {}", names.join(", "))
    })
}

pub(crate) fn run(args: &Args) -> anyhow::Result<Outcome> {
    let root = workspace_root()?;
    let depth = match (args.full, args.rotation) {
        (true, _) => Depth::Full,
        (false, Some(rotation)) => Depth::Sampled { rotation },
        (false, None) => Depth::of_commit(&root),
    };
    let before = full_run::state(&root);
    println!("{depth}");
    let all: Vec<&Step> = STEPS.iter().collect();
    let steps = if args.steps.is_empty() { &all } else { &args.steps };
    let mut results = Vec::new();
    for group in steps.chunk_by(|a, b| depth != Depth::Full && a.beside && b.beside) {
        match group {
            [step] => results.push(run_here(step, depth)),
            group => {
                let run = |step: &Step| beside::run(step, depth);
                results.extend(queue::each(group.len(), group.to_vec(), run));
            }
        }
    }
    print(&results);
    let outcome = outcome(&results, args.strict);
    let whole = depth == Depth::Full && args.steps.is_empty();
    if whole && outcome == Outcome::Passed {
        full_run::write(&root, before)?;
    }
    Ok(outcome)
}

/// Name, verdict and time of a step.
type Ran = (&'static str, Verdict, Duration);

/// Runs a step in this process.
fn run_here(step: &Step, depth: Depth) -> Ran {
    println!("\n== {}: {}", step.name, step.about);
    let started = Instant::now();
    let verdict = (step.run)(depth).unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        Verdict::Wrong
    });
    (step.name, verdict, started.elapsed())
}

type Results = [Ran];

fn print(results: &Results) {
    let mut table = Table::new(["step", "verdict", "seconds"]);
    for (name, verdict, time) in results {
        let word = match verdict {
            Verdict::Fine => "fine",
            Verdict::Wrong => "WRONG",
            Verdict::NotRun(_) => "not run",
        };
        table.row([(*name).into(), word.into(), format!("{:.1}", time.as_secs_f64())]);
    }
    println!("\n{table}");
    for (name, verdict, _) in results {
        if let Verdict::NotRun(reason) = verdict {
            println!("{name} was not run: {reason}");
        }
    }
}

fn outcome(results: &Results, strict: bool) -> Outcome {
    let count = |wanted: fn(&Verdict) -> bool| {
        results.iter().filter(|(_, verdict, _)| wanted(verdict)).count()
    };
    let not_run = count(|verdict| matches!(verdict, Verdict::NotRun(_)));
    if count(|verdict| matches!(verdict, Verdict::Wrong)) > 0 {
        Outcome::Failed
    } else if not_run == results.len() || (strict && not_run > 0) {
        Outcome::CouldNotRun
    } else {
        Outcome::Passed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_that_did_not_run_is_no_success_of_its_own() {
        let fine = ("a", Verdict::Fine, Duration::ZERO);
        let not_run = ("b", Verdict::NotRun("why".into()), Duration::ZERO);
        let wrong = ("c", Verdict::Wrong, Duration::ZERO);
        assert_eq!(outcome(std::slice::from_ref(&not_run), false), Outcome::CouldNotRun);
        assert_eq!(outcome(&[fine.clone(), not_run.clone()], false), Outcome::Passed);
        assert_eq!(outcome(&[fine.clone(), not_run.clone()], true), Outcome::CouldNotRun);
        assert_eq!(outcome(&[fine, not_run, wrong], true), Outcome::Failed);
    }
}
