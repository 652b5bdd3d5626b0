//! Copies of borrowed slices by threads and chunks: one table per direction.

use std::iter;

use super::Style;
use crate::bench::pageable::{CHUNKS, THREADS, name, name_in_matrix};
use crate::bench::raw::Direction;
use crate::bench::report::Report;
use crate::table::Table;

/// Empty for a direction that was not measured.
pub(super) fn render(report: &Report, style: Style) -> Vec<String> {
    let tables = Direction::BOTH.into_iter();
    tables.filter_map(|direction| table(report, style, direction)).collect()
}

/// Shares of the rate of pinned memory: one line per number of threads, one column per size of
/// chunks.
fn table(report: &Report, style: Style, direction: Direction) -> Option<String> {
    let share = |threads, mebibytes| {
        let name = name_in_matrix(direction, threads, mebibytes);
        let row = report.rows.iter().find(|row| row.name == name)?;
        Some(format!("{:.1} %", 100.0 / row.measured()?.ratio?))
    };
    let rows = THREADS.map(|threads| CHUNKS.map(|mebibytes| share(threads, mebibytes)));
    if rows.iter().flatten().all(Option::is_none) {
        return None;
    }
    let headings = CHUNKS.map(|mebibytes| format!("{mebibytes} MiB"));
    let headings = iter::once("threads".to_owned()).chain(headings);
    let mut table = Table::new(headings).left(&[]);
    for (threads, shares) in THREADS.iter().zip(rows) {
        let shares = shares.map(Option::unwrap_or_default);
        table.row(iter::once(threads.to_string()).chain(shares));
    }
    let table = style.show(&table);
    let name = name(direction);
    Some(format!(
        "{name} of 256 MiB by threads and chunks, as a share of the rate of pinned memory:\n\n{table}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::goal::Goal;
    use crate::bench::measure::{Measured, Unit};
    use crate::bench::pageable::matrix;
    use crate::bench::report::tests::sample;
    use crate::bench::report::{Finding, Row};

    #[test]
    fn each_operation_of_the_study_has_its_cell() {
        let mut report = sample();
        assert!(render(&report, Style::Text).is_empty());
        let names: Vec<String> = matrix().into_iter().map(|operation| operation.name).collect();
        // Each has a different share, and the last one none.
        report.rows = names
            .iter()
            .enumerate()
            .map(|(index, name)| {
                let rate = Measured::new(Unit::Gigabytes, 1.0 + index as f64, Some(100.0));
                let finding = match index {
                    39 => Finding::NotRun("no memory".into()),
                    _ => Finding::Measured(rate),
                };
                Row::new("by threads", name, &Goal::None("a study".into()), finding)
            })
            .collect();
        let [up, down] = &render(&report, Style::Markdown)[..] else {
            panic!("two directions");
        };
        let line = "| 1 | 1.0 % | 2.0 % | 3.0 % | 4.0 % |\n";
        assert!(up.starts_with("upload_from") && up.contains(line), "{up}");
        let line = "| 16 | 37.0 % | 38.0 % | 39.0 % |  |\n";
        assert!(down.starts_with("download_to") && down.ends_with(line), "{down}");
        let text = &render(&report, Style::Text)[0];
        assert!(text.contains("threads   1 MiB   2 MiB"), "{text}");
    }
}
