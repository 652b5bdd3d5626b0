//! Tests that passed in a full run that was interrupted. A full run takes hours; the next one of the same
//! commit continues from there, also on another machine if the file is copied there.

use std::collections::HashMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fs_err as fs;

use super::Suite;
use crate::ci::full_run;
use crate::suite::{Finished, Verdict};

/// The file: a line with the commit, then a line for each test with its seconds, its suite and its name.
const FILE: &str = ".ci/miri-passed";

pub(super) struct Passed {
    file: PathBuf,
    seconds: HashMap<String, f64>,
}

impl Passed {
    /// Reads the tests that have passed for the checked-out commit; [`None`] if files have changed since the
    /// commit.
    pub(super) fn read(root: &Path) -> anyhow::Result<Option<Self>> {
        let Some(commit) = full_run::commit(root) else {
            return Ok(None);
        };
        let file = root.join(FILE);
        let text = fs::read_to_string(&file).unwrap_or_default();
        let seconds = parse(&text, &commit);
        if seconds.is_empty() {
            fs::write(&file, format!("{commit}\n"))?;
        }
        Ok(Some(Self { file, seconds }))
    }

    /// Returns the result of a test that has passed before.
    pub(super) fn finished(&self, suite: &Suite, name: &str) -> Option<Finished> {
        let seconds = *self.seconds.get(&key(suite, name))?;
        let time = Duration::from_secs_f64(seconds);
        Some(Finished { name: name.to_owned(), verdict: Verdict::Passed, time })
    }

    /// Adds those tests of a process that have passed.
    pub(super) fn add(&self, suite: &Suite, finished: &[Finished]) -> anyhow::Result<()> {
        let passed = finished.iter().filter(|test| test.verdict == Verdict::Passed);
        let line = |test: &Finished| line(test.time, &key(suite, &test.name));
        let lines: String = passed.map(line).collect();
        let mut file = fs::OpenOptions::new().append(true).open(&self.file)?;
        Ok(file.write_all(lines.as_bytes())?)
    }

    /// Removes the file, since the run was completed.
    pub(super) fn remove(self) -> anyhow::Result<()> {
        Ok(fs::remove_file(self.file)?)
    }
}

fn key(suite: &Suite, name: &str) -> String {
    format!("{}: {name}", suite.label())
}

fn line(time: Duration, key: &str) -> String {
    format!("{:.1} {key}\n", time.as_secs_f64())
}

/// Parses the seconds of each test; returns none if the file is of another commit.
fn parse(text: &str, commit: &str) -> HashMap<String, f64> {
    let mut lines = text.lines();
    let lines = if lines.next() == Some(commit) { Some(lines) } else { None };
    let parsed = lines.into_iter().flatten().filter_map(|line| {
        let (seconds, key) = line.split_once(' ')?;
        Some((key.to_owned(), seconds.parse().ok()?))
    });
    parsed.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_passed_for_a_commit_counts_for_that_one_alone() {
        let text = "abc\n".to_owned() + &line(Duration::from_millis(2500), "sim: a::b");
        assert_eq!(parse(&text, "abc"), HashMap::from([("sim: a::b".to_owned(), 2.5)]));
        assert!(parse(&text, "abd").is_empty() && parse("", "abc").is_empty());
    }
}
