//! Cutting, joining, stealing.

use cuda_core::adaptors::Statistics;
use cuda_core::{Allocator, Context, ContextFlags, Device, PoolLimit, Signal, WaitValue};
use cuda_sim::Fault;

use super::*;

/// A pool, and a block of 4 U in a segment of its own that was freed: where it was.
fn freed(stream: &Stream) -> Result<(CachingPool, u64)> {
    let pool = CachingPool::builder()
        .limit(PoolLimit::Bytes(4 * U))
        .build()?;
    let place = alloc(stream, &pool, 4 * U)?.as_raw();
    Ok((pool, place))
}

#[test]
fn h03_split() {
    run(|_| {
        let stream = Device::get(0)?.create_stream()?;
        let (pool, place) = freed(&stream)?;
        let (head, tail) = (alloc(&stream, &pool, 2 * U)?, alloc(&stream, &pool, 2 * U)?);
        assert_eq!(
            (head.as_raw(), tail.as_raw()),
            (place, place + 2 * U as u64)
        );
        assert_eq!(used(&pool, stream.device()), 4 * U);
        Ok(())
    });
}

#[test]
fn h04_merge_both_orders() {
    run(|_| {
        let stream = Device::get(0)?.create_stream()?;
        let (pool, place) = freed(&stream)?;
        for tail_first in [true, false] {
            let (head, tail) = (alloc(&stream, &pool, 2 * U)?, alloc(&stream, &pool, 2 * U)?);
            if tail_first {
                drop(tail);
                drop(head);
            } else {
                drop(head);
                drop(tail);
            }
            assert_eq!(
                alloc(&stream, &pool, 4 * U)?.as_raw(),
                place,
                "{tail_first}"
            );
        }
        Ok(())
    });
}

#[test]
fn h09_free_all_split() {
    run(|_| {
        let stream = Device::get(0)?.create_stream()?;
        let (pool, _) = freed(&stream)?;
        let (mut head, tail) = (alloc(&stream, &pool, 2 * U)?, alloc(&stream, &pool, 2 * U)?);
        stream.fill(head.slice_mut(..64)?, 9)?;
        let place = tail.as_raw();
        drop(tail);
        assert_eq!(pool.trim(0)?, 0, "half of the segment is in use");
        assert_eq!(alloc(&stream, &pool, 2 * U)?.as_raw(), place);
        let mut back = [0; 64];
        stream.download_to(head.slice(..64)?, &mut back)?;
        assert_eq!(back, [9; 64]);
        Ok(())
    });
}

/// Blocks of other streams, in whatever state, serve when there is nothing else.
#[test]
fn memory_of_others_when_there_is_no_more() {
    run(|session| {
        let device = Device::get(0)?;
        let (one, two, three) = (
            device.create_stream()?,
            device.create_stream()?,
            device.create_stream()?,
        );
        let (pool, place) = freed(&one)?;
        // Freed behind work that nobody knows to be done: the other stream waits on the device.
        let mut buffer = alloc(&one, &pool, 4 * U)?;
        one.fill(buffer.slice_mut(..256)?, 1)?;
        drop(buffer);
        let mark = session.mark();
        let mut buffer = alloc(&two, &pool, 4 * U)?;
        assert_eq!(buffer.as_raw(), place);
        let asked = session.names_since(mark);
        assert!(!asked.contains(&"cuEventSynchronize"), "{asked:?}");
        two.fill(buffer.slice_mut(..256)?, 2)?;
        // Freed while a third stream uses it.
        three.fill(buffer.slice_mut(256..512)?, 3)?;
        drop(buffer);
        let mut buffer = alloc(&one, &pool, 4 * U)?;
        assert_eq!(buffer.as_raw(), place);
        one.fill(buffer.slice_mut(..1024)?, 4)?;
        let mut back = [0; 1024];
        one.download_to(buffer.slice(..1024)?, &mut back)?;
        assert_eq!(back, [4; 1024]);
        Ok(())
    });
}

/// S29: a range that was taken from another stream and joined with others is used behind the last
/// work on any of its parts.
#[test]
fn s29_fences_are_made_at_the_steal() {
    run(|_| {
        let device = Device::get(0)?;
        let (one, two) = (device.create_stream()?, device.create_stream()?);
        let (pool, place) = freed(&one)?;
        for _ in 0..3 {
            let mut head = alloc(&one, &pool, 2 * U)?;
            let mut tail = alloc(&one, &pool, 2 * U)?;
            one.fill(head.slice_mut(..256)?, 1)?;
            drop(head);
            // Later than what the first part is known to wait for.
            one.fill(tail.slice_mut(..256)?, 2)?;
            drop(tail);
            let mut whole = alloc(&two, &pool, 4 * U)?;
            assert_eq!(whole.as_raw(), place);
            two.fill(whole.slice_mut(..256)?, 3)?;
            two.fill(whole.slice_mut(2 * U..2 * U + 256)?, 3)?;
            let mut back = [0; 256];
            two.download_to(whole.slice(2 * U..2 * U + 256)?, &mut back)?;
            assert_eq!(back, [3; 256]);
            drop(whole);
        }
        Ok(())
    });
}

