//! Host functions: S16, S31, S41.

use std::panic::panic_any;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{self, Wake, Waker};

use cuda_core::{
    Allocator, Context, ContextFlags, Device, Error, Event, EventFlags, Rejected, Result, Signal,
    WaitValue,
    drops::{self, DropFailure},
};
use cuda_sim::{Fault, LeakKind, Mode};
use cuda_sys::{CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_UNKNOWN};
use support::{OnDrop, blocks};

use super::{clean, device, pinned, primary, within};

#[test]
fn s16_a_host_function_runs_once_and_is_freed() {
    clean(|_| {
        let stream = device().create_stream()?;
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = calls.clone();
        stream.launch_host_func(move || {
            counted.fetch_add(1, Ordering::Relaxed);
        })?;
        stream.synchronize()?;
        stream.synchronize()?;
        assert_eq!(calls.load(Ordering::Relaxed), 1);
        assert_eq!(Arc::strong_count(&calls), 1, "the closure is gone");
        Ok(())
    });
}

#[test]
fn s16_a_refused_host_function_is_freed() {
    clean(|session| {
        let stream = device().create_stream()?;
        let captured = Arc::new(());
        let inside = captured.clone();
        session.fail_nth(Some("cuLaunchHostFunc"), 1, CUDA_ERROR_UNKNOWN);
        assert!(stream.launch_host_func(move || drop(inside)).is_err());
        assert_eq!(Arc::strong_count(&captured), 1, "the closure is gone");
        Ok(())
    });
}

/// The caller's captured values may change the current context when they are dropped.
#[test]
fn s16_a_refused_host_function_goes_with_nothing_entered() {
    clean(|session| {
        let legacy = primary().default_stream()?;
        let (dropped, drops) = mpsc::channel();
        let captured = OnDrop(move || _ = dropped.send(support::context::current().is_null()));
        session.fail_nth(Some("cuLaunchHostFunc"), 1, CUDA_ERROR_UNKNOWN);
        assert!(legacy.launch_host_func(move || drop(captured)).is_err());
        assert_eq!(drops.recv(), Ok(true));
        Ok(())
    });
}

/// The driver's code is that of a copy that needs a current context, after which the library repeats such a
/// call. A host function is not launched again: it could run twice.
#[test]
fn s16_a_host_function_that_was_refused_and_enqueued_is_dropped_once() {
    clean(|session| {
        let stream = device().create_stream()?;
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = calls.clone();
        let refused = Fault::new(CUDA_ERROR_INVALID_VALUE).function("cuLaunchHostFunc");
        session.inject(refused.takes_effect());
        let launched = stream.launch_host_func(move || {
            counted.fetch_add(1, Ordering::Relaxed);
        });
        assert!(launched.is_err());
        assert_eq!(session.pending_ops(), 1, "it was enqueued, and not again");
        stream.synchronize()?;
        assert_eq!(calls.load(Ordering::Relaxed), 0);
        assert_eq!(Arc::strong_count(&calls), 1, "the closure is gone");
        Ok(())
    });
}

#[test]
fn s16_a_panic_stays_in_the_host_function() {
    clean_but_for(1, || {
        let stream = device().create_stream()?;
        let captured = Arc::new(());
        let inside = captured.clone();
        stream.launch_host_func(move || {
            let _inside = inside;
            // The payload panics again when it is dropped.
            panic_any(OnDrop(|| panic!("dropped")));
        })?;
        stream.synchronize()?;
        assert_eq!(Arc::strong_count(&captured), 1, "unwinding dropped it");
        Ok(())
    });
}

/// Like `clean`, with `failures` expected drop failures.
fn clean_but_for(failures: u64, body: impl FnOnce() -> Result<()> + Send) {
    let session = support::simulator();
    let before = cuda_core::drops::failures();
    super::within(|| body().expect("no operation fails"));
    session.settle();
    assert_eq!(cuda_core::drops::failures(), before + failures);
    session.assert_clean();
}

