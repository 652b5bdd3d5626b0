//! J: copies in batches, and within one buffer.

use cuda_core::{Batch, Device, Error, PinnedBuffer, Result, Stream, StreamKind};
use support::{gpu_test, one_stream, pattern, stall};

use crate::forms::{contents, same};

/// Copies to, on and from the device in one batch.
fn mixed<K: StreamKind>(stream: &Stream<K>, home: &Stream) -> Result<()> {
    const LEN: usize = 3001;
    let bytes = pattern(21, LEN);
    let host = PinnedBuffer::from_slice(home.context(), &bytes)?;
    let mut back = PinnedBuffer::<u8>::zeroed(home.context(), LEN)?;
    let mut uploaded = home.alloc_zeroed::<u8>(LEN)?;
    let mut source = home.alloc::<u8>(LEN)?;
    let mut copied = home.alloc_zeroed::<u8>(2 * LEN)?;
    home.upload(&bytes, &mut source)?;
    let mut nothing = home.alloc::<u8>(0)?;
    let (mut low, mut high) = copied.split_at_mut(LEN)?;
    let mut batch = Batch::new();
    batch.upload(host.slice(1..1001)?, uploaded.slice_mut(255..1255)?)?;
    batch.copy(&source, &mut low)?;
    batch.copy(&source, &mut high)?;
    batch.download(source.slice(3..)?, back.slice_mut(..LEN - 3)?)?;
    // An empty copy is not counted.
    batch.copy(source.slice(..0)?, &mut nothing)?;
    assert_eq!(batch.len(), 4);
    stream.enqueue(batch)?;
    same(&back.as_slice()?[..LEN - 3], &bytes[3..], "downloaded");
    let uploaded = contents(home, &uploaded)?;
    same(&uploaded[255..1255], &bytes[1..1001], "uploaded");
    assert_eq!((uploaded[254], uploaded[1255]), (0, 0));
    same(&contents(home, &copied)?, &[&bytes[..], &bytes].concat(), "copied");
    Ok(())
}

gpu_test! {
    needs 1;
    fn j01_batches() -> Result<()> {
        let (context, home) = one_stream()?;
        mixed(&home, &home)?;
        mixed(&context.create_stream()?, &home)?;
        mixed(&context.default_stream()?, &home)?;
        mixed(&context.per_thread_stream()?, &home)
    }
}

gpu_test! {
    needs 2;
    fn j08_batches_with_another_device_current() -> Result<()> {
        let home = Device::get(0)?.create_stream()?;
        let _other = Device::get(1)?.enter()?;
        mixed(&home, &home)
    }
}

