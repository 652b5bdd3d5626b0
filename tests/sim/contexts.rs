//! Guards and contexts where the driver says no.

use std::ptr;
use std::sync::{Arc, Mutex};

use cuda_core::{
    Context, ContextFlags, Device, DropFailure, Event, EventFlags, PinnedBuffer, Resource, Result,
    drop_failures, set_drop_hook, take_drop_hook,
};
use cuda_sim::{Fault, Mode, Session};
use cuda_sys::{CUDA_ERROR_ILLEGAL_ADDRESS, CUDA_ERROR_INVALID_CONTEXT, CUresult};
use support::{context, simulator};

/// Devices 0 and 1 with their primary contexts, so that no call below makes one.
fn devices() -> Result<[(Device, Context); 2]> {
    let device = |ordinal| -> Result<_> {
        let device = Device::get(ordinal)?;
        Ok((device, device.context()?))
    };
    Ok([device(0)?, device(1)?])
}

/// What `Drop`s could not do while `body` ran.
fn failures(body: impl FnOnce()) -> Vec<DropFailure> {
    let told = Arc::new(Mutex::new(Vec::new()));
    let log = told.clone();
    let before = drop_failures();
    set_drop_hook(move |failure: &DropFailure| {
        log.lock().expect("no panic").push(failure.clone());
    });
    body();
    take_drop_hook();
    let told = std::mem::take(&mut *told.lock().expect("no panic"));
    assert_eq!(
        drop_failures() - before,
        told.len() as u64,
        "counted and told"
    );
    told
}

fn fails(session: &Session, function: &str, code: CUresult) {
    session.inject(Fault::new(code).function(function).from_then_on());
}

#[test]
fn a17_restore_is_not_done_again_by_the_drop() -> Result<()> {
    let session = simulator();
    let [(_, c0), (d1, _)] = devices()?;
    context::push(c0.as_raw());
    let guard = d1.guard()?;
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

    let guard = d1.guard()?;
    fails(&session, "cuCtxSetCurrent", CUDA_ERROR_ILLEGAL_ADDRESS);
    let told = failures(|| {
        let error = guard.restore().expect_err("setting fails");
        assert_eq!(error.code(), Some(CUDA_ERROR_ILLEGAL_ADDRESS));
    });
    assert!(told.is_empty(), "returned, so not told: {told:?}");
    assert_eq!(context::current(), c1.as_raw(), "it could not be helped");
    session.clear_faults();
    context::set_current(c0.as_raw());

    let guard = d1.guard()?;
    fails(&session, "cuCtxSetCurrent", CUDA_ERROR_ILLEGAL_ADDRESS);
    let told = failures(|| drop(guard));
    session.clear_faults();
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(told[0].resource, Resource::Current);
    let code = told[0].error.as_ref().and_then(|error| error.code());
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
    let guard = d0.guard()?;
    context::push(pushed.handle());
    // Setting NULL pops the one pushed; the second try, for the guard's own entry, fails.
    session.fail_nth(Some("cuCtxSetCurrent"), 2, CUDA_ERROR_ILLEGAL_ADDRESS);
    let told = failures(|| drop(guard));
    assert!(session.fault_fired());
    if context::current().is_null() {
        assert!(told.is_empty(), "{told:?}");
    } else {
        assert_eq!(context::current(), c0.as_raw());
        assert_eq!(told.len(), 1, "left current without a word");
        assert_eq!(told[0].resource, Resource::Current);
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
    let guard = d1.guard()?;
    session.fail_nth(Some("cuCtxSetCurrent"), 1, CUDA_ERROR_ILLEGAL_ADDRESS);
    let told = failures(|| drop(guard));
    assert!(session.fault_fired());
    assert!(told.is_empty(), "{told:?}");
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
        let error = Context::create(d0, ContextFlags::SCHED_AUTO).expect_err(call);
        session.clear_faults();
        assert_eq!(error.code(), Some(CUDA_ERROR_INVALID_CONTEXT));
        assert_eq!(context::current(), c0.as_raw(), "after a failed {call}");
    }
    assert_eq!(context::pop(), Some(c0.as_raw()));
    assert_eq!(context::pop(), None);
    session.assert_clean();
    Ok(())
}

