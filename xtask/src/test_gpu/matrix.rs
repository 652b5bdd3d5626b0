//! The tests that all rows cover together.

use std::collections::HashSet;
use std::fmt;

use serde::Serialize;

use crate::Outcome;
use crate::suite::report::Status;
use crate::suite::{Case, Program, Report, Row, Setting, Variant};
use crate::target::{Libraries, Target};

/// Device counts of the rows.
const DEVICES: [u32; 4] = [1, 2, 4, 8];

/// All rows, including those that cannot run.
pub(super) fn settings(target: &Target) -> Vec<Setting> {
    let variants = match target {
        Target::Real(_) => Variant::REAL,
        Target::Simulated { .. } => Variant::SIMULATED,
    };
    let of = |devices| variants.iter().map(move |&variant| Setting { devices, variant });
    DEVICES.into_iter().flat_map(of).collect()
}

/// Every row, and the tests that they cover together.
#[derive(Debug, Serialize)]
pub(super) struct Matrix {
    target: String,
    /// Libraries beside the driver.
    libraries: Option<Libraries>,
    /// Number of tests in the programs.
    pub(super) exist: usize,
    /// Number of tests that ran in some row.
    ran: usize,
    never_ran: Vec<String>,
    #[serde(flatten)]
    pub(super) report: Report,
    /// Why the run fails, whatever its tests did.
    shortfall: Option<String>,
    #[serde(skip)]
    names: Vec<String>,
}

impl Matrix {
    pub(super) fn new(target: &Target, programs: &[(Program, Vec<Case>)]) -> Self {
        let names = programs.iter().flat_map(|(program, cases)| {
            let name = |case: &Case| format!("{}: {}", program.suite, case.title());
            cases.iter().map(name)
        });
        let names: Vec<String> = names.collect();
        Self {
            target: target.to_string(),
            libraries: target.libraries().cloned(),
            exist: names.len(),
            ran: 0,
            never_ran: Vec::new(),
            report: Report::default(),
            shortfall: None,
            names,
        }
    }

    /// Compares the tests that ran with those that exist, and the rows with those required: each with
    /// up to so many devices must run, and one with as many.
    pub(super) fn conclude(&mut self, settings: &[Setting], require: Option<u32>) {
        let tests = self.report.rows.iter().flat_map(|row| &row.tests);
        let ran = tests.map(|test| format!("{}: {}", test.suite, test.name));
        let ran: HashSet<String> = ran.collect();
        self.never_ran = self.names.clone();
        self.never_ran.retain(|name| !ran.contains(name));
        self.ran = self.exist - self.never_ran.len();
        self.shortfall = self.find_shortfall(settings, require);
    }

    fn find_shortfall(&self, settings: &[Setting], require: Option<u32>) -> Option<String> {
        let rows = &self.report.rows;
        if !rows.iter().any(Row::has_run) {
            return Some("no row ran".into());
        }
        let devices = require?;
        let rows = || rows.iter().zip(settings);
        // A tool that is not installed is reported; missing devices are an error.
        let lacks_devices = |row: &Row| matches!(&row.status, Status::NotRun(reason) if reason.starts_with("needs "));
        let unmet =
            |(row, setting): &(&Row, &Setting)| setting.devices <= devices && lacks_devices(row);
        if let Some((row, _)) = rows().find(unmet) {
            return Some(format!("--require {devices}: row {} did not run", row.name));
        }
        let covered = rows().any(|(row, setting)| setting.devices >= devices && row.has_run());
        (!covered).then(|| format!("--require {devices}: no row with that many devices ran"))
    }

    pub(super) fn outcome(&self) -> Outcome {
        match (self.report.outcome(), &self.shortfall) {
            (Outcome::Failed, _) => Outcome::Failed,
            (_, Some(_)) => Outcome::CouldNotRun,
            (_, None) => Outcome::Passed,
        }
    }
}

impl fmt::Display for Matrix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { target, ran, exist, .. } = self;
        writeln!(f, "{target}: {ran} of {exist} tests ran in some row")?;
        for name in &self.never_ran {
            writeln!(f, "    never ran: {name}")?;
        }
        if let Some(shortfall) = &self.shortfall {
            writeln!(f, "could not run: {shortfall}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::suite::{Finished, Run, Verdict};

    const ONE: Setting = Setting { devices: 1, variant: Variant::Lazy };
    const TWO: Setting = Setting { devices: 2, ..ONE };

    fn matrix(rows: Vec<Row>) -> Matrix {
        let program = Program { suite: "gpu".into(), path: "gpu".into(), directory: None };
        let cases = vec![Case::parse("a::needs_1"), Case::parse("b::needs_2")];
        let mut matrix = Matrix::new(&Target::Simulated { devices: 2 }, &[(program, cases)]);
        matrix.report.rows = rows;
        matrix
    }

    fn with_a() -> Row {
        let mut row = Row::new("1-sim-lazy");
        row.add(
            "gpu",
            Run {
                finished: vec![Finished {
                    name: "a::needs_1".into(),
                    verdict: Verdict::Passed,
                    time: Duration::ZERO,
                }],
                ..Run::default()
            },
        );
        row
    }

    #[test]
    fn rows_beyond_the_machine_are_there() {
        let settings = settings(&Target::Simulated { devices: 1 });
        assert_eq!(settings.len(), 16);
        assert_eq!(settings[4].to_string(), "2-sim-lazy");
    }

    #[test]
    fn what_ran_is_counted_against_what_exists() {
        let mut matrix = matrix(vec![with_a()]);
        matrix.conclude(&[ONE], None);
        assert_eq!((matrix.ran, matrix.exist), (1, 2));
        assert_eq!(matrix.never_ran, ["gpu: b"]);
        assert_eq!(matrix.outcome(), Outcome::Passed);
        matrix.conclude(&[ONE], Some(2));
        let no_two = "no row had two devices";
        assert_eq!(matrix.outcome(), Outcome::CouldNotRun, "{no_two}");
    }

    #[test]
    fn requiring_devices_that_are_not_there_is_an_error() {
        let mut absent = Row::new("2-sim-lazy");
        absent.status = Status::NotRun("needs 2 devices, 1 visible".into());
        let mut matrix = matrix(vec![with_a(), absent]);
        matrix.conclude(&[ONE, TWO], Some(1));
        assert_eq!(matrix.outcome(), Outcome::Passed);
        matrix.conclude(&[ONE, TWO], Some(2));
        assert_eq!(matrix.outcome(), Outcome::CouldNotRun);
    }
}
