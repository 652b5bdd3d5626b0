//! What a sweep tells the program that asked for it.

use std::env;
use std::fs::OpenOptions;
use std::io::Write as _;

/// Names the file that a sweep adds a line to for each test: its path, then either how many runs
/// there were, of how many calls, of which every how many-th failed, and in how many runs
/// what is current afterwards says nothing; or why there were none.
const RECORD: &str = "CUDA_TESTS_FAULTS";

/// Whether tests are to be swept rather than run.
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
        let Self {
            runs,
            calls,
            stride,
            current_unknown,
        } = self;
        add(&format!(
            "{path}\t{runs}\t{calls}\t{stride}\t{current_unknown}\n"
        ));
    }
}

pub(super) fn not_swept(path: &str, reason: &str) {
    add(&format!("{path}\t{reason}\n"));
}

/// One write a line: several processes may share the file.
fn add(line: &str) {
    let Some(file) = env::var_os(RECORD) else {
        return;
    };
    let file = OpenOptions::new().create(true).append(true).open(file);
    let written = file.and_then(|mut file| file.write_all(line.as_bytes()));
    written.expect("the record can be written");
}
