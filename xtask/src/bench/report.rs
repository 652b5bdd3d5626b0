//! The results of a bench, and whether they met their goals.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, ensure};
use serde::{Deserialize, Serialize};

use super::goal::Goal;
use super::measure::Measured;

/// Raised whenever an older program would misread a newer report.
const FORMAT: u32 = 1;

/// All results of a bench.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Report {
    format: u32,
    /// Version of the workspace.
    pub(crate) version: String,
    pub(crate) driver: String,
    /// Whether the driver is simulated, so that the figures mean nothing.
    pub(crate) simulated: bool,
    /// Batches of each way.
    pub(crate) batches: usize,
    pub(crate) peers: Vec<Peer>,
    pub(crate) rows: Vec<Row>,
}

/// A Python package that is measured for comparison.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Peer {
    pub(crate) name: String,
    /// Or why the package has no figures.
    #[serde(flatten, with = "Version")]
    pub(crate) version: Result<String, String>,
}

/// The JSON form: one key or the other.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Result<String, String>")]
enum Version {
    #[serde(rename = "version")]
    Ok(String),
    #[serde(rename = "absent")]
    Err(String),
}

/// One operation.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) group: String,
    pub(crate) name: String,
    pub(crate) goal: Goal,
    pub(crate) finding: Finding,
    /// For readers of the file; computed again when it is read.
    #[serde(skip_deserializing)]
    pub(crate) verdict: Verdict,
    /// The peers' figures, in the unit of [`Measured`].
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) peers: BTreeMap<String, f64>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Finding {
    Measured(Measured),
    NotRun(String),
    Failed(String),
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Verdict {
    Met,
    Missed,
    NoGoal,
    #[default]
    NotRun,
    Failed,
}

impl Verdict {
    pub(crate) fn describe(self) -> &'static str {
        match self {
            Self::Met => "met",
            Self::Missed => "MISSED",
            Self::NoGoal => "-",
            Self::NotRun => "not run",
            Self::Failed => "FAILED",
        }
    }
}

impl Row {
    pub(crate) fn new(group: &str, name: &str, goal: &Goal, finding: Finding) -> Self {
        Self {
            group: group.to_owned(),
            name: name.to_owned(),
            goal: goal.clone(),
            finding,
            verdict: Verdict::default(),
            peers: BTreeMap::new(),
        }
    }

    pub(crate) fn measured(&self) -> Option<&Measured> {
        match &self.finding {
            Finding::Measured(measured) => Some(measured),
            Finding::NotRun(_) | Finding::Failed(_) => None,
        }
    }
}

impl Report {
    pub(crate) fn new(driver: String, simulated: bool, batches: usize) -> Self {
        Self {
            format: FORMAT,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            driver,
            simulated,
            batches,
            peers: Vec::new(),
            rows: Vec::new(),
        }
    }

    pub(crate) fn write(&self, path: &Path) -> anyhow::Result<()> {
        let text = serde_json::to_string_pretty(self)?;
        fs::write(path, text + "\n").with_context(|| path.display().to_string())
    }

    pub(crate) fn read(path: &Path) -> anyhow::Result<Self> {
        let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
        Self::parse(&text).with_context(|| format!("{}: not a bench's JSON?", path.display()))
    }

    fn parse(text: &str) -> anyhow::Result<Self> {
        let mut report: Self = serde_json::from_str(text)?;
        let format = report.format;
        ensure!(format == FORMAT, "format {format}, this program reads {FORMAT}");
        report.judge();
        Ok(report)
    }

    /// Gives each row its verdict. Figures of a simulated driver get none.
    pub(crate) fn judge(&mut self) {
        for row in &mut self.rows {
            row.verdict = match &row.finding {
                Finding::NotRun(_) => Verdict::NotRun,
                Finding::Failed(_) => Verdict::Failed,
                Finding::Measured(_) if self.simulated => Verdict::NoGoal,
                Finding::Measured(measured) => match row.goal.met(measured) {
                    Some(true) => Verdict::Met,
                    Some(false) => Verdict::Missed,
                    None => Verdict::NoGoal,
                },
            };
        }
    }

    pub(crate) fn count(&self, verdict: Verdict) -> usize {
        self.rows.iter().filter(|row| row.verdict == verdict).count()
    }

