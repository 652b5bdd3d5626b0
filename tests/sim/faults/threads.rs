//! Values dropped on another thread, and what a thread leaves behind.

use std::thread;

use cuda_core::{Context, ContextFlags, Device, Event, EventFlags, PinnedBuffer, Result};
use support::{one_stream, two_streams};

use super::harness::sweep;

/// Runs `f` on another thread, and waits for it.
fn elsewhere<R: Send>(f: impl FnOnce() -> R + Send) -> R {
    thread::scope(|scope| scope.spawn(f).join().expect("no panic"))
}

#[test]
fn dropped_where_nothing_is_current() {
    sweep(|| {
        let (context, s, t) = two_streams()?;
        let event = Event::new(&context, EventFlags::DEFAULT)?;
        let mut buffer = s.alloc_zeroed::<u8>(8)?;
        let mut host = PinnedBuffer::<u8>::zeroed(&context, 8)?;
        t.fill(&mut buffer, 1)?;
        t.download(&buffer, &mut host)?;
        event.record(&t)?;
        elsewhere(move || drop((t, buffer, event, s, host)));
        Ok(())
    });
}

#[test]
fn dropped_where_another_context_is_current() {
    sweep(|| {
        let context = Context::new(Device::get(1)?, ContextFlags::SCHED_AUTO)?;
        let stream = context.create_stream()?;
        let legacy = context.default_stream()?;
        let a = stream.alloc_zeroed::<u8>(8)?;
        let b = legacy.alloc_zeroed::<u8>(8)?;
        elsewhere(move || -> Result<()> {
            let _guard = Device::get(0)?.enter()?;
            drop((context, a, b, stream, legacy));
            Ok(())
        })
    });
}

#[test]
fn work_of_a_thread_that_ended() {
    sweep(|| {
        let (context, home) = one_stream()?;
        let mut buffer = home.alloc::<u8>(8)?;
        elsewhere(|| context.per_thread_stream()?.fill(&mut buffer, 6))?;
        let mut back = [0; 8];
        home.download(&buffer, &mut back)?;
        assert_eq!(back, [6; 8]);
        Ok(())
    });
}

#[test]
fn thread_that_ends_with_a_context_current() {
    sweep(|| {
        let context = Context::new(Device::get(0)?, ContextFlags::SCHED_AUTO)?;
        elsewhere(move || -> Result<()> {
            context.set_current()?;
            drop(context.create_stream()?);
            Ok(())
        })
    });
}

#[test]
fn two_threads_on_one_stream() {
    sweep(|| {
        let stream = Device::get(0)?.create_stream()?;
        let mut a = stream.alloc::<u8>(8)?;
        let mut b = stream.alloc::<u8>(8)?;
        // In sequence, so that the N-th call is the same in every run.
        elsewhere(|| stream.fill(&mut a, 1))?;
        elsewhere(|| stream.copy(&a, &mut b))?;
        let mut back = [0; 8];
        stream.download(&b, &mut back)?;
        assert_eq!(back, [1; 8]);
        Ok(())
    });
}
