//! J: copies.

use std::time::{Duration, Instant};

use cuda_core::pinned::RegisterFlags;
use cuda_core::{
    Device, DeviceBuffer, DeviceGroup, Error, PinnedBuffer, Registered, Result, Stream,
};
use cuda_sys::{CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, CUDA_SUCCESS};
use support::{context, freed_behind_a_stall, gpu_test, pattern, report, stall};

use crate::capture::Capture;
use crate::forms::{Down, Up, contents, every_form, same, scaled, varied};
use crate::peers::Pair;

gpu_test! {
    needs 1;
    fn j_sources_are_given_as_they_are_at_hand() -> Result<()> {
        let stream = Device::get(0)?.create_stream()?;
        let group = DeviceGroup::from_streams([stream.clone()])?;
        let mut to = stream.alloc::<u8>(4)?;
        let (mut array, mut vector) = ([1; 4], vec![2; 4]);
        let mut boxed = vec![3; 4].into_boxed_slice();
        let mut pinned = PinnedBuffer::from_slice(stream.context(), &[4; 4])?;
        let mut registered = Registered::new(stream.context(), vec![5_u8; 4], RegisterFlags::default())?;
        let mut buffer = stream.alloc::<u8>(4)?;
        let holds = |to: &DeviceBuffer<u8>, value| -> Result<()> {
            assert_eq!(stream.download_vec(to)?, [value; 4]);
            Ok(())
        };
        stream.upload(&mut array, &mut to)?;
        holds(&to, 1)?;
        stream.upload(&mut vector, &mut to)?;
        holds(&to, 2)?;
        stream.upload(&mut vector[..], &mut to)?;
        stream.upload(&mut boxed, &mut to)?;
        holds(&to, 3)?;
        stream.upload(&mut pinned, &mut to)?;
        holds(&to, 4)?;
        stream.upload(&mut registered, &mut to)?;
        holds(&to, 5)?;
        stream.upload(&mut pinned.as_view_mut(), &mut to)?;
        stream.copy(&mut to, &mut buffer)?;
        holds(&buffer, 4)?;
        stream.fill(&mut to, 6)?;
        stream.copy(&mut to.as_view_mut(), &mut buffer)?;
        holds(&buffer, 6)?;
        group.scatter(&mut vector, std::slice::from_mut(&mut to))?;
        group.scatter(&mut buffer, std::slice::from_mut(&mut to))?;
        holds(&to, 6)?;
        stream.fill(&mut buffer, 7)?;
        group.scatter(&mut buffer.as_view_mut(), std::slice::from_mut(&mut to))?;
        holds(&to, 7)
    }
}

