//! F: the cache of pinned memory, with call counts and faults.

mod failing;
mod model;
mod pools;

use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use cuda_core::{
    Context, ContextFlags, Device, Error, PinnedBuffer, PinnedPool, Pod, Rejected, Result,
    pinned::PinnedBackend,
};
use cuda_sim::{Mode, Session};
use support::{one_stream, simulator_in, stall, two_streams};

const REGISTER: &str = "cuMemHostRegister_v2";
const UNREGISTER: &str = "cuMemHostUnregister";
const ALLOC: &str = "cuMemHostAlloc";
const FREE: &str = "cuMemFreeHost";

/// Begins a session in which pinned memory is cached, with an empty cache.
fn cached() -> Session {
    let session = simulator_in(Mode::Lazy);
    PinnedPool::set_backend(PinnedBackend::Slab);
    PinnedPool::shared().set_limit(usize::MAX);
    PinnedPool::shared().trim(0).expect("no fault yet");
    PinnedPool::shared().reset_peaks().expect("neither a fork's child nor at exit");
    session
}

/// Asserts that no pinned memory is in use, that all of it can be released, and that then none remains.
#[track_caller]
fn finish(session: &Session) -> Result<()> {
    session.clear_faults();
    session.settle();
    cuda_core::drops::flush();
    cuda_core::staging::trim()?;
    PinnedPool::shared().trim(0)?;
    let usage = PinnedPool::shared().usage()?;
    assert_eq!(usage.reserved, 0, "{usage:?}");
    assert_eq!((usage.used, usage.free, usage.pending), (0, 0, 0));
    session.assert_clean();
    Ok(())
}

/// Chunks of the process refer to the streams that used them, and those to their context, until their work is
/// known to be complete.
#[test]
fn a_context_that_was_waited_for_can_be_closed() -> Result<()> {
    let session = cached();
    let context = Context::new(Device::get(0)?, ContextFlags::default())?;
    let stream = context.create_stream()?;
    let mut buffer = stream.alloc::<u8>(1000)?;
    let host = PinnedBuffer::<u8>::zeroed(&context, 1000)?;
    stream.upload(&host, &mut buffer)?;
    drop((host, buffer, stream));
    let Rejected { error, value: context } = context.close().expect_err("its copy may run");
    assert!(matches!(error, Error::ContextInUse), "{error}");
    context.synchronize()?;
    cuda_core::drops::flush();
    context.close()?;
    finish(&session)
}

fn context() -> Result<Context> {
    Device::get(0)?.context()
}

/// Returns the buffer's address, without a wait for work that writes the buffer.
fn place(buffer: &PinnedBuffer<u8>) -> String {
    let text = format!("{buffer:?}");
    text.split(',').next().expect("the address comes first").to_owned()
}

#[track_caller]
fn no_calls<R>(session: &Session, what: &str, f: impl FnOnce() -> R) -> R {
    let mark = session.mark();
    let result = f();
    assert_eq!(session.names_since(mark), [""; 0], "{what}");
    result
}

#[test]
fn f03_a_hit_asks_nothing() -> Result<()> {
    let session = cached();
    let context = context()?;
    let first = PinnedBuffer::<u8>::new(&context, 1000)?;
    assert_eq!((session.calls(REGISTER), session.calls(ALLOC)), (1, 0));
    let at = place(&first);
    no_calls(&session, "the first drop", || drop(first));
    for len in [1000, 1001, 1024, 800] {
        let again = no_calls(&session, "a hit", || PinnedBuffer::<u8>::new(&context, len))?;
        assert_eq!(place(&again) == at, len > 768, "{len} bytes");
        no_calls(&session, "a drop", || drop(again));
    }
    // Another size makes no call either, while the slab has room.
    let other = no_calls(&session, "a miss", || PinnedBuffer::<u8>::new(&context, 5000))?;
    no_calls(&session, "a close", || other.close().map_err(Error::from))?;
    // Nor does a context of another device.
    let there = Device::get(1)?.context()?;
    drop(PinnedBuffer::<u8>::new(&there, 1000)?);
    assert_eq!((session.calls(REGISTER), session.calls(FREE)), (1, 0));
    finish(&session)
}

#[test]
fn f03_reused_only_when_its_copies_are_done() -> Result<()> {
    let session = cached();
    let (context, slow, quick) = two_streams()?;
    let (mut a, mut b) = (slow.alloc_zeroed::<u8>(512)?, quick.alloc_zeroed::<u8>(512)?);
    slow.synchronize()?;
    quick.synchronize()?;
    let one = PinnedBuffer::from_slice(&context, &[1; 512])?;
    let two = PinnedBuffer::from_slice(&context, &[2; 512])?;
    let stall = stall(slow.as_raw());
    slow.upload(&one, &mut a)?;
    quick.upload(&two, &mut b)?;
    let (at_one, at_two) = (place(&one), place(&two));
    no_calls(&session, "drops under copies", || drop((one, two)));
    assert_eq!(PinnedPool::shared().usage()?.pending, 1024);
    quick.synchronize()?;
    // The work is known to be complete: no query is needed.
    let third =
        no_calls(&session, "behind a wait", || PinnedBuffer::from_slice(&context, &[3; 512]))?;
    assert_eq!(place(&third), at_two, "the stalled one does not hide the other");
    let fourth = PinnedBuffer::from_slice(&context, &[4; 512])?;
    assert_ne!(place(&fourth), at_one, "the stalled one is in use");
    stall.release();
    slow.synchronize()?;
    let fifth = PinnedBuffer::from_slice(&context, &[5; 512])?;
    assert_eq!(place(&fifth), at_one);
    let mut back = [0; 512];
    slow.download(&a, &mut back)?;
    assert_eq!(back, [1; 512]);
    quick.download(&b, &mut back)?;
    assert_eq!(back, [2; 512]);
    drop((a, b, slow, quick, third, fourth, fifth));
    finish(&session)
}

