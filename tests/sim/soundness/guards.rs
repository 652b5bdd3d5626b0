//! S38: the context that is left current on a thread.

use std::mem;
use std::thread;

use cuda_core::{Context, ContextFlags, Current, Device, Result};
use cuda_sim::Fault;
use cuda_sys::{CUDA_ERROR_LAUNCH_FAILED, CUDA_ERROR_UNKNOWN};
use support::context;

use super::{clean, device, leaking};

fn created() -> Result<Context> {
    // Creates the primary context first, so that it does not reuse the handle of a created context.
    device().context()?;
    Context::new(device(), ContextFlags::default())
}

/// Drops the last handle on a thread where the context is not current: only then does destroying the context
/// leave a dangling handle on this thread.
fn drop_elsewhere(context: Context) {
    thread::scope(|scope| scope.spawn(move || drop(context)).join()).expect("it only drops");
}

/// Holds for contexts that the library knows. If an owner destroys a context by a raw call meanwhile, the
/// guard makes the bare handle current again: an H200 accepts it, and may crash in a later call. No test can
/// show that the process survives; the documentation of `Guard` says so.
#[test]
fn s38_a_guard_keeps_what_it_saved() {
    clean(|_| {
        let context = created()?;
        let handle = context.as_raw();
        context.push()?;
        let guard = device().enter()?;
        // Removes the stack's own reference.
        let top = context.clone();
        assert_eq!(context::current(), context::primary(0));
        drop_elsewhere(context);
        drop_elsewhere(top);
        guard.restore()?;
        assert_eq!(context::current(), handle);
        device().enter()?.restore()?;
        assert_eq!(Context::pop()?.as_raw(), handle);
        Ok(())
    });
}

#[test]
fn s38_a_guard_keeps_what_another_guard_entered() {
    clean(|_| {
        let context = created()?;
        let handle = context.as_raw();
        let outer = context.enter()?;
        let inner = device().enter()?;
        drop_elsewhere(context);
        // Out of order: `inner` restores a context without any other handle.
        drop(outer);
        drop(inner);
        assert_eq!(context::current(), handle);
        device().enter()?.restore()?;
        assert_eq!(context::current(), handle);
        drop(Context::pop()?);
        assert!(context::current().is_null());
        Ok(())
    });
}

#[test]
fn s38_a_guard_keeps_what_it_found_and_entered() {
    clean(|_| {
        let context = created()?;
        let outer = context.enter()?;
        let inner = context.enter()?;
        drop(outer);
        assert!(context::current().is_null());
        // Restores the context that it entered, since that was current before.
        drop(inner);
        let handle = context.as_raw();
        assert_eq!(context::current(), handle);
        drop_elsewhere(context);
        device().enter()?.restore()?;
        assert_eq!(context::current(), handle);
        drop(Context::pop()?);
        Ok(())
    });
}

#[test]
fn s38_a_later_guard_does_not_release_a_deeper_entry() {
    clean(|_| {
        let (a, b) = (created()?, created()?);
        let handle = a.as_raw();
        let outer = a.enter()?;
        let inner = b.enter()?;
        drop(outer);
        drop(inner);
        assert_eq!(context::current(), handle, "only the thread keeps it alive");
        b.push()?;
        // Enters the context below, and leaves it again.
        drop(a.enter()?);
        drop_elsewhere(a);
        drop(Context::pop()?);
        assert_eq!(context::current(), handle);
        device().enter()?.restore()?;
        drop(Context::pop()?);
        drop(b);
        Ok(())
    });
}

#[test]
fn s38_what_others_bring_back_is_kept() {
    clean(|_| {
        let context = created()?;
        let handle = context.as_raw();
        context.set_current()?;
        let guard = device().enter()?;
        context::set_current(handle);
        drop_elsewhere(context);
        guard.restore()?;
        device().enter()?.restore()?;
        assert_eq!(context::current(), handle);
        drop(Context::pop()?);
        Ok(())
    });
}

#[test]
fn s38_a_guard_that_cannot_ask_keeps_what_it_brings_back() {
    clean(|session| {
        let context = created()?;
        let handle = context.as_raw();
        context.set_current()?;
        let guard = device().enter()?;
        drop_elsewhere(context);
        // The library repeats a failed query once.
        session.fail_nth(Some("cuCtxGetCurrent"), 1, CUDA_ERROR_UNKNOWN);
        session.fail_nth(Some("cuCtxGetCurrent"), 2, CUDA_ERROR_UNKNOWN);
        guard.restore()?;
        device().enter()?.restore()?;
        assert_eq!(context::current(), handle);
        drop(Context::pop()?);
        Ok(())
    });
}

/// The thread held the context's last reference.
#[test]
fn s38_set_current_returns_what_it_replaces() {
    clean(|_| {
        let context = created()?;
        let handle = context.as_raw();
        context.set_current()?;
        drop_elsewhere(context);
        let second = created()?;
        match second.set_current()? {
            Current::Known(replaced) => assert_eq!(replaced.as_raw(), handle),
            other => panic!("{other:?}"),
        }
        drop(Context::pop()?);
        Ok(())
    });
}