/// What a stream kept outlives it, and does not keep it alive.
#[test]
fn streams_go_with_their_last_handle() {
    run(|session| {
        let device = Device::get(0)?;
        let pool = CachingPool::shared()?;
        let stream = device.create_stream()?;
        let clone = stream.clone();
        let mut buffer = alloc(&stream, &pool, 1000)?;
        stream.fill(&mut buffer, 1)?;
        let place = buffer.as_raw();
        drop(buffer);
        drop(stream);
        assert_eq!(
            session.calls("cuStreamDestroy_v2"),
            0,
            "it has another handle"
        );
        drop(clone);
        assert_eq!(session.calls("cuStreamDestroy_v2"), 1);
        session.settle();
        let other = device.create_stream()?;
        // Its last event says that the work is done.
        assert_eq!(alloc(&other, &pool, 1000)?.as_raw(), place);
        let (stream, last) = (device.create_stream()?, ());
        let buffer = alloc(&stream, &pool, 1000)?;
        drop((stream, last));
        assert_eq!(
            session.calls("cuStreamDestroy_v2"),
            1,
            "the buffer keeps its home"
        );
        drop(buffer);
        assert_eq!(session.calls("cuStreamDestroy_v2"), 2);
        used(&pool, device);
        Ok(())
    });
}

/// The memory of a context goes with its last stream.
#[test]
fn contexts_take_their_memory_along() {
    run(|_| {
        let device = Device::get(0)?;
        let context = Context::create(device, ContextFlags::default())?;
        let pool = CachingPool::shared()?;
        let before = pool.usage(device).reserved;
        let stream = context.create_stream()?;
        let mut buffer = alloc(&stream, &pool, 1000)?;
        stream.fill(&mut buffer, 1)?;
        drop(buffer);
        assert_eq!(pool.usage(device).reserved, before + U);
        drop(context);
        drop(stream);
        assert_eq!(pool.usage(device).reserved, before);
        Ok(())
    });
}

/// Whoever drops the last stream of a context may be who its work waits for.
#[test]
fn a_stream_that_takes_memory_along_waits_for_nobody() {
    run(|_| {
        let device = Device::get(0)?;
        let go = Signal::new(device, 0u32)?;
        let context = Context::create(device, ContextFlags::default())?;
        let stream = context.create_stream()?;
        let mut buffer = alloc(&stream, &CachingPool::shared()?, 1000)?;
        stream.wait_signal(&go, WaitValue::Geq(1))?;
        stream.fill(&mut buffer, 1)?;
        drop(buffer);
        drop((stream, context));
        go.set(1);
        Ok(())
    });
}

/// The pool behind an adaptor is the same pool, also where a context's streams are all that keeps
/// its memory.
#[test]
fn adaptors_reach_the_memory_of_a_context_of_its_own() {
    run(|session| {
        let device = Device::get(0)?;
        let context = Context::create(device, ContextFlags::default())?;
        let stream = context.create_stream()?;
        let counted = Allocator::new(Statistics::new(Allocator::cache()));
        let buffers = [(); 3].map(|()| stream.alloc_with::<u8>(&counted, 1000));
        for buffer in buffers {
            drop(buffer?);
        }
        assert_eq!(session.calls("cuMemAlloc_v2"), 1);
        let pool = CachingPool::shared()?;
        drop((stream, context));
        assert_eq!(used(&pool, device), 0);
        Ok(())
    });
}

/// A segment that may be gone is not used again, nor given back again, and holds up no other.
#[test]
fn segments_that_may_be_gone_are_left_alone() {
    run(|session| {
        let device = Device::get(0)?;
        let stream = device.create_stream()?;
        let pool = CachingPool::new();
        let (small, large) = (alloc(&stream, &pool, 100)?, alloc(&stream, &pool, 30 * U)?);
        drop((small, large));
        stream.synchronize()?;
        let gone = Fault::new(cuda_sys::CUDA_ERROR_UNKNOWN).function("cuMemFree_v2");
        session.inject(gone.takes_effect());
        pool.trim(0).expect_err("the first was refused");
        assert_eq!(pool.usage(device).reserved, 0, "the second was not");
        assert_eq!(session.calls("cuMemFree_v2"), 2);
        drop(pool);
        assert_eq!(session.calls("cuMemFree_v2"), 2);
        Ok(())
    });
}

/// A stream that could not be closed is one whose blocks are still found.
#[test]
fn a_stream_that_could_not_be_closed_keeps_its_blocks() {
    run(|session| {
        let device = Device::get(0)?;
        let pool = CachingPool::shared()?;
        let before = pool.usage(device).reserved;
        let stream = device.create_stream()?;
        drop(alloc(&stream, &pool, 1000)?);
        session.inject(Fault::new(cuda_sys::CUDA_ERROR_UNKNOWN).function("cuStreamDestroy_v2"));
        let (_, stream) = stream.close().expect_err("it was refused");
        drop(alloc(&stream, &pool, 1000)?);
        assert_eq!(used(&pool, device), 0);
        stream.synchronize()?;
        pool.trim(0)?;
        assert!(
            pool.usage(device).reserved <= before,
            "{:?}",
            pool.usage(device)
        );
        Ok(())
    });
}
