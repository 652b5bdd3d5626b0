//! M15: a driver that refuses every free and every destroy.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, mpsc};

use cuda_core::{
    Condition, Context, ContextFlags, Device, DeviceBuffer, Error, Event, EventFlags, Graph, Guard,
    PinnedBuffer, Rejected, Resource, Result, Stream, drops,
};
use cuda_sim::{Fault, LeakKind, Session};
use cuda_sys::{CUDA_ERROR_INVALID_HANDLE, CUDA_ERROR_UNKNOWN, CUresult};
use support::{DropReports, OnDrop, context, simulator, sorted};

/// The calls that release something.
const FREES: [&str; 5] = [
    "cuMemFreeAsync",
    "cuMemFreeHost",
    "cuStreamDestroy_v2",
    "cuEventDestroy_v2",
    "cuCtxDestroy_v2",
];

fn refuse_all(session: &Session, code: CUresult) {
    for name in FREES {
        session.inject(Fault::new(code).function(name).from_then_on());
    }
}

/// One of each owner whose destructor calls the driver.
struct Everything {
    buffer: DeviceBuffer<u8>,
    pinned: PinnedBuffer<u8>,
    event: Event,
    stream: Stream,
    context: Context,
}

impl Everything {
    fn new() -> Result<Self> {
        let context = Context::new(Device::get(0)?, ContextFlags::default())?;
        let stream = context.create_stream()?;
        Ok(Self {
            buffer: stream.alloc(100)?,
            pinned: PinnedBuffer::zeroed(&context, 10)?,
            event: Event::new(&context, EventFlags::DEFAULT)?,
            stream,
            context,
        })
    }
}

fn everything_failed() -> Vec<Resource> {
    sorted(vec![
        Resource::DeviceMemory,
        Resource::PinnedMemory,
        Resource::Event,
        Resource::Stream,
        Resource::Context,
    ])
}

/// Returns the kinds of the session's leaks, sorted.
fn leaked(session: &Session) -> Vec<LeakKind> {
    session.settle();
    let mut kinds: Vec<_> = session.leaks().iter().map(|leak| leak.kind).collect();
    kinds.sort();
    kinds
}

const ALL_LEAKED: [LeakKind; 5] =
    [LeakKind::Stream, LeakKind::Event, LeakKind::Context, LeakKind::Device, LeakKind::Pinned];

#[test]
fn m15_drop_never_panics() -> Result<()> {
    let session = simulator();
    let everything = Everything::new()?;
    let handles = [
        everything.buffer.as_raw(),
        everything.pinned.as_slice()?.as_ptr().addr() as u64,
        everything.event.as_raw().addr() as u64,
        everything.stream.as_raw().addr() as u64,
        everything.context.as_raw().addr() as u64,
    ];
    let mut reports = DropReports::listen();
    refuse_all(&session, CUDA_ERROR_UNKNOWN);
    drop(everything);
    let failures = reports.take();
    for (resource, handle, bytes) in [
        (Resource::DeviceMemory, handles[0], 100),
        (Resource::PinnedMemory, handles[1], 10),
        (Resource::Event, handles[2], 0),
        (Resource::Stream, handles[3], 0),
        (Resource::Context, handles[4], 0),
    ] {
        let failure = failures.iter().find(|failure| failure.resource == resource);
        let failure = failure.unwrap_or_else(|| panic!("{resource:?}: {failures:?}"));
        assert_eq!((failure.handle, failure.bytes), (handle, bytes), "{failure:?}");
        let code = failure.error.as_ref().and_then(|error| error.code());
        assert_eq!(code, Some(CUDA_ERROR_UNKNOWN), "{failure:?}");
    }
    assert_eq!(failures.len(), 5, "{failures:?}");
    assert_eq!(session.violations(), [], "and nothing was done twice");
    assert_eq!(leaked(&session), ALL_LEAKED);
    Ok(())
}