#[test]
fn s31_drop_in_a_host_function() {
    clean(|session| {
        let stream = device().create_stream()?;
        let other = device().create_stream()?;
        let created = Context::new(Device::get(1)?, ContextFlags::default())?;
        let inside = created.create_stream()?;
        let event = Event::new(&primary(), EventFlags::DEFAULT)?;
        let mut buffer = other.alloc_zeroed::<u32>(64)?;
        let mut host = pinned(&[0; 64])?;
        stream.download(&buffer, &mut host)?;
        other.fill(&mut buffer, 1)?;
        other.upload(&[1; 64], &mut buffer)?;
        stream.launch_host_func(move || {
            drop((buffer, host, event, other, inside, created));
        })?;
        stream.synchronize()?;
        cuda_core::drops::flush();
        let held = session.leaks();
        let held = held.iter().filter(|leak| {
            matches!(leak.kind, LeakKind::Device | LeakKind::Context | LeakKind::Stream)
        });
        assert_eq!(held.count(), 1, "the stream itself: {:?}", session.leaks());
        Ok(())
    });
}

/// Returns the result of an operation that is called inside a host function.
pub(super) fn in_host_function<R: Send + 'static>(
    f: impl FnOnce() -> R + Send + 'static,
) -> Result<R> {
    let stream = device().create_stream()?;
    let slot = Arc::new(Mutex::new(None));
    let inside = slot.clone();
    stream.launch_host_func(move || {
        *inside.lock().expect("no panic") = Some(f());
    })?;
    stream.synchronize()?;
    Ok(slot.lock().expect("no panic").take().expect("it ran"))
}

#[track_caller]
pub(super) fn refused<T>(result: Result<T>) {
    match result {
        Err(Error::InCallback) => {}
        Err(other) => panic!("refused with {other}"),
        Ok(_) => panic!("not refused"),
    }
}

#[test]
fn s31_operations_in_a_host_function_are_refused() {
    clean(|_| {
        let stream = device().create_stream()?;
        let mut buffer = stream.alloc_with::<u32>(&Allocator::driver_pool(), 64)?;
        let host = pinned(&[0_u32; 64])?;
        in_host_function(move || {
            refused(stream.alloc::<u32>(1));
            refused(stream.fill(&mut buffer, 1));
            refused(stream.upload(&host, &mut buffer));
            refused(stream.upload(&[0; 64], &mut buffer));
            refused(stream.download(&buffer, &mut [0; 64]));
            refused(stream.synchronize());
            refused(stream.query());
            refused(stream.launch_host_func(|| {}));
            refused(buffer.synchronize());
            refused(stream.context().create_stream());
            refused(stream.context().synchronize());
            refused(stream.device().enter());
            refused(Context::current());
            refused(cuda_core::staging::trim());
            refused(cuda_core::driver_version());
            refused(stream.device().graph_memory());
            refused(stream.device().reset_graph_memory_peaks());
            refused(stream.device().trim_graph_memory());
            let Rejected { error, value: buffer } = buffer.close().expect_err("refused");
            refused::<()>(Err(error));
            let Rejected { error, value: _buffer } = buffer.into_raw().expect_err("refused");
            refused::<()>(Err(error));
        })
    });
}

/// Memory that work before the host function has written is ready when it runs; memory that another
/// stream still writes is not.
#[test]
fn s31_a_host_function_looks_at_memory_that_is_ready() {
    clean(|session| {
        session.set_mode(Mode::Lazy);
        let [stream, other] = [device().create_stream()?, device().create_stream()?];
        let mut buffer = stream.alloc::<u32>(64)?;
        let [mut ready, mut pending] = [pinned(&[0; 64])?, pinned(&[0; 64])?];
        let untouched = pinned(&[3; 64])?;
        stream.fill(&mut buffer, 7)?;
        stream.download(&buffer, &mut ready)?;
        stream.upload(&ready, &mut buffer)?;
        other.download(&buffer, &mut pending)?;
        let (tell, told) = mpsc::channel();
        stream.launch_host_func(move || {
            refused(pending.as_slice());
            refused(pending.try_as_slice());
            refused(pending.as_mut_slice());
            let seen = ready.as_slice().map(<[u32]>::to_vec);
            let elements = ready.try_as_slice().map(|ready| ready.map(<[u32]>::len));
            let written = ready.as_mut_slice().map(|ready| ready.fill(8));
            let untouched = untouched.as_slice().map(<[u32]>::to_vec);
            tell.send((seen, elements, written, untouched, ready, pending))
                .expect("it is received");
        })?;
        stream.synchronize()?;
        let (seen, elements, written, untouched, ready, pending) = told.recv().expect("it is sent");
        assert_eq!((seen?, elements?, untouched?), (vec![7; 64], Some(64), vec![3; 64]));
        written?;
        assert_eq!((ready.as_slice()?, pending.as_slice()?), (&[8; 64][..], &[7; 64][..]));
        Ok(())
    });
}

