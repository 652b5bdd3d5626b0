//! A test's own view of the driver: its calls, injected faults, violations and leaks.

use std::sync::PoisonError;
use std::time::{Duration, Instant};

use cuda_sys::CUresult;

use crate::config::Mode;
use crate::fault::Fault;
use crate::handle::Id;
use crate::log::Call;
use crate::origin::Origin;
use crate::report::{Report, Violation, misuses};
use crate::turn::Turn;
use crate::{leaks, report::Leak, state};

/// How long a new session waits for host functions of the previous one.
const PATIENCE: Duration = Duration::from_secs(5);

/// One test's use of the driver; only one exists at a time in a process.
///
/// Counters, trace, faults and violations start empty. Objects that exist already, such as a
/// library's retained primary contexts and cached pinned memory, are not leaks of this session.
///
/// Calls of other threads belong to the session too. So every test of a program begins one, before its first
/// driver call and before the values that it drops; see "Tests in parallel" in the crate's documentation.
///
/// Dropping a session panics if it has misuses that the test has not looked at.
#[derive(Debug)]
pub struct Session {
    baseline: Id,
    dropped_calls: u64,
    default_mode: Mode,
    _turn: Turn,
}

/// A position in a session's trace, to count from.
#[derive(Debug, Clone, Copy)]
pub struct Mark(usize);

impl Session {
    /// Waits for the sessions of other threads to end, then starts one. While it waits, it prints every ten
    /// seconds on stderr where the other session was begun.
    ///
    /// # Panics
    /// If this thread has a session already: it would wait for itself.
    #[must_use]
    #[track_caller]
    pub fn begin() -> Self {
        let turn = Turn::take();
        settle();
        let mut state = state::lock();
        state.catch_up();
        let mode = state.config.mode;
        state.set_mode(mode);
        state.polls = state.config.polls;
        state.config.concurrent_managed = true;
        // Misuse between sessions is reported when the process ends.
        let outside = std::mem::take(&mut state.log.violations);
        state.outside.extend(outside);
        state.log = Default::default();
        state.log.traces = true;
        state.log.keeps_origins = state.config.origins;
        Self {
            baseline: state.next_id,
            dropped_calls: state.dropped_calls,
            default_mode: state.config.mode,
            _turn: turn,
        }
    }

    /// Changes when queued work runs, for this session.
    pub fn set_mode(&self, mode: Mode) {
        let mut state = state::lock();
        state.set_mode(mode);
        if mode == Mode::Eager {
            state.advance_all();
        }
    }

    /// Sets how often in lazy mode a query answers "not ready" before it makes progress, for the rest of this
    /// session.
    pub fn set_polls(&self, polls: u32) {
        state::lock().polls = polls;
    }

    /// Sets whether devices may use managed memory while the host does, for the rest of this session.
    pub fn set_concurrent_managed_access(&self, can: bool) {
        state::lock().config.concurrent_managed = can;
    }

    /// Returns how often a symbol was called.
    #[must_use]
    pub fn calls(&self, name: &str) -> u64 {
        let state = state::lock();
        let calls = state.log.trace.iter().filter(|call| call.name == name);
        calls.count() as u64
    }

    /// Waits until a symbol was called `count` times. A counted call keeps the lock on the driver until it
    /// returns or waits.
    pub fn await_calls(&self, name: &str, count: u64) {
        while self.calls(name) < count {
            std::thread::yield_now();
        }
    }

    /// Returns how often all symbols together were called.
    #[must_use]
    pub fn total_calls(&self) -> u64 {
        state::lock().log.trace.len() as u64
    }

    /// Returns all calls, in order.
    #[must_use]
    pub fn trace(&self) -> Vec<Call> {
        state::lock().log.trace.clone()
    }

    /// Returns the present position in the trace, for [`since`](Self::since).
    #[must_use]
    pub fn mark(&self) -> Mark {
        Mark(state::lock().log.trace.len())
    }

    /// Returns the calls since a mark, of all threads.
    #[must_use]
    pub fn since(&self, mark: Mark) -> Vec<Call> {
        state::lock().log.trace.get(mark.0..).unwrap_or_default().to_vec()
    }

