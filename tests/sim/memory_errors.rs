//! E, F, J, K: calls that the library does not make, and what a failure leaves behind.

use cuda_core::{
    Allocator, Device, Error, Event, EventFlags, PinnedBuffer, Resource, Result, Stream,
};
use cuda_sim::{Fault, LeakKind, Session};
use cuda_sys::{CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_UNKNOWN};
use support::simulator;

use crate::drop_hook::DropReports;
use crate::staged_large::{CHUNK, Staged};

/// Runs `operation` and asserts that it made no driver call.
#[track_caller]
fn asks_nothing(session: &Session, what: &str, operation: impl FnOnce() -> Result<()>) {
    let mark = session.mark();
    let result = operation();
    assert_eq!(session.names_since(mark), [""; 0], "{what}: {result:?}");
}

/// Ends a session in which nothing leaked.
#[track_caller]
fn end(session: &Session) -> Result<()> {
    session.settle();
    cuda_core::staging::trim()?;
    session.assert_clean();
    Ok(())
}

#[test]
fn e03_overflow_is_found_before_the_driver() -> Result<()> {
    let session = simulator();
    let stream = Device::get(0)?.create_stream()?;
    // The first allocation looks the pool up.
    drop(stream.alloc::<u8>(1)?);
    asks_nothing(&session, "alloc", || {
        stream.alloc::<u64>(1 << 61).map(drop).expect_err("too much");
        stream.alloc_zeroed::<u64>(usize::MAX).map(drop).expect_err("too much");
        PinnedBuffer::<u64>::new(stream.context(), 1 << 61).map(drop).expect_err("too much");
        PinnedBuffer::<u64>::zeroed(stream.context(), 1 << 61).map(drop).expect_err("too much");
        Ok(())
    });
    drop(stream);
    end(&session)
}

/// What constructors allocate, and what is copied in more than one chunk.
const LEN: usize = if cfg!(miri) { 1 << 12 } else { 1 << 20 };
const LARGE: usize = if cfg!(miri) { 3 * CHUNK / 2 } else { 3 << 19 };

#[test]
fn e12_no_leak_on_failed_ctor() -> Result<()> {
    let session = simulator();
    let stream = Device::get(0)?.create_stream()?;
    let context = stream.context().clone();
    let mut reports = DropReports::listen();
    let mut failures = 0;
    // More than a chunk: under Miri there is only time for small ones.
    let chunks = cfg!(miri).then(|| Staged::by(0, CHUNK)).transpose()?;
    // A fault at each call that a constructor makes, until no call is left.
    type Constructor<'a> = (&'a str, &'a dyn Fn() -> Result<()>);
    let constructors: [Constructor<'_>; 8] = [
        ("alloc", &|| stream.alloc::<u8>(LEN).map(drop)),
        ("alloc_zeroed", &|| stream.alloc_zeroed::<u8>(LEN).map(drop)),
        ("default stream's", &|| context.default_stream()?.alloc_zeroed::<u8>(9).map(drop)),
        ("pinned", &|| PinnedBuffer::<u8>::new(&context, LEN).map(drop)),
        ("from_slice", &|| PinnedBuffer::from_slice(&context, &[1, 2]).map(drop)),
        ("stream", &|| context.create_stream().map(drop)),
        ("event", &|| Event::new(&context, EventFlags::DEFAULT).map(drop)),
        ("staged", &|| {
            let mut buffer = stream.alloc::<u8>(LARGE)?;
            stream.upload(&vec![1; LARGE], &mut buffer)
        }),
    ];
    for (what, constructor) in constructors {
        for nth in 1.. {
            session.fail_nth(None, nth, CUDA_ERROR_UNKNOWN);
            let result = constructor();
            let fired = session.fault_fired();
            session.clear_faults();
            session.settle();
            if !fired {
                result?;
                break;
            }
            failures += u32::from(result.is_err());
            assert_eq!(session.violations(), [], "{what}, call {nth}");
        }
    }
    assert!(failures >= 12, "{failures} constructors failed");
    drop((stream, context, chunks));
    session.settle();
    cuda_core::staging::trim()?;
    // What is left is what could not be freed, and each object was reported.
    let reports = reports.take();
    let leaks = session.leaks();
    for (kind, resource) in [
        (LeakKind::Device, Resource::DeviceMemory),
        (LeakKind::Pinned, Resource::PinnedMemory),
        (LeakKind::Stream, Resource::Stream),
        (LeakKind::Event, Resource::Event),
    ] {
        let mut left: Vec<_> = leaks.iter().filter(|leak| leak.kind == kind).collect();
        let mut named: Vec<_> =
            reports.iter().filter(|report| report.resource == resource).collect();
        left.sort_by_key(|leak| leak.handle);
        named.sort_by_key(|report| report.handle);
        let left: Vec<_> = left.iter().map(|leak| leak.handle).collect();
        let named: Vec<_> = named.iter().map(|report| report.handle).collect();
        assert_eq!(left, named, "{resource:?}");
    }
    Ok(())
}

