//! Failing calls, and lost streams and contexts.

use std::sync::{Arc, Mutex, PoisonError};

use cuda_core::{Device, Error, PinnedBuffer, PinnedPool, Resource, Result, Stream};
use cuda_sim::Fault;
use cuda_sys::{CUDA_ERROR_NOT_SUPPORTED, CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_UNKNOWN, CUresult};
use support::{DropReports, one_stream};

use super::{ALLOC, FREE, REGISTER, UNREGISTER, cached, context, finish, no_calls, place};

#[test]
fn f10_what_cannot_be_mapped_is_the_drivers_to_refuse() -> Result<()> {
    let session = cached();
    let context = context()?;
    let idle = PinnedBuffer::<u8>::new(&context, 1000)?;
    drop(idle);
    let huge = (1 << 46) + 1;
    let error = PinnedBuffer::<u8>::new(&context, huge).expect_err("64 TiB");
    assert!(matches!(error, Error::OutOfHostMemory(ref it) if it.requested == huge), "{error:?}");
    assert_eq!(session.calls(ALLOC), 2, "again after all that was idle was given back");
    assert_eq!(PinnedPool::shared().usage()?.reserved, 0);
    finish(&session)
}

#[test]
fn f10_falls_back_to_the_driver() -> Result<()> {
    for code in
        [CUDA_ERROR_NOT_SUPPORTED, CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_UNKNOWN, CUresult(123_456)]
    {
        let session = cached();
        let context = context()?;
        session.fail_nth(Some(REGISTER), 1, code);
        let buffer = PinnedBuffer::from_slice(&context, &[7_u8; 1000])?;
        assert_eq!((session.calls(REGISTER), session.calls(ALLOC)), (1, 1));
        assert_eq!(buffer.as_slice()?, [7; 1000]);
        drop(buffer);
        // The memory is reused nevertheless, and freed by the right call.
        let again = no_calls(&session, "a hit", || PinnedBuffer::<u8>::new(&context, 1000))?;
        drop(again);
        PinnedPool::shared().trim(0)?;
        assert_eq!((session.calls(FREE), session.calls(UNREGISTER)), (1, 0));
        finish(&session)?;
    }
    Ok(())
}

#[test]
fn f10_oom_retry() -> Result<()> {
    let session = cached();
    let context = context()?;
    let refuse = |nth| {
        let fault = |name| Fault::new(CUDA_ERROR_OUT_OF_MEMORY).function(name).nth(nth);
        session.inject(fault(REGISTER));
        session.inject(fault(ALLOC));
    };
    let idle = PinnedBuffer::<u8>::new(&context, 1000)?;
    let reserved = PinnedPool::shared().usage()?.reserved;
    drop(idle);
    // No slab has room for this.
    let len = reserved;
    let large = {
        let _whole = PinnedBuffer::<u8>::new(&context, len)?;
        refuse(1);
        PinnedBuffer::<u8>::new(&context, len)?
    };
    assert_eq!((session.calls(REGISTER), session.calls(ALLOC)), (3, 1));
    drop(large);
    session.clear_faults();
    // If the failures persist, the cache is released, and the error names the request.
    for name in [REGISTER, ALLOC] {
        session.inject(Fault::new(CUDA_ERROR_OUT_OF_MEMORY).function(name).from_then_on());
    }
    let error = PinnedBuffer::<u8>::new(&context, 4 * len).expect_err("refused");
    assert!(
        matches!(error, Error::OutOfHostMemory(ref it) if it.requested == 4 * len),
        "{error:?}"
    );
    assert_eq!(PinnedPool::shared().usage()?.reserved, 0, "all of it was given back");
    let stream = context.create_stream()?;
    // An interpreter takes ten minutes for three mebibytes.
    for len in [3, 1000, if cfg!(miri) { 3 << 14 } else { 3 << 20 }] {
        there_and_back(&stream, len)?;
    }
    assert_eq!(PinnedPool::shared().usage()?.reserved, 0, "none of it went through pinned memory");
    // Copies use pinned memory again as soon as it is available.
    session.clear_faults();
    there_and_back(&stream, 3)?;
    assert!(PinnedPool::shared().usage()?.reserved > 0);
    drop(stream);
    finish(&session)
}

/// Copies borrowed slices: small, large, and several together.
fn there_and_back(stream: &Stream, len: usize) -> Result<()> {
    let source: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
    let mut buffer = stream.alloc::<u8>(len)?;
    stream.upload(&source, &mut buffer)?;
    let (mut back, mut again) = (vec![0; len], vec![0; len]);
    stream.download(&buffer, &mut back)?;
    assert!(back == source);
    stream.scope(|scope| scope.download(&buffer, &mut again))?;
    assert!(again == source);
    Ok(())
}

