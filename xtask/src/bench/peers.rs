//! The same operations in other libraries, each library in a process of its own.

use std::collections::BTreeMap;
use std::env;
use std::env::consts::EXE_SUFFIX;
use std::process::Command;
use std::time::Duration;

use serde::Deserialize;

use super::Unit;
use super::report::{Peer, Report, Version};
use crate::cudarc::{self, PROGRAM};
use crate::process::{ask, python};

/// The packages that `SCRIPT` knows, and the crate that [`cudarc`] measures.
pub(crate) const NAMES: [&str; 4] = ["CuPy", "PyTorch", "cuda.core", CRATE];

const CRATE: &str = "cudarc";

/// The script is passed as an argument, so that no file is needed beside this program.
const SCRIPT: &str = include_str!("../../bench/peers.py");

/// The time limit of a peer: one that takes longer is ended, and its results so far are used.
const PATIENCE: Duration = Duration::from_secs(120);

/// The greatest number of batches: more would not change the result.
const BATCHES: usize = 201;

/// A line of a peer's answer.
#[derive(Deserialize)]
#[serde(untagged)]
enum Line {
    Version(#[serde(with = "Version")] Result<String, String>),
    Figure { name: String, figure: f64, unit: Unit },
    Error { name: String, error: String },
}

/// The results of a peer.
#[derive(Default)]
struct Answer {
    /// The peer's version, or the reason why it is absent.
    version: Option<Result<String, String>>,
    figures: BTreeMap<String, (f64, Unit)>,
    errors: Vec<String>,
}

/// Measures in one peer the operations of the report's rows. Returns every problem as a remark.
pub(crate) fn measure(name: &str, report: &mut Report) -> Vec<String> {
    let mut answer = Answer::default();
    let ended = peer(name, report.batches.min(BATCHES)).and_then(|mut command| {
        command.args(report.rows.iter().map(|row| &row.name));
        ask(command, PATIENCE, |line| answer.take(line))
    });
    let why = ended.err().map(|error| format!("{error:#}"));
    let remarks = answer.errors.iter().map(|error| format!("{name}: {error}")).collect();
    answer.enter(name, why, report);
    remarks
}

/// Returns the command that times operations in one peer.
fn peer(name: &str, batches: usize) -> anyhow::Result<Command> {
    // Options first: argparse ends its options at the first list of words.
    let batches = format!("--batches={batches}");
    if name != CRATE {
        let mut python = python("-c");
        python.args([SCRIPT, &batches, name]);
        return Ok(python);
    }
    let packed = env::current_exe()?.with_file_name(format!("{PROGRAM}{EXE_SUFFIX}"));
    let path = if packed.exists() { packed } else { cudarc::build()? };
    let mut program = Command::new(path);
    program.arg(batches);
    Ok(program)
}

impl Answer {
    fn take(&mut self, line: &str) {
        match serde_json::from_str(line) {
            Ok(Line::Version(version)) => self.version = Some(version),
            Ok(Line::Figure { name, figure, unit }) => {
                self.figures.extend([(name, (figure, unit))])
            }
            Ok(Line::Error { name, error }) => self.errors.push(format!("{name}: {error}")),
            // Other output of a peer is ignored.
            Err(_) => {}
        }
    }

    fn enter(self, peer: &str, why: Option<String>, report: &mut Report) {
        for row in &mut report.rows {
            let unit = row.measured().map(|measured| measured.unit);
            let figure = self.figures.get(&row.name).filter(|(_, counts)| unit == Some(*counts));
            row.peers.extend(figure.map(|(figure, _)| (peer.to_owned(), *figure)));
        }
        let version = match (self.version, why) {
            (Some(Ok(version)), Some(why)) => Ok(format!("{version} ({why})")),
            (Some(version), _) => version,
            (None, why) => Err(why.unwrap_or_else(|| "it said nothing".to_owned())),
        };
        report.peers.push(Peer { name: peer.to_owned(), version });
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::super::operations::GROUPS;
    use super::super::report::tests::sample;
    use super::*;

    /// Returns the names that a peer's source times: quoted after `.time(`, or in the list that such a call
    /// iterates over.
    fn names_in(source: &str) -> Vec<&str> {
        let calls = source.split(".time(").skip(1);
        let called = calls.filter_map(|rest| rest.trim_start().strip_prefix('"'));
        let listed = ["(True, ", "(False, "];
        let listed = listed.into_iter().flat_map(|from| source.split(from).skip(1));
        let listed = listed.filter_map(|rest| rest.split_once(", \"").map(|(_, rest)| rest));
        let names = called.chain(listed).filter_map(|rest| rest.split('"').next());
        names.collect()
    }

    #[test]
    fn peers_measure_what_there_is() {
        let operations = GROUPS.iter().flat_map(|(_, operations)| operations());
        let known: HashSet<String> = operations.map(|operation| operation.name).collect();
        let program = include_str!("../../bench/cudarc/src/main.rs");
        for (source, least) in [(SCRIPT, 60), (program, 27)] {
            let names = names_in(source);
            assert!(names.len() >= least, "{names:?}");
            for name in names {
                assert!(known.contains(name), "{name}");
            }
        }
    }

    #[test]
    fn an_answer_goes_to_the_rows_of_its_names() {
        let mut report = sample();
        report.peers.clear();
        let mut answer = Answer::default();
        answer.take("a warning of the package");
        answer.take(r#"{"version": "2.11"}"#);
        answer.take(r#"{"name": "guard", "figure": 792.5, "unit": "ns"}"#);
        answer.take(r#"{"name": "upload 64 MiB", "figure": 792.5, "unit": "ns"}"#);
        answer.take(r#"{"name": "peer copy", "error": "Absent: another device"}"#);
        assert_eq!(answer.errors, ["peer copy: Absent: another device"]);
        answer.enter("PyTorch", None, &mut report);
        assert_eq!(report.rows[0].peers.get("PyTorch"), Some(&792.5));
        // That row has a bandwidth, not a time.
        assert_eq!(report.rows[3].peers.get("PyTorch"), None);
        assert_eq!(report.peers[0].version, Ok("2.11".to_owned()));
    }

    #[test]
    fn a_package_that_is_absent_is_reported_as_such() {
        let answer_of = |lines: &[&str], why: Option<&str>| {
            let mut report = sample();
            report.peers.clear();
            let mut answer = Answer::default();
            lines.iter().for_each(|line| answer.take(line));
            answer.enter("CuPy", why.map(str::to_owned), &mut report);
            report.peers.remove(0).version
        };
        // The script prints this line, and then fails.
        let absent = answer_of(&[r#"{"absent": "not there"}"#], Some("it failed"));
        assert_eq!(absent, Err("not there".to_owned()));
        let broken = answer_of(&[], Some("ImportError: half installed"));
        assert_eq!(broken, Err("ImportError: half installed".to_owned()));
        let slow = answer_of(&[r#"{"version": "14"}"#], Some("ended after 60 s"));
        assert_eq!(slow, Ok("14 (ended after 60 s)".to_owned()));
    }
}