    /// The number of goals that were met, and of all goals.
    pub(crate) fn goals(&self) -> (usize, usize) {
        let met = self.count(Verdict::Met);
        (met, met + self.count(Verdict::Missed))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::many::{Links, Many};
    use super::super::measure::Unit;
    use super::*;

    /// A report with a row of each verdict.
    pub(crate) fn sample() -> Report {
        let time = |ours, raw| Finding::Measured(Measured::new(Unit::Nanoseconds, ours, raw));
        let rate = |ours, raw| Finding::Measured(Measured::new(Unit::Gigabytes, ours, raw));
        let one = Goal::Beside { calls: 1 };
        let mut report = Report::new("1 × NVIDIA <H200> & \"driver\"".into(), false, 31);
        report.peers = vec![
            Peer { name: "CuPy".into(), version: Ok("14.2.0".into()) },
            Peer { name: "PyTorch".into(), version: Err("not there".into()) },
        ];
        let none = Goal::None("the raw calls do less".into());
        report.rows = vec![
            Row::new("guards", "guard", &one, time(18.0, Some(12.0))),
            Row::new("enqueues", "upload <4 KiB>", &one, time(1100.0, Some(1020.0))),
            Row::new("enqueues", "host function", &none, time(12_596.0, Some(12_436.0))),
            Row::new("pageable copies", "upload 64 MiB", &Goal::Share(0.8), rate(47.0, Some(55.3))),
            Row::new(
                "pinned memory",
                "first 1 GiB",
                &Goal::Absolute(45e6, Unit::Nanoseconds),
                time(38e6, None),
            ),
            Row::new(
                "several devices",
                "peer copy",
                &one,
                Finding::NotRun("needs 2 devices".into()),
            ),
            Row::new("several devices", "broadcast", &one, Finding::Failed("out of memory".into())),
        ];
        report.rows[1].peers.insert("CuPy".into(), 7410.0);
        report.judge();
        report
    }

    /// Rows of four devices: with the host, with each other, and from one of them.
    pub(crate) fn many() -> Vec<Row> {
        let row = |name, ours, raw, singles, limit: Option<f64>| {
            let links = limit.map(|limit| Links { one_way: 396.0, both_ways: 779.0, limit });
            let many = Many { devices: 4, singles, links };
            let measured = Measured::new(Unit::Gigabytes, ours, Some(raw)).among(many);
            let finding = Finding::Measured(measured);
            Row::new("groups", name, &Goal::Share(0.95), finding)
        };
        vec![
            row("gather", 138.0, 145.0, Some(220.0), None),
            row("ring", 1552.0, 1553.0, Some(1580.0), Some(1584.0)),
            row("chain", 332.0, 393.0, None, Some(396.0)),
        ]
    }

    #[test]
    fn a_report_comes_back_as_it_was_written() {
        let mut report = sample();
        report.rows.extend(many());
        report.judge();
        let text = serde_json::to_string_pretty(&report).unwrap();
        assert_eq!(Report::parse(&text).unwrap(), report);
        let text = serde_json::to_string(&report.peers).unwrap();
        let peers =
            r#"[{"name":"CuPy","version":"14.2.0"},{"name":"PyTorch","absent":"not there"}]"#;
        assert_eq!(text, peers);
    }

    #[test]
    fn a_verdict_in_a_file_is_not_believed() {
        let text = serde_json::to_string(&sample()).unwrap();
        let forged = text.replace("\"missed\"", "\"met\"");
        assert_ne!(forged, text);
        assert_eq!(Report::parse(&forged).unwrap(), sample());
        let other = text.replace("\"format\":1", "\"format\":2");
        assert!(Report::parse(&other).is_err());
    }

    #[test]
    fn nothing_simulated_meets_or_misses_a_goal() {
        let mut report = sample();
        report.simulated = true;
        report.judge();
        assert_eq!(report.goals(), (0, 0));
        assert_eq!(report.count(Verdict::Failed), 1);
    }

    #[test]
    fn each_finding_has_its_verdict() {
        let report = sample();
        let verdicts: Vec<Verdict> = report.rows.iter().map(|row| row.verdict).collect();
        let expected = [
            Verdict::Met,
            Verdict::Missed,
            Verdict::NoGoal,
            Verdict::Met,
            Verdict::Met,
            Verdict::NotRun,
            Verdict::Failed,
        ];
        assert_eq!(verdicts, expected);
        assert_eq!(report.goals(), (3, 4));
    }
}