#[test]
fn s38_set_current_keeps_what_it_made_current() {
    clean(|_| {
        let context = created()?;
        let handle = context.as_raw();
        context.set_current()?;
        drop_elsewhere(context);
        device().enter()?.restore()?;
        assert_eq!(context::current(), handle);
        let second = created()?;
        second.set_current()?;
        drop(Context::pop()?);
        assert!(context::current().is_null());
        drop(second);
        Ok(())
    });
}

/// Another library has made the context current, and keeps nothing alive.
#[test]
fn s38_set_current_keeps_what_was_current_already() {
    clean(|_| {
        let legacy = device().context()?.default_stream()?;
        let context = created()?;
        context::set_current(context.as_raw());
        context.set_current()?;
        drop_elsewhere(context);
        // The end of this call restores the current context.
        legacy.synchronize()?;
        drop(Context::pop()?);
        Ok(())
    });
}

#[test]
fn s38_a_guard_keeps_what_others_brought_back() {
    clean(|_| {
        let legacy = device().context()?.default_stream()?;
        let context = created()?;
        context.set_current()?;
        let guard = context.enter()?;
        device().context()?.set_current()?;
        context::set_current(context.as_raw());
        guard.restore()?;
        drop_elsewhere(context);
        legacy.synchronize()?;
        drop(Context::pop()?);
        Ok(())
    });
}

/// A failed call may nevertheless have changed the current context.
#[test]
fn s38_what_was_changed_by_a_call_that_failed_is_undone_or_kept() {
    let belated = |call| Fault::new(CUDA_ERROR_LAUNCH_FAILED).function(call).takes_effect();
    clean(|session| {
        let legacy = device().context()?.default_stream()?;
        let changes: [fn(&Context) -> Result<()>; 3] = [
            |context| context.set_current().map(drop),
            |context| context.enter()?.restore(),
            |context| context.default_stream()?.synchronize(),
        ];
        for change in changes {
            let context = created()?;
            session.inject(belated("cuCtxSetCurrent"));
            assert!(change(&context).is_err());
            assert!(context::current().is_null(), "undone");
            drop_elsewhere(context);
            legacy.synchronize()?;
        }
        let context = created()?;
        session.inject(belated("cuCtxPushCurrent_v2"));
        assert!(context.push().is_err());
        drop_elsewhere(context);
        legacy.synchronize()?;
        drop(Context::pop()?);
        Ok(())
    });
}

#[test]
fn s38_a_thread_that_ends_lets_go() {
    clean(|_| {
        let handle = thread::scope(|scope| {
            let leaves = scope.spawn(|| {
                let context = created().expect("a context can be created");
                context.push().expect("it can be pushed");
                context.as_raw().addr()
            });
            // Joining also waits for the thread's locals.
            leaves.join().expect("no panic")
        });
        // The context is destroyed, and its handle is reused for the next.
        assert_eq!(created()?.as_raw().addr(), handle);
        Ok(())
    });
}

/// Other code makes current again what a guard saved, which then may or may not be above the guard's context.
#[test]
fn s38_what_others_bring_back_again_and_again_is_kept_once() {
    clean(|session| {
        let (context, primary) = (created()?, device().context()?);
        thread::scope(|scope| {
            let rounds = scope.spawn(|| -> Result<()> {
                primary.set_current()?;
                for _ in 0..100 {
                    let guard = context.enter()?;
                    context::set_current(primary.as_raw());
                    drop(guard);
                    context.set_current()?;
                    context::set_current(primary.as_raw());
                }
                Ok(())
            });
            rounds.join().expect("no panic")
        })?;
        let popped = session.calls("cuCtxPopCurrent_v2");
        assert!(popped < 10, "the thread's end has popped {popped} times");
        Ok(context.close()?)
    });
}

#[test]
fn s38_a_forgotten_guard_keeps_its_context() {
    leaking(|_| {
        let context = created()?;
        let handle = context.as_raw();
        mem::forget(context.enter()?);
        drop_elsewhere(context);
        device().enter()?.restore()?;
        assert_eq!(context::current(), handle);
        context::set_current(std::ptr::null_mut());
        Ok(())
    });
}

#[test]
fn s38_same_device_other_context() {
    clean(|_| {
        let context = created()?;
        let outer = context.enter()?;
        let inner = device().enter()?;
        assert_eq!(context::current(), context::primary(0));
        assert_ne!(context::current(), context.as_raw());
        drop(inner);
        assert_eq!(context::current(), context.as_raw());
        outer.restore()
    });
}

#[test]
fn s38_what_others_set_inside_does_not_stay() {
    clean(|_| {
        // Retained, so that the handle is valid.
        Device::get(1)?.context()?;
        let outer = device().enter()?;
        let inner = device().enter()?;
        // Another library leaves its own context current.
        context::set_current(context::primary(1));
        drop(inner);
        assert_eq!(context::current(), context::primary(0));
        outer.restore()
    });
}
