//! Repeats a GPU test once for each of its driver calls and makes that call fail.

mod origin;
mod panics;
mod record;

use std::fmt::Debug;
use std::iter;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use cuda_core::Device;
use cuda_sim::{Fault, Session};
use cuda_sys::CUresult;

use crate::context;
use crate::driver::{
    allocator_of_environment, choose_allocator, require_devices, simulator, trim, trim_cache,
};
use crate::drop_hook::DropReports;
use crate::judge;
use crate::run::Outcome;
use crate::sample;
use crate::stall;
use crate::watchdog::Watchdog;
use panics::Panics;
use record::Record;

pub(crate) use panics::message;
pub(crate) use record::requested;

/// How a call fails.
#[derive(Debug, Clone, Copy)]
enum Failure {
    /// Only this call; the next one works.
    Once(CUresult),
    /// This call and all later ones of the context: the context is lost.
    Sticky(CUresult),
}

/// The injected errors: one that any call may return, one after which the library repeats some calls, and one
/// that ends a context.
const FAILURES: [Failure; 3] = [
    Failure::Once(cuda_sys::CUDA_ERROR_OUT_OF_MEMORY),
    Failure::Once(cuda_sys::CUDA_ERROR_INVALID_VALUE),
    Failure::Sticky(cuda_sys::CUDA_ERROR_ILLEGAL_ADDRESS),
];

/// Number of calls up to which each call of a test fails in turn; few tests make more.
const EXACT: u64 = 600;

