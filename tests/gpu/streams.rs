//! Streams: identity, options, waiting, host functions.

use std::collections::{HashMap, HashSet};
use std::panic::panic_any;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::thread;

use cuda_core::{Device, Error, Event, EventFlags, PinnedBuffer, Resource, Result, Stream};
use support::{
    DropReports, OnDrop, assert_bytes, context, expect_drop_failures, gpu_test, hash, one_stream,
    stall, two_streams,
};

use crate::capture::Capture;
use crate::stack;

gpu_test! {
    needs 2;
    fn c01_eq_hash() -> Result<()> {
        let (c0, c1) = (Device::get(0)?.context()?, Device::get(1)?.context()?);
        let (null, again) = (c0.default_stream()?, c0.default_stream()?);
        assert_eq!(null, again);
        assert_eq!(hash(&null), hash(&again));
        assert_ne!(null, c1.default_stream()?);

        let (per_thread, per_thread_again) = (c0.per_thread_stream()?, c0.per_thread_stream()?);
        assert_eq!(per_thread, per_thread_again);
        assert_eq!(hash(&per_thread), hash(&per_thread_again));
        assert_ne!(per_thread, null);
        assert_ne!(per_thread, c1.per_thread_stream()?);
        let elsewhere = thread::scope(|scope| {
            let stream = || c0.per_thread_stream().map(|stream| stream.id());
            scope.spawn(stream).join().expect("no assertion failed")
        })?;
        assert_ne!(per_thread.id(), elsewhere, "another thread's is another stream");

        let (one, two) = (c0.create_stream()?, c0.create_stream()?);
        assert_ne!(one, two);
        assert_ne!(one, null);
        assert_ne!(one, per_thread);
        assert_eq!(one, one.clone());
        assert_eq!(hash(&one), hash(&one.clone()));
        #[allow(
            clippy::mutable_key_type,
            reason = "equality and hash go by the id, which does not change"
        )]
        let distinct = HashSet::from([null, again, c1.default_stream()?, one.clone(), one, two]);
        assert_eq!(distinct.len(), 4);
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn c02_flags() -> Result<()> {
        let context = Device::get(0)?.context()?;
        let blocking = context.stream_builder().blocking().build()?;
        assert!(blocking.is_blocking()?);
        assert!(!context.create_stream()?.is_blocking()?);
        assert!(context.default_stream()?.is_blocking()?);
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn c03_priority() -> Result<()> {
        let context = Device::get(0)?.context()?;
        let (least, greatest) = context.stream_priority_range()?;
        let given = |asked| context.stream_builder().priority(asked).build()?.priority();
        for priority in greatest..=least {
            assert_eq!(given(priority)?, priority);
        }
        // Both ends of the range are clamped, as `StreamBuilder::priority` documents.
        assert_eq!(given(greatest - 1)?, greatest);
        assert_eq!(given(least + 1)?, least);
        Ok(())
    }
}

/// Returns a value that adds one to the counter when it is dropped.
fn counts_drops(drops: Arc<AtomicU32>) -> OnDrop<impl FnMut() + Send> {
    OnDrop(move || _ = drops.fetch_add(1, Ordering::SeqCst))
}

