//! Waiting without blocking: for many points, and when waiting fails.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context as Task, Poll, RawWaker, RawWakerVTable, Wake, Waker};
use std::time::Duration;

use cuda_core::{Context, ContextFlags, Device, Graph, Result, Signal, Stream, WaitValue};
use cuda_sim::{Fault, Mode, Session};
use cuda_sys::{CUDA_ERROR_ILLEGAL_ADDRESS, CUDA_ERROR_UNKNOWN};
use support::{Alarm, block_on, blocks, kernels, threads_named};

/// Returns streams that all wait for the signal.
fn held_up(streams: usize) -> Result<(Vec<Stream>, Signal<u32>)> {
    let device = Device::get(0)?;
    let signal = Signal::new(&device.context()?, 0_u32)?;
    let streams: Vec<_> = (0..streams).map(|_| device.create_stream()).collect::<Result<_>>()?;
    streams[0].wait_signal(&signal, WaitValue::Geq(1))?;
    for stream in &streams[1..] {
        stream.wait_stream(&streams[0])?;
    }
    Ok((streams, signal))
}

/// Ends a session, and asserts that nothing leaked.
#[track_caller]
fn end(session: &Session) -> Result<()> {
    cuda_core::drops::flush();
    cuda_core::staging::trim()?;
    session.assert_clean();
    Ok(())
}

#[test]
fn many_awaited_streams_have_few_threads() -> Result<()> {
    let many = if cfg!(miri) { 6 } else { 2000 };
    let session = support::simulator_in(Mode::Lazy);
    let before = threads_named("cuda-core");
    let alarm = Alarm::new();
    let device = Device::get(0)?;
    let streams: Vec<_> = (0..many).map(|_| device.create_stream()).collect::<Result<_>>()?;
    let release = blocks(&streams[0])?;
    for stream in &streams[1..] {
        stream.wait_stream(&streams[0])?;
    }

    let mut all: Vec<_> = streams.iter().map(Stream::ready).collect();
    for finished in &mut all {
        assert!(alarm.poll(finished).is_pending());
    }
    // Later points do not wait for those, however many come.
    let free = device.create_stream()?;
    for round in 0..20 {
        let mut buffer = free.alloc::<u32>(16)?;
        free.fill(&mut buffer, round)?;
        block_on(free.ready())?;
    }
    if let (Some(before), Some(now)) = (before, threads_named("cuda-core")) {
        assert!(now < before + 40, "{now} threads, {before} before");
    }
    assert_eq!(alarm.wakes(), 0);
    drop(release);
    for finished in &mut all {
        alarm.block_on(finished)?;
    }
    drop((all, streams, free));
    end(&session)
}

/// Memory that a graph uses, and that is freed after a wait.
#[test]
fn much_that_a_pending_graph_leaves_has_few_threads() -> Result<()> {
    let many = if cfg!(miri) { 10 } else { 200 };
    let session = support::simulator_in(Mode::Eager);
    let (streams, signal) = held_up(1)?;
    let context = Device::get(0)?.context()?;
    let mut buffers = (0..many).map(|_| context.alloc::<u32>(16)).collect::<Result<Vec<_>>>()?;
    let graph = Graph::capture(&context, |stream| {
        buffers.iter_mut().try_for_each(|buffer| stream.fill(buffer, 1))
    })?;
    graph.instantiate()?.launch(&streams[0])?;
    let (kept, gone) = mpsc::channel::<()>();
    let next = Graph::capture(&context, |stream| stream.launch_host_func_each(move || _ = &kept))?;
    let before = threads_named("cuda-core");
    drop((graph, buffers));
    context.create_stream()?.launch_host_func(move || drop(next))?;
    let _ = gone.recv(); // its drop was deferred behind those of the buffers
    if let (Some(before), Some(now)) = (before, threads_named("cuda-core")) {
        assert!(now < before + 40, "{now} threads, {before} before");
    }
    signal.set(1);
    drop((streams, signal));
    end(&session)
}

/// Memory that very many streams of a lost context used: none of their points is awaited, and none takes room
/// on the stack before the others have been checked.
#[test]
fn as_many_points_as_streams_fit_the_stack() -> Result<()> {
    let many = if cfg!(miri) { 10 } else { 3000 };
    let session = support::simulator_in(Mode::Lazy);
    let context = Context::new(Device::get(0)?, ContextFlags::default())?;
    let streams = (0..many).map(|_| context.create_stream()).collect::<Result<Vec<_>>>()?;
    let mut x = context.alloc::<u8>(1)?;
    let mut y = context.alloc::<u8>(many)?;
    for (i, stream) in streams.iter().enumerate() {
        stream.copy(&x, y.slice_mut(i..i + 1)?)?;
    }
    let graph = Graph::capture(&context, |stream| stream.fill(&mut x, 1))?;
    session.inject(Fault::new(CUDA_ERROR_ILLEGAL_ADDRESS).sticky());
    drop(x);
    drop(graph); // frees `x`
    cuda_core::drops::flush();
    drop((y, streams, context));
    cuda_core::drops::flush();
    session.clear_faults();
    support::judge::take_away(&session, session.leaks());
    Ok(())
}

