//! Events: flags, times, queries, waits.

use std::ops::RangeInclusive;
use std::thread;
use std::time::Duration;

use cuda_core::{Context, ContextFlags, Device, Error, Event, EventFlags, Result};
use cuda_sys::cuEventRecord;
use support::{check, gpu_test, one_stream, refusal, stall, two_streams};

use crate::capture::Capture;

fn event(context: &Context) -> Result<Event> {
    Event::new(context, EventFlags::DEFAULT)
}

gpu_test! {
    needs 1;
    fn d01_flags() -> Result<()> {
        const FLAGS: [EventFlags; 3] = [
            EventFlags::BLOCKING_SYNC,
            EventFlags::DISABLE_TIMING,
            EventFlags::INTERPROCESS,
        ];
        let (context, stream) = one_stream()?;
        for combination in 0..8 {
            let chosen = (0..3).filter(|bit| combination >> bit & 1 == 1);
            let flags = chosen.fold(EventFlags::DEFAULT, |flags, bit| flags | FLAGS[bit]);
            let interprocess = flags.contains(EventFlags::INTERPROCESS);
            let timing = !flags.contains(EventFlags::DISABLE_TIMING);
            match Event::new(&context, flags) {
                Err(Error::Invalid(it)) if interprocess && timing => {
                    assert!(it.reason.contains("DISABLE_TIMING"), "{}", it.reason);
                }
                Ok(event) if !(interprocess && timing) => {
                    assert_eq!(event.flags(), flags);
                    event.record(&stream)?;
                    event.synchronize()?;
                }
                other => panic!("{flags:?}: {other:?}"),
            }
        }
        Ok(())
    }
}