#[test]
fn e12_zeroed_that_cannot_be_filled() -> Result<()> {
    let session = simulator();
    let stream = Device::get(0)?.create_stream()?;
    let before = session.device_bytes_in_use(0);
    session.fail_nth(Some("cuMemsetD8Async"), 1, CUDA_ERROR_UNKNOWN);
    let error = stream.alloc_zeroed::<u8>(1 << 20).expect_err("not zeroed");
    assert!(matches!(error, Error::Driver { op: "cuMemsetD8Async", .. }), "{error:?}");
    session.settle();
    assert_eq!(session.device_bytes_in_use(0), before);
    drop(stream);
    end(&session)
}

#[test]
fn e04_out_of_memory_says_what_there_is() -> Result<()> {
    let session = simulator();
    let stream = Device::get(1)?.create_stream()?;
    session.fail_nth(Some("cuMemAllocAsync"), 1, CUDA_ERROR_OUT_OF_MEMORY);
    match stream.alloc::<u32>(1 << 20) {
        Err(Error::OutOfMemory(it)) => {
            assert_eq!((it.op, it.requested, it.device), ("cuMemAllocAsync", 4 << 20, 1));
            let memory = it.memory.expect("the driver answered");
            assert!(memory.free <= memory.total && memory.total > 0);
        }
        other => panic!("{other:?}"),
    }
    // The query of the numbers may fail too; the error is then the same without them.
    session.fail_nth(Some("cuMemAllocAsync"), 1, CUDA_ERROR_OUT_OF_MEMORY);
    session.fail_nth(Some("cuMemGetInfo_v2"), 1, CUDA_ERROR_UNKNOWN);
    let error = stream.alloc::<u32>(1 << 20).expect_err("no memory");
    assert!(matches!(error, Error::OutOfMemory(ref it) if it.memory.is_none()), "{error:?}");
    session.clear_faults();
    drop(stream.alloc::<u32>(1 << 20)?);
    drop(stream);
    end(&session)
}

#[test]
fn f01_zero_asks_the_driver_nothing() -> Result<()> {
    let session = simulator();
    let context = Device::get(0)?.context()?;
    asks_nothing(&session, "empty pinned memory", || {
        let mut empty = PinnedBuffer::<u64>::new(&context, 0)?;
        assert!(empty.as_slice()?.is_empty() && empty.as_mut_slice()?.is_empty());
        PinnedBuffer::<u8>::zeroed(&context, 0)?.close()?;
        PinnedBuffer::<u8>::from_slice(&context, &[]).map(drop)
    });
    end(&session)
}

#[test]
fn f05_freed_once() -> Result<()> {
    let session = simulator();
    let stream = Device::get(0)?.create_stream()?;
    for (index, closes) in [true, false].into_iter().enumerate() {
        let pinned = PinnedBuffer::<u8>::new(stream.context(), 10)?;
        let buffer = stream.alloc::<u8>(10)?;
        if closes {
            pinned.close()?;
            buffer.close()?;
        } else {
            drop((pinned, buffer));
        }
        let frees = ["cuMemFreeHost", "cuMemFreeAsync"].map(|name| session.calls(name));
        assert_eq!(frees, [index as u64 + 1; 2]);
    }
    drop(stream);
    end(&session)
}

/// Every form of copy and fill, with zero elements.
fn every_empty_form(stream: &Stream) -> Result<()> {
    let mut nothing = stream.alloc_zeroed::<u8>(0)?;
    let mut other = stream.alloc::<u8>(0)?;
    let mut host = PinnedBuffer::<u8>::new(stream.context(), 0)?;
    stream.upload(&host, &mut nothing)?;
    stream.upload(&[], &mut nothing)?;
    stream.copy(&nothing, &mut other)?;
    stream.fill(&mut other, 1)?;
    stream.fill_bytes(&mut other, 1)?;
    stream.fill(other.as_view_mut().cast::<u32>()?, 1)?;
    stream.download(&other, &mut host)?;
    stream.download(&other, &mut [])?;
    stream.scope(|scope| scope.download(&other, &mut []))?;
    host.as_slice()?;
    other.synchronize()?;
    Ok(nothing.close()?)
}

