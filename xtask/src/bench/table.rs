//! Prints a report as a table, for a terminal or in Markdown.

mod many;

use std::collections::BTreeMap;
use std::iter;

use super::Goal;
use super::report::{Finding, Peer, Report, Row, Verdict};
use crate::table::Table;

/// Multiples below this are shown as fractions, which are easier to read.
const SMALL: f64 = 0.1;

/// The columns before those of the peers.
const COLUMNS: [&str; 6] = ["operation", "cuda-core", "raw", "beside raw", "goal", ""];

/// The index of the column with the verdict on the goal.
const VERDICT: usize = 5;

/// Printed with simulated figures.
const SIMULATED: &str = "a simulated driver: none of these figures means anything";

/// Formats the tables for a terminal, with a blank line and a heading before each group.
pub(crate) fn text(report: &Report) -> String {
    format!("{}\n{}", report.driver, parts(report, Table::to_string).join("\n"))
}

/// Formats the tables in Markdown.
pub(crate) fn markdown(report: &Report) -> String {
    let simulated = report.simulated.then(|| format!("{SIMULATED}\n"));
    let parts = parts(report, Table::markdown).into_iter().chain(simulated);
    parts.collect::<Vec<_>>().join("\n")
}

/// Formats the table of all operations, and the table of many devices at once, with the lines under it.
fn parts(report: &Report, show: fn(&Table) -> String) -> Vec<String> {
    let peers = present(report).map(|peer| peer.name.as_str());
    let mut table = Table::new(COLUMNS.into_iter().chain(peers)).left(&[0, VERDICT]);
    for row in &report.rows {
        table.title(&row.group);
        table.row(cells(report, row));
    }
    iter::once(show(&table)).chain(many::render(report, show)).collect()
}

/// The peers that have a column.
pub(super) fn present(report: &Report) -> impl Iterator<Item = &Peer> {
    report.peers.iter().filter(|peer| peer.version.is_ok())
}

/// The lines under a table: operations that did not run, each peer's version, and the number of met goals.
pub(crate) fn conclusion(report: &Report) -> String {
    let mut lines = Vec::new();
    let mut not_run: BTreeMap<&str, usize> = BTreeMap::new();
    for row in &report.rows {
        match &row.finding {
            Finding::NotRun(why) => *not_run.entry(why).or_default() += 1,
            Finding::Failed(why) => lines.push(format!("FAILED: {}: {why}", row.name)),
            Finding::Measured(_) => {}
        }
    }
    let not_run = not_run.into_iter();
    lines.extend(not_run.map(|(why, count)| format!("not run: {count} × {why}")));
    if !report.peers.is_empty() {
        let peers: Vec<String> = report.peers.iter().map(Peer::to_string).collect();
        lines.push(format!("beside it: {}", peers.join("; ")));
    }
    let (met, goals) = report.goals();
    let mut last =
        if report.simulated { SIMULATED.to_owned() } else { format!("{met} of {goals} goals met") };
    for (verdict, what) in [(Verdict::Failed, "failed"), (Verdict::NotRun, "not run")] {
        match report.count(verdict) {
            0 => {}
            count => last += &format!(", {count} {what}"),
        }
    }
    lines.push(last);
    lines.join("\n") + "\n"
}

fn cells(report: &Report, row: &Row) -> Vec<String> {
    let measured = row.measured();
    let show = |figure: Option<f64>| match (measured, figure) {
        (Some(measured), Some(figure)) => measured.unit.show(figure),
        _ => String::new(),
    };
    let mut cells = vec![
        row.name.clone(),
        show(measured.map(|measured| measured.ours)),
        show(measured.and_then(|measured| measured.raw)),
        beside(row),
        measured.map_or_else(String::new, |measured| row.goal.resolved(measured).to_string()),
        row.verdict.describe().to_owned(),
    ];
    let figures = present(report).map(|peer| row.peers.get(&peer.name));
    cells.extend(figures.map(|figure| show(figure.copied())));
    cells
}

