//! Runs a test's body in a child process of its own.

use std::env;
use std::process::{Command, Output};

/// Set in the process that runs the body.
const CHILD: &str = "CUDA_TESTS_CHILD";

/// Printed by a child that has run its body to the end.
const DONE: &str = "the child has come to its end";

/// Whether this process was started by [`run`].
pub fn is_this() -> bool {
    env::var_os(CHILD).is_some()
}

/// Called at the end of a child's body, before the child exits.
pub fn done() {
    println!("{DONE}");
}

/// What a child printed, indented so that the runner does not take the child's verdict for that of
/// a test in this process.
fn quoted(text: &str) -> String {
    text.lines().map(|line| format!("\n| {line}")).collect()
}

/// Runs one test of this program again as a child with the variables of `environment` set; `None`
/// removes a variable. `test` is its path, `module_path!` in front.
///
/// # Panics
/// Unless the child came to its end and then exited with success.
#[track_caller]
pub fn run(test: &str, environment: &[(&str, Option<&str>)]) -> Output {
    run_with(test, environment, |_| ())
}

/// [`run`], and then true; false, at once, in the child that it starts.
///
/// # Panics
/// As there.
#[track_caller]
pub fn ran(test: &str, environment: &[(&str, Option<&str>)]) -> bool {
    if is_this() {
        return false;
    }
    run(test, environment);
    true
}

/// [`run`], of a command that `prepare` changes.
///
/// # Panics
/// As there.
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
