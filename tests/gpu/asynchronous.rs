//! Waiting without blocking the thread, and copies that own their host memory.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::thread;
use std::time::Duration;

use cuda_core::{
    Device, DeviceBuffer, Error, Event, EventFlags, PinnedBuffer, Ready, Rejected, Result, Stream,
};
use support::{Alarm, WatchedHost, block_on, gpu_test, one_stream, pattern, stall};

use crate::forms::same;

const LEN: usize = 4096;

/// Allocates a buffer with a pattern, to download from.
fn source(stream: &Stream, seed: u64) -> Result<DeviceBuffer<u8>> {
    let mut buffer = stream.alloc(LEN)?;
    stream.upload(&pattern(seed, LEN), &mut buffer)?;
    stream.synchronize()?;
    Ok(buffer)
}

gpu_test! {
    needs 1;
    fn ready_at_once() -> Result<()> {
        let stream = Device::get(0)?.create_stream()?;
        let alarm = Alarm::new();
        let mut host = PinnedBuffer::<u8>::zeroed(stream.context(), 8)?;
        assert!(matches!(alarm.poll(&mut host.ready()), Poll::Ready(Ok(()))));
        assert!(matches!(alarm.poll(&mut host.ready_mut()), Poll::Ready(Ok(()))));
        let mut buffer = source(&stream, 1)?;
        assert!(matches!(alarm.poll(&mut buffer.ready_mut()), Poll::Ready(Ok(()))));
        let empty = stream.alloc::<u8>(0)?;
        assert!(matches!(alarm.poll(&mut empty.ready()), Poll::Ready(Ok(()))));
        // A read does not wait for another read.
        stream.download(&buffer, &mut PinnedBuffer::<u8>::new(stream.context(), LEN)?)?;
        assert!(matches!(alarm.poll(&mut buffer.ready()), Poll::Ready(Ok(()))));
        stream.synchronize()?;
        assert_eq!(alarm.wakes(), 0);
        Ok(())
    }
}

gpu_test! {
    needs 1, asynchronous;
    fn ready_when_the_copy_is_done() -> Result<()> {
        let stream = Device::get(0)?.create_stream()?;
        let buffer = source(&stream, 2)?;
        let mut host = PinnedBuffer::<u8>::zeroed(stream.context(), LEN)?;
        let alarm = Alarm::new();
        let held = stall(stream.as_raw());
        stream.download(&buffer, &mut host)?;
        let mut ready = host.ready();
        assert!(alarm.poll(&mut ready).is_pending());
        assert!(alarm.poll(&mut ready).is_pending(), "polled repeatedly");
        assert_eq!(alarm.wakes(), 0);
        held.release();
        alarm.block_on(&mut ready)?;
        assert_eq!(alarm.wakes(), 1, "one wake, when it is ready");
        drop(ready);
        same(host.as_slice()?, &pattern(2, LEN), "downloaded");
        Ok(())
    }
}

gpu_test! {
    needs 1, asynchronous;
    fn ready_for_reading_and_for_writing() -> Result<()> {
        let device = Device::get(0)?;
        let (reader, writer) = (device.create_stream()?, device.create_stream()?);
        let mut buffer = source(&writer, 3)?;
        let mut host = PinnedBuffer::<u8>::zeroed(reader.context(), LEN)?;
        let held = stall(reader.as_raw());
        reader.download(&buffer, &mut host)?;
        block_on(buffer.ready())?;
        block_on(buffer.slice(..7)?.ready())?;
        let mut view = buffer.as_view_mut();
        let alarm = Alarm::new();
        let mut unused = view.ready_mut();
        assert!(alarm.poll(&mut unused).is_pending());
        held.release();
        alarm.block_on(unused)?;
        host.try_as_slice()?.expect("the future waited for the download");
        Ok(())
    }
}

gpu_test! {
    needs 1, asynchronous;
    fn s24_a_cancelled_future_releases_nothing() -> Result<()> {
        let stream = Device::get(0)?.create_stream()?;
        let buffer = source(&stream, 4)?;
        let mut host = PinnedBuffer::<u8>::zeroed(stream.context(), LEN)?;
        let alarm = Alarm::new();
        for polled in [false, true] {
            host.as_mut_slice()?.fill(0);
            let held = stall(stream.as_raw());
            stream.download(&buffer, &mut host)?;
            let mut ready = host.ready();
            if polled {
                assert!(alarm.poll(&mut ready).is_pending());
            }
            drop(ready);
            assert!(host.try_as_slice()?.is_none());
            held.release_after(Duration::from_millis(20));
            same(host.as_slice()?, &pattern(4, LEN), "the access waits all the same");
        }
        cuda_core::drops::flush();
        assert_eq!(alarm.wakes(), 0, "a dropped future wakes no task");
        assert_eq!(Arc::strong_count(&alarm), 1, "its waker is gone");
        Ok(())
    }
}

