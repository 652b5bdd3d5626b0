//! Runs the checks of continuous integration.

pub(crate) mod full_run;
pub(crate) mod named;
mod pages;
mod steps;
mod tidy;

use std::process::{Command, Stdio};

use crate::checks::{self, Finished};
use crate::process::own_program;
use crate::test::Depth;
use crate::{Outcome, asks_for, queue, workspace};
use steps::{STEPS, Step};

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
    #[arg(long = "step", value_name = "NAME", value_parser = STEPS.each_ref().map(|it| it.name))]
    steps: Vec<String>,
    /// A step that cannot run is an error.
    #[arg(long)]
    strict: bool,
    /// Runs no samples: every header, every way of packaging, every driver call, all of Miri. Writes
    /// the commit to .ci/last-full-run for those that pass.
    #[arg(long, conflicts_with = "rotation")]
    full: bool,
    /// The rotation to use, to repeat a run; the number of commits by default.
    #[arg(long, value_name = "NUMBER")]
    rotation: Option<u64>,
}

/// The number of steps that run at the same time.
const AT_A_TIME: usize = 2;

pub(crate) fn run(args: &Args) -> anyhow::Result<Outcome> {
    let root = workspace::root()?;
    let depth = match (args.full, args.rotation) {
        (true, _) => Depth::Full,
        (false, Some(rotation)) => Depth::Sampled { rotation },
        (false, None) => Depth::of_commit(&root),
    };
    let before = full_run::commit(&root);
    println!("{depth}");
    let mut steps: Vec<&Step> = STEPS.iter().filter(|it| asks_for(&args.steps, it.name)).collect();
    if args.steps.is_empty() {
        steps.retain(|step| steps::is_its_turn(step.name, depth));
    }
    let mut results = Vec::new();
    for group in steps.chunk_by(|a, b| depth != Depth::Full && a.beside && b.beside) {
        match group {
            [step] => results.push(run_here(step, depth)),
            group => {
                let run = |step: &Step| run_beside(step, depth);
                results.extend(queue::each(AT_A_TIME, group.to_vec(), run));
            }
        }
    }
    println!("\n{}", checks::table("step", &results));
    let outcome = checks::outcome(&results, args.strict);
    if depth == Depth::Full {
        let passed = results.iter().filter(|it| it.outcome == Outcome::Passed).map(|it| it.name);
        full_run::write(&root, before, passed)?;
    }
    Ok(outcome)
}

/// Runs a step in this process.
fn run_here(step: &Step, depth: Depth) -> Finished {
    println!("\n== {}: {}", step.name, step.about);
    let finished = Finished::of(step.name, || Ok(ended((step.run)(depth)?, "see above")));
    if finished.outcome == Outcome::Failed {
        eprintln!("{}", finished.detail);
    }
    finished
}

/// Runs a step in a process of its own, so that several may run at once. Prints its output when it has ended.
fn run_beside(step: &Step, depth: Depth) -> Finished {
    Finished::of(step.name, || {
        let mut command = Command::new(own_program()?);
        command.args(words(step.name, depth)).stdin(Stdio::null());
        let output = command.output()?;
        let [errors, text] = [output.stderr, output.stdout]
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        print!("\n{errors}{text}");
        let why = format!("`cargo xtask ci --step {}` says why", step.name);
        Ok(ended(Outcome::of_exit(output.status.code()), &why))
    })
}

fn words(step: &str, depth: Depth) -> [String; 3] {
    let depth = match depth {
        Depth::Full => "--full".to_owned(),
        Depth::Sampled { rotation } => format!("--rotation={rotation}"),
    };
    ["ci".to_owned(), format!("--step={step}"), depth]
}

/// Returns the outcome of a step and, if it did not run, where to read the reason.
fn ended(outcome: Outcome, why: &str) -> (Outcome, String) {
    (outcome, if outcome == Outcome::CouldNotRun { why.to_owned() } else { String::new() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_that_says_nothing_is_wrong() {
        let ended = |code| ended(Outcome::of_exit(code), "why");
        assert_eq!(ended(Some(0)), (Outcome::Passed, String::new()));
        assert_eq!(ended(Some(2)), (Outcome::CouldNotRun, "why".to_owned()));
        for code in [Some(1), Some(101), None] {
            assert_eq!(ended(code), (Outcome::Failed, String::new()));
        }
    }

    #[test]
    fn it_takes_the_same_sample() {
        let rotation = words("a", Depth::Sampled { rotation: 7 });
        assert_eq!(rotation, ["ci", "--step=a", "--rotation=7"]);
        assert_eq!(words("a", Depth::Full), ["ci", "--step=a", "--full"]);
    }
}