#[test]
fn f03_a_full_slab_asks_before_it_grows() -> Result<()> {
    let session = cached();
    let (context, stream) = one_stream()?;
    let mut buffer = stream.alloc_zeroed::<u8>(64)?;
    stream.synchronize()?;
    // Allocates the whole first slab, in buffers of which one is pending.
    let pending = PinnedBuffer::from_slice(&context, &[7; 64])?;
    stream.upload(&pending, &mut buffer)?;
    let at = place(&pending);
    drop(pending);
    let mut rest = Vec::new();
    while PinnedPool::shared().usage()?.free > 0 {
        // A size that needs no rounding.
        let len = 1 << PinnedPool::shared().usage()?.free.ilog2();
        rest.push(PinnedBuffer::<u8>::new(&context, len)?);
    }
    assert_eq!(session.calls(REGISTER), 1);
    let records = session.calls("cuEventRecord");
    // In lazy mode no work has run: the driver is queried, and reports that.
    session.set_polls(1000);
    let other = PinnedBuffer::<u8>::new(&context, 64)?;
    assert_ne!(place(&other), at);
    assert_eq!(session.calls("cuEventRecord"), records + 1);
    assert_eq!(session.calls(REGISTER), 2, "so there is another slab");
    session.set_polls(2);
    drop((rest, other));
    drop((buffer, stream));
    finish(&session)
}

#[test]
fn f03_sizes_are_cut_anew() -> Result<()> {
    // Blocks that were split for small buffers serve large ones again, and vice versa.
    let session = cached();
    let context = context()?;
    let all = {
        let _first = PinnedBuffer::<u8>::new(&context, 1)?;
        PinnedPool::shared().usage()?.reserved
    };
    for len in [256, 4096, all / 4, 1000, all / 2, 512] {
        // Not the whole slab: the first buffer may lie in its middle.
        let count = (all / len).min(64) - 1;
        let held = (0..count).map(|_| PinnedBuffer::<u8>::new(&context, len));
        let held = held.collect::<Result<Vec<_>>>()?;
        assert_eq!(held.len(), count);
    }
    assert_eq!(session.calls(REGISTER), 1, "one slab was enough");
    assert_eq!(PinnedPool::shared().usage()?.reserved_peak, all);
    finish(&session)
}