#[test]
fn m15_drop_while_unwinding() -> Result<()> {
    let session = simulator();
    let mut reports = DropReports::listen();
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let _everything = Everything::new().expect("no fault yet");
        refuse_all(&session, CUDA_ERROR_INVALID_HANDLE);
        std::panic::panic_any("the payload");
    }));
    let payload = panicked.expect_err("the panic goes on");
    assert_eq!(payload.downcast_ref(), Some(&"the payload"));
    assert_eq!(reports.resources(), everything_failed());
    assert_eq!(leaked(&session), ALL_LEAKED);
    assert_eq!(session.violations(), []);
    Ok(())
}

#[test]
fn m15_close_says_so_and_gives_back() -> Result<()> {
    let session = simulator();
    let mut reports = DropReports::listen();
    let stream = Device::get(0)?.create_stream()?;
    let mut buffer = stream.alloc::<u8>(4)?;
    stream.upload(&[1, 2, 3, 4], &mut buffer)?;
    let pinned = PinnedBuffer::from_slice(stream.context(), &[5, 6])?;
    let event = Event::new(stream.context(), EventFlags::DEFAULT)?;
    let own = Device::get(0)?.create_stream()?;
    let mut scratch = own.alloc::<u8>(1)?;
    own.fill(&mut scratch, 1)?;
    drop(scratch);

    // Inside a host function the library makes no driver call.
    fn refused<T>(closed: std::result::Result<(), Rejected<T>>) -> T {
        let Rejected { error, value: owner } = closed.expect_err("refused");
        assert!(matches!(error, Error::InCallback), "{error:?}");
        owner
    }
    let (give, given) = mpsc::channel();
    stream.launch_host_func(move || {
        let buffers = (refused(buffer.close()), refused(pinned.close()));
        let back = (buffers, refused(event.close()), refused(own.close()));
        give.send(back).expect("the test waits");
    })?;
    stream.synchronize()?;
    let ((buffer, pinned), event, own) = given.recv().expect("they came back");
    assert_eq!(reports.take().len(), 0, "`close` returns the error, so no hook is called");

    // All of it still works, and is released once the driver permits it.
    let mut back = [0; 4];
    own.download(&buffer, &mut back)?;
    assert_eq!((back, pinned.as_slice()?), ([1, 2, 3, 4], &[5, 6][..]));
    event.record(&own)?;
    event.synchronize()?;
    let mut more = own.alloc::<u8>(9)?;
    own.fill(&mut more, 1)?;
    drop(more);
    buffer.close()?;
    pinned.close()?;
    event.close()?;
    own.close()?;
    stream.close()?;
    assert_eq!(reports.take().len(), 0);
    session.settle();
    cuda_core::staging::trim()?;
    session.assert_clean();
    Ok(())
}

#[test]
fn m15_close_then_drop() -> Result<()> {
    // What the driver failed to free may be gone: dropping what `close` returned does not try again.
    let session = simulator();
    let mut reports = DropReports::listen();
    let stream = Device::get(0)?.create_stream()?;
    let buffer = stream.alloc::<u8>(4)?;
    session.fail_nth(Some("cuMemFreeAsync"), 1, CUDA_ERROR_UNKNOWN);
    drop(buffer.close().expect_err("refused"));
    assert_eq!(session.calls("cuMemFreeAsync"), 1);
    session.fail_nth(Some("cuMemFreeHost"), 1, CUDA_ERROR_UNKNOWN);
    let frees = session.calls("cuMemFreeHost");
    let pinned = PinnedBuffer::<u8>::new(stream.context(), 4)?;
    drop(pinned.close().expect_err("refused"));
    assert_eq!(session.calls("cuMemFreeHost") - frees, 1);
    let lost = [Resource::DeviceMemory, Resource::PinnedMemory];
    assert_eq!(reports.resources(), lost);
    drop(stream);
    assert_eq!(leaked(&session), [LeakKind::Device, LeakKind::Pinned]);
    assert_eq!(session.violations(), []);
    Ok(())
}