#[test]
fn j14_empty_slices_ask_the_driver_nothing() -> Result<()> {
    let session = simulator();
    let context = Device::get(0)?.context()?;
    for stream in [context.create_stream()?, context.default_stream()?] {
        asks_nothing(&session, "empty copies", || every_empty_form(&stream));
    }
    let home = context.create_stream()?;
    let per_thread = context.per_thread_stream()?;
    let mut buffer = home.alloc::<u8>(8)?;
    asks_nothing(&session, "empty parts", || {
        per_thread.upload(&[], buffer.slice_mut(8..)?)?;
        per_thread.fill(buffer.slice_mut(3..3)?, 1)?;
        per_thread.download(buffer.slice(0..0)?, &mut [])
    });
    drop((buffer, per_thread, home));
    end(&session)
}

#[test]
fn j03_what_is_refused_is_not_asked() -> Result<()> {
    let session = simulator();
    let stream = Device::get(0)?.create_stream()?;
    let away = Device::get(1)?.create_stream()?;
    let third = Device::get(2)?.create_stream()?;
    let mut host = PinnedBuffer::<u8>::zeroed(stream.context(), 9)?;
    let mut buffer = stream.alloc_zeroed::<u8>(10)?;
    let mut foreign = away.alloc_zeroed::<u8>(10)?;
    let default = stream.context().default_stream()?;
    let mut longer = [0; 11];
    asks_nothing(&session, "refused", || {
        let refused = [
            stream.upload(&host, &mut buffer),
            stream.upload(&[0; 9], &mut buffer),
            stream.download(&buffer, &mut host),
            stream.download(&buffer, &mut [0; 9]),
            stream.scope(|scope| scope.download(&buffer, &mut longer)),
            stream.copy(&buffer, foreign.slice_mut(..9)?),
            third.copy(&buffer, &mut foreign),
            third.fill(&mut foreign, 1),
            buffer.slice_mut(..9)?.cast::<u16>().map(drop),
            buffer.slice_mut(2..6)?.cast::<u32>().map(drop),
            default.upload(&[0; 9], &mut buffer),
            default.upload(&[0; 10], &mut foreign),
            buffer.slice(11..).map(drop),
        ];
        assert!(refused.iter().all(|result| result.is_err()), "{refused:?}");
        Ok(())
    });
    drop((host, buffer, foreign, default));
    drop((stream, away, third));
    end(&session)
}

#[test]
fn k02_enabled_by_halves() -> Result<()> {
    let session = simulator();
    let [a, b] = [Device::get(0)?.context()?, Device::get(1)?.context()?];
    // The context's part succeeds and the pool's fails: an error; a second call repairs it.
    session.fail_nth(Some("cuMemPoolSetAccess"), 1, CUDA_ERROR_UNKNOWN);
    let error = a.enable_peer_access(&b).expect_err("the pool stays closed");
    assert_eq!(error.code(), Some(CUDA_ERROR_UNKNOWN));
    a.enable_peer_access(&b)?;
    // Access is not disabled while work of either context may need it.
    for name in ["cuCtxSynchronize", "cuCtxDisablePeerAccess"] {
        session.fail_nth(Some(name), 1, CUDA_ERROR_UNKNOWN);
        let sets = session.calls("cuMemPoolSetAccess");
        a.disable_peer_access(&b).expect_err("refused");
        assert_eq!(session.calls("cuMemPoolSetAccess"), sets, "after {name} failed");
    }
    a.disable_peer_access(&b)?;
    end(&session)
}

/// The code of a copy that needs a current context, after which the library repeats the call. A
/// second free could free an address that was allocated again by then.
#[test]
fn m15_a_free_that_was_refused_and_made_is_not_made_again() -> Result<()> {
    let session = simulator();
    let stream = Device::get(0)?.create_stream()?;
    let buffer = stream.alloc_with::<u8>(&Allocator::driver_pool(), 1000)?;
    let mut reports = DropReports::listen();
    let refused = Fault::new(CUDA_ERROR_INVALID_VALUE).function("cuMemFreeAsync");
    session.inject(refused.takes_effect());
    let frees = session.calls("cuMemFreeAsync");
    drop(buffer);
    assert_eq!(session.calls("cuMemFreeAsync"), frees + 1);
    assert_eq!(reports.take().len(), 1, "the library cannot know that it is gone");
    drop(stream);
    end(&session)
}
