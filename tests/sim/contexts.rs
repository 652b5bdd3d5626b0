//! Guards and contexts when driver calls fail.

use std::ptr;

use cuda_core::{
    Context, ContextFlags, Device, Event, EventFlags, PinnedBuffer, Resource, Result, Signal,
    drops::DropFailure,
};
use cuda_sim::{Fault, Mode, Session};
use cuda_sys::{CUDA_ERROR_ILLEGAL_ADDRESS, CUDA_ERROR_INVALID_CONTEXT, CUresult};
use support::{DropReports, child, context, simulator, simulator_in};

/// Returns devices 0 and 1 with their primary contexts, so that no later call creates one.
fn devices() -> Result<[(Device, Context); 2]> {
    let device = |ordinal| -> Result<_> {
        let device = Device::get(ordinal)?;
        Ok((device, device.context()?))
    };
    Ok([device(0)?, device(1)?])
}

/// Returns the failures of `Drop`s while `body` ran.
fn failures(body: impl FnOnce()) -> Vec<DropFailure> {
    let mut reports = DropReports::listen();
    body();
    reports.take()
}

fn fails(session: &Session, function: &str, code: CUresult) {
    session.inject(Fault::new(code).function(function).from_then_on());
}

#[test]
fn a17_restore_is_not_done_again_by_the_drop() -> Result<()> {
    let session = simulator();
    let [(_, c0), (d1, _)] = devices()?;
    context::push(c0.as_raw());
    let guard = d1.enter()?;
    let mark = session.mark();
    guard.restore()?;
    let calls = session.names_since(mark);
    assert_eq!(calls, ["cuCtxGetCurrent", "cuCtxSetCurrent"]);
    assert_eq!(context::pop(), Some(c0.as_raw()));
    session.assert_clean();
    Ok(())
}

#[test]
fn a17_restore_returns_what_drop_reports() -> Result<()> {
    let session = simulator();
    let [(_, c0), (d1, c1)] = devices()?;
    context::push(c0.as_raw());

    let guard = d1.enter()?;
    fails(&session, "cuCtxSetCurrent", CUDA_ERROR_ILLEGAL_ADDRESS);
    let reports = failures(|| {
        let error = guard.restore().expect_err("setting fails");
        assert_eq!(error.code(), Some(CUDA_ERROR_ILLEGAL_ADDRESS));
    });
    assert!(reports.is_empty(), "returned, so not reported: {reports:?}");
    assert_eq!(context::current(), c1.as_raw(), "the restore failed");
    session.clear_faults();
    context::set_current(c0.as_raw());

    let guard = d1.enter()?;
    fails(&session, "cuCtxSetCurrent", CUDA_ERROR_ILLEGAL_ADDRESS);
    let reports = failures(|| drop(guard));
    session.clear_faults();
    assert_eq!(reports.len(), 1, "{reports:?}");
    assert_eq!(reports[0].resource, Resource::Current);
    let code = reports[0].error.as_ref().and_then(|error| error.code());
    assert_eq!(code, Some(CUDA_ERROR_ILLEGAL_ADDRESS));

    context::set_current(c0.as_raw());
    assert_eq!(context::pop(), Some(c0.as_raw()));
    session.assert_clean();
    Ok(())
}

#[test]
fn a20_a_push_that_cannot_be_undone_is_reported() -> Result<()> {
    let session = simulator();
    let [(d0, c0), _] = devices()?;
    let pushed = context::Foreign::create(0);
    let guard = d0.enter()?;
    context::push(pushed.handle());
    // Setting NULL pops the pushed context; the second call, for the guard's own entry, fails.
    session.fail_nth(Some("cuCtxSetCurrent"), 2, CUDA_ERROR_ILLEGAL_ADDRESS);
    let reports = failures(|| drop(guard));
    assert!(session.fault_fired());
    if context::current().is_null() {
        assert!(reports.is_empty(), "{reports:?}");
    } else {
        assert_eq!(context::current(), c0.as_raw());
        assert_eq!(reports.len(), 1, "left current unreported");
        assert_eq!(reports[0].resource, Resource::Current);
        context::set_current(ptr::null_mut());
    }
    assert_eq!(context::pop(), None);
    drop(pushed);
    session.assert_clean();
    Ok(())
}

