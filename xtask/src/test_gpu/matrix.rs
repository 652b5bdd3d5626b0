//! The tests that all rows together cover.

use std::collections::HashSet;
use std::fmt;

use serde::Serialize;

use crate::Outcome;
use crate::suite::report::Status;
use crate::suite::{Case, Program, Report, Row, Setting, Variant};
use crate::target::{Libraries, Target};

/// The device counts of the rows.
pub(super) const DEVICES: [u32; 4] = [1, 2, 4, 8];

/// All rows, including those that cannot run.
pub(super) fn settings(target: &Target) -> Vec<Setting> {
    let variants = match target {
        Target::Real(..) => Variant::REAL,
        Target::Simulated { .. } => Variant::SIMULATED,
    };
    let of = |devices| variants.iter().map(move |&variant| Setting { devices, variant });
    DEVICES.into_iter().flat_map(of).collect()
}

/// All rows, and the tests that they cover together.
#[derive(Debug, Serialize)]
pub(super) struct Matrix {
    target: String,
    /// Libraries besides the driver.
    libraries: Option<Libraries>,
    /// The number of tests in the programs.
    exist: usize,
    /// The number of tests that ran in some row.
    ran: usize,
    never_ran: Vec<String>,
    #[serde(flatten)]
    pub(super) report: Report,
    /// The reason why the run fails, whatever the results of its tests.
    pub(super) shortfall: Option<String>,
}

impl Matrix {
    /// Compares the tests that ran with those that exist, and the rows, each of which has a setting, with
    /// those required: every row with up to `require` devices must run, and one with at least that many.
    pub(super) fn new(
        target: &Target,
        programs: &[(Program, Vec<Case>)],
        report: Report,
        settings: &[Setting],
        require: Option<u32>,
    ) -> Self {
        let tests = report.rows.iter().flat_map(|row| &row.tests);
        let ran: HashSet<_> = tests.map(|test| format!("{}: {}", test.suite, test.name)).collect();
        let names = programs.iter().flat_map(|(program, cases)| {
            cases.iter().map(|case| format!("{}: {}", program.suite, case.title))
        });
        let exist = programs.iter().map(|(_, cases)| cases.len()).sum();
        let never_ran: Vec<String> = names.filter(|name| !ran.contains(name)).collect();
        Self {
            target: target.to_string(),
            libraries: target.libraries().cloned(),
            exist,
            ran: exist - never_ran.len(),
            never_ran,
            shortfall: shortfall(&report.rows, settings, require),
            report,
        }
    }

    pub(super) fn outcome(&self) -> Outcome {
        match (self.report.outcome(), &self.shortfall) {
            (Outcome::Failed, _) => Outcome::Failed,
            (_, Some(_)) => Outcome::CouldNotRun,
            (outcome, None) => outcome,
        }
    }
}

fn shortfall(rows: &[Row], settings: &[Setting], require: Option<u32>) -> Option<String> {
    if !rows.iter().any(Row::has_run) {
        return Some("no row ran".into());
    }
    let devices = require?;
    let rows = || rows.iter().zip(settings);
    let unmet = |(row, setting): &(&Row, &Setting)| match &row.status {
        // A tool that is not installed is only reported; missing devices are an error.
        Status::NotRun(reason) => setting.devices <= devices && reason.starts_with("needs "),
        _ => false,
    };
    if let Some((row, _)) = rows().find(unmet) {
        return Some(format!("--require {devices}: row {} did not run", row.name));
    }
    let covered = rows().any(|(row, setting)| setting.devices >= devices && row.has_run());
    (!covered).then(|| format!("--require {devices}: no row with that many devices ran"))
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

    fn matrix(rows: Vec<Row>, settings: &[Setting], require: Option<u32>) -> Matrix {
        let program = Program { suite: "gpu".into(), path: "gpu".into(), directory: None };
        let cases = vec![Case::parse("a::needs_1"), Case::parse("b::needs_2")];
        let target = Target::Simulated { devices: 2, without_nvrtc: None };
        let mut report = Report::default();
        report.rows = rows;
        Matrix::new(&target, &[(program, cases)], report, settings, require)
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
        let settings = settings(&Target::Simulated { devices: 1, without_nvrtc: None });
        assert_eq!(settings.len(), 12);
        assert_eq!(settings[3].to_string(), "2-sim-lazy");
    }

    #[test]
    fn what_ran_is_counted_against_what_exists() {
        let none_required = matrix(vec![with_a()], &[ONE], None);
        assert_eq!((none_required.ran, none_required.exist), (1, 2));
        assert_eq!(none_required.never_ran, ["gpu: b"]);
        assert_eq!(none_required.outcome(), Outcome::Passed);
        let no_two = "no row had two devices";
        let two_required = matrix(vec![with_a()], &[ONE], Some(2));
        assert_eq!(two_required.outcome(), Outcome::CouldNotRun, "{no_two}");
    }

    #[test]
    fn requiring_devices_that_are_not_there_is_an_error() {
        let requiring = |devices| {
            let mut absent = Row::new("2-sim-lazy");
            absent.status = Status::NotRun("needs 2 devices, 1 visible".into());
            matrix(vec![with_a(), absent], &[ONE, TWO], Some(devices)).outcome()
        };
        assert_eq!(requiring(1), Outcome::Passed);
        assert_eq!(requiring(2), Outcome::CouldNotRun);
    }
}