/// The figure that the goal refers to: a share of a rate, nanoseconds more than a short call, or a multiple.
pub(super) fn beside(row: &Row) -> String {
    let Some((measured, ratio)) = row.measured().and_then(|m| Some((m, m.ratio?))) else {
        return String::new();
    };
    match row.goal.resolved(measured) {
        Goal::More(_) => format!("{:+.0} ns", measured.more().unwrap_or_default()),
        Goal::Share(_) => format!("{:.1} %", 100.0 / ratio),
        _ if ratio < SMALL => format!("1 / {:.0}", 1.0 / ratio),
        _ => format!("{ratio:.3} ×"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::goal::Goal;
    use super::super::measure::{Measured, Unit};
    use super::super::report::tests::{many, sample};
    use super::*;

    #[test]
    fn each_goal_is_printed_on_its_own_scale() {
        let report = sample();
        let text_of = |row: usize| cells(&report, &report.rows[row]).join("; ");
        assert_eq!(text_of(0), "guard; 18 ns; 12 ns; +6 ns; ≤ +30 ns; met; ");
        let upload = "upload <4 KiB>; 1.10 µs; 1.02 µs; 1.078 ×; ≤ 1.05 ×; MISSED; 7.41 µs";
        assert_eq!(text_of(1), upload);
        let pageable = "upload 64 MiB; 47.0 GB/s; 55.3 GB/s; 85.0 %; ≥ 80 %; met; ";
        assert_eq!(text_of(3), pageable);
        assert_eq!(text_of(4), "first 1 GiB; 38.0 ms; ; ; ≤ 45.0 ms; met; ");
    }

    #[test]
    fn a_small_multiple_is_a_fraction() {
        let one = Goal::Ratio(1.0);
        let finding = Finding::Measured(Measured::new(Unit::Nanoseconds, 48.0, Some(1.2e6)));
        let row = Row::new("pinned memory", "alloc", &one, finding);
        assert_eq!(beside(&row), "1 / 25000");
    }

    #[test]
    fn a_group_has_one_heading_and_columns_line_up() {
        let text = text(&sample());
        assert_eq!(text.matches("\nenqueues\n").count(), 1);
        let verdicts = ["met", "MISSED", "not run", "FAILED"];
        let column = |line: &str| {
            let at = verdicts.iter().find_map(|verdict| line.find(verdict))?;
            Some(line[..at].chars().count())
        };
        let columns: Vec<usize> = text.lines().filter_map(column).collect();
        assert_eq!(columns.len(), 6, "{text}");
        assert!(columns.iter().all(|at| *at == columns[0]), "{text}");
    }

    #[test]
    fn what_did_not_run_is_said() {
        let text = conclusion(&sample());
        assert!(text.contains("not run: 1 × needs 2 devices"), "{text}");
        assert!(text.contains("FAILED: broadcast: out of memory"), "{text}");
        assert!(text.contains("CuPy 14.2.0; PyTorch: not there"), "{text}");
        assert!(text.contains("3 of 4 goals met, 1 failed, 1 not run"), "{text}");
    }

    #[test]
    fn markdown_has_as_many_cells_in_each_line() {
        let mut report = sample();
        report.rows.extend(many());
        let text = markdown(&report);
        let parts: Vec<&str> = text.split("\n\n").collect();
        assert_eq!(parts.len(), 3, "{text}");
        for table in &parts[..2] {
            let bars = |line: &str| line.matches('|').count();
            assert!(table.lines().all(|line| bars(line) == 8), "{text}");
        }
    }

    #[test]
    fn a_simulated_run_is_labelled_wherever_it_goes() {
        let mut report = sample();
        assert!(!markdown(&report).contains(SIMULATED));
        report.simulated = true;
        assert!(markdown(&report).ends_with(&format!("\n{SIMULATED}\n")));
        assert!(conclusion(&report).contains(SIMULATED));
    }
}