#[test]
fn s31_looking_at_a_device_in_a_host_function_is_refused() {
    clean(|_| {
        let device = device();
        in_host_function(move || {
            refused(device.name());
            refused(device.pci_bus_id());
            refused(device.uuid());
            refused(device.total_memory());
            refused(device.attribute(cuda_sys::CU_DEVICE_ATTRIBUTE_WARP_SIZE));
            refused(device.primary_state());
        })
    });
}

#[test]
fn s31_flushing_in_a_host_function_does_not_wait_for_itself() {
    clean(|_| in_host_function(cuda_core::drops::flush));
}

#[test]
fn s31_flushing_in_the_hook_of_a_deferred_drop_does_not_wait_for_itself() {
    let session = support::simulator();
    super::within(|| {
        let stream = device().create_stream().expect("a stream");
        let buffer = stream.alloc::<u32>(64).expect("memory");
        let count = Arc::new(AtomicUsize::new(0));
        let counted = count.clone();
        drops::set_hook(move |_: &DropFailure| {
            cuda_core::drops::flush();
            counted.fetch_add(1, Ordering::Relaxed);
        });
        session.fail_nth(Some("cuMemFreeAsync"), 1, CUDA_ERROR_UNKNOWN);
        let launched = stream.launch_host_func(move || drop(buffer));
        launched.and_then(|()| stream.synchronize()).expect("it runs");
        cuda_core::drops::flush();
        drops::take_hook();
        assert_eq!(count.load(Ordering::Relaxed), 1);
    });
    assert_eq!(session.violations(), []);
}

#[test]
fn s41_what_came_before_a_host_function_does_not_wait_for_it() {
    clean(|_| {
        let stream = device().create_stream()?;
        let mut buffer = stream.alloc::<u32>(64)?;
        let mut host = pinned(&[7; 64])?;
        stream.upload(&host, &mut buffer)?;
        let release = blocks(&stream)?;
        stream.fill(&mut buffer, 8)?;
        // The host function waits for this thread, and this thread waits only for the upload.
        host.as_mut_slice()?.fill(9);
        drop(release);
        let mut back = [0; 64];
        stream.download(&buffer, &mut back)?;
        assert_eq!(back, [8; 64]);
        Ok(())
    });
}

#[test]
fn s41_another_stream_does_not_wait_for_the_host_function() {
    clean(|_| {
        let [a, b] = [device().create_stream()?, device().create_stream()?];
        let mut buffer = a.alloc::<u32>(64)?;
        a.fill(&mut buffer, 7)?;
        let release = blocks(&a)?;
        for _ in 0..20 {
            // Later events must not replace the one before the host function.
            a.checkpoint()?;
            a.fill(&mut a.alloc::<u32>(64)?, 1)?;
        }
        let mut back = [0; 64];
        b.download(&buffer, &mut back)?;
        assert_eq!(back, [7; 64]);
        drop(release);
        a.synchronize()
    });
}

/// The event comes after a host function that waits for this thread. This thread waits for work before the
/// wait for the event.
#[test]
fn s41_what_came_before_a_wait_for_an_event_does_not_wait_for_it() {
    clean(|_| {
        let [a, b] = [device().create_stream()?, device().create_stream()?];
        let event = Event::new(a.context(), EventFlags::DISABLE_TIMING)?;
        let mut buffer = a.alloc::<u32>(64)?;
        let mut host = pinned(&[7; 64])?;
        for behind in 0..3 {
            a.upload(&host, &mut buffer)?;
            let release = blocks(&b)?;
            match behind {
                0 => {
                    event.record(&b)?;
                    a.wait_event(&event)?;
                }
                1 => a.wait_stream(&b)?,
                // A third stream waits for the second, and so for what the second waits for.
                _ => {
                    let c = device().create_stream()?;
                    c.wait_stream(&b)?;
                    event.record(&c)?;
                    a.wait_event(&event)?;
                }
            }
            a.fill(&mut buffer, 8)?;
            host.as_mut_slice()?.fill(9);
            drop(release);
            let mut back = [0; 64];
            a.download(&buffer, &mut back)?;
            assert_eq!(back, [8; 64]);
        }
        Ok(())
    });
}