gpu_test! {
    needs 1, asynchronous;
    fn s25_a_buffer_outlives_its_future() -> Result<()> {
        let device = Device::get(0)?;
        let (home, other) = (device.create_stream()?, device.create_stream()?);
        let buffer = source(&home, 5)?;
        let mut host = PinnedBuffer::<u8>::zeroed(home.context(), LEN)?;
        let held = stall(other.as_raw());
        other.download(&buffer, &mut host)?;
        let alarm = Alarm::new();
        let work = async move {
            host.ready().await?;
            let bytes = host.as_slice()?.to_vec();
            drop(buffer);
            Ok::<_, Error>(bytes)
        };
        let mut work = Box::pin(work);
        assert!(alarm.poll(&mut work).is_pending());
        // Frees the device memory on its home stream, after the other stream, and makes the host wait for the
        // free.
        held.release_after(Duration::from_millis(20));
        drop(work);
        home.synchronize()
    }
}

gpu_test! {
    needs 1, asynchronous;
    fn one_stream_does_not_hold_up_another() -> Result<()> {
        let device = Device::get(0)?;
        let (stuck, free) = (device.create_stream()?, device.create_stream()?);
        let buffer = source(&free, 6)?;
        let mut hosts = [
            PinnedBuffer::<u8>::zeroed(free.context(), LEN)?,
            PinnedBuffer::<u8>::zeroed(free.context(), LEN)?,
        ];
        let held = stall(stuck.as_raw());
        let alarm = Alarm::new();
        let mut never = stuck.ready();
        assert!(alarm.poll(&mut never).is_pending());
        for _ in 0..3 {
            for host in &mut hosts {
                free.download(&buffer, &mut *host)?;
                block_on(host.ready())?;
            }
            block_on(free.ready())?;
        }
        assert!(alarm.poll(&mut never).is_pending());
        assert_eq!(alarm.wakes(), 0);
        held.release();
        alarm.block_on(never)
    }
}

/// Returns the output of the future that is ready first, and the other future.
async fn first<A: Future + Unpin, B: Future<Output = A::Output> + Unpin>(
    mut a: A,
    mut b: B,
) -> A::Output {
    std::future::poll_fn(|task| {
        use std::pin::Pin;
        match Pin::new(&mut a).poll(task) {
            Poll::Ready(output) => Poll::Ready(output),
            Poll::Pending => Pin::new(&mut b).poll(task),
        }
    })
    .await
}

gpu_test! {
    needs 1, asynchronous;
    fn the_first_of_two() -> Result<()> {
        let device = Device::get(0)?;
        let (stuck, free) = (device.create_stream()?, device.create_stream()?);
        let held = stall(stuck.as_raw());
        block_on(first(stuck.ready(), free.ready()))?;
        assert!(!stuck.query()?);
        held.release();
        block_on(stuck.ready())
    }
}

gpu_test! {
    needs 1, asynchronous;
    fn many_futures_at_once() -> Result<()> {
        const STREAMS: usize = 4;
        const EACH: usize = 25;
        let device = Device::get(0)?;
        let streams: Vec<Stream> = (0..STREAMS)
            .map(|_| device.create_stream())
            .collect::<Result<_>>()?;
        let buffer = source(&streams[0], 7)?;
        let mut hosts = Vec::new();
        for _ in 0..STREAMS * EACH {
            hosts.push(PinnedBuffer::<u8>::zeroed(streams[0].context(), LEN)?);
        }
        let held = stall(streams[0].as_raw());
        for (at, host) in hosts.iter_mut().enumerate() {
            streams[at % STREAMS].download(&buffer, host)?;
        }
        let alarm = Alarm::new();
        let mut left: Vec<Ready<'_>> = hosts.iter().map(PinnedBuffer::ready).collect();
        let poll = |left: &mut Vec<Ready<'_>>| {
            let mut results = Vec::new();
            left.retain_mut(|ready| match alarm.poll(ready) {
                Poll::Pending => true,
                Poll::Ready(result) => {
                    results.push(result);
                    false
                }
            });
            results.into_iter().collect::<Result<()>>()
        };
        poll(&mut left)?;
        assert!(left.len() >= EACH, "those of the stream that is held up");
        held.release();
        while !left.is_empty() {
            poll(&mut left)?;
            thread::yield_now();
        }
        assert!(alarm.wakes() <= STREAMS * EACH);
        for host in &hosts {
            same(host.as_slice()?, &pattern(7, LEN), "each of them");
        }
        Ok(())
    }
}