#[test]
fn s32_over_aligned_and_overflowing() -> Result<()> {
    #[derive(Clone, Copy)]
    #[repr(align(512))]
    struct Wide(#[expect(dead_code, reason = "only its size counts")] [u8; 512]);
    // SAFETY: 512 bytes without padding, of which any value is valid.
    unsafe impl Pod for Wide {}

    let session = cached();
    let context = context()?;
    no_calls(&session, "refused", || {
        let wide = PinnedBuffer::<Wide>::new(&context, 1);
        assert!(
            matches!(wide, Err(Error::Invalid(ref it)) if it.reason.contains("elements aligned to")),
            "{wide:?}"
        );
        let long = PinnedBuffer::<u64>::new(&context, 1 << 61);
        assert!(matches!(long, Err(Error::SizeOverflow { .. })), "{long:?}");
        let empty = PinnedBuffer::<u8>::new(&context, 0);
        assert!(empty.is_ok_and(|empty| empty.is_empty()));
    });
    finish(&session)
}

#[test]
fn f03_in_a_host_function() -> Result<()> {
    let session = cached();
    let (context, stream) = one_stream()?;
    let buffer = PinnedBuffer::from_slice(&context, &[1_u8; 100])?;
    let seen = Arc::new(Mutex::new(None));
    let result = Arc::clone(&seen);
    let inside = context.clone();
    stream.launch_host_func(move || {
        drop(buffer);
        let refused = PinnedBuffer::<u8>::new(&inside, 100).map(drop);
        let trimmed = PinnedPool::shared().trim(0);
        let counted = PinnedPool::shared().usage().map(drop);
        *result.lock().unwrap_or_else(PoisonError::into_inner) = Some((refused, trimmed, counted));
    })?;
    stream.synchronize()?;
    let seen = seen.lock().unwrap_or_else(PoisonError::into_inner).take();
    let (refused, trimmed, counted) = seen.expect("the host function ran");
    assert!(matches!(refused, Err(Error::InCallback)), "{refused:?}");
    assert!(matches!(trimmed, Err(Error::InCallback)), "{trimmed:?}");
    assert!(counted.is_ok(), "{counted:?}");
    drop(stream);
    finish(&session)
}

#[test]
fn f03_limit_is_kept_where_it_can_be() -> Result<()> {
    let session = cached();
    let context = context()?;
    let slab = {
        let _first = PinnedBuffer::<u8>::new(&context, 1)?;
        PinnedPool::shared().usage()?.reserved
    };
    PinnedPool::shared().set_limit(slab);
    let whole = PinnedBuffer::<u8>::new(&context, slab)?;
    let more = PinnedBuffer::<u8>::new(&context, 1)?;
    assert_eq!(PinnedPool::shared().usage()?.reserved, 2 * slab, "what is used is not limited");
    drop(whole);
    let third = PinnedBuffer::<u8>::new(&context, slab + 1)?;
    assert_eq!(session.calls(UNREGISTER), 1, "what is idle is given back first");
    PinnedPool::shared().set_limit(usize::MAX);
    drop((more, third));
    finish(&session)
}

/// One thread's release of memory waits for the device, which waits for an action of another thread that
/// first needs memory.
#[test]
fn f03_a_miss_waits_for_no_other_thread() -> Result<()> {
    const LONG: Duration = Duration::from_secs(20);
    let session = cached();
    let (context, stream) = one_stream()?;
    drop(PinnedBuffer::<u8>::new(&context, 1000)?);
    let slab = PinnedPool::shared().usage()?.reserved;
    PinnedPool::shared().set_limit(slab);
    let stall = stall(stream.as_raw());
    let (has_memory, memory) = mpsc::channel();
    let (first, (one, other)) = thread::scope(|scope| {
        // Beyond the limit: the idle slab is released first.
        let one = scope.spawn(|| PinnedBuffer::<u8>::new(&context, slab + 1).map(drop));
        session.await_calls(UNREGISTER, 1);
        let (context, session) = (&context, &session);
        let other = scope.spawn(move || {
            let result = PinnedBuffer::<u8>::new(context, 1000).map(drop);
            let _ = has_memory.send(session.calls(REGISTER));
            result
        });
        let first = memory.recv_timeout(LONG);
        stall.release();
        (first, (one.join(), other.join()))
    });
    assert_eq!(first, Ok(2), "the other thread had its slab first");
    one.expect("no panic")?;
    other.expect("no panic")?;
    PinnedPool::shared().set_limit(usize::MAX);
    drop(stream);
    finish(&session)
}

#[test]
fn f03_threads_share_slabs() -> Result<()> {
    const ROUNDS: u8 = if cfg!(miri) { 2 } else { 40 };
    for seed in 0..if cfg!(miri) { 1 } else { 3 } {
        let session = cached();
        session.set_mode(Mode::Threaded { seed });
        let context = context()?;
        std::thread::scope(|scope| {
            let work = |worker: u8| {
                let context = &context;
                move || -> Result<()> {
                    let stream = context.create_stream()?;
                    let mut device = stream.alloc_zeroed::<u8>(300)?;
                    for round in 0..ROUNDS {
                        let value = worker.wrapping_mul(50).wrapping_add(round);
                        let up = PinnedBuffer::from_slice(context, &[value; 300])?;
                        stream.upload(&up, &mut device)?;
                        drop(up);
                        let mut down = PinnedBuffer::<u8>::new(context, 300)?;
                        stream.download(&device, &mut down)?;
                        if round % 2 == 0 {
                            assert_eq!(down.as_slice()?, [value; 300]);
                        }
                    }
                    stream.synchronize()
                }
            };
            let workers: Vec<_> = (0..4).map(|worker| scope.spawn(work(worker))).collect();
            for worker in workers {
                worker.join().expect("no panic")?;
            }
            Ok::<_, Error>(())
        })?;
        finish(&session)?;
    }
    Ok(())
}

/// Chunks of many streams are pending, and all are complete: the one that fits is found before memory is
/// pinned.
#[test]
fn no_memory_is_pinned_while_a_chunk_that_fits_is_done() -> Result<()> {
    const BIG: usize = 8 << 20;
    let session = cached();
    session.set_mode(Mode::Eager);
    let context = context()?;
    let streams: Vec<_> = (0..40).map(|_| context.create_stream()).collect::<Result<_>>()?;
    let mut hosts: Vec<_> =
        (1..40).map(|_| PinnedBuffer::<u8>::new(&context, 1 << 16)).collect::<Result<_>>()?;
    hosts.push(PinnedBuffer::new(&context, BIG)?);
    for (stream, host) in streams.iter().zip(&hosts) {
        drop(stream.upload_new(host)?);
    }
    drop(hosts);
    let before = PinnedPool::shared().usage()?.reserved;
    drop(PinnedBuffer::<u8>::new(&context, BIG)?);
    assert_eq!(PinnedPool::shared().usage()?.reserved, before);
    Ok(())
}