#[test]
fn f03_what_may_be_gone_is_given_up() -> Result<()> {
    // The memory is mapped and registered, or allocated by the driver; the failing release took effect, or
    // not.
    for (release, belated) in
        [UNREGISTER, FREE].into_iter().flat_map(|release| [(release, false), (release, true)])
    {
        let session = cached();
        let mut reports = DropReports::listen();
        let context = context()?;
        if release == FREE {
            session.fail_nth(Some(REGISTER), 1, CUDA_ERROR_NOT_SUPPORTED);
        }
        drop(PinnedBuffer::<u8>::new(&context, 1000)?);
        let reserved = PinnedPool::shared().usage()?.reserved;
        let fault = Fault::new(CUDA_ERROR_UNKNOWN).function(release).nth(1);
        session.inject(if belated { fault.takes_effect() } else { fault });
        let error = PinnedPool::shared().trim(0).expect_err("so it says");
        assert_eq!(error.code(), Some(CUDA_ERROR_UNKNOWN));
        let said = reports.take();
        assert!(
            said.len() == 1
                && said[0].resource == Resource::PinnedMemory
                && said[0].bytes == reserved,
            "{said:?}"
        );
        assert_eq!(
            (PinnedPool::shared().usage()?.reserved, PinnedPool::shared().usage()?.free),
            (0, 0)
        );
        let registered = session.calls(REGISTER);
        let other = PinnedBuffer::from_slice(&context, &[3_u8; 1000])?;
        assert_eq!(session.calls(REGISTER), registered + 1, "other memory");
        drop(other);
        // The memory is not released again.
        PinnedPool::shared().trim(0)?;
        assert_eq!(session.calls(UNREGISTER) + session.calls(FREE), 2);
        assert_eq!(reports.resources(), []);
        let leaks = session.leaks();
        assert_eq!(leaks.len(), usize::from(!belated), "{leaks:#?}");
        support::judge::take_away(&session, leaks);
        finish(&session)?;
    }
    Ok(())
}

#[test]
fn f03_what_the_driver_was_not_asked_for_is_kept() -> Result<()> {
    let session = cached();
    let mut reports = DropReports::listen();
    let context = context()?;
    drop(PinnedBuffer::<u8>::new(&context, 1000)?);
    let usage = PinnedPool::shared().usage()?;
    let relaxed = "cuThreadExchangeStreamCaptureMode";
    session.fail_nth(Some(relaxed), 1, CUDA_ERROR_UNKNOWN);
    let error = PinnedPool::shared().trim(0).expect_err("refused");
    assert_eq!(error.code(), Some(CUDA_ERROR_UNKNOWN));
    assert_eq!(session.calls(UNREGISTER), 0);
    assert_eq!(PinnedPool::shared().usage()?, usage, "kept");
    assert_eq!(reports.resources(), []);
    let kept = no_calls(&session, "and used", || PinnedBuffer::<u8>::new(&context, 1000))?;
    drop(kept);
    finish(&session)
}

#[test]
fn f03_lost_streams_keep_their_memory() -> Result<()> {
    // A copy cannot be proven complete: its slab is given up and reported once, and the slab's other blocks
    // stay in use.
    let session = cached();
    let mut reports = DropReports::listen();
    let (context, stream) = one_stream()?;
    let mut buffer = stream.alloc_zeroed::<u8>(100)?;
    let one = PinnedBuffer::from_slice(&context, &[1_u8; 100])?;
    let mut two = PinnedBuffer::from_slice(&context, &[2_u8; 100])?;
    let at = place(&one);
    let reserved = PinnedPool::shared().usage()?.reserved;
    stream.upload(&one, &mut buffer)?;
    drop(one);
    // The last event of the stream cannot be recorded.
    let fault = Fault::new(CUDA_ERROR_UNKNOWN).function("cuEventRecord");
    session.inject(fault.from_then_on());
    drop((buffer, stream));
    session.clear_faults();
    reports.take();
    PinnedPool::shared().trim(0)?;
    assert_eq!(reports.resources(), [Resource::PinnedMemory]);
    let usage = PinnedPool::shared().usage()?;
    assert_eq!((usage.reserved, usage.pending, usage.free), (0, 0, 0), "{usage:?}");
    let three = PinnedBuffer::from_slice(&context, &[3_u8; 100])?;
    assert_ne!(place(&three), at);
    two.as_mut_slice()?.fill(9);
    assert_eq!(two.as_slice()?, [9; 100]);
    drop((two, three));
    session.settle();
    PinnedPool::shared().trim(0)?;
    let usage = PinnedPool::shared().usage()?;
    assert_eq!((usage.reserved, usage.used, usage.free), (0, 0, 0), "{usage:?}");
    let leaks = session.leaks();
    let pinned: usize = leaks.iter().map(|leak| leak.bytes).sum();
    assert!(pinned >= reserved, "{leaks:#?}");
    assert_eq!(session.violations(), []);
    support::judge::take_away(&session, leaks);
    Ok(())
}

