//! The record that a sweep writes for the program that started it.

use std::env;
use std::fs::OpenOptions;
use std::io::Write as _;

/// Names the file to which a sweep adds a line for each test: its path, the number of runs, the number of
/// calls, the stride of the failing calls, and the number of runs in which the current context was not
/// checked; or the reason why the test was not swept.
const RECORD: &str = "CUDA_TESTS_FAULTS";

/// Returns whether tests are swept rather than run once.
pub(crate) fn requested() -> bool {
    env::var_os(RECORD).is_some()
}

#[derive(Debug, Default)]
pub(super) struct Record {
    pub(super) runs: u64,
    pub(super) calls: u64,
    pub(super) stride: u64,
    pub(super) current_unknown: u64,
}

impl Record {
    pub(super) fn write(&self, path: &str) {
        let Self { runs, calls, stride, current_unknown } = self;
        add(&format!("{path}\t{runs}\t{calls}\t{stride}\t{current_unknown}\n"));
    }
}

pub(super) fn not_swept(path: &str, reason: &str) {
    add(&format!("{path}\t{reason}\n"));
}

/// Adds a line with a single write: several processes may share the file.
fn add(line: &str) {
    let Some(file) = env::var_os(RECORD) else {
        return;
    };
    let file = OpenOptions::new().create(true).append(true).open(file);
    let written = file.and_then(|mut file| file.write_all(line.as_bytes()));
    written.expect("the record can be written");
}
