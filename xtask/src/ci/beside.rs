//! A step in a process of its own, so that several may run at once and each prints in one piece.

use std::process::{Command, Stdio};

use super::steps::Step;
use crate::checks::{Finished, Verdict};
use crate::process::own_program;
use crate::test::Depth;

/// Runs a step, and prints what it printed when it has ended.
pub(super) fn run(step: &Step, depth: Depth) -> Finished {
    Finished::of(step.name, || {
        let mut command = Command::new(own_program()?);
        command.args(words(step.name, depth)).stdin(Stdio::null());
        let output = command.output()?;
        let [errors, text] = [output.stderr, output.stdout]
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        print!("\n{errors}{text}");
        Ok(verdict(step.name, output.status.code()))
    })
}

fn words(step: &str, depth: Depth) -> [String; 3] {
    let depth = match depth {
        Depth::Full => "--full".to_owned(),
        Depth::Sampled { rotation } => format!("--rotation={rotation}"),
    };
    ["ci".to_owned(), format!("--step={step}"), depth]
}

/// What the exit code of `cargo xtask ci` says of its one step.
fn verdict(step: &str, code: Option<i32>) -> Verdict {
    match code {
        Some(0) => Verdict::Passed(String::new()),
        Some(2) => Verdict::NotRun(format!("`cargo xtask ci --step {step}` says why")),
        _ => Verdict::Failed(String::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_that_says_nothing_is_wrong() {
        assert!(matches!(verdict("a", Some(0)), Verdict::Passed(_)));
        assert!(matches!(verdict("a", Some(2)), Verdict::NotRun(_)));
        for code in [Some(1), Some(101), None] {
            assert!(matches!(verdict("a", code), Verdict::Failed(_)));
        }
    }

    #[test]
    fn it_takes_the_same_sample() {
        let rotation = words("a", Depth::Sampled { rotation: 7 });
        assert_eq!(rotation, ["ci", "--step=a", "--rotation=7"]);
        assert_eq!(words("a", Depth::Full), ["ci", "--step=a", "--full"]);
    }
}