/// Reasons why tests, or modules of tests, are not swept.
const NOT_SWEPT: [(&str, &[&str]); 27] = [
    (
        "its callback keeps a block of the allocator that keeps the callback, until it is called",
        &["adaptors::failures::a_callback_makes_room"],
    ),
    (
        "allocates and frees by hand: a block it leaks is the test's own",
        &["adaptors::tracking::i13_tracking_wrong_size"],
    ),
    (
        "where work cannot be proven complete, a tensor that was taken back is leaked with what it keeps",
        &[
            "dlpack::captured::l08_tensors_are_not_taken_in_the_order_of_a_captured_stream",
            "dlpack::e_a_tensor_handed_over_and_taken_back",
            "dlpack::e_shared_tensors_keep_their_memory",
            "dlpack::e_the_struct_before_dlpack_1",
        ],
    ),
    (
        "plays a library that frees its memory, which is reported where its tensor was not deleted",
        &["dlpack::e_tensors_that_are_refused"],
    ),
    (
        "plays a library that frees its memory although its tensor was not deleted",
        &[
            "dlpack::s02_a_taken_tensor_is_deleted_behind_its_uses",
            "dlpack::s02_a_taken_tensor_keeps_its_order_and_no_stream",
        ],
    ),
    (
        "plays a library whose copies into memory of its own nothing orders if it ends early",
        &["dlpack::s02_a_tensor_is_freed_behind_its_consumer"],
    ),
    (
        "its C functions end the process when the driver fails",
        &["allocators::i05_c_allocator_args"],
    ),
    (
        "measures the memory of the process, which the sweep itself uses",
        &["guards::a07_device_usable_after"],
    ),
    (
        "two threads meet at a barrier: one would wait there for the other, which ended early",
        &["guards::a09_guards_per_thread"],
    ),
    (
        "the driver ends a list of parameters by the code that the failure has; what is then launched lacks arguments",
        &["launches::m_wrong_arguments"],
    ),
    (
        "the sweep takes pinned memory from the driver; tests/sim/faults/pinned_cache.rs has these faults",
        &["pinned_cache::"],
    ),
    (
        "promises in unsafe code that pinned memory stays, but frees it when it ends early",
        &["pointers::f09_mapped"],
    ),
    (
        "where no event can be recorded a per-thread stream is waited for, which waits for the test here",
        &[
            "soundness::implicit_order::s52_a_copy_does_not_wait_for_a_host_function_of_a_per_thread_stream",
        ],
    ),
    (
        "where a launch cannot be proven complete, the function is leaked with the memory that it owns",
        &["graphs::owned::l23_what_a_function_owns_is_dropped_on_a_safe_thread"],
    ),
    (
        "promises in unsafe code that what raw nodes use stays, but frees it when it ends early",
        &["graphs::kinds::l_nodes_of_each_kind_by_one_raw_call"],
    ),
    (
        "thousands of calls; other tests make each of them",
        &[
            "graphs::programs::l_random_programs_give_the_same_result_all_ways",
            "graphs::programs::l_random_programs_of_two_devices_give_the_same_result",
            "graphs::resources::l_ten_thousand_graphs_leave_memory_flat",
            "flat::",
        ],
    ),
    (
        "a thousand threads in turn; other tests end one",
        &["threads::n06_streams_of_threads_that_end", "threads::n06_thread_exit"],
    ),
    (
        "threads meet at a barrier; a stress test of what other tests do once",
        &["many::stress::n10_sixteen_threads_on_all_devices"],
    ),
    (
        "a stress test of what other tests do once",
        &["soundness::threads::s34_streams_made_and_destroyed_by_many_threads"],
    ),
    (
        "a capture of a default stream goes on where its context is lost, and forbids releasing leaked objects",
        &["soundness::captures::s45_the_per_thread_stream_is_captured_on_its_own_thread"],
    ),
    (
        "two threads have a rank each: one would wait for the other, which ended early",
        &[
            "nccl::blocking::k_nccl_threads_group_the_operations_of_their_ranks",
            "nccl::k_nccl_ranks_of_two_threads",
            "nccl::k_nccl_ranks_of_two_threads_from_one_buffer_to_another",
            "nccl::k_nccl_split_and_join_again",
            "nccl::growth::k_nccl_ranks_join_a_communicator_that_grows",
            "nccl::life::k_nccl_a_lost_rank_is_noticed_and_done_without",
            "nccl::life::k_nccl_communicators_without_some_ranks",
            "nccl::life::k_nccl_goes_on_without_a_lost_rank_in_the_same_call",
            "nccl::order::l_nccl_in_graphs",
        ],
    ),
    (
        "where the abort of the new communicator fails, NCCL goes on using the one that it grows from",
        &[
            "nccl::growth::k_nccl_a_rank_that_does_not_join_a_growth_is_not_waited_for",
            "nccl::growth::k_nccl_another_thread_aborts_a_growth",
        ],
    ),
    (
        "a rank whose device is lost lets the other wait, and neither has an owner that could abort",
        &[
            "nccl::life::k_nccl_work_in_flight_keeps_what_was_dropped",
            "nccl::life::k_nccl_a_drop_does_not_wait_for_a_rank_that_comes_late",
        ],
    ),
    (
        "each run waits for the limit; what is aborted then is reported, but not leaked",
        &["nccl::life::k_nccl_a_drop_ends_work_that_waits_beyond_its_limit"],
    ),
    (
        "each run waits a second for the abort, which waits for the graph; other tests make each of these calls",
        &[
            "nccl::life::k_nccl_a_launch_that_an_abort_overtakes_uses_nothing_freed",
            "nccl::life::k_nccl_no_part_of_a_collective_is_left_out",
            "nccl::order::l_nccl_of_all_ranks_in_one_graph",
            "nccl::registered::k_nccl_registered_memory_stays_while_an_abort_waits_for_graphs",
        ],
    ),
    (
        "an abort waits for the graph, and may end after the run is judged; other tests make each of these calls",
        &["nccl::order::k_nccl_threads_call_and_launch_beside_each_other"],
    ),
    (
        "where the abort fails, nothing ends the work that waits for the other rank",
        &[
            "nccl::blocking::k_nccl_ranks_whose_work_does_not_end_are_not_finalised",
            "nccl::registered::k_nccl_registered_memory_is_dropped_under_a_lost_rank",
        ],
    ),
];

/// Tests that forget guards or drop them out of order: if such a test ends early, the context that
/// the guard entered stays current.
const LEAVES_GUARDS: [&str; 4] = [
    "guards::a25_out_of_order_drop",
    "guards::a25_out_of_order_drop_keeps_a_created_context_alive",
    "soundness::contexts::s23_forgotten_views_and_guards",
    "soundness::contexts::s38_guards_dropped_out_of_order_keep_what_they_leave",
];

