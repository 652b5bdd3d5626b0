//! Splits, merges, and memory taken from other streams.

use cuda_core::adaptors::Statistics;
use cuda_core::{
    Allocator, Context, ContextFlags, Device, DeviceAllocator, Error, Event, EventFlags, Rejected,
    Signal, WaitValue, pools::PoolLimit,
};
use cuda_sim::{Fault, Mode};

use super::*;

/// Creates a pool with one free block of 4 U, in a segment of its own, and returns the block's address.
fn freed(stream: &Stream) -> Result<(CachingPool, u64)> {
    let pool = CachingPool::builder().limit(PoolLimit::Bytes(4 * U)).build()?;
    let place = alloc(stream, &pool, 4 * U)?.as_raw();
    Ok((pool, place))
}

#[test]
fn h03_split() {
    run(|_| {
        let stream = Device::get(0)?.create_stream()?;
        let (pool, place) = freed(&stream)?;
        let (head, tail) = (alloc(&stream, &pool, 2 * U)?, alloc(&stream, &pool, 2 * U)?);
        assert_eq!((head.as_raw(), tail.as_raw()), (place, place + 2 * U as u64));
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
            assert_eq!(alloc(&stream, &pool, 4 * U)?.as_raw(), place, "{tail_first}");
        }
        Ok(())
    });
}

/// `keep` counts reserved bytes, of all contexts, as for the driver's pools.
#[test]
fn h09_trimming_keeps_reserved_bytes() {
    run(|_| {
        let device = Device::get(0)?;
        let second = Context::new(device, ContextFlags::default())?;
        let pool = CachingPool::builder().build()?;
        let streams = [device.create_stream()?, second.create_stream()?];
        let used = alloc(&streams[0], &pool, 16 * U)?;
        for stream in &streams {
            drop(alloc(stream, &pool, 16 * U)?);
            stream.synchronize()?;
        }
        assert_eq!(pool.usage(device).reserved, 48 * U);
        assert_eq!(pool.trim(48 * U)?, 0);
        assert_eq!(pool.trim(40 * U)?, 16 * U);
        assert_eq!((pool.trim(16 * U)?, pool.trim(0)?), (16 * U, 0));
        assert_eq!(pool.usage(device).reserved, 16 * U);
        drop(used);
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
        stream.download(head.slice(..64)?, &mut back)?;
        assert_eq!(back, [9; 64]);
        Ok(())
    });
}

/// When no other memory is left, blocks of other streams are used, in whatever state.
#[test]
fn memory_of_others_when_there_is_no_more() {
    run(|session| {
        let device = Device::get(0)?;
        let (one, two, three) =
            (device.create_stream()?, device.create_stream()?, device.create_stream()?);
        let (pool, place) = freed(&one)?;
        // Freed after work not known to be complete: the other stream waits for it on the device.
        let mut buffer = alloc(&one, &pool, 4 * U)?;
        one.fill(buffer.slice_mut(..256)?, 1)?;
        drop(buffer);
        let mark = session.mark();
        let mut buffer = alloc(&two, &pool, 4 * U)?;
        assert_eq!(buffer.as_raw(), place);
        let asked = session.names_since(mark);
        assert!(!asked.contains(&"cuEventSynchronize"), "{asked:?}");
        two.fill(buffer.slice_mut(..256)?, 2)?;
        // Freed while a third stream uses the block.
        three.fill(buffer.slice_mut(256..512)?, 3)?;
        drop(buffer);
        let mut buffer = alloc(&one, &pool, 4 * U)?;
        assert_eq!(buffer.as_raw(), place);
        one.fill(buffer.slice_mut(..1024)?, 4)?;
        let mut back = [0; 1024];
        one.download(buffer.slice(..1024)?, &mut back)?;
        assert_eq!(back, [4; 1024]);
        Ok(())
    });
}

/// After a failed wait for one stream, the stream's other memory is tried.
#[test]
fn memory_of_another_kind_serves_where_the_first_cannot_be_waited_for() {
    run(|session| {
        session.set_mode(Mode::Lazy);
        let device = Device::get(0)?;
        let (one, two) = (device.create_stream()?, device.create_stream()?);
        let pool = CachingPool::builder().limit(PoolLimit::Bytes(2 * U)).build()?;
        // A whole segment for small blocks, and a segment for larger ones.
        let bytes = [U / 2, U / 2, U];
        let mut blocks =
            bytes.iter().map(|bytes| alloc(&one, &pool, *bytes)).collect::<Result<Vec<_>>>()?;
        let place = blocks[2].as_raw();
        for block in &mut blocks {
            one.fill(block.slice_mut(..256)?, 1)?;
        }
        drop(blocks);
        session.inject(Fault::new(cuda_sys::CUDA_ERROR_UNKNOWN).function("cuStreamWaitEvent"));
        let mark = session.mark();
        let taken = alloc(&two, &pool, U / 2)?;
        assert!(session.fault_fired());
        assert_eq!(taken.as_raw(), place);
        let asked = session.names_since(mark);
        assert!(!asked.contains(&"cuEventSynchronize"), "{asked:?}");
        Ok(())
    });
}

