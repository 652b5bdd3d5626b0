//! The table of a bench.

use std::fmt;

use serde::Serialize;

use super::measure::Pair;

/// Raw calls that take longer than this are compared by ratio, in nanoseconds.
const LONG: f64 = 1000.0;

/// What each shorter raw call may cost more, in nanoseconds.
const MORE: f64 = 30.0;

/// Everything that was measured.
#[derive(Serialize)]
pub(crate) struct Report {
    pub(crate) driver: String,
    pub(crate) rows: Vec<Row>,
}

/// One operation.
#[derive(Serialize)]
pub(crate) struct Row {
    pub(crate) name: String,
    /// Nanoseconds through the safe layer.
    pub(crate) safe: f64,
    /// Nanoseconds of the raw calls.
    pub(crate) raw: f64,
    /// Nanoseconds that a safe batch took more than the raw one beside it.
    pub(crate) more: f64,
    /// Bytes moved, where that is what matters.
    pub(crate) bytes: Option<usize>,
    /// [`None`]: told, but without a goal, since the raw calls do less than the operation.
    pub(crate) met: Option<bool>,
}

impl Row {
    /// An operation that is one raw call.
    pub(crate) fn new(name: impl Into<String>, pair: Pair) -> Self {
        Self::of_calls(name, pair, 1.0)
    }

    /// Several operations in a row, each one raw call.
    pub(crate) fn of_calls(name: impl Into<String>, pair: Pair, calls: f64) -> Self {
        let met = if pair.raw > LONG * calls {
            pair.more <= pair.raw * 0.05
        } else {
            pair.more <= MORE * calls
        };
        Self {
            name: name.into(),
            safe: pair.safe,
            raw: pair.raw,
            more: pair.more,
            bytes: None,
            met: Some(met),
        }
    }

    pub(crate) fn moving(mut self, bytes: usize) -> Self {
        self.bytes = Some(bytes);
        self
    }

    pub(crate) fn without_goal(mut self) -> Self {
        self.met = None;
        self
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:<46}{:>12.0}{:>12.0}{:>8.3}{:>9.0}",
            self.name,
            self.safe,
            self.raw,
            1.0 + self.more / self.raw,
            self.more
        )?;
        match self.bytes {
            // Bytes a nanosecond are GB/s.
            Some(bytes) => write!(f, "{:>9.1}", bytes as f64 / self.safe)?,
            None => write!(f, "{:>9}", "")?,
        }
        f.write_str(match self.met {
            Some(true) => "  met",
            Some(false) => "  MISSED",
            None => "  -",
        })
    }
}

impl Report {
    pub(crate) fn new(driver: String) -> Self {
        Self {
            driver,
            rows: Vec::new(),
        }
    }

    pub(crate) fn all_met(&self) -> bool {
        self.rows.iter().all(|row| row.met != Some(false))
    }

    pub(crate) fn heading(&self) -> String {
        format!(
            "{}\n{:<46}{:>12}{:>12}{:>8}{:>9}{:>9}  goal",
            self.driver, "operation", "safe ns", "raw ns", "ratio", "more ns", "GB/s"
        )
    }

    pub(crate) fn conclusion(&self) -> String {
        let with_goal = self.rows.iter().filter(|row| row.met.is_some()).count();
        let met = self.rows.iter().filter(|row| row.met == Some(true)).count();
        format!("{met} of {with_goal} goals met\n")
    }
}
