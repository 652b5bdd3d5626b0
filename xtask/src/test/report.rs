//! Which tests ran, failed, or did not run, and why.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::Outcome;
use crate::suite::process::Ended;
use crate::suite::table::Table;
use crate::suite::{Counts, Finished, Verdict};

/// How many names are printed per reason; the others are counted.
const NAMES_A_REASON: usize = 12;

#[derive(Default)]
pub(crate) struct Report {
    suites: Vec<(String, Counts)>,
    failures: Vec<(String, String)>,
    /// By reason. A set, since several passes may report the same test.
    not_run: BTreeMap<String, BTreeSet<String>>,
    notes: Vec<String>,
}

impl Report {
    /// Adds the results of a suite, or of a part of one with the same name.
    pub(crate) fn suite(
        &mut self,
        name: String,
        finished: Vec<Finished>,
        complaint: Option<String>,
    ) {
        let mut counts = Counts::of(&finished);
        for test in finished {
            if let Verdict::Failed(output) = test.verdict {
                self.failures.push((format!("{name}: {}", test.name), output));
            }
        }
        if let Some(complaint) = complaint {
            counts.failed += 1;
            self.failures.push((name.clone(), complaint));
        }
        match self.suites.iter_mut().find(|(suite, _)| *suite == name) {
            Some((_, sum)) => *sum = sum.plus(counts),
            None => self.suites.push((name, counts)),
        }
    }

    /// Appends the content of another report.
    pub(crate) fn absorb(&mut self, other: Self) {
        self.suites.extend(other.suites);
        self.failures.extend(other.failures);
        for (reason, tests) in other.not_run {
            self.not_run.entry(reason).or_default().extend(tests);
        }
        self.notes.extend(other.notes);
    }

    /// Adds the results of a process in which cargo ran several suites.
    pub(crate) fn stream(&mut self, name: &str, mut ended: Ended) {
        let mut finished = std::mem::take(&mut ended.output.finished);
        if let Some(test) = ended.output.interrupted.take() {
            let verdict = Verdict::Failed(ended.report());
            finished.push(Finished { name: test, verdict, time: ended.unfinished });
        }
        for test in &finished {
            if let Verdict::Ignored(reason) = &test.verdict {
                self.not_run(name, &test.name, reason);
            }
        }
        let complaint = super::complaint(&ended, &finished);
        self.suite(name.into(), finished, complaint);
    }

    /// Adds a test, or a whole suite, that did not run.
    pub(crate) fn not_run(&mut self, suite: &str, name: &str, reason: &str) {
        let reason = if reason.is_empty() { "ignored, no reason given" } else { reason };
        self.not_run.entry(reason.into()).or_default().insert(format!("{suite}: {name}"));
    }

    /// Adds another remark.
    pub(crate) fn note(&mut self, note: String) {
        self.notes.push(note);
    }

    /// Adds what tests of a suite reported beside their verdicts.
    pub(crate) fn notes(&mut self, suite: &str, notes: Vec<String>) {
        let told = notes.iter().map(|note| format!("noted: {suite}: {note}"));
        self.notes.extend(told);
    }

    fn skipped(&self) -> usize {
        self.not_run.values().map(BTreeSet::len).sum()
    }

    fn total(&self) -> Counts {
        self.suites.iter().fold(Counts::default(), |sum, (_, counts)| sum.plus(*counts))
    }

    pub(crate) fn outcome(&self) -> Outcome {
        let total = self.total();
        match (total.failed, total.passed) {
            (0, 0) => Outcome::CouldNotRun,
            (0, _) => Outcome::Passed,
            _ => Outcome::Failed,
        }
    }

    pub(crate) fn print(&self, elapsed: Duration) {
        for (name, output) in &self.failures {
            println!("\n---- {name}\n{}", output.trim_end());
        }
        let mut table = Table::new(["suite", "passed", "failed", "not run"]);
        for (name, counts) in &self.suites {
            // Tests that no pass of the suite can run, and those that this pass cannot.
            let prefixes =
                [name.split(", ").next().unwrap_or(name), name].map(|of| format!("{of}: "));
            let not_run = self
                .not_run
                .values()
                .flatten()
                .filter(|test| prefixes.iter().any(|prefix| test.starts_with(prefix)));
            table.row([
                name.clone(),
                counts.passed.to_string(),
                counts.failed.to_string(),
                not_run.count().to_string(),
            ]);
        }
        println!("\n{table}");
        for note in &self.notes {
            println!("{note}");
        }
        for (reason, tests) in &self.not_run {
            println!("not run, {} of them: {reason}", tests.len());
            for test in tests.iter().take(NAMES_A_REASON) {
                println!("    {test}");
            }
            if tests.len() > NAMES_A_REASON {
                println!("    and {} more", tests.len() - NAMES_A_REASON);
            }
        }
        for (name, _) in &self.failures {
            println!("failed: {name}");
        }
        let total = self.total();
        println!(
            "\n{} passed, {} failed, {} skipped in {:.1} s",
            total.passed,
            total.failed,
            self.skipped(),
            elapsed.as_secs_f64()
        );
    }
}
