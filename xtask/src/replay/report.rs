//! The results of a replay, as a table and as JSON.

use serde::Serialize;
use serde_json::{Value, json};

use super::log::Log;
use super::picture::size;
use crate::table::Table;

/// A log, and the results of each allocator.
pub(crate) struct Report<'a> {
    log: &'a Log,
    name: String,
    driver: String,
    /// First the rows of this run, then those of the allocators that the log was recorded with.
    rows: Vec<Row>,
}

/// The results of one allocator.
#[derive(Default, Serialize)]
pub(crate) struct Row {
    pub(crate) allocator: String,
    /// Whether the allocator is one of cuda-core's caching pools, which have goals.
    pub(crate) caches: bool,
    /// [`None`] for an allocator of the log.
    pub(crate) pairs_per_second: Option<f64>,
    /// Bytes taken from the devices at the peak.
    pub(crate) reserved: u64,
    /// Driver calls per pass after the first one, on average; counted only by the simulated driver.
    pub(crate) driver_calls: Option<f64>,
}

impl<'a> Report<'a> {
    pub(crate) fn new(log: &'a Log, name: String, driver: String, mut rows: Vec<Row>) -> Self {
        rows.extend(log.reserved.iter().map(|(allocator, reserved)| Row {
            allocator: allocator.clone(),
            reserved: *reserved,
            ..Row::default()
        }));
        Self { log, name, driver, rows }
    }

    /// Returns the levels for the picture: the peak of each allocator.
    pub(crate) fn levels(&self) -> Vec<(String, u64)> {
        self.rows.iter().map(|row| (row.allocator.clone(), row.reserved)).collect()
    }

    pub(crate) fn json(&self) -> Value {
        let Self { log, name, driver, rows } = self;
        let (peak_after, peak) = log.peak();
        json!({
            "log": name,
            "source": log.source,
            "driver": driver,
            "blocks": log.blocks.len(),
            "operations": log.steps.len(),
            "streams": log.streams.len(),
            "orphans": log.orphans,
            "peak": peak,
            "peak_after": peak_after,
            "rows": rows,
        })
    }

    pub(crate) fn text(&self) -> String {
        let Self { log, name, driver, rows } = self;
        let (operations, blocks) = (log.steps.len(), log.blocks.len());
        let (streams, (_, peak)) = (log.streams.len(), log.peak());
        let plural = if streams == 1 { "" } else { "s" };
        let mut text = format!(
            "{driver}\n{name}: {operations} operations on {blocks} blocks and {streams} \
             stream{plural}, at most {} in use\n",
            size(peak)
        );
        if let Some(source) = &log.source {
            text += &format!("recorded with {source}\n");
        }
        if log.orphans > 0 {
            let orphans = log.orphans;
            text += &format!("left out: {orphans} frees of blocks from before the log began\n");
        }
        let headings = "allocator|pairs/s|peak reserved|reserved/requested|driver calls a pass";
        let mut table = Table::new(headings.split('|'));
        for row in rows {
            table.row([
                row.allocator.clone(),
                row.pairs_per_second.map_or("-".to_owned(), rate),
                size(row.reserved),
                format!("{:.3}", row.reserved as f64 / peak.max(1) as f64),
                row.driver_calls.map_or("-".to_owned(), |calls| format!("{calls:.1}")),
            ]);
        }
        format!("{text}\n{table}")
    }

    /// Returns the goals that caching pools missed.
    pub(crate) fn missed(&self, goal: f64) -> Vec<String> {
        let mut missed = Vec::new();
        for row in self.rows.iter().filter(|row| row.caches) {
            let own = &row.allocator;
            for (other, reserved) in &self.log.reserved {
                let ratio = row.reserved as f64 / *reserved as f64;
                if ratio > goal {
                    missed.push(format!("{own} reserved {ratio:.3} times what {other} did"));
                }
            }
            if let Some(calls) = row.driver_calls.filter(|calls| *calls > 0.0) {
                let after = "times a pass after the first";
                missed.push(format!("{own} called the driver {calls:.1} {after}"));
            }
        }
        missed
    }
}

/// Formats a rate in human-readable form.
fn rate(per_second: f64) -> String {
    match per_second {
        rate if rate >= 1e6 => format!("{:.1} M", rate / 1e6),
        rate if rate >= 1e3 => format!("{:.1} k", rate / 1e3),
        rate => format!("{rate:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missed_goal_is_named() {
        let text = "# peak reserved by Other: 1000\n\
                    time_ns,thread,device,stream,op,address,bytes\n\
                    0,0,0,0,allocate,0x1,800\n";
        let log = Log::parse(text).expect("a log");
        let report = |reserved, driver_calls| {
            let row = Row {
                allocator: "private".to_owned(),
                caches: true,
                pairs_per_second: Some(1.5e6),
                reserved,
                driver_calls,
            };
            Report::new(&log, "a.csv".to_owned(), "a driver".to_owned(), vec![row])
        };
        assert_eq!(report(1050, Some(0.0)).missed(1.05), [""; 0]);
        let report = report(1100, Some(2.5));
        assert_eq!(
            report.missed(1.05),
            [
                "private reserved 1.100 times what Other did",
                "private called the driver 2.5 times a pass after the first",
            ]
        );
        let text = report.text();
        assert!(text.contains("1.5 M") && text.contains("1.375"), "{text}");
        assert!(text.contains("\nOther "), "{text}");
        assert_eq!(report.levels().len(), 2);
        assert_eq!(report.json()["rows"][0]["reserved"], 1100);
    }

    #[test]
    fn rates_are_short() {
        assert_eq!(rate(31_234_567.0), "31.2 M");
        assert_eq!(rate(8_700.0), "8.7 k");
        assert_eq!(rate(12.3), "12");
    }
}