gpu_test! {
    needs 1;
    fn c10_host_fn_panic() -> Result<()> {
        expect_drop_failures(2);
        let stream = Device::get(0)?.create_stream()?;
        let mut reports = DropReports::listen();
        let (drops, runs) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let (payload, ran) = (counts_drops(drops.clone()), runs.clone());
        stream.launch_host_func(move || panic_any(payload))?;
        // This payload panics again when it is dropped.
        stream.launch_host_func(|| panic_any(OnDrop(|| panic_any(()))))?;
        stream.launch_host_func(move || {
            ran.fetch_add(1, Ordering::SeqCst);
        })?;
        stream.synchronize()?;
        assert_eq!(runs.load(Ordering::SeqCst), 1, "the one behind them runs");
        assert_eq!(drops.load(Ordering::SeqCst), 1, "the payload");
        assert_eq!(reports.resources(), [Resource::HostFunction; 2]);
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn c11_host_fn_drop_once() -> Result<()> {
        // `tests/sim` covers the case in which the enqueue fails.
        let stream = Device::get(0)?.create_stream()?;
        let (drops, runs) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let (owned, ran) = (counts_drops(drops.clone()), runs.clone());
        stream.launch_host_func(move || {
            let _owned = &owned;
            ran.fetch_add(1, Ordering::SeqCst);
        })?;
        stream.synchronize()?;
        assert_eq!(runs.load(Ordering::SeqCst), 1);
        assert_eq!(drops.load(Ordering::SeqCst), 1);
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn s31_a_host_function_reads_what_was_downloaded() -> Result<()> {
        let len = if cfg!(miri) { 1 << 10 } else { 1 << 20 };
        let stream = Device::get(0)?.create_stream()?;
        let mut buffer = stream.alloc::<u32>(len)?;
        let mut host = PinnedBuffer::<u32>::zeroed(stream.context(), len)?;
        stream.fill(&mut buffer, 7)?;
        stream.download(&buffer, &mut host)?;
        let (tell, told) = mpsc::channel();
        stream.launch_host_func(move || {
            let seen = host.as_slice().map(|host| host.iter().all(|element| *element == 7));
            // The receiver reads it later.
            let _ = tell.send(seen);
        })?;
        stream.synchronize()?;
        assert!(told.recv().expect("it ran")?, "all elements are there");
        Ok(())
    }
}

gpu_test! {
    needs 1, asynchronous;
    fn c13_host_fn_stream_dropped() -> Result<()> {
        let device = Device::get(0)?;
        let stream = device.create_stream()?;
        let stall = stall(stream.as_raw());
        let (ran, runs) = mpsc::channel();
        stream.launch_host_func(move || ran.send(()).expect("the test listens"))?;
        drop(stream);
        runs.try_recv().expect_err("the stream is stalled");
        stall.release();
        device.synchronize()?;
        runs.recv().expect("it ran");
        runs.recv().expect_err("it ran once, and dropped what it owned");
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn c15_wait_unrecorded() -> Result<()> {
        let (context, stream) = one_stream()?;
        let fresh = Event::new(&context, EventFlags::DISABLE_TIMING)?;
        stream.wait_event(&fresh)?;
        stream.synchronize()?;
        assert!(stream.query()?);
        Ok(())
    }
}

gpu_test! {
    needs 1, asynchronous;
    fn c16_wait_captures_latest_record() -> Result<()> {
        let (context, s1, s2) = two_streams()?;
        let event = Event::new(&context, EventFlags::DISABLE_TIMING)?;
        event.record(&s1)?;
        s1.synchronize()?;
        s2.wait_event(&event)?;
        let stall = stall(s1.as_raw());
        event.record(&s1)?;
        s2.synchronize()?;
        assert!(!s1.query()?, "the second record is still pending");

        // A wait enqueued now is for the second record.
        s2.wait_event(&event)?;
        assert!(!s2.query()?);
        stall.release();
        s2.synchronize()?;
        assert!(s1.query()?);
        Ok(())
    }
}

gpu_test! {
    needs 1, asynchronous;
    fn c20_query() -> Result<()> {
        let stream = Device::get(0)?.create_stream()?;
        assert!(stream.query()?, "nothing was enqueued");
        let stall = stall(stream.as_raw());
        for _ in 0..5 {
            assert!(!stream.query()?);
        }
        stall.release();
        stream.synchronize()?;
        assert!(stream.query()?);
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn c20_query_of_a_stream_that_cannot_be_asked() -> Result<()> {
        let stream = Device::get(0)?.create_stream()?;
        let capture = Capture::begin(&stream, cuda_sys::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
        stream.query().expect_err("an error is not `not yet`");
        drop(capture);
        assert!(stream.query()?);
        Ok(())
    }
}

gpu_test! {
    needs 2, asynchronous;
    fn c24_cross_device_handles() -> Result<()> {
        let (c0, c1) = (Device::get(0)?.context()?, Device::get(1)?.context()?);
        let (s0, s1) = (c0.create_stream()?, c1.create_stream()?);
        let event = Event::new(&c0, EventFlags::DISABLE_TIMING)?;
        let refused = event.record(&s1).expect_err("the stream is of another context");
        assert!(matches!(refused, Error::WrongContext(_)), "{refused:?}");

        // Here waiting is permitted, and orders the work.
        let order = Arc::new(Mutex::new(Vec::new()));
        let note = |stream: &Stream, name: &'static str| {
            let order = order.clone();
            stream.launch_host_func(move || order.lock().expect("no panic").push(name))
        };
        let stall = stall(s0.as_raw());
        note(&s0, "device 0")?;
        event.record(&s0)?;
        s1.wait_event(&event)?;
        note(&s1, "device 1")?;
        for _ in 0..5 {
            assert!(!s1.query()?, "device 1 waits for device 0");
        }
        stall.release();
        s1.synchronize()?;
        assert_eq!(*order.lock().expect("no panic"), ["device 0", "device 1"]);
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn c25_id_not_handle() -> Result<()> {
        const ENOUGH: usize = 10_000;
        let context = Device::get(0)?.context()?;
        let mut ids = HashMap::new();
        for _ in 0..ENOUGH {
            let stream = context.create_stream()?;
            if let Some(earlier) = ids.insert(stream.as_raw(), stream.id()) {
                assert_ne!(earlier, stream.id(), "two streams of one handle");
                return Ok(());
            }
        }
        panic!("no handle value came back in {ENOUGH} streams: nothing was tested");
    }
}

gpu_test! {
    needs 1, asynchronous;
    fn c27_per_thread_default() -> Result<()> {
        let (context, home) = one_stream()?;
        let mut buffer = home.alloc_zeroed::<u8>(1000)?;
        home.synchronize()?;
        let own = context.per_thread_stream()?;
        own.synchronize()?;

        // The raw handle means this thread's stream of the current context.
        let stalled = stack::with(context.as_raw(), || stall(own.as_raw()));
        let mut work = || -> Result<()> {
            let own = context.per_thread_stream()?;
            own.fill(&mut buffer, 9)?;
            own.synchronize()?;
            assert!(own.query()?);
            assert!(context::current().is_null());
            Ok(())
        };
        thread::scope(|scope| scope.spawn(&mut work).join().expect("no assertion failed"))?;
        assert!(!own.query()?, "this thread's stream is still stalled");
        stalled.release();
        own.synchronize()?;

        let mut back = [0; 1000];
        home.download(&buffer, &mut back)?;
        assert_bytes(&back, &[9; 1000]);
        Ok(())
    }
}
