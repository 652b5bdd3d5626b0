//! The end of a program: the driver shuts down, and the simulator reports misuse.

use std::collections::BTreeMap;
use std::ffi::{OsString, c_int, c_void};
use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use std::{process, thread};

use crate::report::{Report, misuses};
use crate::{leaks, state};

/// The exit status of a program that misused the driver outside of sessions.
const MISUSE: c_int = 70;

unsafe extern "C" {
    safe fn atexit(callback: extern "C" fn()) -> c_int;
    fn fflush(stream: *mut c_void) -> c_int;
    safe fn _exit(status: c_int) -> !;
}

/// The process that reports. A fork's child does not: it may lack the thread that would release a lock.
static REPORTS: AtomicU32 = AtomicU32::new(0);

/// Makes a program that misused the driver outside of sessions report it at exit, and fail. As a library, the
/// simulator also writes its whole report to where `CUDA_SIM_REPORT` says.
pub(crate) fn report_at_exit(is_library: bool) {
    REPORTS.store(process::id(), Ordering::Relaxed);
    let callback = if is_library { library_ends } else { program_ends };
    if cfg!(not(miri)) && atexit(callback) != 0 {
        eprintln!("cuda-driver-sim: nothing will be reported: atexit failed");
    }
}

/// Makes the driver shut down when the process exits, like a real driver's exit handler: it then refuses
/// calls. Its pinned memory stays mapped while the process exists, as on an H200 with driver 580, where
/// threads read it in 120 processes until each was gone.
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

extern "C" fn library_ends() {
    report(std::env::var_os("CUDA_SIM_REPORT"));
}

extern "C" fn program_ends() {
    report(None);
}

fn report(file: Option<OsString>) {
    if REPORTS.load(Ordering::Relaxed) != process::id() {
        return;
    }
    let mut state = state::lock();
    // A session that still exists belongs to a test that ends its process on purpose.
    let in_session = state.log.traces;
    if !in_session {
        state.report_missing_ranks();
    }
    let report = Report {
        mode: state.mode,
        violations: state.outside.iter().chain(&state.log.violations).cloned().collect(),
        leaks: leaks::find(&state, 0, 0).into_iter().collect(),
        pending: state.pending_ops(),
    };
    let all = text(&report, &state.log.counts);
    let of_session = if in_session { state.log.violations.len() } else { 0 };
    let is_misused = report.violations.len() > of_session;
    drop(state);
    if let Some(file) = file.as_ref().filter(|file| *file != "stderr") {
        if let Err(error) = std::fs::write(file, &all) {
            eprintln!("cuda-driver-sim: {}: {error}\n{all}", file.to_string_lossy());
        }
    }
    if file.is_some_and(|file| file == "stderr") {
        // If stderr is closed the report is lost.
        let _ = std::io::stderr().write_all(all.as_bytes());
    } else if is_misused {
        let _ = writeln!(std::io::stderr(), "cuda-driver-sim: {}", misuses(&report.violations));
    }
    if is_misused {
        // SAFETY: null stands for all C streams; those of Rust were flushed before.
        unsafe { fflush(std::ptr::null_mut()) };
        _exit(MISUSE);
    }
}

fn text(report: &Report, counts: &BTreeMap<&'static str, u64>) -> String {
    let verdict = if report.violations.is_empty() { "no violation" } else { "VIOLATIONS" };
    let total: u64 = counts.values().sum();
    let mut text = format!("cuda-driver-sim: {verdict}; {total} calls; {report}");
    for (name, count) in counts {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "  {count:>8} {name}");
    }
    text
}
