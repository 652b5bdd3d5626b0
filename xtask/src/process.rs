//! Starts other programs.

use std::env;
use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{self, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use fs_err as fs;

use crate::refuse;

/// The number of lines of a failed program's error output that an error quotes.
const QUOTED_LINES: usize = 30;

/// Returns a command for a program and its arguments, separated by spaces. It reads no input.
pub(crate) fn command(words: &str) -> Command {
    let (program, arguments) = words.split_once(' ').unwrap_or((words, ""));
    with_arguments(program.into(), arguments)
}

/// Returns a command for the cargo that runs this task, or the one on `PATH`; `arguments` are separated by
/// spaces.
pub(crate) fn cargo(arguments: &str) -> Command {
    with_arguments(or_named_by("CARGO", "cargo"), arguments)
}

/// Returns a command for the cargo of another toolchain. Does not use `$CARGO`, which is this toolchain's own
/// and does not accept `+nightly`.
pub(crate) fn cargo_of(toolchain: &str, arguments: &str) -> Command {
    let mut command = command(&format!("cargo +{toolchain} {arguments}"));
    for variable in ["RUSTC", "RUSTDOC", "RUSTUP_TOOLCHAIN"] {
        command.env_remove(variable);
    }
    command
}

/// Returns a command for the Python that `PYTHON` names, or the system's; `arguments` are separated by
/// spaces.
pub(crate) fn python(arguments: &str) -> Command {
    let usual = if cfg!(windows) { "python" } else { "python3" };
    with_arguments(or_named_by("PYTHON", usual), arguments)
}

/// Returns the program that a variable names, or the usual one.
pub(crate) fn or_named_by(variable: &str, usual: &str) -> OsString {
    env::var_os(variable).unwrap_or_else(|| usual.into())
}

fn with_arguments(program: OsString, arguments: &str) -> Command {
    let mut command = Command::new(program);
    command.args(arguments.split_whitespace()).stdin(Stdio::null());
    command
}

/// Returns the path of this program; on Linux, one that stays valid even after a build has replaced the file.
pub(crate) fn own_program() -> io::Result<PathBuf> {
    let own = Path::new("/proc/self/exe");
    if own.exists() { Ok(own.to_owned()) } else { env::current_exe() }
}

/// Whether the command can be started and succeeds. Drops its output.
pub(crate) fn succeeds(mut command: Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}

/// Returns a refusal with `help` unless the command succeeds.
pub(crate) fn require(command: Command, help: impl Into<String>) -> Result<()> {
    if succeeds(command) { Ok(()) } else { Err(refuse(help)) }
}

/// Runs a command that must succeed; its output goes to the terminal.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| not_started(command))?;
    ensure!(status.success(), "{command:?}: {status}");
    Ok(())
}

/// Runs a command that must succeed and returns its output.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| not_started(command))?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        let program = command.get_program().to_string_lossy();
        bail!("{program}: {}:\n{}", output.status, last_lines(&errors));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn not_started(command: &Command) -> String {
    let program = command.get_program().to_string_lossy();
    format!("{program} could not be started")
}

/// Runs a command and passes each line of its output on at once. Ends the command if it takes longer than
/// `patience`. If it fails, the error is the last line of its error output, and is a
/// [`Refusal`](crate::Refusal) if the exit code is that of one.
#[cfg(feature = "driver")]
pub(crate) fn ask(command: Command, patience: Duration, take: impl FnMut(&str)) -> Result<()> {
    let last = |errors: &mut dyn Iterator<Item = String>| {
        errors.filter(|line| !line.trim().is_empty()).last()
    };
    let (status, last) = follow(command, patience, take, last)?;
    let why = last.unwrap_or_else(|| "it failed".to_owned());
    match status.code() {
        Some(0) => Ok(()),
        Some(2) => Err(refuse(why.trim_start_matches("error: "))),
        _ => bail!(why),
    }
}

/// Runs a command and passes each line of its output on at once. Returns its status and the result of `read`
/// for the lines of its error output. Ends the command and returns an error if it takes longer than
/// `patience`.
pub(crate) fn follow<E: Default + Send + 'static>(
    mut command: Command,
    patience: Duration,
    mut take: impl FnMut(&str),
    read: impl FnOnce(&mut dyn Iterator<Item = String>) -> E + Send + 'static,
) -> Result<(ExitStatus, E)> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().with_context(|| not_started(&command))?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let errors = thread::spawn(move || read(&mut stderr.into_iter().flat_map(lines_of)));
    let (sender, lines) = mpsc::channel();
    thread::spawn(move || {
        stdout.into_iter().flat_map(lines_of).try_for_each(|line| sender.send(line))
    });
    let deadline = Instant::now() + patience;
    loop {
        match lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(line) => take(&line),
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                child.kill()?;
                child.wait()?;
                bail!("ended after {} s", patience.as_secs());
            }
        }
    }
    let status = child.wait()?;
    Ok((status, errors.join().unwrap_or_default()))
}

/// The lines of an output, parts of which may not be text.
fn lines_of(output: impl Read) -> impl Iterator<Item = String> {
    let lines = BufReader::new(output).split(b'\n').map_while(Result::ok);
    lines.map(|line| String::from_utf8_lossy(&line).trim_end_matches('\r').to_owned())
}

/// A file for the output of another program; removed when this is dropped.
pub(crate) struct Record(pub(crate) PathBuf);

impl Record {
    pub(crate) fn new(name: &str) -> Self {
        let path = env::temp_dir().join(format!("cuda-{name}-{}", process::id()));
        // An interrupted run with the same process id may have left one.
        let _ = fs::remove_file(&path);
        Self(path)
    }

    /// Returns the text; empty if the program has written none.
    pub(crate) fn read(&self) -> String {
        fs::read_to_string(&self.0).unwrap_or_default()
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        // A file left in the system's directory of temporary files is harmless.
        let _ = fs::remove_file(&self.0);
    }
}

/// The patience for a program that may take any time: practically unlimited.
pub(crate) const FOREVER: Duration = Duration::from_secs(u32::MAX as u64);

/// Returns the end of an output, which contains the error.
pub(crate) fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.trim_end().lines().collect();
    lines[lines.len().saturating_sub(QUOTED_LINES)..].join("\n")
}

#[cfg(all(test, feature = "driver"))]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    #[test]
    fn a_missing_interpreter_is_named() {
        let asked = ask(Command::new("no-such-python"), PATIENCE, |_| {});
        let error = asked.unwrap_err().to_string();
        assert_eq!(error, "no-such-python could not be started");
    }

    #[cfg(unix)]
    #[test]
    fn a_program_without_output_is_ended() {
        let mut silent = Command::new("tail");
        silent.args(["-f", "/dev/null"]);
        let ended = ask(silent, Duration::from_millis(1), |line| panic!("{line}"));
        assert_eq!(ended.unwrap_err().to_string(), "ended after 0 s");
    }

    #[cfg(unix)]
    #[test]
    fn the_last_complaint_says_why() {
        let mut failing = Command::new("sh");
        failing.args(["-c", "echo printed; echo first >&2; echo last >&2; exit 1"]);
        let mut lines = Vec::new();
        let ended = ask(failing, PATIENCE, |line| lines.push(line.to_owned()));
        assert_eq!(ended.unwrap_err().to_string(), "last");
        assert_eq!(lines, ["printed"]);
    }
}
