//! Reports for the tests of the bench, and tests of reports.

use super::super::measure::{Links, Many, Unit};
use super::*;

/// A report with a row for each verdict.
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
        Row::new("several devices", "peer copy", &one, Finding::NotRun("needs 2 devices".into())),
        Row::new("several devices", "broadcast", &one, Finding::Failed("out of memory".into())),
    ];
    report.rows[1].peers.insert("CuPy".into(), 7410.0);
    report.judge();
    report
}

/// Rows of four devices: transfers with the host, with each other, and from one of them.
pub(crate) fn many() -> Vec<Row> {
    let row = |name, ours, raw, singles, limit: Option<f64>| {
        let links = limit.map(|limit| Links { one_way: 396.0, both_ways: 779.0, limit });
        let many = Many { devices: 4, singles, links };
        let measured = Measured::new(Unit::Gigabytes, ours, Some(raw));
        let finding = Finding::Measured(Measured { many: Some(many), ..measured });
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
    let peers = r#"[{"name":"CuPy","version":"14.2.0"},{"name":"PyTorch","absent":"not there"}]"#;
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