/// Executables are dropped while their launches are pending. When each launch completes, a thread releases
/// the kernel, which calls no foreign code.
#[test]
fn points_without_foreign_code_need_one_thread() -> Result<()> {
    let many = if cfg!(miri) { 5 } else { 100 };
    let session = support::simulator_in(Mode::Lazy);
    let (streams, signal) = held_up(1)?;
    let context = Device::get(0)?.context()?;
    let function = kernels::get(&context, "nothing")?;
    // SAFETY: the kernel has no arguments.
    let graph =
        Graph::capture(&context, |stream| unsafe { stream.kernel(&function).block(1).launch() })?;
    let waiters = || threads_named("cuda-core waite"); // the system keeps 15 bytes of a name
    let before = waiters();
    for _ in 0..many {
        graph.instantiate()?.launch(&streams[0])?;
    }
    let mut last = streams[0].ready();
    let alarm = Alarm::new();
    assert!(alarm.poll(&mut last).is_pending());
    signal.set(1);
    alarm.block_on(&mut last)?;
    if let (Some(before), Some(now)) = (before, waiters()) {
        assert!(now <= before.max(1), "{now} threads, {before} before");
    }
    drop((last, graph, function, streams, signal));
    end(&session)
}

/// A waker that sends a message when its task is woken.
struct Sender(mpsc::Sender<()>);

impl Wake for Sender {
    fn wake(self: Arc<Self>) {
        let _ = self.0.send(());
    }
}

/// The awaited point is the last owner of its context, whose destruction waits for a host function, which
/// waits for the future.
#[test]
fn a_future_does_not_wait_for_the_end_of_its_context() -> Result<()> {
    let session = support::simulator_in(Mode::Lazy);
    let context = Context::new(Device::get(0)?, ContextFlags::default())?;
    let (stream, other) = (context.create_stream()?, context.create_stream()?);
    let (woken, go) = mpsc::channel();
    let (done, seen) = mpsc::channel();
    other.launch_host_func(move || {
        let _ = done.send(go.recv_timeout(Duration::from_secs(10)));
    })?;
    let release = blocks(&stream)?;
    let mut ready = stream.ready();
    let waker = Waker::from(Arc::new(Sender(woken)));
    assert!(Pin::new(&mut ready).poll(&mut Task::from_waker(&waker)).is_pending());
    drop((stream, other, context));
    drop(release);
    assert_eq!(seen.recv(), Ok(Ok(())));
    drop(ready);
    end(&session)
}

/// The waker panics when it is first cloned.
#[test]
fn a_waker_that_panics_makes_nothing_ready() -> Result<()> {
    static CLONES: AtomicUsize = AtomicUsize::new(0);
    static TABLE: RawWakerVTable = RawWakerVTable::new(
        |_| {
            assert!(CLONES.fetch_add(1, Ordering::Relaxed) > 0, "the test's own");
            RawWaker::new(ptr::null(), &TABLE)
        },
        |_| {},
        |_| {},
        |_| {},
    );
    let _session = support::simulator_in(Mode::Lazy);
    let stream = Device::get(0)?.create_stream()?;
    let mut x = stream.alloc_zeroed::<u32>(100)?;
    stream.synchronize()?;
    let stalled = support::stall(stream.as_raw());
    stream.fill(&mut x, 1)?;
    let mut ready = x.ready_mut();
    // SAFETY: the functions use no data.
    let waker = unsafe { Waker::from_raw(RawWaker::new(ptr::null(), &TABLE)) };
    let mut poll = || Pin::new(&mut ready).poll(&mut Task::from_waker(&waker));
    assert!(catch_unwind(AssertUnwindSafe(&mut poll)).is_err());
    assert!(poll().is_pending());
    stalled.release();
    support::block_on(&mut ready)
}

/// Half of the points are reached and as many never are; each is awaited before the next.
#[test]
fn points_that_come_do_not_wait_for_those_that_do_not() -> Result<()> {
    let session = support::simulator_in(Mode::Lazy);
    // An interpreter takes minutes for that many.
    const MANY: usize = if cfg!(miri) { 3 } else { 30 };
    let (streams, signal) = held_up(MANY)?;
    let never = Alarm::new();
    let mut all: Vec<_> = streams.iter().map(Stream::ready).collect();
    for finished in &mut all {
        assert!(never.poll(finished).is_pending());
    }
    let (second, second_signal) = held_up(MANY)?;
    let alarm = Alarm::new();
    let mut those: Vec<_> = second.iter().map(Stream::ready).collect();
    for finished in &mut those {
        assert!(alarm.poll(finished).is_pending());
    }
    second_signal.set(1);
    for finished in &mut those {
        alarm.block_on(finished)?;
    }
    assert_eq!(never.wakes(), 0);
    signal.set(1);
    for finished in &mut all {
        never.block_on(finished)?;
    }
    drop((all, streams, signal, those, second, second_signal));
    end(&session)
}

#[test]
fn a_future_says_its_error_again() -> Result<()> {
    let session = support::simulator_in(Mode::Lazy);
    let stream = Device::get(0)?.create_stream()?;
    let mut buffer = stream.alloc::<u32>(16)?;
    for call in ["cuEventRecord", "cuEventQuery", "cuEventSynchronize"] {
        session.inject(Fault::new(CUDA_ERROR_UNKNOWN).function(call).from_then_on());
        stream.fill(&mut buffer, 7)?;
        let mut finished = stream.ready();
        let alarm = Alarm::new();
        alarm.block_on(&mut finished).expect_err(call);
        session.clear_faults();
        assert!(session.pending_ops() > 0);
        for _ in 0..2 {
            let again = alarm.poll(&mut finished);
            assert!(matches!(again, Poll::Ready(Err(_))), "{call}: {again:?}");
        }
        stream.synchronize()?;
    }
    drop((buffer, stream));
    end(&session)
}