#[test]
fn m15_guard_that_cannot_restore() -> Result<()> {
    let session = simulator();
    let mut reports = DropReports::listen();
    let device = Device::get(0)?;
    let other = Device::get(1)?.context()?;
    other.set_current()?;
    let refuse = || {
        let fault = Fault::new(CUDA_ERROR_UNKNOWN).function("cuCtxSetCurrent");
        session.inject(fault.from_then_on().on_this_thread());
    };

    let guard: Guard = device.enter()?;
    refuse();
    drop(guard);
    assert_eq!(reports.resources(), [Resource::Current]);
    session.clear_faults();
    other.set_current()?;

    let guard = device.enter()?;
    refuse();
    let error = guard.restore().expect_err("refused");
    assert_eq!(error.code(), Some(CUDA_ERROR_UNKNOWN));
    assert_eq!(reports.take().len(), 0, "restored once, and reported");
    session.clear_faults();
    other.set_current()?;

    // After one failure the restore is tried once more.
    let guard = device.enter()?;
    session.fail_nth(Some("cuCtxSetCurrent"), 1, CUDA_ERROR_UNKNOWN);
    drop(guard);
    assert_eq!(context::current(), other.as_raw());
    assert_eq!(reports.take().len(), 0);
    while context::pop().is_some() {}
    session.assert_clean();
    Ok(())
}

/// The call that makes a context current for an operation fails but takes effect, and cannot be undone: the
/// operation's error does not tell what is current now.
#[test]
fn m15_an_operation_whose_context_stays_current_says_so() -> Result<()> {
    let session = simulator();
    let mut reports = DropReports::listen();
    let context = Device::get(0)?.context()?;
    let fail = |nth| Fault::new(CUDA_ERROR_UNKNOWN).function("cuCtxSetCurrent").nth(nth);
    session.inject(fail(1).takes_effect());
    [2, 3].into_iter().for_each(|nth| session.inject(fail(nth)));
    let error = context.create_stream().expect_err("refused");
    assert_eq!(error.code(), Some(CUDA_ERROR_UNKNOWN));
    assert_eq!(context::current(), context.as_raw());
    let failures = reports.take();
    assert_eq!(failures.len(), 1);
    let text = failures[0].to_string();
    assert!(text.starts_with("the thread's current context was not restored: "), "{text}");
    session.clear_faults();
    while context::pop().is_some() {}
    session.assert_clean();
    Ok(())
}

#[test]
fn m15_deferred_drop_fails_quietly() -> Result<()> {
    let session = simulator();
    let mut reports = DropReports::listen();
    let stream = Device::get(0)?.create_stream()?;
    let owned = Everything::new()?;
    refuse_all(&session, CUDA_ERROR_UNKNOWN);
    stream.launch_host_func(move || drop(owned))?;
    stream.synchronize()?;
    cuda_core::drops::flush();
    assert_eq!(reports.resources(), everything_failed());
    assert_eq!(session.violations(), [], "none of it on the driver's thread");
    session.clear_faults();
    drop(stream);
    assert_eq!(leaked(&session), ALL_LEAKED);
    Ok(())
}

#[test]
fn m15_hook_may_do_anything() -> Result<()> {
    let session = simulator();
    let _reports = DropReports::listen();
    let before = drops::failures();
    let stream = Device::get(0)?.create_stream()?;
    let (a, b, c) = (stream.alloc::<u8>(1)?, stream.alloc::<u8>(2)?, stream.alloc::<u8>(3)?);
    session.inject(Fault::new(CUDA_ERROR_UNKNOWN).function("cuMemFreeAsync").from_then_on());
    drops::set_hook(|_: &_| panic!("a hook that panics"));
    drop(a);
    // The hook drops another object, which also cannot be released, and removes itself.
    let inner = Mutex::new(Some(b));
    drops::set_hook(move |_: &_| {
        drops::take_hook();
        drop(inner.lock().map(|mut inner| inner.take()));
    });
    drop(c);
    assert_eq!(drops::failures() - before, 3, "each is counted");
    session.clear_faults();
    drop(stream);
    assert_eq!(leaked(&session), [LeakKind::Device; 3]);
    Ok(())
}