/// Returns whether `path` is that of `test`, or lies in the module of that name.
fn names(path: &str, test: &str) -> bool {
    let name = path.split_once("::").map_or(path, |(_suite, name)| name);
    // After the name come the test's tags, or the module's tests.
    let rest = name.strip_prefix(test);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with("::") || test.ends_with("::"))
}

/// Runs the body of a test as it is, then with its first driver call failing, on whichever thread makes it,
/// then with its second, and so on until no call is left to fail. After each run it asserts that
///
/// * only the body itself panicked, which need not expect the failure;
/// * the simulated driver saw no misuse: nothing freed twice, nothing used that was freed, no race;
/// * the objects that the library made and that still exist are exactly those that the drop hook
///   reported. What the body made with raw calls may leak when the body ends early;
/// * the thread's current context is unchanged, unless the body ended early and had changed it
///   itself;
/// * the test passes once no call fails: no earlier run has broken anything.
///
/// # Panics
/// With the first condition that does not hold.
pub(crate) fn sweep<O: Outcome>(needs: u32, path: &'static str, body: fn() -> O) {
    let is_named = |tests: &[&str]| tests.iter().any(|test| names(path, test));
    if let Some((reason, _)) = NOT_SWEPT.iter().find(|(_, tests)| is_named(tests)) {
        return record::not_swept(path, reason);
    }
    let session = simulator();
    require_devices(needs);
    drop(session);
    let scenario = Scenario { path, body, panics: Panics::watch() };
    let swept = scenario.sweep();
    drop(scenario);
    match swept {
        Ok(record) => record.write(path),
        Err(wrong) => panic!("{wrong}"),
    }
}

/// Returns whether a call of the running test is to fail. The test's own verdict is then ignored, and stalls
/// are short once the call has failed.
pub fn fails_a_call() -> bool {
    FAILS.load(Ordering::Relaxed)
}

static FAILS: AtomicBool = AtomicBool::new(false);

struct Scenario<O> {
    path: &'static str,
    body: fn() -> O,
    panics: Panics,
}

/// The result of one run that passed all checks.
struct Run {
    calls: u64,
    /// Whether the call that was to fail was made.
    fired: bool,
}

/// State that was observed on the body's thread.
struct Seen {
    outcome: thread::Result<()>,
    fired: bool,
    /// The context stack that the body left behind.
    left: Vec<usize>,
    /// Whether the body changed the current context by itself.
    switched: bool,
}

impl<O: Outcome> Scenario<O> {
    fn sweep(&self) -> Result<Record, String> {
        let mut record = Record::default();
        let whole = |wrong| format!("with no failing call: {wrong}");
        // This first run creates what the library keeps for the life of the process.
        let run = self.attempt(None, &mut record).map_err(whole)?;
        record.stride = stride(run.calls, sample::calls(EXACT));
        record.calls = run.calls;
        for (index, failure) in (0..).zip(FAILURES) {
            // For each failure, the runs of a long test begin at another call, among those that the stride
            // skips.
            let mut nth = sample::first(record.stride, index);
            loop {
                let run = self.attempt(Some((nth, failure)), &mut record);
                let run = run.map_err(|wrong| format!("{failure:?} at call {nth}: {wrong}"))?;
                if !run.fired {
                    break;
                }
                nth += record.stride;
            }
            let after = |wrong| format!("after the runs with a failing call, {failure:?}: {wrong}");
            self.attempt(None, &mut record).map_err(after)?;
        }
        Ok(record)
    }

