//! The end of a program: the driver shuts down, and the library form of the simulator reports.

use std::ffi::c_int;
use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::Once;
use std::thread;
use std::time::Duration;

use crate::report::Report;
use crate::{leaks, state};

unsafe extern "C" {
    safe fn atexit(callback: extern "C" fn()) -> c_int;
}

/// Writes a report when the program ends, if `CUDA_SIM_REPORT` asks for one.
pub(crate) fn report_at_exit() {
    if std::env::var_os("CUDA_SIM_REPORT").is_some() && atexit(report) != 0 {
        eprintln!("cuda-driver-sim: no report will be written: atexit failed");
    }
}

/// Makes the driver shut down when the process exits, like a driver's own exit handler: it refuses
/// later calls. Its pinned memory stays mapped as long as the process, as on an H200 with driver
/// 580, where threads read it in 120 processes until each was gone.
pub(crate) fn leave_with_the_process() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        if cfg!(all(unix, not(miri))) && atexit(leave) != 0 {
            eprintln!("cuda-driver-sim: the driver will not shut down: atexit failed");
        }
    });
}

extern "C" fn leave() {
    state::lock().gone = true;
    // The shutdown takes time, so that threads which still run meet it.
    thread::sleep(Duration::from_millis(2));
}

extern "C" fn report() {
    let Some(target) = std::env::var_os("CUDA_SIM_REPORT") else {
        return;
    };
    let text = text();
    if target == "stderr" {
        // If stderr is closed the report is lost.
        let _ = std::io::stderr().write_all(text.as_bytes());
    } else if let Err(error) = std::fs::write(&target, &text) {
        eprintln!("cuda-driver-sim: {}: {error}\n{text}", target.to_string_lossy());
    }
}

fn text() -> String {
    let state = state::lock();
    let report = Report {
        mode: state.mode,
        violations: state.log.violations.clone(),
        leaks: leaks::find(&state, 0, 0).into_iter().collect(),
        pending: state.pending_ops(),
    };
    let verdict = if report.violations.is_empty() { "no violation" } else { "VIOLATIONS" };
    let total: u64 = state.log.counts.values().sum();
    let mut text = format!("cuda-driver-sim: {verdict}; {total} calls; {report}");
    for (name, count) in &state.log.counts {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "  {count:>8} {name}");
    }
    text
}
