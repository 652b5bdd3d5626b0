//! Runs a test's body in a child process.

use std::env;
use std::process::{Command, Output};

/// Set in the process that runs the body.
const CHILD: &str = "CUDA_TESTS_CHILD";

/// Printed by a child that has run its body to the end.
const DONE: &str = "the child has come to its end";

/// Returns whether this process was started by [`run`].
pub fn is_this() -> bool {
    env::var_os(CHILD).is_some()
}

/// Reports that the child's body has completed; call it last.
pub fn done() {
    println!("{DONE}");
}

/// Indents what a child printed, so that the runner does not take the child's verdict for that of a test in
/// this process.
fn quoted(text: &str) -> String {
    text.lines().map(|line| format!("\n| {line}")).collect()
}

/// Runs one test of this program again in a child process with the variables of `environment` set; `None`
/// removes a variable. `test` is the test's path, beginning with `module_path!`.
///
/// # Panics
/// Unless the child completed its body and exited with success.
#[track_caller]
pub fn run(test: &str, environment: &[(&str, Option<&str>)]) -> Output {
    run_with(test, environment, |_| ())
}

/// In the parent, calls [`run`] and returns true; in the child that `run` starts, returns false at once.
///
/// # Panics
/// As [`run`].
#[track_caller]
pub fn ran(test: &str, environment: &[(&str, Option<&str>)]) -> bool {
    if is_this() {
        return false;
    }
    run(test, environment);
    true
}

/// Like [`run`], with a command that `prepare` changes.
///
/// # Panics
/// As [`run`].
#[track_caller]
pub fn run_with(
    test: &str,
    environment: &[(&str, Option<&str>)],
    prepare: impl FnOnce(&mut Command),
) -> Output {
    // libtest does not name the crate.
    let (_, name) = test.split_once("::").expect("a path");
    let program = env::current_exe().expect("the path of the test program");
    let mut command = Command::new(program);
    command.args(["--include-ignored", "--nocapture", "--exact", name]);
    command.env(CHILD, "1");
    for (variable, value) in environment {
        match value {
            Some(value) => command.env(variable, value),
            None => command.env_remove(variable),
        };
    }
    prepare(&mut command);
    let output = command.output().expect("the test program starts");
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && printed.contains(DONE),
        "{name} in a process of its own, with {environment:?}: {}{}{}",
        output.status,
        quoted(&printed),
        quoted(&String::from_utf8_lossy(&output.stderr)),
    );
    output
}