gpu_test! {
    needs 1;
    fn j02_offsets() -> Result<()> {
        const CANARY: u8 = 0x77;
        const LEN: usize = 1021;
        let stream = Device::get(0)?.create_stream()?;
        let bytes = pattern(2, LEN + 512);
        let pinned = PinnedBuffer::from_slice(stream.context(), &bytes)?;
        for from in [0, 1, 3, 255] {
            for to in [1, 3, 255] {
                let what = format!("from {from} to {to}");
                let expected = &bytes[from..from + LEN];
                let mut framed = vec![CANARY; LEN + 512];
                framed[to..to + LEN].copy_from_slice(expected);

                let mut a = stream.alloc::<u8>(LEN + 512)?;
                stream.fill(&mut a, CANARY)?;
                stream.upload(pinned.slice(from..from + LEN)?, a.slice_mut(to..to + LEN)?)?;
                same(&contents(&stream, &a)?, &framed, &format!("upload {what}"));

                stream.fill(&mut a, CANARY)?;
                stream.upload(expected, a.slice_mut(to..to + LEN)?)?;
                same(&contents(&stream, &a)?, &framed, &format!("upload {what}"));

                stream.upload(&bytes, &mut a)?;
                let mut b = stream.alloc::<u8>(LEN + 512)?;
                stream.fill(&mut b, CANARY)?;
                stream.copy(a.slice(from..from + LEN)?, b.slice_mut(to..to + LEN)?)?;
                same(&contents(&stream, &b)?, &framed, &format!("copy {what}"));

                let mut back = PinnedBuffer::zeroed(stream.context(), LEN + 512)?;
                back.as_mut_slice()?.fill(CANARY);
                stream.download(a.slice(from..from + LEN)?, back.slice_mut(to..to + LEN)?)?;
                same(back.as_slice()?, &framed, &format!("download {what}"));

                let mut back = vec![CANARY; LEN + 512];
                stream.download(a.slice(from..from + LEN)?, &mut back[to..to + LEN])?;
                same(&back, &framed, &format!("download {what}"));

                let mut back = vec![CANARY; LEN + 512];
                let part = &mut back[to..to + LEN];
                stream.scope(|scope| scope.download(a.slice(from..from + LEN)?, part))?;
                same(&back, &framed, &format!("scope {what}"));
            }
        }
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn j_a_mutable_reference_is_read() -> Result<()> {
        // Like a function that writes its buffer elsewhere, this one takes a mutable reference.
        fn last(stream: &Stream, x: &mut DeviceBuffer<u32>) -> Result<Vec<u32>> {
            stream.fill(&mut *x, 3)?;
            stream.download_vec(x)
        }
        let stream = Device::get(0)?.create_stream()?;
        assert_eq!(last(&stream, &mut stream.alloc(4)?)?, [3; 4]);
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn j03_length_mismatch() -> Result<()> {
        let stream = Device::get(0)?.create_stream()?;
        let context = stream.context();
        for (from, to) in [(10, 9), (9, 10), (0, 1), (1, 0)] {
            let mismatch = |result: Result<()>| match result {
                Err(Error::LengthMismatch(it)) => {
                    assert_eq!((it.source_len, it.destination_len), (from, to));
                }
                other => panic!("{from} to {to}: {other:?}"),
            };
            let host = PinnedBuffer::from_slice(context, &vec![1_u16; from])?;
            let mut source = stream.alloc::<u16>(from)?;
            stream.fill(&mut source, 1)?;
            let mut target = stream.alloc::<u16>(to)?;
            stream.fill(&mut target, 2)?;
            mismatch(stream.upload(&host, &mut target));
            mismatch(stream.upload(&vec![1; from], &mut target));
            mismatch(stream.copy(&source, &mut target));
            let mut back = vec![3; to];
            stream.download(&target, &mut back)?;
            assert_eq!(back, vec![2; to], "nothing was written");

            let mut host = PinnedBuffer::from_slice(context, &vec![4_u16; to])?;
            mismatch(stream.download(&source, &mut host));
            assert_eq!(host.as_slice()?, vec![4; to]);
            let mut back = vec![5; to];
            mismatch(stream.download(&source, &mut back));
            mismatch(stream.scope(|scope| scope.download(&source, &mut back)));
            assert_eq!(back, vec![5; to]);
        }
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn j05_blocking_default() -> Result<()> {
        let len = scaled(1 << 30, 4 << 20, 1 << 16);
        let stream = Device::get(0)?.create_stream()?;
        assert!(!stream.is_blocking()?);
        let mut buffer = stream.alloc::<u8>(len)?;
        stream.fill(&mut buffer, 1)?;
        let mut host = PinnedBuffer::<u8>::new(stream.context(), len)?;
        stream.download(&buffer, &mut host)?;
        // Access to the destination waits, so no copy comes after the following write.
        host.as_mut_slice()?[len / 2..].fill(2);
        stream.synchronize()?;
        let (first, second) = host.as_slice()?.split_at(len / 2);
        assert!(first.iter().all(|byte| *byte == 1), "the copied half");
        assert!(second.iter().all(|byte| *byte == 2), "the overwritten half");
        drop(host);

        // A copy of a borrowed slice completes before it returns.
        let len = scaled(64 << 20, 2 << 20, 1 << 16);
        let mut host = vec![0; len];
        stream.download(buffer.slice(..len)?, &mut host)?;
        host[..len / 2].fill(3);
        stream.synchronize()?;
        assert!(host[..len / 2].iter().all(|byte| *byte == 3));
        assert!(host[len / 2..].iter().all(|byte| *byte == 1));
        Ok(())
    }
}

/// The duration of the longest of several calls.
#[derive(Default)]
struct Slowest(Duration);

impl Slowest {
    fn time<T>(&mut self, call: impl FnOnce() -> Result<T>) -> Result<T> {
        let started = Instant::now();
        let result = call();
        self.0 = self.0.max(started.elapsed());
        result
    }
}

/// Makes every asynchronous copy behind a stall, and returns the duration of the slowest call.
fn behind_a_stall() -> Result<Duration> {
    const LEN: usize = 64 << 10;
    let stream = Device::get(0)?.create_stream()?;
    let source = PinnedBuffer::from_slice(stream.context(), &pattern(6, LEN))?;
    let mut back = PinnedBuffer::<u8>::zeroed(stream.context(), LEN)?;
    let (mut a, mut b) = (stream.alloc::<u8>(LEN)?, stream.alloc::<u8>(LEN)?);
    let mut c = stream.alloc::<u8>(LEN)?;
    let mut slowest = Slowest::default();
    // The first round warms up what the second one uses.
    for stalls in [false, true] {
        let held = stalls.then(|| stall(stream.as_raw()));
        slowest = Slowest::default();
        slowest.time(|| stream.upload(&source, &mut a))?;
        slowest.time(|| stream.copy(&a, &mut b))?;
        slowest.time(|| stream.fill(&mut c, 9))?;
        slowest.time(|| stream.upload(&[1, 2, 3], c.slice_mut(..3)?))?;
        slowest.time(|| stream.download(&b, &mut back))?;
        let extra = slowest.time(|| freed_behind_a_stall(|| stream.alloc_zeroed::<u8>(LEN)))?;
        slowest.time(|| extra.close().map_err(Error::from))?;
        if let Some(held) = held {
            assert!(!stream.query()?, "all returned behind the stall");
            assert!(back.try_as_slice()?.is_none());
            held.release();
        }
        same(back.as_slice()?, &pattern(6, LEN), "after the stall");
        assert_eq!(contents(&stream, &c)?[..5], [1, 2, 3, 9, 9]);
        back.as_mut_slice()?.fill(0);
    }
    Ok(slowest.0)
}

gpu_test! {
    needs 1, asynchronous;
    fn j06_async_is_async() -> Result<()> {
        behind_a_stall().map(|_| ())
    }
}

gpu_test! {
    needs 1, asynchronous, timing;
    fn j06_async_is_quick() -> Result<()> {
        let slowest = behind_a_stall()?;
        assert!(slowest < Duration::from_millis(10), "a call took {slowest:?}");
        Ok(())
    }
}

gpu_test! {
    needs 2;
    fn j08_other_device_current() -> Result<()> {
        let stream = Device::get(0)?.create_stream()?;
        let home = Device::get(0)?.create_stream()?;
        let other = Device::get(1)?.enter()?;
        let before = context::current();
        assert_eq!(before, other.context().as_raw());
        every_form(&stream, &home, 5001)?;
        assert_eq!(context::current(), before);
        every_form(&Device::get(0)?.context()?.default_stream()?, &home, 5001)?;
        assert_eq!(context::current(), before);
        every_form(&Device::get(0)?.context()?.per_thread_stream()?, &home, 5001)?;
        assert_eq!(context::current(), before);
        // It stays so even if a call fails.
        let mut buffer = home.alloc::<u8>(10)?;
        assert!(stream.upload(&[0; 9], &mut buffer).is_err());
        assert!(Device::get(1)?.create_stream()?.upload(&[0; 10], &mut buffer).is_err());
        assert_eq!(context::current(), before);
        Ok(())
    }
}

gpu_test! {
    needs 2;
    fn j08_other_device_with_access() -> Result<()> {
        let pair = Pair::new()?;
        let [near, far] = &pair.contexts;
        let home = near.create_stream()?;
        let _other = far.enter()?;
        let copies = |access: &str| {
            every_form(&home, &home, 5001)?;
            every_form(&near.default_stream()?, &home, 5001)?;
            every_form(&near.per_thread_stream()?, &home, 5001)?;
            assert_eq!(context::current(), far.as_raw(), "access {access}");
            Ok::<(), Error>(())
        };
        // The driver checks whether the current device has access to the pool.
        copies("not given")?;
        far.enable_peer_access(near)?;
        copies("given")?;
        far.disable_peer_access(near)?;
        copies("taken away")
    }
}

gpu_test! {
    needs 1, asynchronous;
    fn j11_cross_stream_copy() -> Result<()> {
        const LEN: usize = 100_003;
        let device = Device::get(0)?;
        let (producer, consumer) = (device.create_stream()?, device.create_stream()?);
        let source = PinnedBuffer::from_slice(producer.context(), &varied(11, LEN))?;
        for explicit in [false, true] {
            let mut a = producer.alloc_zeroed::<u8>(LEN)?;
            let mut b = consumer.alloc_zeroed::<u8>(LEN)?;
            let mut back = PinnedBuffer::<u8>::zeroed(producer.context(), LEN)?;
            for stalls in [false, true] {
                producer.fill(&mut a, 0)?;
                let held = stalls.then(|| stall(producer.as_raw()));
                producer.upload(&source, &mut a)?;
                if explicit {
                    consumer.wait_stream(&producer)?;
                }
                consumer.copy(&a, &mut b)?;
                consumer.download(&b, &mut back)?;
                if let Some(held) = held {
                    assert!(!consumer.query()?, "the consumer waits for the producer");
                    held.release();
                }
                same(back.as_slice()?, &varied(11, LEN), "what the producer wrote");
                back.as_mut_slice()?.fill(0);
            }
        }
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn j12_sync_copy_during_capture() -> Result<()> {
        let device = Device::get(0)?;
        let stream = device.create_stream()?;
        let mut buffer = stream.alloc::<u8>(1000)?;
        let bytes = pattern(12, 1000);
        // Warm-up: a capture forbids the allocation of pinned memory.
        stream.upload(&bytes, &mut buffer)?;
        contents(&stream, &buffer)?;
        for mode in [CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, CU_STREAM_CAPTURE_MODE_GLOBAL] {
            let captured = device.create_stream()?;
            let capture = Capture::begin(&captured, mode);
            let uploaded = stream.upload(&bytes, &mut buffer);
            let back = contents(&stream, &buffer);
            assert_eq!(capture.end(), CUDA_SUCCESS, "the capture was invalidated");
            uploaded?;
            same(&back?, &bytes, "copied beside a capture");
        }
        every_form(&stream, &stream, 1000)
    }
}

gpu_test! {
    needs 1;
    fn j12_first_sync_copy_during_capture() -> Result<()> {
        // A copy may, for example, allocate pinned memory, whatever the caller captures.
        let device = Device::get(0)?;
        let stream = device.create_stream()?;
        let mut buffer = stream.alloc_zeroed::<u8>(1000)?;
        stream.synchronize()?;
        for mode in [CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, CU_STREAM_CAPTURE_MODE_GLOBAL] {
            cuda_core::staging::trim()?;
            let captured = device.create_stream()?;
            let capture = Capture::begin(&captured, mode);
            let uploaded = device.create_stream()?.upload(&[7; 1000], &mut buffer);
            assert_eq!(capture.end(), CUDA_SUCCESS, "the capture was invalidated");
            uploaded?;
            same(&contents(&stream, &buffer)?, &[7; 1000], "copied beside a capture");
        }
        Ok(())
    }
}

/// Copies each of the chunks up, eight times in turn, and down again; returns the total duration.
fn pipeline(
    streams: &[Stream],
    chunks: &mut [(PinnedBuffer<u8>, DeviceBuffer<u8>)],
) -> Result<Duration> {
    let started = Instant::now();
    for ((host, device), stream) in chunks.iter_mut().zip(streams.iter().cycle()) {
        stream.upload(&*host, &mut *device)?;
        for value in 0..8 {
            stream.fill(&mut *device, value)?;
        }
        stream.download(&*device, host)?;
    }
    streams.iter().try_for_each(Stream::synchronize)?;
    Ok(started.elapsed())
}

gpu_test! {
    needs 1, asynchronous, timing, heavy, real;
    fn j13_overlap_pays() -> Result<()> {
        const LEN: usize = 64 << 20;
        let device = Device::get(0)?;
        let streams = [device.create_stream()?, device.create_stream()?, device.create_stream()?];
        let mut chunks = Vec::new();
        for _ in 0..4 {
            let host = PinnedBuffer::zeroed(streams[0].context(), LEN)?;
            chunks.push((host, streams[0].alloc(LEN)?));
        }
        let mut best = [Duration::MAX; 2];
        for _ in 0..5 {
            best[0] = best[0].min(pipeline(&streams[..1], &mut chunks)?);
            best[1] = best[1].min(pipeline(&streams, &mut chunks)?);
        }
        // Reported, not asserted: the result depends as much on other users of the machine.
        let [one, three] = best.map(|time| time.as_secs_f64());
        report!("one stream {one:.4} s, three streams {three:.4} s: {:.2} times as fast", one / three);
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn j14_empty_slices() -> Result<()> {
        let device = Device::get(0)?;
        let stream = device.create_stream()?;
        let mut nothing = stream.alloc::<u64>(0)?;
        assert!(nothing.is_empty() && nothing.byte_len() == 0 && nothing.as_raw() != 0);
        every_form(&stream, &stream, 0)?;
        every_form(&device.context()?.default_stream()?, &stream, 0)?;
        every_form(&device.context()?.per_thread_stream()?, &stream, 0)?;
        stream.upload(&[], &mut nothing)?;
        stream.download(&nothing, &mut [])?;
        // An empty fill accepts a pattern of any width.
        stream.fill(&mut nothing, 0x0123_4567_89AB_CDEF)?;
        // Empty views of non-empty buffers.
        let mut buffer = stream.alloc_zeroed::<u8>(8)?;
        stream.copy(nothing.slice(..)?, stream.alloc_zeroed(0)?.slice_mut(0..)?)?;
        Up::Borrowed.send(&stream, &[], buffer.slice_mut(8..)?)?;
        Up::Pinned.send(&stream, &[], buffer.slice_mut(0..0)?)?;
        assert!(Down::Scope.fetch(&stream, buffer.slice(8..8)?)?.is_empty());
        stream.scope(|_| Ok(()))?;
        assert_eq!(contents(&stream, &buffer)?, [0; 8]);
        Ok(())
    }
}