#[test]
fn f03_a_pool_with_a_lost_slab_ends() -> Result<()> {
    // The slab stays given up, even when the shared pool takes over what the pool kept.
    let session = cached();
    let mut reports = DropReports::listen();
    let (context, pool) = (context()?, PinnedPool::new());
    let stream = context.create_stream()?;
    let mut buffer = stream.alloc_zeroed::<u8>(100)?;
    let (one, two) = (pool.alloc::<u8>(&context, 100)?, pool.alloc::<u8>(&context, 100)?);
    let (at, beside) = (place(&one), place(&two));
    stream.upload(&one, &mut buffer)?;
    drop(one);
    let fault = Fault::new(CUDA_ERROR_UNKNOWN).function("cuEventRecord");
    session.inject(fault.from_then_on());
    drop((buffer, stream));
    session.clear_faults();
    reports.take();
    assert_eq!(pool.trim(0)?, 0);
    assert_eq!(reports.resources(), [Resource::PinnedMemory]);
    drop((pool, two));
    let three = PinnedBuffer::<u8>::new(&context, 100)?;
    assert!(![at, beside].contains(&place(&three)));
    drop(three);
    session.settle();
    PinnedPool::shared().trim(0)?;
    assert_eq!(PinnedPool::shared().usage()?.reserved, 0);
    assert_eq!(session.violations(), []);
    support::judge::take_away(&session, session.leaks());
    Ok(())
}

#[test]
fn f03_lost_contexts_do_not_stop_others() -> Result<()> {
    let session = cached();
    let mut reports = DropReports::listen();
    let (here, there) = (Device::get(0)?, Device::get(1)?);
    let (stream, other) = (here.create_stream()?, there.create_stream()?);
    let mut buffer = stream.alloc_zeroed::<u8>(1000)?;
    let mut lost = PinnedBuffer::<u8>::zeroed(&here.context()?, 1000)?;
    let at = place(&lost);
    stream.download(&buffer, &mut lost)?;
    let fault = Fault::new(cuda_sys::CUDA_ERROR_ILLEGAL_ADDRESS).function("cuMemsetD8Async");
    session.inject(fault.sticky());
    let guard = here.enter()?;
    stream.fill(&mut buffer, 1).expect_err("the context is lost");
    drop(guard);
    // The close neither waits nor fails: no allocation gets the memory.
    lost.close()?;
    assert_eq!(reports.resources(), []);
    let mut there = other.alloc_zeroed::<u8>(1000)?;
    for round in 0..4 {
        let up = PinnedBuffer::from_slice(other.context(), &[round; 1000])?;
        assert_ne!(place(&up), at);
        other.upload(&up, &mut there)?;
        drop(up);
        let mut back = [9; 1000];
        other.download(&there, &mut back)?;
        assert_eq!(back, [round; 1000]);
    }
    PinnedPool::shared().trim(0)?;
    assert!(PinnedPool::shared().usage()?.pending >= 1000, "{:?}", PinnedPool::shared().usage()?);
    session.clear_faults();
    drop((buffer, there, stream, other));
    finish(&session)
}

#[test]
fn f03_a_drop_hook_that_allocates() -> Result<()> {
    // The hook runs while the thread creates a slab, and gets a slab of its own; so does a thread that the
    // hook waits for.
    let session = cached();
    let inside = context()?;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let results = Arc::clone(&seen);
    cuda_core::drops::set_hook(move |_: &cuda_core::drops::DropFailure| {
        let own = PinnedBuffer::<u8>::new(&inside, 100_000).map(drop);
        // No existing slab has room for this buffer.
        let another = || PinnedBuffer::<u8>::new(&inside, 5_000_000).map(drop);
        let others = std::thread::scope(|scope| scope.spawn(another).join());
        let mut results = results.lock().unwrap_or_else(PoisonError::into_inner);
        results.extend([own, others.expect("no panic")]);
    });
    // The previous context cannot be restored after the registration.
    let fault = Fault::new(CUDA_ERROR_UNKNOWN).function("cuCtxSetCurrent");
    session.inject(fault.nth(2));
    let fault = Fault::new(CUDA_ERROR_UNKNOWN).function("cuCtxSetCurrent");
    session.inject(fault.nth(3));
    let outer = context()?;
    let done = std::thread::scope(|scope| {
        let worker = scope.spawn(|| PinnedBuffer::<u8>::new(&outer, 1000).map(drop));
        worker.join().expect("no panic")
    });
    cuda_core::drops::take_hook();
    done?;
    let seen = std::mem::take(&mut *seen.lock().unwrap_or_else(PoisonError::into_inner));
    assert!(!seen.is_empty(), "the hook ran");
    assert!(seen.iter().all(Result::is_ok), "{seen:?}");
    finish(&session)
}
