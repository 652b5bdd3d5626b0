//! The rate of many devices at once, beside each device alone and the capacity of their links.

use serde::{Deserialize, Serialize};

/// Rates in GB/s of raw calls that run alone, in the same rounds as the operations of many devices.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Many {
    pub(crate) devices: usize,
    /// The rates of each device's part while the others are idle, added up; [`None`] if only one
    /// device has a part.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) singles: Option<f64>,
    /// [`None`] if no copy goes from device to device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) links: Option<Links>,
}

/// The capacity of links between devices.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Links {
    /// From one device to another, of the fastest pair.
    pub(crate) one_way: f64,
    /// In both directions at once, of the fastest pair.
    pub(crate) both_ways: f64,
    /// The limit in one direction, for all devices that send.
    pub(crate) limit: f64,
}

impl Many {
    /// From parts of `bytes` each, and the nanoseconds that each takes alone.
    pub(crate) fn new(devices: usize, bytes: usize, alone: &[f64], links: Option<Links>) -> Self {
        let singles = alone.iter().map(|&time| rate(bytes, time));
        Self { devices, singles: (alone.len() > 1).then(|| singles.sum()), links }
    }

    /// The total capacity of all devices' links.
    pub(crate) fn limit(&self) -> Option<f64> {
        Some(self.links?.limit)
    }
}

impl Links {
    /// From copies of `bytes`, and the nanoseconds that pairs of devices take in one direction and
    /// in both, for an operation with so many `senders`.
    pub(crate) fn new(bytes: usize, one_way: &[f64], both_ways: &[f64], senders: usize) -> Self {
        let best = |bytes, times: &[f64]| {
            let rates = times.iter().map(|&time| rate(bytes, time));
            rates.fold(0.0, f64::max)
        };
        let one_way = best(bytes, one_way);
        Self { one_way, both_ways: best(2 * bytes, both_ways), limit: one_way * senders as f64 }
    }

    /// The faster of both, for each figure.
    pub(crate) fn best(self, other: Self) -> Self {
        Self {
            one_way: self.one_way.max(other.one_way),
            both_ways: self.both_ways.max(other.both_ways),
            limit: self.limit.max(other.limit),
        }
    }
}

/// Bytes per nanosecond are GB/s.
pub(crate) fn rate(bytes: usize, time: f64) -> f64 {
    bytes as f64 / time
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_each_reaches_alone_is_added_up() {
        // 50 and 25 GB/s.
        let many = Many::new(2, 1000, &[20.0, 40.0], None);
        assert_eq!(many.singles, Some(75.0));
        // Only one device has a part, or none was timed: there is no sum.
        assert_eq!(Many::new(2, 1000, &[20.0], None).singles, None);
        assert_eq!(Many::new(2, 1000, &[], None).singles, None);
    }

    #[test]
    fn the_best_pair_limits_all_that_send() {
        // One way 100, 200 and 125 GB/s; both ways 250 and 400.
        let links = Links::new(1000, &[10.0, 5.0, 8.0], &[8.0, 5.0], 3);
        let expected = Links { one_way: 200.0, both_ways: 400.0, limit: 600.0 };
        assert_eq!(links, expected);
        let other = Links::new(1000, &[4.0], &[10.0], 1);
        let best = links.best(other);
        assert_eq!((best.one_way, best.both_ways), (250.0, 400.0));
    }
}
