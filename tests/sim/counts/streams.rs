//! Calls of streams beside copies: identity, the current stream, values, signals, foreign streams.

use std::sync::Arc;

use cuda_core::{Event, EventFlags, Signal, WaitValue};

use super::*;

#[test]
fn the_current_stream_costs_nothing() {
    Counted::run(|driver| {
        let (context, s, t) = two_streams()?;
        driver.expect([], || context.current_stream())?;
        driver.expect([], || s.set_current())?;
        driver.expect([], || t.set_current())?;
        driver.expect([], || context.current_stream())?;
        driver.expect([], || context.default_stream()?.set_current())?;
        Ok(())
    });
}

#[test]
#[cfg(all(unix, not(miri)))]
fn semaphores_of_others_cost_a_guard() {
    use cuda_core::interop::{ExternalSemaphore, ExternalSemaphoreKind};

    Counted::run(|driver| {
        let (context, s, _) = two_streams()?;
        let fd = std::fs::File::open("/dev/null").expect("a file").into();
        let import = entered([EXCHANGE, "cuImportExternalSemaphore", EXCHANGE]);
        let semaphore = driver.expect(import, || {
            // SAFETY: the simulated driver accepts any descriptor as a semaphore.
            unsafe { ExternalSemaphore::import_fd(&context, fd, ExternalSemaphoreKind::Timeline) }
        })?;
        let signal = entered(["cuSignalExternalSemaphoresAsync"]);
        driver.expect(signal, || s.signal_external(&semaphore, 1))?;
        // The checkpoint comes first.
        let wait = entered([RECORD, "cuWaitExternalSemaphoresAsync"]);
        driver.expect(wait, || s.wait_external(&semaphore, 1))?;
        s.synchronize()?;
        let destroy = entered([EXCHANGE, "cuDestroyExternalSemaphore", EXCHANGE]);
        Ok(driver.expect(destroy, || semaphore.close())?)
    });
}

#[test]
fn entering_a_stream_costs_what_a_guard_costs() {
    Counted::run(|driver| {
        let (context, s, t) = two_streams()?;
        let guard = context.enter()?;
        driver.expect([GET, GET], || s.enter()?.restore())?;
        driver.expect([GET, GET], || t.enter().map(drop))?;
        guard.restore()?;
        let mark = driver.session.mark();
        drop(context.enter()?);
        let guard = driver.session.names_since(mark);
        driver.expect(guard, || s.enter().map(drop))
    });
}

#[test]
fn a_record_on_the_current_stream_costs_1() {
    Counted::run(|driver| {
        let (context, s, _) = two_streams()?;
        let event = Event::new(&context, EventFlags::DISABLE_TIMING)?;
        let _current = s.enter()?;
        driver.expect([RECORD], || event.record_current())
    });
}

#[test]
fn a_pool_costs_nothing_once_made() {
    Counted::run(|driver| {
        let (context, ..) = two_streams()?;
        driver.refused(|| context.stream_builder().build_pool(0));
        let pool = context.stream_builder().build_pool(2)?;
        driver.expect([], || (pool.next_stream().id(), pool.streams()[1].id()));
        Ok(())
    });
}

#[test]
fn a_foreign_stream_is_looked_at_once_and_never_destroyed() {
    Counted::run(|driver| {
        let (context, s, _) = two_streams()?;
        let owner = Arc::new(s.clone());
        let raw = s.as_raw();
        let wrap = || {
            // SAFETY: the owner is a handle of the stream.
            unsafe { Stream::from_raw(raw, &context, owner.clone()) }
        };
        // Queries the stream's context, whether it is captured, and whether the legacy stream waits for it.
        let looked = ["cuStreamGetCtx", ASK, "cuStreamGetFlags"];
        driver.expect(looked, || wrap().map(drop))?;
        let per_thread = std::ptr::without_provenance_mut(2);
        driver.refused(|| {
            // SAFETY: the handle does not refer to a stream that could be destroyed.
            unsafe { Stream::from_raw(per_thread, &context, ()) }
        });
        Ok(())
    });
}