/// What a failed call made is looked for with a call that may fail, too.
#[test]
fn a31_a_context_that_a_failed_call_made_is_not_left_current() -> Result<()> {
    let session = simulator();
    let [(d0, c0), _] = devices()?;
    context::push(c0.as_raw());
    let made = Fault::new(CUDA_ERROR_ILLEGAL_ADDRESS).function("cuCtxCreate_v2");
    session.inject(made.takes_effect());
    session.fail_nth(Some("cuCtxGetCurrent"), 1, CUDA_ERROR_ILLEGAL_ADDRESS);
    let told = failures(|| {
        Context::create(d0, ContextFlags::SCHED_AUTO).expect_err("the call failed");
    });
    assert!(told.is_empty(), "{told:?}");
    assert_eq!(context::pop(), Some(c0.as_raw()));
    assert_eq!(context::pop(), None);
    session.assert_clean();
    Ok(())
}

/// A default stream's handle means the stream of whatever context is current. To wait for the other
/// device's default stream, that one's context is made current for a moment.
#[test]
fn a22_a_restore_that_fails_inside_does_not_move_work_to_another_stream() -> Result<()> {
    let session = simulator();
    session.set_mode(Mode::Lazy);
    let [(_, c0), (_, c1)] = devices()?;
    let (here, there) = (c0.default_stream()?, c1.default_stream()?);
    let (mut x, mut y) = (here.alloc_zeroed::<u8>(64)?, there.alloc::<u8>(64)?);
    here.synchronize()?;
    let mut host = PinnedBuffer::<u8>::zeroed(&c0, 64)?;
    there.fill(&mut y, 7)?;
    there.download(&y, &mut host)?;
    // The first enters this context, the second the other; then two fail to bring this one back.
    for nth in [3, 4] {
        session.fail_nth(Some("cuCtxSetCurrent"), nth, CUDA_ERROR_ILLEGAL_ADDRESS);
    }
    let mut uploaded = Ok(());
    let told = failures(|| uploaded = here.upload(&host, &mut x));
    assert!(session.fault_fired());
    uploaded?;
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(told[0].resource, Resource::Current);
    assert!(context::current().is_null());
    let mut back = [0; 64];
    here.download_to(&x, &mut back)?;
    assert_eq!(back, [7; 64]);
    drop((x, y, host));
    session.settle();
    assert_eq!(session.violations(), []);
    Ok(())
}

/// One context, on the stacks of two threads that cannot take it off: one thing is left behind.
#[test]
fn a21_a_context_that_stays_on_stacks_is_reported_once() -> Result<()> {
    let session = simulator();
    let context = Context::create(Device::get(0)?, ContextFlags::SCHED_AUTO)?;
    fails(&session, "cuCtxPopCurrent_v2", CUDA_ERROR_ILLEGAL_ADDRESS);
    let told = failures(|| {
        for _ in 0..2 {
            let pushed = std::thread::scope(|scope| scope.spawn(|| context.push()).join());
            pushed.expect("no panic").expect("pushing works");
        }
        drop(context);
    });
    session.clear_faults();
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(told[0].resource, Resource::Context);
    let leaks = session.leaks();
    assert_eq!(leaks.len(), 1, "{leaks:?}");
    assert_eq!(leaks[0].handle, told[0].handle);
    Ok(())
}

#[test]
fn a35_a_failed_creation_leaves_current_alone() -> Result<()> {
    type Creation = fn(&Context) -> Result<()>;
    const CREATIONS: [(&str, Creation); 4] = [
        ("cuStreamCreateWithPriority", |c| {
            c.create_stream().map(drop)
        }),
        ("cuEventCreate", |c| {
            Event::new(c, EventFlags::DEFAULT).map(drop)
        }),
        ("cuMemHostAlloc", |c| {
            PinnedBuffer::<u8>::new(c, 1).map(drop)
        }),
        ("cuMemAllocAsync", |c| {
            c.default_stream()?.alloc::<u8>(1).map(drop)
        }),
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