gpu_test! {
    needs 1, timing;
    fn d02_elapsed() -> Result<()> {
        const NAP: Duration = Duration::from_millis(500);
        // The range is wide because the machine may be shared.
        const EXPECTED: RangeInclusive<Duration> =
            Duration::from_millis(480)..=Duration::from_millis(700);
        let (context, stream) = one_stream()?;
        let (e1, e2) = (event(&context)?, event(&context)?);
        e1.record(&stream)?;
        stream.launch_host_func(|| thread::sleep(NAP))?;
        e2.record(&stream)?;
        e2.synchronize()?;
        let elapsed = e2.elapsed_since(&e1)?;
        assert!(EXPECTED.contains(&elapsed), "{elapsed:?}");
        assert_eq!(e1.elapsed_since(&e2)?, Duration::ZERO, "in reverse order");
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn d03_elapsed_no_timing() -> Result<()> {
        let (context, stream) = one_stream()?;
        let with = event(&context)?;
        let without = Event::new(&context, EventFlags::DISABLE_TIMING)?;
        with.record(&stream)?;
        without.record(&stream)?;
        stream.synchronize()?;
        for (later, earlier) in [(&with, &without), (&without, &with), (&without, &without)] {
            let error = later.elapsed_since(earlier).expect_err("one takes no times");
            assert!(matches!(error, Error::Invalid(ref it) if it.reason.contains("DISABLE_TIMING")), "{error:?}");
            assert!(error.to_string().contains("DISABLE_TIMING"), "{error}");
        }
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn d04_elapsed_unrecorded() -> Result<()> {
        let (context, stream) = one_stream()?;
        let (recorded, never) = (event(&context)?, event(&context)?);
        recorded.record(&stream)?;
        stream.synchronize()?;
        for (later, earlier) in [(&recorded, &never), (&never, &recorded), (&never, &never)] {
            let error = later.elapsed_since(earlier).expect_err("one was never recorded");
            assert!(matches!(error, Error::Invalid(ref it) if it.op == "cuEventElapsedTime"), "{error:?}");
        }
        let text = |later: &Event, earlier: &Event| later.elapsed_since(earlier).unwrap_err().to_string();
        let never_recorded = |which| format!("cuEventElapsedTime: the {which} event was never recorded");
        assert_eq!(text(&recorded, &never), never_recorded("earlier"));
        assert_eq!(text(&never, &recorded), never_recorded("later"));
        recorded.elapsed_since(&recorded)?;
        Ok(())
    }
}

gpu_test! {
    needs 1, asynchronous;
    fn d05_elapsed_pending() -> Result<()> {
        let (context, stream) = one_stream()?;
        let (e1, e2) = (event(&context)?, event(&context)?);
        e1.record(&stream)?;
        stream.synchronize()?;
        let stall = stall(stream.as_raw());
        e2.record(&stream)?;
        let error = e2.elapsed_since(&e1).expect_err("the stream is stalled");
        let code = cuda_sys::CUDA_ERROR_NOT_READY;
        assert_eq!(error, Error::Driver { op: "cuEventElapsedTime", code });
        assert!(error.is_not_ready(), "{error}");
        assert!(error.to_string().ends_with("; call `synchronize` on the later event first"), "{error}");
        let error = e1.elapsed_since(&e2).expect_err("the stream is stalled");
        assert_eq!(error, Error::Driver { op: "cuEventElapsedTime", code });
        stall.release();
        stream.synchronize()?;
        e2.elapsed_since(&e1)?;
        Ok(())
    }
}

gpu_test! {
    needs 2;
    fn d06_elapsed_two_devices() -> Result<()> {
        let mut events = Vec::new();
        for ordinal in [0, 1] {
            let context = Device::get(ordinal)?.context()?;
            let stream = context.create_stream()?;
            let event = event(&context)?;
            event.record(&stream)?;
            event.synchronize()?;
            events.push(event);
        }
        let error = events[1].elapsed_since(&events[0]).expect_err("two clocks");
        let says = "cuEventElapsedTime: the earlier event is of device 0, the later of device 1: ";
        assert!(error.to_string().starts_with(says), "{error}");
        let stream = Device::get(1)?.create_stream()?;
        let refused = events[0].record(&stream).expect_err("of another context");
        assert!(matches!(refused, Error::WrongContext(ref it) if it.op == "cuEventRecord"), "{refused:?}");
        Ok(())
    }
}

gpu_test! {
    needs 1, asynchronous;
    fn d07_query() -> Result<()> {
        let (context, stream) = one_stream()?;
        let event = event(&context)?;
        assert!(event.query()?, "never recorded");
        let stall = stall(stream.as_raw());
        event.record(&stream)?;
        for _ in 0..5 {
            assert!(!event.query()?, "the stream is stalled");
        }
        stall.release();
        event.synchronize()?;
        assert!(event.query()?);
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn d08_query_error() -> Result<()> {
        let (context, stream) = one_stream()?;
        let (captured, done) = (event(&context)?, event(&context)?);
        done.record(&stream)?;
        done.synchronize()?;

        let capture = Capture::begin(&stream, cuda_sys::CU_STREAM_CAPTURE_MODE_GLOBAL);
        assert!(captured.record(&stream).is_err(), "nothing is recorded into a capture");
        // SAFETY: event and stream are live.
        let recorded = unsafe { cuEventRecord(captured.as_raw(), stream.as_raw()) };
        check("cuEventRecord", recorded);
        captured.query().expect_err("it stands for a node of a graph");
        drop(capture);

        let capture = Capture::begin(&stream, cuda_sys::CU_STREAM_CAPTURE_MODE_GLOBAL);
        // The event is complete, so `true` would be right; drivers forbid the query during such a capture.
        assert!(!matches!(done.query(), Ok(false)), "an error is not `not yet`");
        drop(capture);
        assert!(done.query()?);
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn s17_an_event_keeps_its_context() -> Result<()> {
        let device = Device::get(0)?;
        let stream = device.create_stream()?;
        let created = Context::new(device, ContextFlags::default())?;
        let event = event(&created)?;
        event.record(&created.create_stream()?)?;
        // Only the event refers to the context now; its stream is gone.
        drop(created);
        stream.wait_event(&event)?;
        stream.synchronize()?;
        event.synchronize()?;
        assert!(event.query()?);
        event.record_current()?;
        event.synchronize()
    }
}

#[cfg(unix)]
gpu_test! {
    needs 1, timing, asynchronous;
    fn d10_blocking_wait() -> Result<()> {
        const STALL: Duration = Duration::from_millis(500);
        let (context, stream) = one_stream()?;
        let event = Event::new(&context, EventFlags::BLOCKING_SYNC)?;
        event.record(&stream)?;
        event.synchronize()?;
        stall(stream.as_raw()).release_after(STALL);
        event.record(&stream)?;
        let (started, busy) = (std::time::Instant::now(), support::thread_cpu_time());
        event.synchronize()?;
        let (waited, busy) = (started.elapsed(), support::thread_cpu_time() - busy);
        assert!(waited > STALL / 2, "waited {waited:?}");
        assert!(busy < waited / 5, "busy for {busy:?} of {waited:?}");
        Ok(())
    }
}

gpu_test! {
    needs 1, asynchronous;
    fn d11_drop_pending() -> Result<()> {
        let (context, stream) = one_stream()?;
        let stall = stall(stream.as_raw());
        let dropped = event(&context)?;
        dropped.record(&stream)?;
        drop(dropped);
        let closed = event(&context)?;
        closed.record(&stream)?;
        closed.close()?;
        assert!(!stream.query()?, "neither waits");
        stall.release();
        stream.synchronize()
    }
}

gpu_test! {
    needs 1, asynchronous;
    fn d12_rerecord() -> Result<()> {
        let (context, stalled, idle) = two_streams()?;
        let event = event(&context)?;
        event.record(&idle)?;
        event.synchronize()?;
        let stall = stall(stalled.as_raw());

        event.record(&stalled)?;
        assert!(!event.query()?, "the second record is pending, the first was not");
        event.record(&idle)?;
        event.synchronize()?;
        assert!(event.query()?);
        assert!(!stalled.query()?, "the record before is still pending");

        stall.release();
        stalled.synchronize()
    }
}

gpu_test! {
    needs 1;
    fn d01_recorded_at_once() -> Result<()> {
        let (context, stream) = one_stream()?;
        let start = stream.record_event(EventFlags::DEFAULT)?;
        let end = context.default_stream()?.record_event(EventFlags::DEFAULT)?;
        assert_eq!((start.context(), start.device()), (&context, Device::get(0)?));
        end.synchronize()?;
        start.synchronize()?;
        end.elapsed_since(&start)?;
        let flags = EventFlags::DISABLE_TIMING | EventFlags::BLOCKING_SYNC;
        let untimed = context.per_thread_stream()?.record_event(flags)?;
        assert_eq!(untimed.flags(), flags);
        assert!(refusal(untimed.elapsed_since(&start)).contains("DISABLE_TIMING"));
        untimed.synchronize()?;
        assert!(untimed.query()?);
        Ok(())
    }
}
