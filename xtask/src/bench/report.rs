//! The results of a bench, and whether they met their goals.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use anyhow::{Context, ensure};
use fs_err as fs;
use serde::{Deserialize, Serialize};

use super::{Goal, Measured};

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
    /// The number of batches for each way.
    pub(crate) batches: usize,
    pub(crate) peers: Vec<Peer>,
    pub(crate) rows: Vec<Row>,
}

/// A library that is measured for comparison.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Peer {
    pub(crate) name: String,
    /// The version, or the reason why the package has no figures.
    #[serde(flatten, with = "Version")]
    pub(crate) version: Result<String, String>,
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.version {
            Ok(version) => write!(f, "{} {version}", self.name),
            Err(why) => write!(f, "{}: {why}", self.name),
        }
    }
}

/// The JSON form of a version: one of two keys.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Result<String, String>")]
pub(super) enum Version {
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
    /// Written for readers of the file; computed again when the file is read.
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
        let Finding::Measured(measured) = &self.finding else { return None };
        Some(measured)
    }
}

impl Report {
    pub(crate) fn new(driver: String, simulated: bool, batches: usize) -> Self {
        let version = env!("CARGO_PKG_VERSION").to_owned();
        Self { format: FORMAT, version, driver, simulated, batches, peers: vec![], rows: vec![] }
    }

    pub(crate) fn read(path: &Path) -> anyhow::Result<Self> {
        let text = fs::read_to_string(path)?;
        Self::parse(&text).with_context(|| format!("{}: not a bench's JSON?", path.display()))
    }

    fn parse(text: &str) -> anyhow::Result<Self> {
        let mut report: Self = serde_json::from_str(text)?;
        ensure!(report.format == FORMAT, "format {}, this program reads {FORMAT}", report.format);
        report.judge();
        Ok(report)
    }

    /// Gives each row its verdict. Figures of a simulated driver get [`Verdict::NoGoal`].
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

    /// The number of goals that were met, and the number of all goals.
    pub(crate) fn goals(&self) -> (usize, usize) {
        let met = self.count(Verdict::Met);
        (met, met + self.count(Verdict::Missed))
    }
}

#[cfg(test)]
pub(super) mod tests;
