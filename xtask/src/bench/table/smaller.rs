//! Smaller tables: rates of many devices at once, and copies of borrowed slices by threads and chunks.

use std::iter;

use super::Style;
use crate::bench::Unit;
use crate::bench::ends::Direction;
use crate::bench::measure::Links;
use crate::bench::pageable::{CHUNKS, THREADS, name, name_in_matrix};
use crate::bench::report::{Report, Row};
use crate::table::Table;

/// Those for which something was measured, and the lines under them.
pub(super) fn render(report: &Report, style: Style) -> Vec<String> {
    let matrices = Direction::BOTH.map(|direction| matrix(report, style, direction));
    many(report, style).into_iter().chain(matrices.into_iter().flatten()).collect()
}

const COLUMNS: &str =
    "many devices at once|cuda-core|raw|alone, summed|of the sum|link limit|of the limit";

/// The table and the lines under it; empty if no row has many devices.
fn many(report: &Report, style: Style) -> Vec<String> {
    let mut rows = report.rows.iter().filter_map(cells).peekable();
    if rows.peek().is_none() {
        return Vec::new();
    }
    let mut table = Table::new(COLUMNS.split('|'));
    rows.for_each(|row| table.row(row));
    iter::once(style.show(&table)).chain(pair(report)).collect()
}

fn cells(row: &Row) -> Option<[String; 7]> {
    let measured = row.measured()?;
    let many = measured.many?;
    let (singles, limit) = (many.singles, many.limit());
    let show = |rate: Option<f64>| rate.map_or_else(String::new, gigabytes);
    let share = |of: Option<f64>| of.map_or_else(String::new, |of| share(measured.ours, of));
    Some([
        row.name.clone(),
        gigabytes(measured.ours),
        show(measured.raw),
        show(singles),
        share(singles),
        show(limit),
        share(limit),
    ])
}

/// The capacity of the links for a single pair of devices.
fn pair(report: &Report) -> Option<String> {
    let many = report.rows.iter().filter_map(|row| row.measured()?.many);
    let links = many.filter_map(|many| many.links).reduce(Links::best)?;
    let [one_way, both_ways] = [links.one_way, links.both_ways].map(gigabytes);
    Some(format!(
        "one pair of devices alone: up to {one_way} one way, {both_ways} both ways at once\n"
    ))
}

fn gigabytes(rate: f64) -> String {
    Unit::Gigabytes.show(rate)
}

fn share(figure: f64, of: f64) -> String {
    format!("{:.1} %", 100.0 * figure / of)
}

/// Copies of borrowed slices by threads and chunks, as shares of the rate of pinned memory: one line per number of threads, one column per size of
/// chunks. Nothing if that was not measured.
fn matrix(report: &Report, style: Style, direction: Direction) -> Option<String> {
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
    use crate::bench::measure::Measured;
    use crate::bench::pageable;
    use crate::bench::report::Finding;
    use crate::bench::report::tests::{many, sample};

    #[test]
    fn shares_are_of_the_sum_and_of_the_limit() {
        let mut report = sample();
        assert!(render(&report, Style::Text).is_empty());
        report.rows.extend(many());
        let rows = report.rows.iter().filter_map(cells);
        let rows: Vec<String> = rows.map(|row| row.join("; ")).collect();
        assert_eq!(
            rows,
            [
                "gather; 138 GB/s; 145 GB/s; 220 GB/s; 62.7 %; ; ",
                "ring; 1552 GB/s; 1553 GB/s; 1580 GB/s; 98.2 %; 1584 GB/s; 98.0 %",
                "chain; 332 GB/s; 393 GB/s; ; ; 396 GB/s; 83.8 %",
            ]
        );
        let under = &render(&report, Style::Text)[1];
        assert!(under.contains("up to 396 GB/s one way, 779 GB/s both ways"), "{under}");
    }

    #[test]
    fn each_operation_of_the_study_has_its_cell() {
        let mut report = sample();
        assert!(render(&report, Style::Text).is_empty());
        let names: Vec<String> =
            pageable::matrix().into_iter().map(|operation| operation.name).collect();
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
        assert!(up.starts_with("slice upload") && up.contains(line), "{up}");
        let line = "| 16 | 37.0 % | 38.0 % | 39.0 % |  |\n";
        assert!(down.starts_with("slice download") && down.ends_with(line), "{down}");
        let text = &render(&report, Style::Text)[0];
        assert!(text.contains("threads   1 MiB   2 MiB"), "{text}");
    }
}