/// S29: a range that was taken from another stream and merged with others is used only after the last work on
/// any of its parts.
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
            // This work is later than the point that the first part is known to wait for.
            one.fill(tail.slice_mut(..256)?, 2)?;
            drop(tail);
            let mut whole = alloc(&two, &pool, 4 * U)?;
            assert_eq!(whole.as_raw(), place);
            two.fill(whole.slice_mut(..256)?, 3)?;
            two.fill(whole.slice_mut(2 * U..2 * U + 256)?, 3)?;
            let mut back = [0; 256];
            two.download(whole.slice(2 * U..2 * U + 256)?, &mut back)?;
            assert_eq!(back, [3; 256]);
            drop(whole);
        }
        Ok(())
    });
}

/// A stream that takes memory after another stream's work also returns the rest after that work,
/// whatever was recorded on it before. The simulated driver reports work that is out of order.
#[test]
fn what_is_left_of_memory_taken_behind_a_stream_comes_behind_it_too() {
    run(|_| {
        let device = Device::get(0)?;
        let [one, two, three] = [(); 3].map(|()| device.create_stream());
        let (one, two, three) = (one?, two?, three?);
        let go = Signal::new(&device.context()?, 0u32)?;
        let (pool, place) = freed(&one)?;
        let mut whole = alloc(&one, &pool, 4 * U)?;
        one.wait_signal(&go, WaitValue::Geq(1))?;
        one.fill(whole.slice_mut(2 * U..2 * U + 256)?, 1)?;
        drop(whole);
        two.wait_stream(&three)?;
        three.wait_stream(&two)?;
        let head = alloc(&two, &pool, 2 * U)?;
        let mut tail = alloc(&three, &pool, 2 * U)?;
        three.fill(tail.slice_mut(..256)?, 3)?;
        go.set(1);
        assert_eq!((head.as_raw(), tail.as_raw()), (place, place + 2 * U as u64));
        let mut back = [0; 256];
        three.download(tail.slice(..256)?, &mut back)?;
        assert_eq!(back, [3; 256]);
        Ok(())
    });
}

/// The blocks that a stream keeps outlive it, and do not keep it alive.
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
        assert_eq!(session.calls("cuStreamDestroy_v2"), 0, "it has another handle");
        drop(clone);
        assert_eq!(session.calls("cuStreamDestroy_v2"), 1);
        session.settle();
        let other = device.create_stream()?;
        let _rest = fill_up(&other, &pool, U - 1024)?;
        // The stream's last event shows that its work is complete.
        assert_eq!(alloc(&other, &pool, 1000)?.as_raw(), place);
        let (stream, last) = (device.create_stream()?, ());
        let buffer = alloc(&stream, &pool, 1000)?;
        drop((stream, last));
        assert_eq!(session.calls("cuStreamDestroy_v2"), 1, "the buffer keeps its home");
        drop(buffer);
        assert_eq!(session.calls("cuStreamDestroy_v2"), 2);
        used(&pool, device);
        Ok(())
    });
}