gpu_test! {
    needs 2;
    fn j08_batches_between_devices() -> Result<()> {
        let streams = [Device::get(0)?.create_stream()?, Device::get(1)?.create_stream()?];
        let bytes = pattern(22, 5000);
        let host = PinnedBuffer::from_slice(streams[0].context(), &bytes)?;
        let mut source = streams[0].alloc::<u8>(5000)?;
        streams[0].upload(&bytes, &mut source)?;
        let mut here = streams[0].alloc_zeroed::<u8>(5000)?;
        let mut there = streams[1].alloc_zeroed::<u8>(5000)?;
        let mut batch = Batch::new();
        batch.copy(&source, &mut there)?;
        let (mut low, mut high) = here.split_at_mut(2500)?;
        batch.upload(host.slice(..2500)?, &mut low)?;
        batch.copy(source.slice(2500..)?, &mut high)?;
        streams[0].enqueue(batch)?;
        same(&contents(&streams[1], &there)?, &bytes, "there");
        same(&contents(&streams[0], &here)?, &bytes, "here");

        // A stream of this device cannot upload to the other one.
        let mut batch = Batch::new();
        batch.copy(&source, &mut here)?;
        batch.upload(&host, &mut there)?;
        assert!(matches!(streams[0].enqueue(batch), Err(Error::WrongDevice(_))));
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn j03_j14_batches_of_nothing() -> Result<()> {
        let stream = Device::get(0)?.create_stream()?;
        stream.enqueue(Batch::new())?;
        let host = PinnedBuffer::<u8>::zeroed(stream.context(), 9)?;
        let mut buffer = stream.alloc_zeroed::<u8>(10)?;
        let mut batch = Batch::new();
        assert!(matches!(
            batch.upload(&host, &mut buffer),
            Err(Error::LengthMismatch(it)) if it.source_len == 9 && it.destination_len == 10
        ));
        assert!(batch.is_empty());
        stream.enqueue(batch)
    }
}

gpu_test! {
    needs 1, asynchronous;
    fn j06_j11_batches_are_ordered() -> Result<()> {
        let device = Device::get(0)?;
        let (producer, consumer) = (device.create_stream()?, device.create_stream()?);
        let bytes = pattern(23, 2000);
        let host = PinnedBuffer::from_slice(producer.context(), &bytes)?;
        let mut a = producer.alloc_zeroed::<u8>(1000)?;
        let mut b = producer.alloc_zeroed::<u8>(1000)?;
        let mut back = PinnedBuffer::<u8>::zeroed(producer.context(), 2000)?;
        for stalls in [false, true] {
            let held = stalls.then(|| stall(producer.as_raw()));
            let mut up = Batch::new();
            up.upload(host.slice(..1000)?, &mut a)?;
            up.upload(host.slice(1000..)?, &mut b)?;
            producer.enqueue(up)?;
            let (mut low, mut high) = back.split_at_mut(1000)?;
            let mut down = Batch::new();
            down.download(&a, &mut low)?;
            down.download(&b, &mut high)?;
            consumer.enqueue(down)?;
            if let Some(held) = held {
                assert!(!consumer.query()?, "the consumer waits for the producer");
                assert!(back.try_as_slice()?.is_none());
                held.release();
            }
            same(back.as_slice()?, &bytes, "through two batches");
            back.as_mut_slice()?.fill(0);
            producer.fill(&mut a, 0)?;
            producer.fill(&mut b, 0)?;
        }
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn j04_overlap() -> Result<()> {
        let stream = Device::get(0)?.create_stream()?;
        let bytes = pattern(4, 100);
        let mut buffer = stream.alloc::<u8>(100)?;
        for (from, to) in [(0..40, 60), (60..100, 0), (0..50, 50), (50..100, 0), (7..7, 3), (3..3, 100)] {
            stream.upload(&bytes, &mut buffer)?;
            stream.copy_within(&mut buffer, from.clone(), to)?;
            let mut expected = bytes.clone();
            expected.copy_within(from.clone(), to);
            same(&contents(&stream, &buffer)?, &expected, &format!("{from:?} to {to}"));
        }
        stream.upload(&bytes, &mut buffer)?;
        for (from, to) in [(0..40, 39), (39..80, 0), (10..20, 10), (10..20, 11), (10..20, 9)] {
            assert!(
                matches!(stream.copy_within(&mut buffer, from.clone(), to), Err(Error::Invalid(ref it)) if it.reason.contains("overlap")),
                "{from:?} to {to}"
            );
        }
        for (from, to) in [(0..40, 61), (60..101, 0), (0..1, usize::MAX), (0..0, 101)] {
            assert!(
                matches!(stream.copy_within(&mut buffer, from.clone(), to), Err(Error::OutOfBounds(_))),
                "{from:?} to {to}"
            );
        }
        same(&contents(&stream, &buffer)?, &bytes, "nothing was written");
        // Offsets in a view are counted in the view's own elements, too.
        stream.copy_within(buffer.slice_mut(50..)?, 40.., 0)?;
        assert_eq!(contents(&stream, &buffer)?[50..60], bytes[90..]);
        Ok(())
    }
}
