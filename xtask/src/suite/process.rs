//! Runs one libtest program so that every test gets a result, however the process ends.

use std::collections::{HashSet, VecDeque};
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read};
use std::mem;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, bail};

use super::libtest::{self, Output, Parser};
use super::{Case, Finished, Verdict, case};

/// Lines of a dead process's error output that the failure of its test quotes.
const QUOTED_LINES: usize = 40;

/// A built test program.
#[derive(Debug, Clone)]
pub(crate) struct Program {
    /// Package and target, for readers.
    pub(crate) suite: String,
    pub(crate) path: PathBuf,
    /// The working directory that cargo would use: the package's directory.
    pub(crate) directory: Option<PathBuf>,
}

/// How to run a program.
#[derive(Debug, Clone, Default)]
pub(crate) struct Invocation {
    /// A program, with arguments, that runs the test program, such as a sanitizer.
    pub(crate) wrapper: Vec<OsString>,
    pub(crate) environment: Vec<(String, String)>,
    /// Whether tests with `#[ignore]` run too.
    pub(crate) ignored: bool,
    /// Whether tests run one after the other.
    pub(crate) serial: bool,
}

/// The results of a run beside its tests.
#[derive(Default)]
pub(crate) struct Run {
    pub(crate) finished: Vec<Finished>,
    /// An error of the process although every test passed, such as a sanitizer's report.
    pub(crate) complaint: Option<String>,
    /// What tests reported beside their verdicts.
    pub(crate) notes: Vec<String>,
}

impl Run {
    /// Adds the results of tests that ran separately.
    pub(crate) fn absorb(&mut self, other: Self) {
        self.finished.extend(other.finished);
        self.complaint = self.complaint.take().or(other.complaint);
        self.notes.extend(other.notes);
    }
}

impl Program {
    /// Every test in the program.
    pub(crate) fn list(&self) -> anyhow::Result<Vec<Case>> {
        let output = Command::new(&self.path)
            .args(["--list", "--format", "terse"])
            .stderr(Stdio::inherit())
            .output()
            .with_context(|| format!("{}", self.path.display()))?;
        if !output.status.success() {
            bail!("{} --list: {}", self.path.display(), output.status);
        }
        let names = libtest::listed(&String::from_utf8(output.stdout)?);
        Ok(names.iter().map(|name| Case::parse(name)).collect())
    }

    /// Runs the named tests, all in one process as long as it lives; if it dies, the running test
    /// has failed and the others continue in another process.
    pub(crate) fn run(
        &self,
        invocation: &Invocation,
        names: &[&str],
        echo: &mut dyn FnMut(&str),
    ) -> anyhow::Result<Run> {
        let mut remaining: Vec<&str> = names.to_vec();
        let mut run = Run::default();
        let mut serial = invocation.serial;
        while !remaining.is_empty() {
            let mut ended = self.spawn(invocation, serial, &remaining, echo)?;
            run.notes.append(&mut ended.notes);
            let finished = mem::take(&mut ended.output.finished);
            let reported: HashSet<&str> = finished.iter().map(|test| test.name.as_str()).collect();
            remaining.retain(|name| !reported.contains(name));
            let failed = finished.iter().any(|test| matches!(test.verdict, Verdict::Failed(_)));
            run.finished.extend(finished);
            if ended.output.complete {
                if !ended.status.success() && !failed {
                    run.complaint = Some(ended.report());
                }
                run.finished
                    .extend(remaining.drain(..).map(|name| lost(name, "it reported nothing")));
                break;
            }
            let report = format!("the process ended: {}", ended.report());
            match ended.output.interrupted.filter(|name| remaining.contains(&name.as_str())) {
                Some(name) => {
                    remaining.retain(|other| *other != name);
                    let verdict = Verdict::Failed(report);
                    run.finished.push(Finished { name, verdict, time: ended.unfinished });
                }
                // Several tests ran at once; running them one at a time will show which one failed.
                None if !serial => {}
                None => {
                    run.finished.extend(remaining.drain(..).map(|name| lost(name, &report)));
                }
            }
            serial = true;
        }
        Ok(run)
    }

