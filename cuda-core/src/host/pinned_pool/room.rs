//! The amount of memory that the system has left.
//!
//! A mapping costs nothing until its pages are touched. If a process touches more memory than there is,
//! the system kills it without an error. The driver does return an error, so a request that seems too
//! large is left to the driver.

/// Whether the system reports enough memory to touch `bytes`.
pub(super) fn has(bytes: usize) -> bool {
    // Below this size, reading the figures costs more than it is worth.
    const SMALL: usize = 64 << 20;
    // A sixteenth is left to other processes.
    let enough = |available: u64| bytes as u64 <= available - available / 16;
    bytes <= SMALL || os::available().is_none_or(enough)
}

#[cfg(all(target_os = "linux", not(miri)))]
mod os {
    use std::fs;
    use std::path::Path;

    /// Returns the memory available to the machine or to the control groups of the process, whichever
    /// is less.
    pub(super) fn available() -> Option<u64> {
        let machine = fs::read_to_string("/proc/meminfo")
            .ok()
            .and_then(|text| number_behind(&text, "MemAvailable:"))
            .map(|kibibytes| kibibytes << 10);
        [machine, groups()].into_iter().flatten().min()
    }

    /// Returns the memory that the tightest of the process's control groups (version 2) leaves.
    fn groups() -> Option<u64> {
        let text = fs::read_to_string("/proc/self/cgroup").ok()?;
        let path = text.lines().find_map(|line| line.strip_prefix("0::/"))?;
        let root = Path::new("/sys/fs/cgroup");
        let of_process = root.join(path);
        let levels = of_process.ancestors().take_while(|at| at.starts_with(root));
        levels.filter_map(group).min()
    }

    fn group(at: &Path) -> Option<u64> {
        let read = |file| fs::read_to_string(at.join(file)).ok();
        // The file contains "max" if there is no limit.
        let limit: u64 = read("memory.max")?.trim().parse().ok()?;
        let used: u64 = read("memory.current")?.trim().parse().ok()?;
        // Cached files count as used, but can be evicted.
        let files = read("memory.stat").map_or(0, |text| {
            ["inactive_file ", "active_file "]
                .into_iter()
                .filter_map(|name| number_behind(&text, name))
                .sum()
        });
        Some(limit.saturating_sub(used.saturating_sub(files)))
    }

    /// Returns the number in the line that begins with `name`.
    pub(super) fn number_behind(text: &str, name: &str) -> Option<u64> {
        let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
        rest.split_whitespace().next()?.parse().ok()
    }
}

#[cfg(not(all(target_os = "linux", not(miri))))]
mod os {
    pub(super) fn available() -> Option<u64> {
        None
    }
}

#[cfg(all(target_os = "linux", not(miri)))]
#[cfg(test)]
mod tests {
    use super::os::number_behind;

    #[test]
    fn lines_are_found_by_their_beginning() {
        let text = "MemFree:  1 kB\nMemAvailable:    24576 kB\nMemAvailableToo: 3 kB\n";
        assert_eq!(number_behind(text, "MemAvailable:"), Some(24576));
        assert_eq!(number_behind(text, "Cached:"), None);
        assert_eq!(number_behind("inactive_file 7\n", "active_file "), None);
    }
}