#[test]
fn a22_a_restore_that_fails_once_is_tried_again() -> Result<()> {
    let session = simulator();
    let [(_, c0), (d1, _)] = devices()?;
    context::push(c0.as_raw());
    let guard = d1.enter()?;
    session.fail_nth(Some("cuCtxSetCurrent"), 1, CUDA_ERROR_ILLEGAL_ADDRESS);
    let reports = failures(|| drop(guard));
    assert!(session.fault_fired());
    assert!(reports.is_empty(), "{reports:?}");
    assert_eq!(context::pop(), Some(c0.as_raw()));
    session.assert_clean();
    Ok(())
}

#[test]
fn a31_creating_leaves_current_alone_on_errors_too() -> Result<()> {
    let session = simulator();
    let [(d0, c0), _] = devices()?;
    context::push(c0.as_raw());
    for call in ["cuCtxCreate_v2", "cuCtxPopCurrent_v2"] {
        fails(&session, call, CUDA_ERROR_INVALID_CONTEXT);
        let error = Context::new(d0, ContextFlags::SCHED_AUTO).expect_err(call);
        session.clear_faults();
        assert_eq!(error.code(), Some(CUDA_ERROR_INVALID_CONTEXT));
        assert_eq!(context::current(), c0.as_raw(), "after a failed {call}");
    }
    assert_eq!(context::pop(), Some(c0.as_raw()));
    assert_eq!(context::pop(), None);
    session.assert_clean();
    Ok(())
}

/// The calls that undo a failed call's effects may fail, too.
#[test]
fn a31_a_context_that_a_failed_call_made_is_not_left_current() -> Result<()> {
    let session = simulator();
    let [(d0, c0), _] = devices()?;
    context::push(c0.as_raw());
    let made = Fault::new(CUDA_ERROR_ILLEGAL_ADDRESS).function("cuCtxCreate_v2");
    session.inject(made.takes_effect());
    session.fail_nth(Some("cuCtxGetCurrent"), 1, CUDA_ERROR_ILLEGAL_ADDRESS);
    let reports = failures(|| {
        Context::new(d0, ContextFlags::SCHED_AUTO).expect_err("the call failed");
    });
    assert!(reports.is_empty(), "{reports:?}");
    assert_eq!(context::pop(), Some(c0.as_raw()));
    assert_eq!(context::pop(), None);
    session.assert_clean();
    Ok(())
}

/// A default stream's handle means the default stream of the current context. To wait for the other device's
/// default stream, the library makes that device's context current briefly.
#[test]
fn a22_a_restore_that_fails_inside_does_not_move_work_to_another_stream() -> Result<()> {
    let session = simulator_in(Mode::Lazy);
    let [(_, c0), (_, c1)] = devices()?;
    let (here, there) = (c0.default_stream()?, c1.default_stream()?);
    let (mut x, mut y) = (here.alloc_zeroed::<u8>(64)?, there.alloc::<u8>(64)?);
    here.synchronize()?;
    let mut host = PinnedBuffer::<u8>::zeroed(&c0, 64)?;
    there.fill(&mut y, 7)?;
    there.download(&y, &mut host)?;
    // The first call enters this context, the second the other; then two calls that restore this one fail.
    for nth in [3, 4] {
        session.fail_nth(Some("cuCtxSetCurrent"), nth, CUDA_ERROR_ILLEGAL_ADDRESS);
    }
    let mut uploaded = Ok(());
    let reports = failures(|| uploaded = here.upload(&host, &mut x));
    assert!(session.fault_fired());
    uploaded?;
    assert_eq!(reports.len(), 1, "{reports:?}");
    assert_eq!(reports[0].resource, Resource::Current);
    assert!(context::current().is_null());
    let mut back = [0; 64];
    here.download(&x, &mut back)?;
    assert_eq!(back, [7; 64]);
    drop((x, y, host));
    session.settle();
    assert_eq!(session.violations(), []);
    Ok(())
}