gpu_test! {
    needs 1, asynchronous;
    fn on_another_thread() -> Result<()> {
        let (context, stream) = one_stream()?;
        let per_thread = context.per_thread_stream()?;
        let held = stall(stream.as_raw());
        let (shared, own) = (stream.ready(), per_thread.ready());
        let waiting = thread::spawn(move || {
            block_on(own)?;
            block_on(shared)
        });
        held.release_after(Duration::from_millis(20));
        waiting.join().expect("nothing panics")?;
        assert!(stream.query()?);
        block_on(context.default_stream()?.ready())
    }
}

gpu_test! {
    needs 1, asynchronous;
    fn moved_between_threads() -> Result<()> {
        let stream = Device::get(0)?.create_stream()?;
        let held = stall(stream.as_raw());
        let mut finished = stream.ready();
        let here = Alarm::new();
        assert!(here.poll(&mut finished).is_pending());
        let there = thread::spawn(move || {
            let alarm = Alarm::new();
            assert!(alarm.poll(&mut finished).is_pending());
            held.release();
            alarm.block_on(finished)
        });
        there.join().expect("nothing panics")?;
        assert_eq!(here.wakes(), 0, "the last waker is the one that counts");
        Ok(())
    }
}

gpu_test! {
    needs 1, asynchronous;
    fn no_more_is_waited_for_than_must_be() -> Result<()> {
        let stream = Device::get(0)?.create_stream()?;
        let buffer = source(&stream, 8)?;
        let mut host = PinnedBuffer::<u8>::zeroed(stream.context(), LEN)?;
        let finished = stream.ready();
        stream.download(&buffer, &mut host)?;
        let early = host.ready();
        stream.checkpoint()?;
        let held = stall(stream.as_raw());
        // One was created before the stall, one after it: neither waits for it.
        block_on(early)?;
        block_on(finished)?;
        block_on(host.ready())?;
        same(host.as_slice()?, &pattern(8, LEN), "behind the stall all the same");
        held.release();
        stream.synchronize()
    }
}

gpu_test! {
    needs 1, asynchronous;
    fn what_comes_later_is_not_waited_for() -> Result<()> {
        let stream = Device::get(0)?.create_stream()?;
        let buffer = source(&stream, 14)?;
        let mut host = PinnedBuffer::<u8>::zeroed(stream.context(), LEN)?;
        let before = stall(stream.as_raw());
        stream.download(&buffer, &mut host)?;
        stream.checkpoint()?;
        let behind = stall(stream.as_raw());
        let alarm = Alarm::new();
        let mut ready = host.ready();
        assert!(alarm.poll(&mut ready).is_pending());
        before.release();
        alarm.block_on(&mut ready)?;
        assert_eq!(alarm.wakes(), 1);
        drop(ready);
        assert!(!stream.query()?, "the second stall still holds");
        same(host.as_slice()?, &pattern(14, LEN), "between two stalls");
        behind.release();
        stream.synchronize()
    }
}

gpu_test! {
    needs 1, asynchronous;
    fn a_stream_that_is_gone() -> Result<()> {
        let device = Device::get(0)?;
        let (home, stream) = (device.create_stream()?, device.create_stream()?);
        let buffer = source(&home, 9)?;
        let mut host = PinnedBuffer::<u8>::zeroed(home.context(), LEN)?;
        let held = stall(stream.as_raw());
        stream.download(&buffer, &mut host)?;
        let finished = stream.ready();
        drop(stream);
        let alarm = Alarm::new();
        let mut ready = host.ready();
        assert!(alarm.poll(&mut ready).is_pending());
        held.release();
        alarm.block_on(ready)?;
        same(host.as_slice()?, &pattern(9, LEN), "of a stream that is no more");
        block_on(finished)
    }
}

