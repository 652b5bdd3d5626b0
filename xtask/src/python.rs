//! The Python that tasks run.

use std::env;
use std::process::{Command, Stdio};

/// The Python that `PYTHON` names, or the system's.
pub(crate) fn python() -> Command {
    let usual = if cfg!(windows) { "python" } else { "python3" };
    Command::new(env::var_os("PYTHON").unwrap_or_else(|| usual.into()))
}

/// Whether it can be started.
pub(crate) fn is_there() -> bool {
    let answer = python()
        .arg("--version")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    answer.is_ok_and(|status| status.success())
}