/// The legacy stream comes after a blocking one, which waits for this thread. So does work that waits for the
/// legacy stream, but not work before that wait.
#[test]
fn s41_what_came_before_a_wait_for_the_legacy_stream_does_not_wait_for_it() {
    for (elsewhere, by_way) in [(false, false), (true, false), (false, true)] {
        clean(|_| {
            // New contexts: their legacy streams have done no work before.
            let new = |device| Context::new(Device::get(device)?, ContextFlags::default());
            let [one, two] = [new(0)?, new(1)?];
            let (own, other) = if elsewhere { (&one, &two) } else { (&one, &one) };
            let stream = own.create_stream()?;
            let blocking = other.stream_builder().blocking().build()?;
            let legacy = other.default_stream()?;
            let mut buffer = stream.alloc::<u32>(64)?;
            stream.fill(&mut buffer, 7)?;
            let release = blocks(&blocking)?;
            if by_way {
                let third = own.create_stream()?;
                third.wait_stream(&legacy)?;
                stream.wait_stream(&third)?;
            } else {
                stream.wait_stream(&legacy)?;
            }
            within(|| buffer.synchronize().expect("its work is done"));
            assert!(!stream.query()?);
            drop(release);
            stream.synchronize()
        });
    }
}

/// The program did not request this wait: it comes from the ledger.
#[test]
fn s41_what_came_before_does_not_wait_for_another_streams_stalled_work() {
    clean(|_| {
        let [a, b] = [device().create_stream()?, device().create_stream()?];
        let mut buffer = a.alloc::<u32>(64)?;
        let mut shared = b.alloc::<u32>(64)?;
        let mut host = pinned(&[7; 64])?;
        a.upload(&host, &mut buffer)?;
        let release = blocks(&b)?;
        b.fill(&mut shared, 8)?;
        a.copy(&shared, &mut buffer)?;
        host.as_mut_slice()?.fill(9);
        drop(release);
        let mut back = [0; 64];
        a.download(&buffer, &mut back)?;
        assert_eq!(back, [8; 64]);
        Ok(())
    });
}

/// A stream without work of its own passes on its waits.
#[test]
fn c16_waits_are_work_too() {
    clean(|_| {
        let [a, b, c] =
            [device().create_stream()?, device().create_stream()?, device().create_stream()?];
        let event = Event::new(a.context(), EventFlags::DISABLE_TIMING)?;
        for by_event in [false, true] {
            let release = blocks(&a)?;
            if by_event {
                event.record(&a)?;
                b.wait_event(&event)?;
            } else {
                b.wait_stream(&a)?;
            }
            c.wait_stream(&b)?;
            assert!(!c.query()?, "by event: {by_event}");
            drop(release);
            c.synchronize()?;
            assert!(a.query()?, "by event: {by_event}");
            b.synchronize()?;
        }
        Ok(())
    });
}

/// A waker whose wake, on the library's waking thread, waits for deferred drops.
struct Flushes(mpsc::Sender<()>);

impl Wake for Flushes {
    fn wake(self: Arc<Self>) {
        cuda_core::drops::flush();
        let _ = self.0.send(());
    }
}

#[test]
fn s31_no_thread_of_the_crate_waits_for_another() {
    clean(|_| {
        let streams = [(); 3].map(|()| device().create_stream());
        let [using, dropping, awaited] = streams.map(|stream| stream.expect("a stream"));
        let mut buffer = primary().alloc::<u8>(16)?;
        // A deferred drop waits for a stream …
        let (go, wake) =
            (Signal::new(&device().context()?, 0u32)?, Signal::new(&device().context()?, 0u32)?);
        using.wait_signal(&go, WaitValue::Geq(1))?;
        using.fill(&mut buffer, 1)?;
        dropping.launch_host_func(move || drop(buffer))?;
        dropping.synchronize()?;
        // … that continues when the thread that wakes a future has waited for deferred drops.
        awaited.wait_signal(&wake, WaitValue::Geq(1))?;
        let (flushes, flushed) = mpsc::channel();
        let waker = Waker::from(Arc::new(Flushes(flushes)));
        let mut finished = awaited.ready();
        let mut task = task::Context::from_waker(&waker);
        assert!(Pin::new(&mut finished).poll(&mut task).is_pending());
        wake.set(1);
        flushed.recv().expect("it is woken");
        go.set(1);
        Ok(())
    });
}
