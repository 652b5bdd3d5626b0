//! The permitted cost of an operation.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Measured, Unit};

/// Raw calls that take longer than this, in nanoseconds, are compared by ratio.
const LONG: f64 = 1000.0;

/// The number of nanoseconds by which an operation may exceed a raw call of at most [`LONG`].
const MORE: f64 = 30.0;

/// The multiple of a raw call longer than [`LONG`] that an operation may take.
const RATIO: f64 = 1.05;

/// The permitted cost of an operation.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Goal {
    /// Compared with this number of raw calls: at most 1.05 times their time if they take over a microsecond
    /// per call, otherwise at most 30 ns more per call.
    Beside { calls: u32 },
    /// At most this number of nanoseconds more than the raw calls.
    More(f64),
    /// At most this multiple of the raw time.
    Ratio(f64),
    /// At least this share of the raw rate.
    Share(f64),
    /// At most this time, or at least this rate.
    Absolute(f64, Unit),
    /// Reported without a goal, for this reason.
    None(String),
}

impl Goal {
    /// Whether the goal was met; [`None`] if there is no goal. A figure that cannot be compared with its goal
    /// does not meet it.
    pub(crate) fn met(&self, measured: &Measured) -> Option<bool> {
        Some(match *self {
            Self::None(_) => return None,
            Self::Absolute(_, unit) if unit != measured.unit => false,
            Self::Absolute(figure, unit) => unit.ratio(measured.ours, figure) <= 1.0,
            _ => measured.ratio.zip(self.limit(measured)).is_some_and(|(it, limit)| it <= limit),
        })
    }

    /// The largest multiple of the raw time that meets the goal.
    pub(crate) fn limit(&self, measured: &Measured) -> Option<f64> {
        let raw = measured.raw?;
        match self.resolved(measured) {
            Self::More(nanoseconds) => Some(1.0 + nanoseconds / raw),
            Self::Ratio(ratio) => Some(ratio),
            Self::Share(share) => Some(1.0 / share),
            Self::Absolute(figure, unit) => Some(unit.ratio(figure, raw)),
            Self::Beside { .. } | Self::None(_) => None,
        }
    }

    /// The goal for these raw calls, with [`Goal::Beside`] resolved to one of its alternatives.
    pub(crate) fn resolved(&self, measured: &Measured) -> Self {
        let Self::Beside { calls } = *self else { return self.clone() };
        let short = |raw| raw <= LONG * f64::from(calls);
        match measured.unit == Unit::Nanoseconds && measured.raw.is_some_and(short) {
            true => Self::More(MORE * f64::from(calls)),
            false => Self::Ratio(RATIO),
        }
    }
}

/// The goal as `--list` shows it, before any measurement.
impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Beside { calls } => {
                write!(f, "≤ {RATIO} ×, or ≤ {:+} ns", MORE * f64::from(*calls))
            }
            Self::More(nanoseconds) => write!(f, "≤ {nanoseconds:+} ns"),
            Self::Ratio(ratio) => write!(f, "≤ {} ×", (ratio * 1000.0).round() / 1000.0),
            Self::Share(share) => write!(f, "≥ {:.0} %", share * 100.0),
            Self::Absolute(figure, Unit::Nanoseconds) => {
                write!(f, "≤ {}", Unit::Nanoseconds.show(*figure))
            }
            Self::Absolute(figure, unit) => write!(f, "≥ {}", unit.show(*figure)),
            Self::None(_) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(ours: f64, raw: f64) -> Measured {
        Measured::new(Unit::Nanoseconds, ours, Some(raw))
    }

    fn rate(ours: f64, raw: f64) -> Measured {
        Measured::new(Unit::Gigabytes, ours, Some(raw))
    }

    #[test]
    fn short_calls_have_a_difference_and_long_ones_a_ratio() {
        let goal = Goal::Beside { calls: 1 };
        assert_eq!(goal.met(&time(130.0, 100.0)), Some(true));
        assert_eq!(goal.met(&time(131.0, 100.0)), Some(false));
        assert_eq!(goal.met(&time(2090.0, 2000.0)), Some(true));
        assert_eq!(goal.met(&time(2101.0, 2000.0)), Some(false));
        // Two calls of less than a microsecond each.
        let goal = Goal::Beside { calls: 2 };
        assert_eq!(goal.met(&time(1660.0, 1600.0)), Some(true));
        assert_eq!(goal.met(&time(1661.0, 1600.0)), Some(false));
        // Additional nanoseconds do not apply to a bandwidth.
        assert_eq!(goal.met(&rate(50.0, 55.0)), Some(false));
    }

    #[test]
    fn shares_are_of_rates_and_limits_of_figures() {
        let goal = Goal::Share(0.8);
        assert_eq!(goal.met(&rate(44.1, 55.0)), Some(true));
        assert_eq!(goal.met(&rate(43.9, 55.0)), Some(false));
        let goal = Goal::Absolute(30.0, Unit::Nanoseconds);
        assert_eq!(goal.met(&time(29.0, 1000.0)), Some(true));
        assert_eq!(goal.met(&time(31.0, 1000.0)), Some(false));
        assert_eq!(goal.limit(&time(29.0, 1000.0)), Some(0.03));
        let pairs = Measured::new(Unit::Millions, 400.0, Some(0.5));
        let least = Goal::Absolute(200.0, Unit::Millions);
        assert_eq!(least.limit(&pairs), Some(0.0025));
        let pairs = Measured::new(Unit::Millions, 210.0, None);
        assert_eq!(Goal::Absolute(200.0, Unit::Millions).met(&pairs), Some(true));
        assert_eq!(Goal::Absolute(220.0, Unit::Millions).met(&pairs), Some(false));
    }

    #[test]
    fn what_cannot_be_compared_meets_no_goal() {
        let alone = Measured::new(Unit::Nanoseconds, 1.0, None);
        assert_eq!(Goal::Ratio(1.05).met(&alone), Some(false));
        assert_eq!(Goal::Absolute(1.0, Unit::Gigabytes).met(&alone), Some(false));
        assert_eq!(Goal::None("for its own sake".into()).met(&alone), None);
    }

    #[test]
    fn a_goal_says_which_of_its_halves_counts() {
        let goal = Goal::Beside { calls: 2 };
        assert_eq!(goal.resolved(&time(1.0, 500.0)).to_string(), "≤ +60 ns");
        assert_eq!(goal.resolved(&time(1.0, 5000.0)).to_string(), "≤ 1.05 ×");
        assert_eq!(goal.to_string(), "≤ 1.05 ×, or ≤ +60 ns");
        assert_eq!(Goal::Share(0.95).to_string(), "≥ 95 %");
        assert_eq!(Goal::Ratio(1.0 / 3.5).to_string(), "≤ 0.286 ×");
        let goal = Goal::More(100.0);
        assert_eq!(goal.resolved(&time(1.0, 500.0)).to_string(), "≤ +100 ns");
        assert_eq!(goal.met(&time(599.0, 500.0)), Some(true));
        assert_eq!(goal.met(&time(601.0, 500.0)), Some(false));
        let first = Goal::Absolute(45e6, Unit::Nanoseconds);
        assert_eq!(first.to_string(), "≤ 45.0 ms");
    }
}