    /// Runs each named test in its own process.
    pub(crate) fn run_apart(
        &self,
        invocation: &Invocation,
        names: &[&str],
        echo: &mut dyn FnMut(&str),
    ) -> anyhow::Result<Run> {
        let mut all = Run::default();
        for name in names {
            all.absorb(self.run(invocation, &[name], echo)?);
        }
        Ok(all)
    }

    fn spawn(
        &self,
        invocation: &Invocation,
        serial: bool,
        names: &[&str],
        echo: &mut dyn FnMut(&str),
    ) -> anyhow::Result<Ended> {
        let mut words = invocation.wrapper.iter();
        let mut command = match words.next() {
            Some(wrapper) => {
                let mut command = Command::new(wrapper);
                command.args(words).arg(&self.path);
                command
            }
            None => Command::new(&self.path),
        };
        if let Some(directory) = &self.directory {
            command.current_dir(directory).env("CARGO_MANIFEST_DIR", directory);
        }
        command.envs(invocation.environment.iter().map(|(name, value)| (name, value)));
        if invocation.ignored {
            command.arg("--include-ignored");
        }
        if serial {
            command.arg("--test-threads=1");
        }
        command.arg("--exact").args(names);
        follow(command, echo)
    }
}

fn lost(name: &str, report: &str) -> Finished {
    let verdict = Verdict::Failed(report.into());
    Finished { name: name.into(), verdict, time: Duration::ZERO }
}

/// A process that has ended.
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) output: Output,
    /// The end of its error output.
    pub(crate) errors: String,
    /// What tests reported there beside their verdicts.
    pub(crate) notes: Vec<String>,
    /// Time since the last verdict.
    pub(crate) unfinished: Duration,
}

impl Ended {
    /// Its status and the end of its output.
    pub(crate) fn report(&self) -> String {
        [&self.status.to_string(), &self.output.printed, &self.errors]
            .map(|part| part.trim_end())
            .into_iter()
            .filter(|part| !part.is_empty())
            .collect::<Vec<_>>()
            .join("\n")
    }
}

/// Runs `command`, reads its output as libtest's and passes every line on as it comes.
pub(crate) fn follow(mut command: Command, echo: &mut dyn FnMut(&str)) -> anyhow::Result<Ended> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| command.get_program().to_string_lossy().into_owned())?;
    let errors = child.stderr.take().map(|stderr| thread::spawn(move || tail(stderr)));
    let mut parser = Parser::new();
    if let Some(stdout) = child.stdout.take() {
        let mut stdout = BufReader::new(stdout);
        let mut line = Vec::new();
        while stdout.read_until(b'\n', &mut line)? > 0 {
            let text = String::from_utf8_lossy(&line);
            let text = text.trim_end_matches(['\n', '\r']);
            parser.line(text);
            echo(text);
            line.clear();
        }
    }
    let status = child.wait()?;
    let (errors, notes) = match errors.map(thread::JoinHandle::join) {
        Some(Ok(read)) => read,
        _ => Default::default(),
    };
    let unfinished = parser.since_last();
    Ok(Ended { status, output: parser.finish(), errors, notes, unfinished })
}

/// Passes error output on, and keeps its end and all reports of tests.
fn tail(stderr: impl Read) -> (String, Vec<String>) {
    let mut kept = VecDeque::new();
    let mut notes = Vec::new();
    for line in BufReader::new(stderr).split(b'\n').map_while(Result::ok) {
        let line = String::from_utf8_lossy(&line).into_owned();
        eprintln!("{line}");
        notes.extend(case::note(&line));
        if kept.len() == QUOTED_LINES {
            kept.pop_front();
        }
        kept.push_back(line);
    }
    (Vec::from(kept).join("\n"), notes)
}
