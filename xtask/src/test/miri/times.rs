//! How long Miri takes for tests: measured by the last full run, in a file.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use fs_err as fs;

/// A line for each test that takes longer than most: its seconds, its name.
const FILE: &str = ".ci/miri-times";

/// Seconds that a test takes which is not in the file.
const USUAL: f64 = 1.0;

/// Tests that take longer than this are in the file.
const LONG: f64 = 2.0;

#[derive(Debug, Default, PartialEq)]
pub(super) struct Times(HashMap<String, f64>);

impl Times {
    /// Those of the file, if there is one: without, all tests are taken to be alike.
    pub(super) fn read(root: &Path) -> Self {
        Self::parse(&fs::read_to_string(root.join(FILE)).unwrap_or_default())
    }

    fn parse(text: &str) -> Self {
        let lines = text.lines().filter_map(|line| {
            let (seconds, name) = line.trim().split_once(' ')?;
            Some((name.to_owned(), seconds.parse().ok()?))
        });
        Self(lines.collect())
    }

    /// Seconds that Miri takes for a test, without its start.
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
    let mut long: Vec<_> = times
        .iter()
        .map(|(time, name)| (time.as_secs_f64(), name))
        .filter(|(seconds, _)| *seconds > LONG)
        .collect();
    long.sort_by(|(a, name), (b, other)| b.total_cmp(a).then(name.cmp(other)));
    let lines = long.iter().map(|(seconds, name)| format!("{seconds:.0} {name}\n"));
    lines.collect()
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
}