/// Other code that has its handle may capture a stream.
#[test]
fn a_stream_whose_handle_was_given_away_is_asked_about() {
    Counted::run(|driver| {
        let (_, s, t) = two_streams()?;
        let mut a = s.alloc_zeroed::<u32>(16)?;
        driver.expect(["cuMemsetD32Async"], || s.fill(&mut a, 1))?;
        driver.expect([], || s.as_raw());
        driver.expect([ASK, "cuMemsetD32Async"], || s.fill(&mut a, 1))?;
        // A capture may begin while the event is recorded.
        let behind = [ASK, RECORD, ASK, WAIT, "cuMemsetD32Async"];
        driver.expect(behind, || t.fill(&mut a, 2))?;
        driver.expect([ASK, EXCHANGE, SYNC, EXCHANGE], || s.synchronize())?;
        driver.expect([], || s.is_blocking())?;
        driver.expect([], || s.clone().alloc::<u32>(0).map(drop))
    });
}

#[test]
fn values_cost_1_and_waits_a_checkpoint_where_work_is_pending() {
    Counted::run(|driver| {
        let (context, s, _) = two_streams()?;
        let mut word = context.alloc::<u32>(1)?;
        let mut wide = context.alloc::<u64>(1)?;
        // The ability is queried once per device.
        s.write_value(&mut wide, 0)?;
        driver.expect(["cuStreamWriteValue32_v2"], || s.write_value(&mut word, 1))?;
        driver.expect(["cuStreamWriteValue64_v2"], || s.write_value(&mut wide, 1))?;
        driver
            .expect([RECORD, "cuStreamWaitValue32_v2"], || s.wait_value(&word, WaitValue::Eq(1)))?;
        s.synchronize()?;
        driver.expect(["cuStreamWaitValue64_v2"], || s.wait_value(&wide, WaitValue::Nor(0)))?;
        s.synchronize()?;
        driver.refused(|| s.wait_value(&word, WaitValue::And(0)));
        driver.refused(|| s.write_value(word.slice_mut(..0)?, 1));
        let mut pooled = s.alloc::<u32>(1)?;
        driver.refused(|| s.write_value(&mut pooled, 1));
        Ok(())
    });
}

#[test]
fn signals_share_an_allocation_and_cost_the_host_nothing() {
    Counted::run(|driver| {
        let (_, s, t) = two_streams()?;
        let device = s.device();
        let first = Signal::new(&device.context()?, 0u32)?;
        // The device's abilities are queried once.
        s.write_signal(&Signal::new(&device.context()?, 0u64)?, 1)?;
        s.synchronize()?;
        let signal = driver.expect([], || Signal::new(&device.context()?, 7u64))?;
        driver.expect([], || {
            signal.set(signal.get() + 1);
        });
        driver.expect(["cuStreamWriteValue64_v2"], || s.write_signal(&signal, 9))?;
        // A signal causes no wait between streams.
        driver.expect(["cuStreamWriteValue64_v2"], || t.write_signal(&signal, 9))?;
        driver.expect([RECORD, "cuStreamWaitValue64_v2"], || {
            t.wait_signal(&signal, WaitValue::Eq(9))
        })?;
        driver.expect(["cuStreamWriteValue32_v2"], || s.write_signal(&first, 1))?;
        driver.expect([], || drop((first, signal)));
        s.synchronize()?;
        t.synchronize()
    });
}

#[test]
fn the_id_of_the_driver_costs_1() {
    Counted::run(|driver| {
        let (_, s, _) = two_streams()?;
        driver.expect([], || s.id());
        if s.driver_id().is_ok() {
            driver.expect(["cuStreamGetId"], || s.driver_id())?;
        }
        Ok(())
    });
}