    /// Returns the names of the functions that this thread called since a mark.
    #[must_use]
    pub fn names_since(&self, mark: Mark) -> Vec<&'static str> {
        let thread = crate::thread_number();
        let calls = self.since(mark).into_iter().filter(|call| call.thread == thread);
        calls.map(|call| call.name).collect()
    }

    /// Makes the N-th call from now return `code` without effect: of `function`, or of any function if
    /// `None`. `cuGetErrorName` and `cuGetErrorString` never fail and are not counted.
    pub fn fail_nth(&self, function: Option<&str>, nth: u64, code: CUresult) {
        let fault = Fault::new(code).nth(nth);
        self.inject(match function {
            Some(name) => fault.function(name),
            None => fault,
        });
    }

    /// Adds a fault of any kind.
    pub fn inject(&self, fault: Fault) {
        state::lock().log.faults.push(fault);
    }

    /// Calls [`fault_fired`](crate::fault_fired).
    #[must_use]
    pub fn fault_fired(&self) -> bool {
        crate::fault_fired()
    }

    /// Removes all faults, and makes lost contexts usable again.
    pub fn clear_faults(&self) {
        let mut state = state::lock();
        state.log.faults.clear();
        state.contexts.values_mut().for_each(|context| context.lost = None);
    }

    /// Lets streams that wait for a value in memory continue without it, after this time and until the
    /// session ends: for a program that ends early, so that no code may be left to write the value.
    pub fn end_waits_for_values(&self, after: Duration) {
        state::lock().log.waits_end = Some(Instant::now() + after);
    }

    /// Sets how long a call waits for room in the [queue](crate#how-it-decides) of a stalled stream, for the
    /// rest of this session. Then it is reported as [`QueueFull`](crate::ViolationKind::QueueFull) and
    /// continues regardless. The default is 10 seconds.
    pub fn set_queue_patience(&self, patience: Duration) {
        state::lock().log.queue_patience = Some(patience);
    }

    /// Records, from now on, the backtraces of calls that create an object or change the current context,
    /// which makes these calls slower. [`Leak::origin`], by which reports say where a leaked object was made,
    /// and [`switches`](Self::switches) need them. `CUDA_SIM_ORIGINS=1` does so from the beginning.
    pub fn keep_origins(&self) {
        state::lock().log.keeps_origins = true;
    }

    /// Returns the backtraces of the calls that changed, or tried to change, this thread's current context,
    /// in order, since [`keep_origins`](Self::keep_origins).
    #[must_use]
    pub fn switches(&self) -> Vec<Origin> {
        let thread = crate::thread_number();
        let state = state::lock();
        let switches = state.log.switches.iter();
        let own = switches.filter(|(switching, _)| *switching == thread);
        own.map(|(_, origin)| origin.clone()).collect()
    }

    /// Returns the misuses so far. A correct program has none at any time, whatever it caches or leaks, and
    /// whichever call was made to fail.
    #[must_use]
    pub fn violations(&self) -> Vec<Violation> {
        let log = &mut state::lock().log;
        log.seen = log.violations.len();
        log.violations.clone()
    }

    /// Removes and returns the violations, for a test that provokes them.
    #[must_use]
    pub fn take_violations(&self) -> Vec<Violation> {
        let log = &mut state::lock().log;
        log.seen = 0;
        std::mem::take(&mut log.violations)
    }

    /// Returns the objects that were made in this session and still exist. A program that uses `cuda-core`
    /// first waits for its work and calls `cuda_core::trim()`, which releases what the library keeps for
    /// reuse.
    #[must_use]
    pub fn leaks(&self) -> Vec<Leak> {
        leaks::find(&state::lock(), self.baseline, self.dropped_calls)
    }

    /// Returns the number of queued operations of all streams that are not complete. A launch of a graph is
    /// one.
    #[must_use]
    pub fn pending_ops(&self) -> u64 {
        state::lock().pending_ops()
    }

    /// Returns the bytes of a device's memory that are allocated, without what pools cache. A queued free
    /// counts once it has executed.
    #[must_use]
    pub fn device_bytes_in_use(&self, device: u32) -> usize {
        let state = state::lock();
        let device = device as usize;
        let pools = state.pools.values().filter(|pool| pool.device == device);
        let pooled: usize = pools.map(|pool| pool.used.current).sum();
        state.devices.get(device).map_or(0, |device| device.allocated) + pooled
    }

    /// Runs all queued work that can run, and waits for host functions. No driver call is counted.
    pub fn settle(&self) {
        settle();
    }

    /// Ends the session and returns what it found.
    #[must_use]
    pub fn finish(self) -> Report {
        self.report()
    }

    /// Panics with a readable report unless nothing was found.
    #[track_caller]
    pub fn assert_clean(&self) {
        let report = self.report();
        assert!(report.is_clean(), "{report}");
    }

    fn report(&self) -> Report {
        // A separate statement: within the expression below, the lock would be held.
        let mut state = state::lock();
        state.report_missing_ranks();
        let mode = state.mode;
        drop(state);
        let (violations, leaks) = (self.violations(), self.leaks());
        Report { mode, violations, leaks, pending: self.pending_ops() }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let mut state = state::lock();
        if let (true, Mode::Threaded { .. }) = (std::thread::panicking(), state.mode) {
            eprintln!("cuda-driver-sim: to repeat this schedule: {}", state.mode);
        }
        state.report_missing_ranks();
        state.land_all();
        let mut log = std::mem::take(&mut state.log);
        state.contexts.values_mut().for_each(|context| context.lost = None);
        state.set_mode(self.default_mode);
        let thread = state.callbacks.finished_thread();
        drop(state);
        if let Some(thread) = thread {
            // The thread has no more work; a panic on it would be the program's own.
            let _ = thread.join();
        }
        let violations = log.violations.split_off(log.seen);
        if !violations.is_empty() {
            let unseen = misuses(&violations);
            assert!(
                std::thread::panicking(),
                "the session ends, and the test has not looked at {unseen}"
            );
            eprintln!("cuda-driver-sim: {unseen}");
        }
    }
}

/// Lets queued work of earlier sessions complete, as far as possible.
fn settle() {
    let deadline = Instant::now() + PATIENCE;
    let mut state = state::lock();
    loop {
        state.run_jobs();
        state.advance_all();
        if !state.callbacks.is_active() || Instant::now() > deadline {
            break;
        }
        let waited = state::CHANGED.wait_timeout(state, Duration::from_millis(10));
        state = waited.unwrap_or_else(PoisonError::into_inner).0;
    }
    let thread = state.callbacks.finished_thread();
    drop(state);
    if let Some(thread) = thread {
        let _ = thread.join();
    }
}