#[test]
fn m15_a_panic_of_an_owner_stays_in_the_drop() -> Result<()> {
    let session = simulator();
    let raw = context::Foreign::create(0);
    let owner = Arc::new(OnDrop(|| panic!("an owner that panics")));
    // SAFETY: the context lives until the end of the test.
    let foreign = unsafe { Context::from_raw(raw.handle(), owner) }?;
    drop(foreign);
    drop(raw);
    assert_eq!(session.violations(), []);
    Ok(())
}

/// Hooks, and owners of other libraries' objects, may make another context current: the library does not run
/// them while it has a default stream's context current for its next calls.
#[test]
fn m15_no_foreign_code_runs_with_a_context_entered() -> Result<()> {
    let session = simulator();
    let other = Device::get(1)?.context()?;
    let stream = Device::get(0)?.context()?.default_stream()?;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (sees, makes) = (seen.clone(), other.clone());
    let usurp = move || {
        let present = Context::current().expect("it only looks");
        sees.lock().expect("no panic").push(present);
        makes.set_current().expect("no fault was injected here");
    };
    let raw = context::Foreign::create(0);
    let owner = Arc::new(OnDrop(usurp.clone()));
    // SAFETY: the context lives until the end of the test.
    let foreign = unsafe { Context::from_raw(raw.handle(), owner) }?;
    let mut buffer = stream.alloc::<u32>(64)?;
    let first = foreign.create_stream()?;
    first.fill(&mut buffer, 1)?;
    first.checkpoint()?;
    first.synchronize()?;
    // Only the buffer now refers to the stream, its event and its context.
    drop((first, foreign));
    assert_eq!(Context::current()?, None);
    drops::set_hook(move |_: &_| usurp());
    session.fail_nth(Some("cuEventDestroy_v2"), 1, CUDA_ERROR_UNKNOWN);
    stream.fill(&mut buffer, 2)?;
    drops::take_hook();
    let seen = seen.lock().expect("no panic");
    assert_eq!(*seen, [None, Some(other.clone())], "the hook, then the owner");
    assert_eq!(Context::current()?, Some(other), "the library does not undo that");
    while context::pop().is_some() {}
    drop((buffer, stream, raw));
    assert_eq!(leaked(&session), [], "the event went with its context");
    assert_eq!(session.violations(), []);
    Ok(())
}

/// A hook may use the capture during whose operation it is called: no lock of the capture is held then.
#[test]
fn m15_a_hook_may_use_the_capture_that_it_comes_up_in() -> Result<()> {
    let session = simulator();
    let home = Device::get(0)?.context()?;
    let seen = Arc::new(Mutex::new(Vec::new()));
    // The previous context is not restored, not even at the second attempt.
    let fail = |nth| Fault::new(CUDA_ERROR_UNKNOWN).function("cuCtxSetCurrent").nth(nth);
    let graph = Graph::capture(&home, |captured| {
        let (own, sees) = (captured.clone(), seen.clone());
        drops::set_hook(move |failure| {
            let added = own.launch_host_func_each(|| ());
            sees.lock().expect("no panic").push((failure.resource, added.is_ok()));
        });
        [2, 3].into_iter().for_each(|nth| session.inject(fail(nth)));
        let condition = Condition::new(captured, 1)?;
        while context::pop().is_some() {}
        [2, 3].into_iter().for_each(|nth| session.inject(fail(nth)));
        condition.if_then(captured, |_| Ok(()))
    });
    drops::take_hook();
    session.clear_faults();
    while context::pop().is_some() {}
    drop(graph?);
    cuda_core::staging::trim()?; // streams of captures
    let seen = seen.lock().expect("no panic");
    // The capture's streams are unusable while a body is captured.
    assert_eq!(*seen, [(Resource::Current, true), (Resource::Current, false)]);
    assert_eq!(leaked(&session), []);
    assert_eq!(session.violations(), []);
    Ok(())
}
