//! The times that Miri takes for tests, which the last full run wrote to a file; and the division of tests
//! into shares that take about equally long.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use fs_err as fs;

/// The file: a line for each test that takes longer than most, with its seconds and its name.
const FILE: &str = ".ci/miri-times";

/// The seconds assumed for a test that is not in the file.
const USUAL: f64 = 1.0;

/// Tests that take more seconds than this are in the file.
const LONG: f64 = 2.0;

#[derive(Debug, Default, PartialEq)]
pub(super) struct Times(HashMap<String, f64>);

impl Times {
    /// Reads the times from the file, if it exists; without it, all tests are assumed to take the same time.
    pub(super) fn read(root: &Path) -> Self {
        Self::parse(&fs::read_to_string(root.join(FILE)).unwrap_or_default())
    }

    pub(super) fn parse(text: &str) -> Self {
        let lines = text.lines().filter_map(|line| {
            let (seconds, name) = line.trim().split_once(' ')?;
            Some((name.to_owned(), seconds.parse().ok()?))
        });
        Self(lines.collect())
    }

    /// The seconds that Miri takes for a test, without its start.
    pub(super) fn of(&self, name: &str) -> f64 {
        self.0.get(name).copied().unwrap_or(USUAL)
    }

    pub(super) fn of_all<'a>(&self, names: impl IntoIterator<Item = &'a String>) -> f64 {
        names.into_iter().map(|name| self.of(name)).sum()
    }
}

/// Writes the file anew, from a run of all tests.
pub(super) fn write(root: &Path, times: &[(Duration, String)]) -> anyhow::Result<()> {
    fs::write(root.join(FILE), text(times))?;
    println!("the times of the long tests are in {FILE} now: commit that file");
    Ok(())
}

fn text(times: &[(Duration, String)]) -> String {
    let times = times.iter().map(|(time, name)| (time.as_secs_f64(), name));
    let mut long: Vec<_> = times.filter(|(seconds, _)| *seconds > LONG).collect();
    long.sort_by(|(a, name), (b, other)| b.total_cmp(a).then(name.cmp(other)));
    long.iter().map(|(seconds, name)| format!("{seconds:.0} {name}\n")).collect()
}

/// Deals `items` out to `count` shares: the longest first, each to the share with the least time so far. The
/// same items always get the same shares. Within a share, items keep their order.
pub(super) fn deal<T>(items: Vec<T>, count: usize, seconds: impl Fn(&T) -> f64) -> Vec<Vec<T>> {
    let mut by_time: Vec<usize> = (0..items.len()).collect();
    by_time.sort_by(|&a, &b| seconds(&items[b]).total_cmp(&seconds(&items[a])));
    let mut loads = vec![0.0_f64; count.max(1)];
    let mut of = vec![0; items.len()];
    for at in by_time {
        let least = (0..loads.len()).min_by(|&a, &b| loads[a].total_cmp(&loads[b])).unwrap_or(0);
        loads[least] += seconds(&items[at]);
        of[at] = least;
    }
    let mut shares: Vec<Vec<T>> = loads.iter().map(|_| Vec::new()).collect();
    for (item, share) in items.into_iter().zip(of) {
        shares[share].push(item);
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let times = [
            (Duration::from_secs(3), "a::short".to_owned()),
            (Duration::from_secs(40), "b::long".to_owned()),
            (Duration::from_millis(900), "c::usual".to_owned()),
        ];
        assert_eq!(text(&times), "40 b::long\n3 a::short\n");
        let read = Times::parse(&text(&times));
        assert_eq!((read.of("b::long"), read.of("c::usual")), (40.0, USUAL));
        let all = times.map(|(_, name)| name);
        assert_eq!(read.of_all(&all), 43.0 + USUAL);
    }

    #[test]
    fn each_item_is_in_one_share() {
        let items: Vec<u32> = (0..50).collect();
        let shares = deal(items.clone(), 7, |item| f64::from(item % 5));
        assert_eq!(shares.len(), 7);
        let mut dealt = shares.concat();
        dealt.sort_unstable();
        assert_eq!(dealt, items);
    }

    #[test]
    fn shares_take_as_long_as_each_other() {
        let shares = deal(vec![9, 1, 1, 1, 5, 5, 8], 3, |item| f64::from(*item));
        let loads: Vec<i32> = shares.iter().map(|share| share.iter().sum()).collect();
        assert_eq!(loads, [10, 10, 10]);
    }

    #[test]
    fn there_may_be_fewer_items_than_shares() {
        let shares = deal(vec!["a"], 3, |_| 1.0);
        assert_eq!(shares, [vec!["a"], vec![], vec![]]);
    }
}
