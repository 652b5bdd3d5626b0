//! What many devices reach at once, beside what each reaches alone and what their links carry.

use serde::{Deserialize, Serialize};

/// What raw calls reach that run alone, in the rounds of what many devices do at once: GB/s.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Many {
    pub(crate) devices: usize,
    /// Each device's part while the others rest, added up; [`None`] where a single device has a part.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) singles: Option<f64>,
    /// [`None`] where nothing crosses from device to device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) links: Option<Links>,
}

/// What links between devices carry.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Links {
    /// From one device to another, of the pair that is fastest.
    pub(crate) one_way: f64,
    /// There and back at once, of the pair that is fastest.
    pub(crate) both_ways: f64,
    /// One way, from each device that sends.
    pub(crate) limit: f64,
}

impl Many {
    /// Of parts of `bytes` each, and the nanoseconds that each takes alone.
    pub(crate) fn new(devices: usize, bytes: usize, alone: &[f64], links: Option<Links>) -> Self {
        let singles = alone.iter().map(|&time| rate(bytes, time));
        Self {
            devices,
            singles: (alone.len() > 1).then(|| singles.sum()),
            links,
        }
    }

    /// What the links of all devices carry.
    pub(crate) fn limit(&self) -> Option<f64> {
        Some(self.links?.limit)
    }
}

impl Links {
    /// Of copies of `bytes`, and the nanoseconds that pairs of devices take one way and both ways, while
    /// so many `senders` would be at work.
    pub(crate) fn new(bytes: usize, one_way: &[f64], both_ways: &[f64], senders: usize) -> Self {
        let best = |bytes, times: &[f64]| {
            let rates = times.iter().map(|&time| rate(bytes, time));
            rates.fold(0.0, f64::max)
        };
        let one_way = best(bytes, one_way);
        Self {
            one_way,
            both_ways: best(2 * bytes, both_ways),
            limit: one_way * senders as f64,
        }
    }

    /// The faster of each.
    pub(crate) fn best(self, other: Self) -> Self {
        Self {
            one_way: self.one_way.max(other.one_way),
            both_ways: self.both_ways.max(other.both_ways),
            limit: self.limit.max(other.limit),
        }
    }
}

/// Bytes a nanosecond are GB/s.
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
        // One device has a part, or none was timed: there is nothing to add.
        assert_eq!(Many::new(2, 1000, &[20.0], None).singles, None);
        assert_eq!(Many::new(2, 1000, &[], None).singles, None);
    }

    #[test]
    fn the_best_pair_limits_all_that_send() {
        // One way 100, 200 and 125 GB/s; both ways 250 and 400.
        let links = Links::new(1000, &[10.0, 5.0, 8.0], &[8.0, 5.0], 3);
        let expected = Links {
            one_way: 200.0,
            both_ways: 400.0,
            limit: 600.0,
        };
        assert_eq!(links, expected);
        let other = Links::new(1000, &[4.0], &[10.0], 1);
        let best = links.best(other);
        assert_eq!((best.one_way, best.both_ways), (250.0, 400.0));
    }
}
