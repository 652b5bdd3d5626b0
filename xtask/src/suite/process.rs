//! Runs a libtest program so that every test gets a result, however the process ends.

use std::collections::HashSet;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

use super::libtest::{self, Parser};
use super::{Case, Finished, Verdict, case};
use crate::process::{self, FOREVER, output};

/// The number of lines of a dead process's error output that its test's failure quotes.
const QUOTED_LINES: usize = 40;

/// A built test program.
#[derive(Debug, Clone)]
pub(crate) struct Program {
    /// The package and target, for display.
    pub(crate) suite: String,
    pub(crate) path: PathBuf,
    /// The working directory that cargo would use: the package's directory.
    pub(crate) directory: Option<PathBuf>,
}

/// The way to run a program.
#[derive(Debug, Clone, Default)]
pub(crate) struct Invocation {
    /// A program, with arguments, that runs the test program, such as a sanitizer.
    pub(crate) wrapper: Vec<OsString>,
    pub(crate) environment: Vec<(&'static str, String)>,
    /// Whether this is a GPU suite: its tests run one after another, including those with `#[ignore]`.
    pub(crate) of_gpu: bool,
}

/// The results of a run's tests and of its process.
#[derive(Default)]
pub(crate) struct Run {
    pub(crate) finished: Vec<Finished>,
    /// An error of the process although every test passed, such as a sanitizer's report.
    pub(crate) complaint: Option<String>,
    /// Reports of tests besides their verdicts.
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
    /// Whether the program's tests poison their process, so that each needs a process of its own.
    pub(crate) fn poisons(&self) -> bool {
        self.suite == "cuda-tests::sticky"
    }

    /// Lists every test of the program whose path contains `filter`.
    pub(crate) fn list(&self, filter: &str) -> anyhow::Result<Vec<Case>> {
        let listed = output(Command::new(&self.path).args(["--list", "--format", "terse"]))?;
        let names = libtest::listed(&listed).into_iter().filter(|name| name.contains(filter));
        Ok(names.map(|name| Case::parse(&name)).collect())
    }

    /// Runs the named tests. Unless they poison their process, all run in one process while it lives. If the
    /// process dies, the running test has failed, and the others continue in another process.
    pub(crate) fn run(
        &self,
        invocation: &Invocation,
        names: &[&str],
        echo: &mut dyn FnMut(&str),
    ) -> anyhow::Result<Run> {
        let at_a_time = if self.poisons() { 1 } else { names.len().max(1) };
        let mut all = Run::default();
        for names in names.chunks(at_a_time) {
            let (mut remaining, mut serial) = (names.to_vec(), invocation.of_gpu);
            let (mut part, mut death) = (Run::default(), None);
            while !remaining.is_empty() {
                let command = self.command(invocation, serial, &remaining);
                let Ended { mut run, is_complete, interrupted, report, .. } =
                    follow(command, echo)?;
                let is_known = interrupted.is_some_and(|name| remaining.contains(&&*name));
                let reported: HashSet<&str> = run.finished.iter().map(|test| &*test.name).collect();
                remaining.retain(|name| !reported.contains(name));
                if is_complete || (serial && !is_known) {
                    let reason = if is_complete { "it reported nothing" } else { report.as_str() };
                    let lost = remaining.drain(..).map(|name| Finished::lost(name, reason));
                    run.finished.extend(lost);
                }
                // If several tests ran at once, running them one at a time may show which one failed.
                let is_repeated = !is_complete && !serial;
                if is_repeated || run.finished.iter().any(Finished::has_failed) {
                    run.complaint = None;
                }
                death = if is_repeated { Some(report) } else { death };
                serial = true;
                part.absorb(run);
            }
            // The tests may fail only when they run at the same time.
            if !part.finished.iter().any(Finished::has_failed) {
                part.complaint = part.complaint.or(death);
            }
            if let ([test], Some(_)) = (&mut *part.finished, &part.complaint) {
                test.verdict = Verdict::Failed(part.complaint.take().unwrap_or_default());
            }
            all.absorb(part);
        }
        Ok(all)
    }