/// One context is on the stacks of two threads that cannot remove it: one object is left behind. The library
/// keeps it for the rest of the process, so the test runs in a child process.
#[test]
#[cfg_attr(miri, ignore = "starts a process")]
fn a21_a_context_that_stays_on_stacks_is_reported_once() -> Result<()> {
    let name = concat!(module_path!(), "::a21_a_context_that_stays_on_stacks_is_reported_once");
    if child::ran(name, &[]) {
        return Ok(());
    }
    let session = simulator();
    let context = Context::new(Device::get(0)?, ContextFlags::SCHED_AUTO)?;
    fails(&session, "cuCtxPopCurrent_v2", CUDA_ERROR_ILLEGAL_ADDRESS);
    let reported = failures(|| {
        for _ in 0..2 {
            let pushed = std::thread::scope(|scope| scope.spawn(|| context.push()).join());
            pushed.expect("no panic").expect("pushing works");
        }
        drop(context);
    });
    session.clear_faults();
    assert_eq!(reported.len(), 1, "{reported:?}");
    assert_eq!(reported[0].resource, Resource::Context);
    let leaks = session.leaks();
    assert_eq!(leaks.len(), 1, "{leaks:?}");
    assert_eq!(leaks[0].handle, reported[0].handle);
    child::done();
    Ok(())
}

#[test]
fn a35_a_failed_creation_leaves_current_alone() -> Result<()> {
    type Creation = fn(&Context) -> Result<()>;
    const CREATIONS: [(&str, Creation); 4] = [
        ("cuStreamCreateWithPriority", |c| c.create_stream().map(drop)),
        ("cuEventCreate", |c| Event::new(c, EventFlags::DEFAULT).map(drop)),
        ("cuMemHostAlloc", |c| PinnedBuffer::<u8>::new(c, 1).map(drop)),
        ("cuMemAllocAsync", |c| c.default_stream()?.alloc::<u8>(1).map(drop)),
    ];
    let session = simulator();
    let [(_, c0), (_, c1)] = devices()?;
    for current in [c0.as_raw(), ptr::null_mut()] {
        if !current.is_null() {
            context::push(current);
        }
        for (call, create) in CREATIONS {
            session.fail_nth(Some(call), 1, CUDA_ERROR_ILLEGAL_ADDRESS);
            let error = create(&c1).expect_err(call);
            session.clear_faults();
            assert_eq!(error.code(), Some(CUDA_ERROR_ILLEGAL_ADDRESS), "{call}");
            assert_eq!(context::current(), current, "after a failed {call}");
        }
        while context::pop().is_some() {}
    }
    session.assert_clean();
    Ok(())
}

#[test]
fn a37_a_failed_synchronize_leaves_current_alone() -> Result<()> {
    let session = simulator();
    let [(_, c0), (d1, _)] = devices()?;
    context::push(c0.as_raw());
    session.fail_nth(Some("cuCtxSynchronize"), 1, CUDA_ERROR_ILLEGAL_ADDRESS);
    let error = d1.synchronize().expect_err("the call fails");
    assert_eq!(error.code(), Some(CUDA_ERROR_ILLEGAL_ADDRESS));
    assert_eq!(context::pop(), Some(c0.as_raw()));
    assert_eq!(context::pop(), None);
    session.assert_clean();
    Ok(())
}

/// Chunks and signals of the process keep alive the context of their last work, until that work is known to
/// be complete.
#[test]
fn a_context_goes_with_its_last_handle_once_its_work_was_waited_for() -> Result<()> {
    let session = simulator_in(Mode::Lazy);
    let context = Context::new(Device::get(0)?, ContextFlags::default())?;
    let stream = context.create_stream()?;
    let mut buffer = stream.alloc::<u8>(1000)?;
    stream.upload(&[7; 1000], &mut buffer)?;
    let host = PinnedBuffer::<u8>::zeroed(&context, 1000)?;
    stream.upload(&host, &mut buffer)?;
    let signal = Signal::new(&context, 0_u32)?;
    stream.write_signal(&signal, 1)?;
    drop((signal, host, buffer, stream));
    context.synchronize()?;
    cuda_core::drops::flush();
    let destroyed = || session.calls("cuCtxDestroy_v2");
    let before = destroyed();
    drop(context);
    assert_eq!(destroyed(), before + 1);
    cuda_core::staging::trim()?;
    session.assert_clean();
    Ok(())
}