/// The memory of a context is released with its last stream.
#[test]
fn contexts_take_their_memory_along() {
    run(|_| {
        let device = Device::get(0)?;
        let context = Context::new(device, ContextFlags::default())?;
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

/// The thread that drops the last stream of a context may be the one that the stream's work waits for.
#[test]
fn dropping_a_stream_that_takes_memory_along_does_not_wait() {
    run(|_| {
        let device = Device::get(0)?;
        let go = Signal::new(&device.context()?, 0u32)?;
        let context = Context::new(device, ContextFlags::default())?;
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

/// `drops::flush` waits for all work on the memory that a context leaves behind.
#[test]
fn what_a_context_leaves_is_waited_for_on_all_its_streams() {
    run(|session| {
        let device = Device::get(0)?;
        let gates =
            [Signal::new(&device.context()?, 0u32)?, Signal::new(&device.context()?, 0u32)?];
        for round in 1..=if cfg!(miri) { 2 } else { 20 } {
            let context = Context::new(device, ContextFlags::default())?;
            let streams = [context.create_stream()?, context.create_stream()?];
            for (go, stream) in gates.iter().zip(&streams) {
                let mut buffer = alloc(stream, &CachingPool::shared()?, 1000)?;
                stream.wait_signal(go, WaitValue::Geq(round))?;
                stream.fill(&mut buffer, 1)?;
            }
            drop((context, streams));
            assert_eq!(session.calls("cuMemFree_v2"), u64::from(round) - 1);
            for go in &gates {
                go.set(round);
            }
            cuda_core::drops::flush();
            assert_eq!(session.calls("cuMemFree_v2"), u64::from(round));
        }
        Ok(())
    });
}

/// The pool beneath an adaptor is the same pool, even if only a context's streams keep its memory.
#[test]
fn adaptors_reach_the_memory_of_a_context_of_its_own() {
    run(|session| {
        let device = Device::get(0)?;
        let context = Context::new(device, ContextFlags::default())?;
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

/// Blocks kept by a stream that may be destroyed are still found.
#[test]
fn a_stream_that_could_not_be_closed_leaves_its_blocks() {
    run(|session| {
        let device = Device::get(0)?;
        let pool = CachingPool::shared()?;
        let before = pool.usage(device).reserved;
        let stream = device.create_stream()?;
        drop(alloc(&stream, &pool, 1000)?);
        session.inject(Fault::new(cuda_sys::CUDA_ERROR_UNKNOWN).function("cuStreamDestroy_v2"));
        let Rejected { value: stream, .. } = stream.close().expect_err("it was refused");
        let refused = alloc(&stream, &pool, 1000).expect_err("there may be no stream");
        assert!(matches!(refused, Error::GivenUp { .. }), "{refused:?}");
        assert_eq!(used(&pool, device), 0);
        pool.trim(0)?;
        assert_eq!(pool.usage(device).reserved, before);
        support::judge::take_away(session, session.leaks());
        Ok(())
    });
}

/// Of large blocks that are freed one after another, a stream keeps one. The others merge, and the next
/// allocations take the best fit.
#[test]
fn large_blocks_that_are_freed_in_a_row_join() {
    run(|_| {
        let device = Device::get(0)?;
        let stream = device.create_stream()?;
        let pool = CachingPool::shared()?;
        let before = pool.usage(device).reserved;
        let cached = |bytes| alloc(&stream, &pool, bytes);
        let (segment, apart) = (cached(18 * U)?, cached(6 * U)?);
        drop(segment);
        let [first, second, third] = [cached(6 * U)?, cached(6 * U)?, cached(6 * U)?];
        for buffer in [apart, second, third, first] {
            drop(buffer);
        }
        let kept = [cached(6 * U)?, cached(6 * U)?];
        drop(cached(12 * U)?);
        assert_eq!(pool.usage(device).reserved, before + 24 * U);
        drop(kept);
        Ok(())
    });
}

/// Work that an allocator in front of a pool made the stream wait for is ordered before the pool's use of the
/// block, even if the stream itself was idle.
#[test]
fn memory_given_back_by_hand_waits_for_what_its_stream_waits_for() {
    run(|_| {
        let device = Device::get(0)?;
        let [home, user, other] = [(); 3].map(|()| device.create_stream());
        let (home, user, other) = (home?, user?, other?);
        let go = Signal::new(&device.context()?, 0u32)?;
        for pool in [CachingPool::new(), CachingPool::shared()?] {
            let allocator = pool.allocator();
            go.set(0);
            let address = allocator.allocate(&home, 6 * U)?;
            drop(alloc(&home, &pool, 100)?);
            home.synchronize()?;
            user.wait_signal(&go, WaitValue::Geq(1))?;
            let event = Event::new(&device.context()?, EventFlags::DISABLE_TIMING)?;
            event.record(&user)?;
            // SAFETY: stream and event are live. The library does not see the wait that this adds to the
            // stream.
            let waits = unsafe { cuda_sys::cuStreamWaitEvent(home.as_raw(), event.as_raw(), 0) };
            support::check("cuStreamWaitEvent", waits);
            // SAFETY: allocated above, and not returned since; `home` waits for its user.
            unsafe { allocator.deallocate(&home, address, 6 * U) }?;
            let elsewhere = alloc(&other, &pool, 6 * U)?;
            go.set(1);
            assert_ne!(elsewhere.as_raw(), address, "it was still in use");
            home.synchronize()?;
            assert_eq!(alloc(&other, &pool, 6 * U)?.as_raw(), address);
        }
        Ok(())
    });
}

/// The upper bound of bytes in use holds for dropped streams, and never exceeds what was reserved.
#[test]
fn h31_peaks_of_streams_that_are_gone() {
    run(|_| {
        let device = Device::get(0)?;
        let pool = CachingPool::shared()?;
        pool.reset_peaks(device);
        let before = pool.usage(device);
        for _ in 0..3 {
            let stream = device.create_stream()?;
            let held = (alloc(&stream, &pool, U)?, alloc(&stream, &pool, 3 * U)?);
            stream.synchronize()?;
            drop((held, stream));
            let usage = pool.usage(device);
            assert!(usage.used_peak >= before.used + 4 * U, "{usage:?}");
            assert!(usage.used_peak <= usage.reserved_peak, "{usage:?}");
        }
        pool.reset_peaks(device);
        assert_eq!(pool.usage(device).used_peak, before.used);
        Ok(())
    });
}
