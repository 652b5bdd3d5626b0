//! The smaller table: rates of many devices at once.

use std::iter;

use crate::bench::Unit;
use crate::bench::measure::Links;
use crate::bench::report::{Report, Row};
use crate::table::Table;

const COLUMNS: &str =
    "many devices at once|cuda-core|raw|alone, summed|of the sum|link limit|of the limit";

/// Formats the table and the lines under it; empty if no row is of many devices.
pub(super) fn render(report: &Report, show: fn(&Table) -> String) -> Vec<String> {
    let mut rows = report.rows.iter().filter_map(cells).peekable();
    if rows.peek().is_none() {
        return Vec::new();
    }
    let mut table = Table::new(COLUMNS.split('|'));
    rows.for_each(|row| table.row(row));
    iter::once(show(&table)).chain(pair(report)).collect()
}

fn cells(row: &Row) -> Option<[String; 7]> {
    let measured = row.measured()?;
    let many = measured.many?;
    let (singles, limit) = (many.singles, many.links.map(|links| links.limit));
    let gigabytes = |rate| Unit::Gigabytes.show(rate);
    let show = |rate: Option<f64>| rate.map(gigabytes).unwrap_or_default();
    let percent = |of| format!("{:.1} %", 100.0 * measured.ours / of);
    let share = |of: Option<f64>| of.map(percent).unwrap_or_default();
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
    let [one_way, both_ways] =
        [links.one_way, links.both_ways].map(|rate| Unit::Gigabytes.show(rate));
    Some(format!(
        "one pair of devices alone: up to {one_way} one way, {both_ways} both ways at once\n"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::report::tests::{many, sample};

    #[test]
    fn shares_are_of_the_sum_and_of_the_limit() {
        let mut report = sample();
        assert!(render(&report, Table::to_string).is_empty());
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
        let under = &render(&report, Table::to_string)[1];
        assert!(under.contains("up to 396 GB/s one way, 779 GB/s both ways"), "{under}");
    }
}