gpu_test! {
    needs 1, asynchronous;
    fn events() -> Result<()> {
        let (context, stream) = one_stream()?;
        for flags in [EventFlags::DEFAULT, EventFlags::DISABLE_TIMING | EventFlags::BLOCKING_SYNC] {
            let event = Event::new(&context, flags)?;
            block_on(event.ready())?;
            let held = stall(stream.as_raw());
            event.record(&stream)?;
            let alarm = Alarm::new();
            let mut reached = event.ready();
            drop(event);
            assert!(alarm.poll(&mut reached).is_pending());
            held.release();
            alarm.block_on(reached)?;
        }
        stream.synchronize()
    }
}

gpu_test! {
    needs 2;
    fn across_devices() -> Result<()> {
        let streams = [Device::get(0)?.create_stream()?, Device::get(1)?.create_stream()?];
        let a = source(&streams[0], 10)?;
        let mut b = streams[1].alloc::<u8>(LEN)?;
        let mut host = PinnedBuffer::<u8>::zeroed(streams[1].context(), LEN)?;
        let _other = Device::get(1)?.enter()?;
        streams[0].copy(&a, &mut b)?;
        streams[1].download(&b, &mut host)?;
        block_on(async {
            host.ready().await?;
            streams[0].ready().await
        })?;
        same(host.as_slice()?, &pattern(10, LEN), "from one device to the other");
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn owned_both_ways() -> Result<()> {
        let stream = Device::get(0)?.create_stream()?;
        let mut buffer = stream.alloc::<u8>(LEN)?;
        let flight = stream.upload_owned(pattern(11, LEN), &mut buffer)?;
        let back = flight.wait()?;
        same(&back, &pattern(11, LEN), "the vector itself");
        let flight = stream.download_owned(&buffer, vec![0; LEN])?;
        let back = block_on(async { flight.await })?;
        same(&back, &pattern(11, LEN), "awaited");
        let boxed = vec![0; LEN].into_boxed_slice();
        let flight = stream.download_owned(&buffer, boxed)?;
        let moved = Box::new(flight);
        while !moved.is_done()? {
            thread::yield_now();
        }
        same(&moved.wait()?, &pattern(11, LEN), "boxed, and moved");
        let shared: Arc<[u8]> = pattern(12, LEN).into();
        let flight = stream.upload_owned(Arc::clone(&shared), &mut buffer);
        let flight = flight?;
        assert_eq!(shared[..], pattern(12, LEN), "others may read it meanwhile");
        drop(flight);
        let mut back = vec![0; LEN];
        stream.download(&buffer, &mut back)?;
        same(&back, &shared, "shared");
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn j03_j14_owned() -> Result<()> {
        let stream = Device::get(0)?.create_stream()?;
        let mut buffer = stream.alloc_zeroed::<u8>(10)?;
        for len in [9, 11] {
            let Rejected { error, value: flight } = stream.upload_owned(vec![7; len], &mut buffer).unwrap_err();
            assert!(matches!(error, Error::LengthMismatch(_)));
            assert_eq!(flight.wait()?, vec![7; len]);
            let Rejected { error, value: flight } = stream.download_owned(&buffer, vec![7; len]).unwrap_err();
            assert!(matches!(error, Error::LengthMismatch(_)));
            assert_eq!(block_on(async { flight.await })?, vec![7; len]);
        }
        let mut nothing = stream.alloc::<u8>(0)?;
        let flight = stream.upload_owned(Vec::new(), &mut nothing)?;
        assert!(flight.is_done()?);
        let vec = flight.wait()?;
        let flight = stream.download_owned(&nothing, vec)?;
        assert!(block_on(async { flight.await })?.is_empty());
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn s23_owners_that_are_given_up() -> Result<()> {
        let stream = Device::get(0)?.create_stream()?;
        let mut buffer = stream.alloc::<u8>(LEN)?;
        for polled in [false, true] {
            let dropped = Arc::new(AtomicBool::new(false));
            let drops = Arc::clone(&dropped);
            let host = WatchedHost::new(pattern(13, LEN), move |bytes| {
                bytes.fill(0xEE);
                drops.store(true, Ordering::Release);
            });
            let flight = stream.upload_owned(host, &mut buffer)?;
            if polled {
                let mut landing = std::future::IntoFuture::into_future(flight);
                let _ = Alarm::new().poll(&mut landing).is_pending();
            } else {
                drop(flight);
            }
            cuda_core::drops::flush();
            assert!(dropped.load(Ordering::Acquire), "dropped when the copy was done");
            let mut back = vec![0; LEN];
            stream.download(&buffer, &mut back)?;
            same(&back, &pattern(13, LEN), "and not before");
        }
        Ok(())
    }
}
