//! Reads the output of a libtest program.
//!
//! Reads the text form, since the JSON form is unstable. Other output (of a child process, a C library, a
//! sanitizer) can come between a test's `test name ... ` and its verdict, so the verdict may come lines
//! later.

use std::time::{Duration, Instant};

use super::{Finished, Verdict};

/// The number of lines of other output that are kept for reports.
const KEPT_LINES: usize = 100;

/// Parses the output of one process.
#[derive(Default)]
pub(crate) struct Parser {
    pub(crate) finished: Vec<Finished>,
    /// The announced test that has no verdict so far.
    pub(crate) pending: Option<String>,
    /// The last lines other than libtest's own.
    pub(crate) printed: Vec<String>,
    /// The failed test whose output follows: it comes after all verdicts.
    section: Option<String>,
    summaries: usize,
    blocks: usize,
    /// The time when the first program or the last test began.
    last: Option<Instant>,
}

impl Parser {
    /// Takes one line, without its line break.
    pub(crate) fn line(&mut self, line: &str) {
        if let Some(name) =
            line.strip_prefix("---- ").and_then(|rest| rest.strip_suffix(" stdout ----"))
        {
            self.section = Some(name.into());
        } else if line.starts_with("test result: ") {
            self.summaries += 1;
            self.section = None;
        } else if is_announcement(line) {
            self.blocks += 1;
            self.section = None;
            // The start of the program does not count as a test's time.
            self.last = Some(Instant::now());
        } else if line == "failures:" {
            self.section = None;
        } else if let Some(name) = &self.section {
            let test = self.finished.iter_mut().rfind(|test| test.name == *name);
            if let Some(Finished { verdict: Verdict::Failed(output), .. }) = test {
                output.extend([line, "\n"]);
            }
        } else if let Some((name, rest)) = announced(line) {
            self.pending = Some(name.into());
            self.verdict(rest);
        } else if self.pending.is_some() {
            self.verdict(line);
        } else if !line.is_empty() {
            self.keep(line);
        }
    }

    fn keep(&mut self, line: &str) {
        self.printed.push(line.into());
        self.printed.drain(..self.printed.len().saturating_sub(KEPT_LINES));
    }

    /// Reads the verdict of the pending test, if `text` is one.
    fn verdict(&mut self, text: &str) {
        let verdict = match text {
            "ok" => Verdict::Passed,
            "FAILED" => Verdict::Failed(String::new()),
            "ignored" => Verdict::Ignored(String::new()),
            _ => match text.strip_prefix("ignored, ") {
                Some(reason) => Verdict::Ignored(reason.into()),
                None => return self.keep(text),
            },
        };
        if let Some(name) = self.pending.take() {
            let time = self.since_last();
            self.last = Some(Instant::now());
            self.finished.push(Finished { name, verdict, time });
        }
    }

    /// Whether every `running N tests` has its `test result`.
    pub(crate) fn is_complete(&self) -> bool {
        self.blocks == self.summaries
    }

    /// Returns the time since the last verdict, for a test that never got one.
    pub(crate) fn since_last(&self) -> Duration {
        self.last.map_or(Duration::ZERO, |last| last.elapsed())
    }
}

/// Whether the line is like `running 12 tests`.
fn is_announcement(line: &str) -> bool {
    let count = line.strip_prefix("running ").and_then(|rest| rest.split_once(" test"));
    count.is_some_and(|(count, end)| count.parse::<usize>().is_ok() && ["", "s"].contains(&end))
}

/// Parses `test name ... rest`; removes what libtest appends to the name.
pub(crate) fn announced(line: &str) -> Option<(&str, &str)> {
    let (name, rest) = line.strip_prefix("test ")?.split_once(" ... ")?;
    Some((name.strip_suffix(" - should panic").unwrap_or(name), rest))
}

/// Returns the names from `--list --format terse`.
pub(crate) fn listed(output: &str) -> Vec<String> {
    output.lines().filter_map(|line| line.strip_suffix(": test")).map(Into::into).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Parser {
        let mut parser = Parser::default();
        for line in text.lines() {
            parser.line(line);
        }
        parser
    }

    #[test]
    fn verdicts_reasons_and_failure_output() {
        let output = parse(
            "\nrunning 4 tests\ntest a ... ok\ntest b - should panic ... ok\n\
             test c ... ignored, needs 2 GPUs\ntest d ... FAILED\n\nfailures:\n\n\
             ---- d stdout ----\nthread 'd' panicked\nleft: 1\n\nfailures:\n    d\n\n\
             test result: FAILED. 2 passed; 1 failed; 1 ignored\n",
        );
        assert!(output.is_complete());
        let verdicts: Vec<_> =
            output.finished.iter().map(|test| (test.name.as_str(), test.verdict.clone())).collect();
        assert_eq!(
            verdicts,
            [
                ("a", Verdict::Passed),
                ("b", Verdict::Passed),
                ("c", Verdict::Ignored("needs 2 GPUs".into())),
                ("d", Verdict::Failed("thread 'd' panicked\nleft: 1\n\n".into())),
            ]
        );
    }

    #[test]
    fn output_between_name_and_verdict() {
        let output = parse("running 2 tests\ntest a ... hello\n========= x\nok\ntest b ... ok\n");
        assert_eq!(output.finished.len(), 2);
        assert!(output.finished.iter().all(|test| test.verdict == Verdict::Passed));
        assert!(!output.is_complete(), "there was no summary");
    }

    #[test]
    fn a_process_that_died_names_the_test() {
        let output = parse("running 2 tests\ntest a ... ok\ntest b ... \nwatchdog\n");
        assert_eq!(output.pending.as_deref(), Some("b"));
        assert_eq!(output.printed, ["", "watchdog"]);
        assert!(!output.is_complete());
    }

    #[test]
    fn lists() {
        assert_eq!(listed("a::b: test\nc: benchmark\nd: test\n"), ["a::b", "d"]);
    }
}
