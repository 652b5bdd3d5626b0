//! S38: the context that is current after a failed call, or at a thread's end, still exists.

use std::cell::RefCell;
use std::sync::mpsc;
use std::thread;

use cuda_core::{Context, ContextFlags, Result};
use cuda_sim::{Fault, Session};
use cuda_sys::{CUDA_ERROR_ILLEGAL_ADDRESS, CUDA_ERROR_LAUNCH_FAILED, CUDA_SUCCESS};
use support::context as raw;

use super::{clean, device, primary, within};

fn created() -> Result<Context> {
    Context::new(device(), ContextFlags::default())
}

/// Reads the current context after the thread has dropped its other locals.
struct Late {
    primary: Context,
    pops: bool,
    lost: mpsc::Sender<()>,
    until: mpsc::Receiver<()>,
}

impl Drop for Late {
    fn drop(&mut self) {
        self.lost.send(()).expect("it is waited for");
        let _ = self.until.recv();
        if self.pops {
            raw::pop();
        }
        drop(self.primary.enter().expect("it can be entered"));
    }
}

thread_local! {
    /// Initialised first, so dropped last.
    static LATE: RefCell<Option<Late>> = const { RefCell::new(None) };
}

/// Ends a thread after `leave`, which makes a context current there. Once the thread has dropped its other
/// locals, `then` runs, and `Late` checks the context, after popping an entry if `pops`.
fn ends(leave: impl FnOnce() -> Result<()> + Send, then: impl FnOnce(), pops: bool) -> Result<()> {
    let (go_on, until) = mpsc::channel();
    let (lost, has_lost) = mpsc::channel();
    let (left, has_left) = mpsc::channel();
    let late = Late { primary: device().context()?, pops, lost, until };
    thread::scope(|scope| {
        let ends = scope.spawn(move || {
            LATE.with(|place| *place.borrow_mut() = Some(late));
            left.send(leave()).expect("it is waited for");
        });
        has_left.recv().expect("it is sent")?;
        has_lost.recv().expect("it is sent");
        then();
        drop(go_on);
        // Unlike the scope's end, this waits for the thread's locals.
        ends.join().expect("no assertion failed");
        Ok(())
    })
}

#[test]
fn s38_a_thread_that_ends_leaves_nothing_current_that_is_gone() {
    clean(|_| {
        let below_another = || {
            let (one, two) = (created()?, created()?);
            one.push()?;
            two.push()
        };
        ends(below_another, || {}, false)
    });
}

#[test]
fn s38_a_thread_that_ends_leaves_nothing_current_that_others_destroy() {
    clean(|_| {
        let context = created()?;
        let there = context.clone();
        let make_current = move || there.set_current().map(drop);
        ends(make_current, || drop(context), false)
    });
}

#[test]
fn s38_a_thread_that_ends_with_something_else_on_top() {
    clean(|_| {
        let below_the_primary = || {
            created()?.push()?;
            device().context()?.push()
        };
        ends(below_the_primary, || {}, true)
    });
}

/// Checks that after a call that switches back fails but takes effect, dropping `left` does not destroy the
/// context that is then current.
fn survives(prepare: impl FnOnce(&Session) -> Result<Context> + Send) {
    let session = support::simulator();
    within(|| {
        let left = prepare(&session).expect("no operation of the test fails");
        session.clear_faults();
        let handle = left.as_raw();
        assert_eq!(raw::current(), handle, "the scenario has set it");
        thread::scope(|scope| {
            scope.spawn(|| drop(left));
        });
        let primary = device().context().expect("it is there");
        drop(primary.enter().expect("it can be entered"));
        assert_eq!(raw::current(), handle, "brought back");
        raw::pop();
    });
    assert_eq!(session.violations(), []);
}

#[test]
fn s38_a_guard_that_cannot_say_that_it_restored() {
    survives(|session| {
        let context = created()?;
        context.set_current()?;
        let guard = device().enter()?;
        let fault = Fault::new(CUDA_ERROR_ILLEGAL_ADDRESS).function("cuCtxSetCurrent");
        session.inject(fault.from_then_on().takes_effect());
        assert!(guard.restore().is_err());
        Ok(context)
    });
}

#[test]
fn s38_a_call_that_cannot_bring_back_what_was_current() {
    survives(|session| {
        let context = created()?;
        let primary = device().context()?;
        primary.set_current()?;
        // The second switch fails, and each repetition of it.
        let fault = Fault::new(CUDA_ERROR_ILLEGAL_ADDRESS).function("cuCtxSetCurrent");
        session.inject(fault.nth(2).from_then_on());
        context.memory_info()?;
        Ok(context)
    });
}

#[test]
fn s38_a_context_that_was_created_with_an_error() {
    clean(|session| {
        let primary = device().context()?;
        primary.set_current()?;
        device().default_memory_pool()?;
        let fault = Fault::new(CUDA_ERROR_ILLEGAL_ADDRESS).function("cuCtxCreate_v2");
        session.inject(fault.takes_effect());
        assert!(created().is_err());
        assert_eq!(raw::current(), primary.as_raw());
        raw::pop();
        Ok(())
    });
}

#[test]
fn s38_a_green_context_that_stays_current_is_not_destroyed() {
    let session = support::simulator();
    within(|| {
        let split =
            device().sm_resource().and_then(|all| all.split(8, 1)).expect("there are as many");
        let green = Context::new_green(&[&split.groups[0]]).expect("it can be made");
        let primary = device().context().expect("it is there");
        primary.set_current().expect("it is there");
        // The switch to it, to wait for its work, fails and takes effect; the switch back only fails.
        let fault = || Fault::new(CUDA_ERROR_ILLEGAL_ADDRESS).function("cuCtxSetCurrent");
        session.inject(fault().takes_effect());
        session.inject(fault().nth(2).from_then_on());
        let handle = green.as_raw();
        drop(green);
        session.clear_faults();
        assert_eq!(raw::current(), handle, "the scenario has set it");
        drop(primary.enter().expect("it can be entered"));
        assert_eq!(raw::current(), handle, "brought back");
        raw::pop();
    });
    assert_eq!(session.violations(), []);
}

#[test]
fn s38_a_capture_mode_that_was_exchanged_with_an_error() {
    clean(|session| {
        let context = primary();
        let fault =
            Fault::new(CUDA_ERROR_LAUNCH_FAILED).function("cuThreadExchangeStreamCaptureMode");
        session.inject(fault.takes_effect());
        assert!(context.alloc::<u32>(1).is_err());
        assert_eq!(capture_mode(), cuda_sys::CU_STREAM_CAPTURE_MODE_GLOBAL);
        Ok(())
    });
}

/// Returns the thread's capture mode; afterwards it is global, as initially.
fn capture_mode() -> cuda_sys::CUstreamCaptureMode {
    let mut mode = cuda_sys::CU_STREAM_CAPTURE_MODE_GLOBAL;
    // SAFETY: the call reads and writes one mode, a local variable.
    let code = unsafe { cuda_sys::cuThreadExchangeStreamCaptureMode(&mut mode) };
    assert_eq!(code, CUDA_SUCCESS);
    mode
}
