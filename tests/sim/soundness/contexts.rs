//! The current context, and changes of it that the library must notice: S04, S08, S10, S27.

use std::thread;

use cuda_core::{Context, ContextFlags, Device, Event, EventFlags, Result};
use cuda_sys::CUDA_ERROR_UNKNOWN;
use support::context;

use super::{clean, device, pinned};

#[test]
fn s04_every_way_to_a_context_yields_the_same() {
    clean(|_| {
        let primary = device().context()?;
        assert_eq!(primary, device().context()?);
        let guard = device().enter()?;
        assert_eq!(Some(&primary), Context::current()?.as_ref());
        drop(guard);
        context::set_current(context::primary(0));
        assert_eq!(Some(&primary), Context::current()?.as_ref());
        context::set_current(std::ptr::null_mut());
        assert_eq!(primary.default_stream()?, device().context()?.default_stream()?);
        assert_eq!(primary.per_thread_stream()?, device().context()?.per_thread_stream()?);
        Ok(())
    });
}

#[test]
fn s04_the_second_context_object_sees_the_first_ones_work() {
    clean(|_| {
        let default = device().context()?.default_stream()?;
        let stream = device().context()?.create_stream()?;
        let mut buffer = default.alloc::<u32>(64)?;
        default.fill(&mut buffer, 7)?;
        drop(default);
        let again = device().context()?.default_stream()?;
        let mut back = [0; 64];
        again.download(&buffer, &mut back)?;
        assert_eq!(back, [7; 64]);
        stream.download(&buffer, &mut back)?;
        assert_eq!(back, [7; 64]);
        Ok(())
    });
}

/// Drops one object of each kind, all with pending work.
fn drop_one_of_each(wreck: impl FnOnce(Box<dyn FnOnce() + Send>)) -> Result<()> {
    let primary = device().context()?;
    let stream = device().create_stream()?;
    let other = device().create_stream()?;
    let default = primary.default_stream()?;
    let event = Event::new(&primary, EventFlags::DEFAULT)?;
    let mut buffer = stream.alloc_zeroed::<u32>(64)?;
    let mut on_default = default.alloc_zeroed::<u32>(64)?;
    let mut host = pinned(&[0; 64])?;
    other.download(&buffer, &mut host)?;
    event.record(&other)?;
    other.copy(&buffer, &mut on_default)?;
    stream.fill(&mut buffer, 1)?;
    wreck(Box::new(move || {
        drop((buffer, on_default, host, event, default, other, stream));
    }));
    Ok(())
}

#[test]
fn s08_drop_where_nothing_is_current() {
    clean(|_| {
        drop_one_of_each(|drop_all| {
            thread::scope(|scope| {
                scope.spawn(|| {
                    drop_all();
                    assert!(context::current().is_null());
                });
            });
        })
    });
}

#[test]
fn s08_drop_where_another_context_is_current() {
    clean(|_| {
        drop_one_of_each(|drop_all| {
            thread::scope(|scope| {
                scope.spawn(|| {
                    let foreign = context::Foreign::create(1);
                    context::push(foreign.handle());
                    drop_all();
                    assert_eq!(context::pop(), Some(foreign.handle()));
                    assert_eq!(context::pop(), None);
                });
            });
        })
    });
}

#[test]
fn s10_an_error_is_reported_once_and_stops_nothing() {
    clean(|session| {
        let stream = device().create_stream()?;
        let mut buffer = stream.alloc::<u32>(64)?;
        session.fail_nth(Some("cuMemsetD32Async"), 1, CUDA_ERROR_UNKNOWN);
        assert!(stream.fill(&mut buffer, 1).is_err());
        let guard = device().enter()?;
        assert_eq!(context::current(), context::primary(0));
        drop(guard);
        stream.fill(&mut buffer, 7)?;
        let mut back = [0; 64];
        stream.download(&buffer, &mut back)?;
        assert_eq!(back, [7; 64]);
        Ok(())
    });
}

#[test]
fn s10_a_guard_that_cannot_ask_restores_and_stops_no_later_guard() {
    clean(|session| {
        let guard = device().enter()?;
        // The library repeats a failed query once.
        session.fail_nth(Some("cuCtxGetCurrent"), 1, CUDA_ERROR_UNKNOWN);
        session.fail_nth(Some("cuCtxGetCurrent"), 2, CUDA_ERROR_UNKNOWN);
        guard.restore()?; // what was current before is known
        assert!(context::current().is_null());
        let guard = Device::get(1)?.enter()?;
        assert_eq!(context::current(), context::primary(1));
        guard.restore()
    });
}

#[test]
fn s27_memory_is_where_the_stream_is() {
    clean(|session| {
        let (first, second) = (device(), Device::get(1)?);
        let stream = second.create_stream()?;
        let before = [0, 1].map(|device| session.device_bytes_in_use(device));
        let wrong = first.enter()?;
        let buffer = stream.alloc::<u8>(1 << 20)?;
        let other = second.context()?.default_stream()?;
        let on_default = other.alloc::<u8>(1 << 20)?;
        wrong.restore()?;
        assert_eq!(buffer.device(), second);
        assert_eq!(session.device_bytes_in_use(0), before[0]);
        assert_eq!(session.device_bytes_in_use(1), before[1] + (2 << 20));
        drop((buffer, on_default));
        Ok(())
    });
}

#[test]
fn s27_creations_run_in_their_own_context() {
    clean(|_| {
        let second = Context::new(Device::get(1)?, ContextFlags::default())?;
        let wrong = device().enter()?;
        let stream = second.create_stream()?;
        let event = Event::new(&second, EventFlags::DEFAULT)?;
        // The driver refuses an event of a context other than the stream's.
        event.record(&stream)?;
        event.synchronize()?;
        wrong.restore()
    });
}