    fn command(&self, invocation: &Invocation, serial: bool, names: &[&str]) -> Command {
        let wrapper = invocation.wrapper.iter().map(OsString::as_os_str);
        let mut words = wrapper.chain([self.path.as_os_str()]);
        let mut command = Command::new(words.next().unwrap_or_default());
        command.args(words);
        if let Some(directory) = &self.directory {
            command.current_dir(directory).env("CARGO_MANIFEST_DIR", directory);
        }
        command.envs(invocation.environment.iter().map(|(name, value)| (name, value)));
        if invocation.of_gpu {
            command.arg("--include-ignored");
        }
        if serial {
            command.arg("--test-threads=1");
        }
        command.arg("--exact").args(names);
        command
    }
}

/// A process that has ended.
pub(crate) struct Ended {
    /// The results of its tests; the test that was running when the process died has failed.
    pub(crate) run: Run,
    /// Whether each block of tests was completed.
    is_complete: bool,
    /// Whether the process also succeeded.
    pub(crate) is_whole: bool,
    /// The test that was running when the process died.
    interrupted: Option<String>,
    /// The status of the process and the end of its output.
    report: String,
}

/// Runs `command`, parses its output as libtest's, and passes every line on at once.
pub(crate) fn follow(command: Command, echo: &mut dyn FnMut(&str)) -> anyhow::Result<Ended> {
    let mut parser = Parser::default();
    let take = |line: &str| {
        parser.line(line);
        echo(line);
    };
    let (status, (errors, notes)) = process::follow(command, FOREVER, take, tail)?;
    let (time, is_complete) = (parser.since_last(), parser.is_complete());
    let is_whole = status.success() && is_complete;
    let Parser { mut finished, pending: interrupted, printed, .. } = parser;
    let parts = [format!("the process ended: {status}"), printed.join("\n"), errors];
    let parts = parts.iter().map(|part| part.trim_end()).filter(|part| !part.is_empty());
    let report = parts.collect::<Vec<_>>().join("\n");
    let lost = interrupted.as_deref().map(|name| Finished::lost(name, &report));
    finished.extend(lost.map(|test| Finished { time, ..test }));
    let is_unexplained = !is_whole && !finished.iter().any(Finished::has_failed);
    let run = Run { finished, complaint: is_unexplained.then(|| report.clone()), notes };
    Ok(Ended { run, is_complete, is_whole, interrupted, report })
}

/// Passes error output on, and keeps its end and all reports of tests.
fn tail(lines: &mut dyn Iterator<Item = String>) -> (String, Vec<String>) {
    let (mut kept, mut notes) = (Vec::new(), Vec::new());
    for line in lines {
        eprintln!("{line}");
        notes.extend(case::note(&line));
        kept.push(line);
        kept.drain(..kept.len().saturating_sub(QUOTED_LINES));
    }
    (kept.join("\n"), notes)
}

#[cfg(all(test, unix))]
mod tests {
    use std::fs;

    use super::*;

    /// Runs two tests of a program that is this shell script.
    fn run(name: &str, script: &str) -> Run {
        let path = std::env::temp_dir().join(format!("program-{name}-{}", std::process::id()));
        fs::write(&path, script).unwrap();
        let program = Program { suite: "a::b".into(), path: path.clone(), directory: None };
        let by_the_shell = Invocation { wrapper: vec!["sh".into()], ..Invocation::default() };
        let run = program.run(&by_the_shell, &["one", "two"], &mut |_| ());
        fs::remove_file(path).unwrap();
        run.unwrap()
    }

    const PASSES: &str = "echo 'running 2 tests'; echo 'test one ... ok'; echo 'test two ... ok'";
    const ENDS: &str = "echo 'test result: ok. 2 passed; 0 failed'";

    #[test]
    fn a_program_that_dies_only_while_its_tests_run_together_has_not_passed() {
        let serial = format!("case \"$*\" in *--test-threads=1*) {PASSES}; {ENDS}; exit;; esac");
        let before = run("before", &format!("{serial}; echo 'running 2 tests'; kill -SEGV $$"));
        assert!(before.complaint.is_some_and(|why| why.contains("signal: 11")));
        assert_eq!(before.finished.len(), 2);
        let after = run("after", &format!("{serial}; {PASSES}; kill -SEGV $$"));
        assert!(after.complaint.is_some_and(|why| why.contains("signal: 11")));
    }

    #[test]
    fn a_program_that_exits_early_has_not_passed() {
        assert!(run("whole", &format!("{PASSES}; {ENDS}")).complaint.is_none());
        let early = run("early", &format!("{PASSES}; exit 0"));
        assert!(early.complaint.is_some_and(|why| why.contains("exit status: 0")));
    }
}
