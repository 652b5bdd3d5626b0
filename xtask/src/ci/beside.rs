//! A step in a process of its own, so that several may run at once and each prints in one piece.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Instant;
use std::{env, io};

use super::Ran;
use super::steps::{Step, Verdict};
use crate::test::Depth;

/// Runs a step, and prints what it printed when it has ended.
pub(super) fn run(step: &Step, depth: Depth) -> Ran {
    let started = Instant::now();
    let output = own_program().and_then(|task| {
        let mut command = Command::new(task);
        command.args(words(step.name, depth)).stdin(Stdio::null()).output()
    });
    let (text, verdict) = match output {
        Ok(output) => (text(&output), verdict(step.name, output.status.code())),
        Err(error) => (format!("error: {error}\n"), Verdict::Wrong),
    };
    print!("\n{text}");
    (step.name, verdict, started.elapsed())
}

/// This program. A build may have put another file in its place, which the path of Linux does not mind.
fn own_program() -> io::Result<PathBuf> {
    let own = Path::new("/proc/self/exe");
    if own.exists() { Ok(own.to_owned()) } else { env::current_exe() }
}

fn words(step: &str, depth: Depth) -> Vec<String> {
    let depth = match depth {
        Depth::Full => "--full".to_owned(),
        Depth::Sampled { rotation } => format!("--rotation={rotation}"),
    };
    vec!["ci".into(), format!("--step={step}"), depth]
}

fn text(output: &Output) -> String {
    [&output.stderr, &output.stdout].map(|bytes| String::from_utf8_lossy(bytes)).concat()
}

/// What the exit code of `cargo xtask ci` says of its one step.
fn verdict(step: &str, code: Option<i32>) -> Verdict {
    match code {
        Some(0) => Verdict::Fine,
        Some(2) => Verdict::NotRun(format!("`cargo xtask ci --step {step}` says why")),
        _ => Verdict::Wrong,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_that_says_nothing_is_wrong() {
        assert_eq!(verdict("a", Some(0)), Verdict::Fine);
        assert!(matches!(verdict("a", Some(2)), Verdict::NotRun(_)));
        for code in [Some(1), Some(101), None] {
            assert_eq!(verdict("a", code), Verdict::Wrong);
        }
    }

    #[test]
    fn it_takes_the_same_sample() {
        let rotation = words("a", Depth::Sampled { rotation: 7 });
        assert_eq!(rotation, ["ci", "--step=a", "--rotation=7"]);
        assert_eq!(words("a", Depth::Full), ["ci", "--step=a", "--full"]);
    }
}