    /// Runs the body once. An error says which condition the end state violates.
    fn attempt(&self, fault: Option<(u64, Failure)>, record: &mut Record) -> Result<Run, String> {
        let _watchdog = Watchdog::start(&format!("{} with {fault:?}", self.path));
        let session = simulator();
        choose_allocator(&allocator_of_environment());
        session.keep_origins();
        let drops = DropReports::listen();
        let seen = self.enact(&session, fault);
        session.settle();
        cuda_core::drops::flush();
        let trimmed = trim(&session, cuda_core::staging::trim).and_then(|()| trim_cache(&session));
        trimmed.map_err(|error| format!("trimming fails, though no call does: {error}"))?;
        let reported = drops.end();

        record.runs += 1;
        let ended_early = seen.outcome.is_err();
        if let (Err(panic), None) = (seen.outcome, fault) {
            return Err(format!("the test fails: {}", message(&*panic)));
        }
        none("panics", &self.panics.take())?;
        none("misuse", &session.take_violations())?;
        let leaks = session.leaks();
        let destroyed =
            ["cuCtxDestroy_v2", "cuGreenCtxDestroy"].iter().any(|call| session.calls(call) > 0);
        // Objects that the body itself made may leak.
        judge::compare(&leaks, &reported, destroyed, |leak| origin::is_body(leak, self.path))?;
        if !seen.left.is_empty() {
            if !(ended_early && seen.switched) {
                return Err(format!("left current: {:#x?}; {reported:#?}", seen.left));
            }
            record.current_unknown += 1;
        }
        judge::take_away(&session, leaks);
        if ended_early && session.calls("cuCtxEnablePeerAccess") > 0 {
            part_devices().map_err(|error| format!("devices: {error}"))?;
            // Parting enters contexts that the body may have destroyed.
            drop(session.take_violations());
        }
        Ok(Run { calls: session.total_calls(), fired: seen.fired })
    }

    /// Runs the body on a thread of its own, on which nothing is current.
    fn enact(&self, session: &Session, fault: Option<(u64, Failure)>) -> Seen {
        let thread = thread::Builder::new().name(self.path.into());
        let enacted = thread::scope(|scope| {
            let started = thread.spawn_scoped(scope, || self.enact_here(session, fault));
            started.expect("the system starts a thread").join()
        });
        enacted.unwrap_or_else(|panic| resume_unwind(panic))
    }

    fn enact_here(&self, session: &Session, fault: Option<(u64, Failure)>) -> Seen {
        FAILS.store(fault.is_some(), Ordering::Relaxed);
        if let Some((nth, failure)) = fault {
            let fault = match failure {
                Failure::Once(code) => Fault::new(code),
                Failure::Sticky(code) => Fault::new(code).sticky(),
            };
            session.inject(fault.nth(nth).ends_waits_after(stall::LONGEST));
        }
        let outcome = catch_unwind(AssertUnwindSafe(|| (self.body)().check()));
        cuda_core::drops::flush();
        let fired = session.fault_fired();
        session.clear_faults();
        session.end_waits_for_values(Duration::ZERO);
        FAILS.store(false, Ordering::Relaxed);
        // Read before the stack is emptied here, which switches contexts as well.
        let switches = session.switches();
        let left: Vec<_> = iter::from_fn(context::pop).map(|left| left.addr()).collect();
        let switched = !left.is_empty()
            && (LEAVES_GUARDS.iter().any(|test| names(self.path, test))
                || switches.iter().any(|switch| origin::is_switch_by_body(switch, self.path)));
        Seen { outcome, fired, left, switched }
    }
}

/// Disables peer access that the body enabled but, having ended early, did not disable.
fn part_devices() -> cuda_core::Result<()> {
    let devices: Vec<Device> = Device::all()?.collect();
    for &device in &devices {
        for &peer in devices.iter().filter(|&&peer| peer != device) {
            // Returns an error where access was not enabled.
            let _ = device.context()?.disable_peer_access(&peer.context()?);
        }
    }
    Ok(())
}

fn none<T: Debug>(what: &str, found: &[T]) -> Result<(), String> {
    if found.is_empty() {
        return Ok(());
    }
    Err(format!("{what}: {found:#?}"))
}

/// Returns the distance between calls that fail: 1 unless there are many calls, otherwise a prime, so that
/// each call of a loop in the test fails in some iteration. The work grows with the square of the calls.
fn stride(calls: u64, exact: u64) -> u64 {
    match calls.saturating_mul(calls).div_ceil(exact * exact) {
        0..=1 => 1,
        least => (least..).find(|&n| is_prime(n)).unwrap_or(least),
    }
}

fn is_prime(n: u64) -> bool {
    (2..n).take_while(|d| d * d <= n).all(|d| n % d != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_of_a_short_test_fails_and_a_prime_apart_those_of_a_long_one() {
        assert_eq!(stride(0, EXACT), 1);
        assert_eq!(stride(EXACT, EXACT), 1);
        assert_eq!(stride(EXACT + 1, EXACT), 2);
        assert_eq!(stride(2 * EXACT, EXACT), 5);
    }
}
