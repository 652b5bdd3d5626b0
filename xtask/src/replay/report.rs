//! The results of a replay, as a table and as JSON.

use serde::Serialize;

use super::log::Log;
use super::picture::size;
use super::subject::Subject;
use crate::table::Table;

/// A log, and the results of each allocator.
#[derive(Serialize)]
pub(crate) struct Report {
    log: String,
    source: Option<String>,
    driver: String,
    blocks: usize,
    operations: usize,
    streams: usize,
    /// Frees of blocks from before the log began.
    #[serde(skip_serializing_if = "nothing")]
    orphans: usize,
    /// Bytes in use at the peak.
    peak: u64,
    /// The operation after which it occurs.
    peak_after: usize,
    pub(crate) rows: Vec<Row>,
    /// The figures of other allocators in the log.
    others: Vec<Other>,
}

/// One allocator.
#[derive(Serialize)]
pub(crate) struct Row {
    pub(crate) allocator: Subject,
    pub(crate) pairs_per_second: f64,
    /// Bytes taken from the devices at the peak.
    pub(crate) reserved: u64,
    /// Reserved over requested, both at their peaks.
    pub(crate) fragmentation: f64,
    /// Driver calls in a pass after the first, on average; the simulated driver counts them.
    pub(crate) driver_calls: Option<f64>,
}

/// Another allocator that the log was recorded with.
#[derive(Serialize)]
struct Other {
    allocator: String,
    reserved: u64,
}

fn nothing(count: &usize) -> bool {
    *count == 0
}

impl Report {
    pub(crate) fn new(log: &Log, name: String, driver: String) -> Self {
        let (peak_after, peak) = log.peak();
        let others = log.reserved.iter().map(|(allocator, reserved)| Other {
            allocator: allocator.clone(),
            reserved: *reserved,
        });
        Self {
            log: name,
            source: log.source.clone(),
            driver,
            blocks: log.blocks.len(),
            operations: log.steps.len(),
            streams: log.streams.len(),
            orphans: log.orphans,
            peak,
            peak_after,
            rows: Vec::new(),
            others: others.collect(),
        }
    }

    pub(crate) fn title(&self) -> String {
        format!("Memory in use: {}", self.log)
    }

    /// Levels for the picture: the peak of each allocator.
    pub(crate) fn levels(&self) -> Vec<(String, u64)> {
        let own = self.rows.iter();
        let own = own.map(|row| (row.allocator.name().to_owned(), row.reserved));
        let others = self.others.iter();
        let others = others.map(|other| (other.allocator.clone(), other.reserved));
        own.chain(others).collect()
    }

    fn heading(&self) -> String {
        let mut text = self.driver.clone() + "\n";
        let plural = if self.streams == 1 { "" } else { "s" };
        text += &format!(
            "{}: {} operations on {} blocks and {} stream{plural}, at most {} in use\n",
            self.log,
            self.operations,
            self.blocks,
            self.streams,
            size(self.peak)
        );
        if let Some(source) = &self.source {
            text += &format!("recorded with {source}\n");
        }
        if self.orphans > 0 {
            text +=
                &format!("left out: {} frees of blocks from before the log began\n", self.orphans);
        }
        text
    }

    /// The heading, and a table of the allocators that ran and of those that the log was recorded with.
    pub(crate) fn text(&self) -> String {
        let headings = "allocator|pairs/s|peak reserved|reserved/requested|driver calls a pass";
        let mut table = Table::new(headings.split('|'));
        let mut add = |name: &str, pairs: Option<f64>, reserved: u64, calls: Option<f64>| {
            let or_none = |cell: Option<String>| cell.unwrap_or("-".to_owned());
            table.row([
                name.to_owned(),
                or_none(pairs.map(rate)),
                size(reserved),
                format!("{:.3}", reserved as f64 / self.peak.max(1) as f64),
                or_none(calls.map(|calls| format!("{calls:.1}"))),
            ]);
        };
        for row in &self.rows {
            let pairs = Some(row.pairs_per_second);
            add(row.allocator.name(), pairs, row.reserved, row.driver_calls);
        }
        for other in &self.others {
            add(&other.allocator, None, other.reserved, None);
        }
        format!("{}\n{table}", self.heading())
    }

    /// Goals of the caching pools that they missed.
    pub(crate) fn missed(&self, goal: f64) -> Vec<String> {
        let mut missed = Vec::new();
        for row in self.rows.iter().filter(|row| row.allocator.caches()) {
            let own = row.allocator.name();
            for other in &self.others {
                let ratio = row.reserved as f64 / other.reserved as f64;
                if ratio > goal {
                    let name = &other.allocator;
                    missed.push(format!("{own} reserved {ratio:.3} times what {name} did"));
                }
            }
            if let Some(calls) = row.driver_calls.filter(|calls| *calls > 0.0) {
                missed.push(format!(
                    "{own} called the driver {calls:.1} times a pass after the first"
                ));
            }
        }
        missed
    }
}

/// A rate in human-readable form.
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
        let mut report = Report::new(&log, "a.csv".to_owned(), "a driver".to_owned());
        let row = |reserved, driver_calls| Row {
            allocator: Subject::Private,
            pairs_per_second: 1.5e6,
            reserved,
            fragmentation: reserved as f64 / 800.0,
            driver_calls,
        };
        report.rows = vec![row(1050, Some(0.0))];
        assert_eq!(report.missed(1.05), [""; 0]);
        report.rows = vec![row(1100, Some(2.5))];
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
    }

    #[test]
    fn rates_are_short() {
        assert_eq!(rate(31_234_567.0), "31.2 M");
        assert_eq!(rate(8_700.0), "8.7 k");
        assert_eq!(rate(12.3), "12");
    }
}
