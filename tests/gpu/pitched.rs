//! J: copies and fills of rows.

use std::time::Duration;

use cuda_core::managed::ManagedBuffer;
use cuda_core::{
    Device, DeviceBuffer, Error, Extent, PinnedBuffer, PitchedBuffer, Result, Shape, Stream,
    StreamKind,
};
use support::{context, gpu_test, pattern, refusal, stall};

use crate::forms::{contents, same};

/// The layout of rows on one side of a copy: bytes to skip, pitch in bytes, rows from slice to slice.
type Side = (usize, usize, usize);

/// Returns the content of `target` after a copy of these rows.
fn copied(
    source: &[u8],
    from: Side,
    target: &[u8],
    to: Side,
    [width, height, depth]: [usize; 3],
) -> Vec<u8> {
    let mut target = target.to_vec();
    let start = |(skip, pitch, rows): Side, y, z| skip + (z * rows + y) * pitch;
    for (y, z) in (0..depth).flat_map(|z| (0..height).map(move |y| (y, z))) {
        let (from, to) = (start(from, y, z), start(to, y, z));
        target[to..to + width].copy_from_slice(&source[from..from + width]);
    }
    target
}

fn shape((_, pitch, rows): Side, [width, height, depth]: [usize; 3]) -> Shape {
    Shape::volume(width, height, depth).with_pitch(pitch).with_slice_height(rows)
}

const LEN: usize = 6000;

/// Copies rows in every direction, and compares every byte of the destination.
fn every_direction<K: StreamKind>(
    stream: &Stream<K>,
    home: &Stream,
    from: Side,
    to: Side,
    size: [usize; 3],
) -> Result<()> {
    let what = format!("{size:?} from {from:?} to {to:?}");
    let (bytes, canary) = (pattern(9, LEN), pattern(90, LEN));
    let expected = copied(&bytes, from, &canary, to, size);
    let (skip, put, ends) = (from.0, to.0, (from, to));
    let (from, to) = (shape(from, size), shape(to, size));
    let pinned = PinnedBuffer::from_slice(home.context(), &bytes)?;
    let mut device = home.alloc::<u8>(LEN)?;
    let mut target = home.alloc::<u8>(LEN)?;
    let mut back = PinnedBuffer::from_slice(home.context(), &canary)?;

    home.upload(&canary, &mut target)?;
    let source = pinned.slice(skip..)?;
    stream.copy_pitched(source.pitched(from)?, target.slice_mut(put..)?.pitched(to)?)?;
    same(&contents(home, &target)?, &expected, &format!("up {what}"));

    home.upload(&canary, &mut target)?;
    home.upload(&pinned, &mut device)?;
    let source = device.slice(skip..)?;
    stream.copy_pitched(source.pitched(from)?, target.slice_mut(put..)?.pitched(to)?)?;
    same(&contents(home, &target)?, &expected, &format!("across {what}"));

    let source = device.slice(skip..)?;
    stream.copy_pitched(source.pitched(from)?, back.slice_mut(put..)?.pitched(to)?)?;
    same(back.as_slice()?, &expected, &format!("down {what}"));

    back.as_mut_slice()?.copy_from_slice(&canary);
    let source = pinned.slice(skip..)?;
    stream.copy_pitched(source.pitched(from)?, back.slice_mut(put..)?.pitched(to)?)?;
    same(back.as_slice()?, &expected, &format!("on the host {what}"));

    // In memory that is not pinned, rows have no gaps.
    let [width, height, depth] = size;
    let packed = copied(&bytes, ends.0, &vec![0; LEN], (0, width, height), size);
    let packed = &packed[..width * height * depth];
    home.upload(&canary, &mut target)?;
    stream.upload_pitched(packed, target.slice_mut(put..)?.pitched(to)?)?;
    same(&contents(home, &target)?, &expected, &format!("from a slice {what}"));
    let mut rows = vec![0; packed.len()];
    stream.download_pitched(target.slice(put..)?.pitched(to)?, &mut rows)?;
    same(&rows, packed, &format!("to a slice {what}"));
    Ok(())
}

gpu_test! {
    needs 1;
    fn j09_strided() -> Result<()> {
        let stream = Device::get(0)?.create_stream()?;
        let size = [100, 17, 1];
        for from in [(0, 100, 17), (3, 128, 17), (255, 101, 17)] {
            for to in [(0, 100, 17), (1, 173, 17), (64, 256, 17)] {
                every_direction(&stream, &stream, from, to, size)?;
            }
        }
        for (from, to, size) in [
            ((5, 7, 1), (6, 9, 1), [7, 1, 1]),
            ((0, 1, 90), (1, 64, 90), [1, 90, 1]),
        ] {
            every_direction(&stream, &stream, from, to, size)?;
        }
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn j09_strided_volumes() -> Result<()> {
        let stream = Device::get(0)?.create_stream()?;
        let size = [50, 7, 5];
        for from in [(0, 50, 7), (2, 64, 7), (1, 64, 12)] {
            for to in [(0, 50, 7), (3, 80, 7), (0, 77, 9)] {
                every_direction(&stream, &stream, from, to, size)?;
            }
        }
        Ok(())
    }
}

gpu_test! {
    needs 2;
    fn j08_j09_other_device_current() -> Result<()> {
        let home = Device::get(0)?.create_stream()?;
        let device = Device::get(0)?.context()?;
        let _other = Device::get(1)?.enter()?;
        let before = context::current();
        for (from, to, size) in [
            ((3, 64, 9), (1, 70, 9), [50, 9, 1]),
            ((3, 64, 9), (1, 70, 11), [50, 9, 2]),
        ] {
            every_direction(&home, &home, from, to, size)?;
            every_direction(&device.create_stream()?, &home, from, to, size)?;
            every_direction(&device.default_stream()?, &home, from, to, size)?;
            every_direction(&device.per_thread_stream()?, &home, from, to, size)?;
            assert_eq!(context::current(), before);
        }
        Ok(())
    }
}

gpu_test! {
    needs 2;
    fn j09_between_devices() -> Result<()> {
        let streams = [Device::get(0)?.create_stream()?, Device::get(1)?.create_stream()?];
        let (bytes, canary) = (pattern(9, LEN), pattern(90, LEN));
        for (from, to, size) in [
            ((3, 64, 9), (1, 70, 9), [50, 9, 1]),
            ((3, 64, 9), (1, 70, 11), [50, 9, 2]),
        ] {
            let expected = copied(&bytes, from, &canary, to, size);
            for by in &streams {
                let mut source = streams[0].alloc::<u8>(LEN)?;
                let mut target = streams[1].alloc::<u8>(LEN)?;
                streams[0].upload(&bytes, &mut source)?;
                streams[1].upload(&canary, &mut target)?;
                by.copy_pitched(
                    source.slice(from.0..)?.pitched(shape(from, size))?,
                    target.slice_mut(to.0..)?.pitched(shape(to, size))?,
                )?;
                same(&contents(&streams[1], &target)?, &expected, "between devices");
            }
        }
        Ok(())
    }
}

gpu_test! {
    needs 1, heavy;
    fn j09_rows_from_and_to_slices_of_several_chunks() -> Result<()> {
        let stream = Device::get(0)?.create_stream()?;
        // Rows longer than a chunk, several rows per chunk, and several planes per chunk.
        for [width, height, depth] in [[300_001, 2, 2], [1001, 700, 1], [100, 30, 250]] {
            let shape = Shape::volume(width, height, depth)
                .with_pitch(4 * width + 12)
                .with_slice_height(height + 1);
            let values: Vec<u32> = (0..(width * height * depth) as u32).collect();
            let mut image = stream.alloc_zeroed::<u32>((width + 3) * (height + 1) * depth)?;
            stream.upload_pitched(&values, image.pitched_mut(shape)?)?;
            let mut back = vec![0; values.len()];
            stream.download_pitched(image.pitched(shape)?, &mut back)?;
            assert!(back == values, "{shape:?}");
            // The bytes between the rows are unchanged.
            let all = stream.download_vec(&image)?;
            let sum = |values: &[u32]| values.iter().map(|value| u64::from(*value)).sum::<u64>();
            assert_eq!(sum(&all), sum(&values), "{shape:?}");
        }
        Ok(())
    }
}

gpu_test! {
    needs 1, heavy;
    fn j09_rows_of_elements_that_are_larger_than_a_chunk() -> Result<()> {
        const LARGE: usize = (1 << 20) + 256;
        let test = || -> Result<()> {
            let stream = Device::get(0)?.create_stream()?;
            let mut image = stream.alloc_zeroed::<[u8; LARGE]>(3)?;
            let shape = Shape::plane(1, 2).with_pitch(LARGE + 256);
            let values = vec![[7; LARGE]; 2];
            stream.upload_pitched(&values, image.pitched_mut(shape)?)?;
            let mut back = vec![[1; LARGE]; 2];
            stream.download_pitched(image.pitched(shape)?, &mut back)?;
            assert!(back == values);
            Ok(())
        };
        // The thread's stack has room for the elements.
        let thread = std::thread::Builder::new().stack_size(64 << 20).spawn(test);
        thread.expect("a thread").join().expect("no panic")
    }
}

gpu_test! {
    needs 2;
    fn j09_managed_rows_of_another_device() -> Result<()> {
        let (near, far) = (Device::get(0)?.create_stream()?, Device::get(1)?.create_stream()?);
        let mut managed = ManagedBuffer::<u8>::zeroed(far.context(), 100)?;
        let shape = Shape::plane(10, 5).with_pitch(20);
        near.upload_pitched(&pattern(1, 50), managed.pitched_mut(shape)?)?;
        let mut back = [0; 50];
        near.download_pitched(managed.pitched(shape)?, &mut back)?;
        same(&back, &pattern(1, 50), "by a stream of another device");
        let mut device = far.alloc::<u8>(100)?;
        let refused = near.upload_pitched(&[1; 50], device.pitched_mut(shape)?);
        assert!(matches!(refused, Err(Error::WrongDevice(_))), "{refused:?}");
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn j09_what_does_not_fit_is_refused() -> Result<()> {
        let stream = Device::get(0)?.create_stream()?;
        let mut buffer = stream.alloc_zeroed::<u32>(64)?;
        let long = Shape::plane(9, 2).with_pitch(32);
        assert!(refusal(buffer.pitched(long)).contains("36 bytes is longer than the pitch of 32"));
        let high = Shape::volume(1, 3, 2).with_slice_height(2);
        assert!(refusal(buffer.pitched_mut(high)).contains("3 rows begin only 2 rows apart"));
        for shape in [
            Shape::plane(16, 5),
            Shape::plane(8, 8).with_pitch(36),
            Shape::volume(4, 4, 4).with_slice_height(5),
        ] {
            assert!(matches!(buffer.pitched(shape), Err(Error::OutOfBounds(_))), "{shape:?}");
        }
        // The last row needs no more than its width.
        assert!(buffer.pitched(Shape::plane(1, 8).with_pitch(36)).is_ok());
        let other = stream.alloc_zeroed::<u32>(64)?;
        let source = other.pitched(Shape::plane(4, 8))?;
        let target = buffer.pitched_mut(Shape::plane(8, 4))?;
        let plane = |width, height| Extent { width, height, depth: 1 };
        let (from, to) = (plane(4, 8), plane(8, 4));
        let why = format!("the source is {from}, the destination {to}");
        assert_eq!(refusal(stream.copy_pitched(source, target)), why);
        let short = stream.upload_pitched(&[1; 31], buffer.pitched_mut(Shape::plane(8, 4))?);
        assert!(matches!(short, Err(Error::LengthMismatch(_))), "{short:?}");
        let long = stream.download_pitched(buffer.pitched(Shape::plane(8, 4))?, &mut [1; 33]);
        assert!(matches!(long, Err(Error::LengthMismatch(_))), "{long:?}");
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn j14_nothing_in_rows() -> Result<()> {
        let stream = Device::get(0)?.create_stream()?;
        let none = PinnedBuffer::<u16>::new(stream.context(), 0)?;
        let mut buffer = stream.alloc_zeroed::<u16>(64)?;
        for size in [[0, 3, 1], [3, 0, 1], [3, 3, 0], [0, 0, 0]] {
            let shape = Shape::volume(size[0], size[1], size[2]).with_pitch(1000);
            stream.copy_pitched(none.pitched(shape)?, buffer.pitched_mut(shape)?)?;
            stream.fill_pitched(buffer.pitched_mut(shape)?, 7)?;
            stream.upload_pitched(&[], buffer.pitched_mut(shape)?)?;
            stream.download_pitched(buffer.pitched(shape)?, &mut [])?;
        }
        let mut back = [1; 64];
        stream.download(&buffer, &mut back)?;
        assert_eq!(back, [0; 64]);
        Ok(())
    }
}

fn filled<T: cuda_core::Pod>(stream: &Stream, value: T, bytes: &[u8]) -> Result<()> {
    const PITCH: usize = 48;
    let width = size_of::<T>();
    for (size, rows) in [([5, 6, 1], 6), ([4, 3, 3], 3), ([4, 3, 3], 5)] {
        let canary = pattern(91, 1024);
        let mut target = stream.alloc::<u8>(1024)?;
        stream.upload(&canary, &mut target)?;
        let to = (16, PITCH, rows);
        let wide = [size[0] * width, size[1], size[2]];
        let expected = copied(&bytes.repeat(1024), (0, 0, 0), &canary, to, wide);
        let view = target.slice_mut(16..16 + 1008 / width * width)?.cast::<T>()?;
        stream.fill_pitched(view.pitched(shape(to, size))?, value)?;
        same(&contents(stream, &target)?, &expected, &format!("{size:?} of {bytes:?}"));
    }
    Ok(())
}

gpu_test! {
    needs 1;
    fn j09_fills() -> Result<()> {
        let stream = Device::get(0)?.create_stream()?;
        filled(&stream, 0x5a_u8, &[0x5a])?;
        filled(&stream, 0x1234_u16, &0x1234_u16.to_ne_bytes())?;
        filled(&stream, 0x1234_5678_u32, &0x1234_5678_u32.to_ne_bytes())?;
        filled(&stream, [0x1234_5678_u32; 2], &0x1234_5678_u32.to_ne_bytes().repeat(2))?;
        // By several calls: values whose bytes do not repeat.
        filled(&stream, 0x1234_5678_9abc_def0_u64, &0x1234_5678_9abc_def0_u64.to_ne_bytes())?;
        filled(&stream, [1_u8, 2, 3], &[1, 2, 3])?;
        filled(&stream, [1_u16, 2, 2], &[1_u16, 2, 2].map(u16::to_ne_bytes).concat())?;
        // Rows that do not begin at multiples of the value's size.
        let mut target = stream.alloc_zeroed::<u32>(8)?;
        let odd = Shape::plane(2, 3).with_pitch(10);
        stream.fill_pitched(target.pitched_mut(odd)?, 0x0403_0201)?;
        let mut expected = [0; 32];
        for start in [0, 4, 10, 14, 20, 24] {
            expected[start..start + 4].copy_from_slice(&0x0403_0201_u32.to_ne_bytes());
        }
        let bytes = stream.download_vec(target.as_view().cast::<u8>()?)?;
        same(&bytes, &expected, "at odd pitches");
        Ok(())
    }
}

gpu_test! {
    needs 1, asynchronous;
    fn j09_pitched_buffers_are_waited_for() -> Result<()> {
        let stream = Device::get(0)?.create_stream()?;
        let mut image = stream.context().alloc_pitched::<u32>(33, 21)?;
        let mut host = PinnedBuffer::<u32>::zeroed(stream.context(), 33 * 21)?;
        stream.fill_pitched(image.pitched_mut()?, 9)?;
        image.synchronize()?;
        let stalled = stall(stream.as_raw());
        stream.copy_pitched(image.pitched()?, host.pitched_mut(Shape::plane(33, 21))?)?;
        image.synchronize()?; // only for writers
        assert!(host.try_as_slice()?.is_none());
        stalled.release_after(Duration::from_millis(10));
        image.synchronize_mut()?;
        assert_eq!(host.try_as_slice()?, Some(&[9; 33 * 21][..]), "the copy was waited for");
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn j09_pitched_buffers() -> Result<()> {
        let device = Device::get(0)?;
        let stream = device.create_stream()?;
        let (width, height) = (33, 21);
        let values: Vec<u32> = (0..width * height).map(|n| n as u32).collect();
        let host = PinnedBuffer::from_slice(stream.context(), &values)?;
        let mut image: PitchedBuffer<u32> = stream.context().alloc_pitched(width, height)?;
        let dense = Shape::plane(width, height);
        stream.fill_pitched(image.pitched_mut()?, 9)?;
        stream.copy_pitched(host.pitched(dense)?, image.pitched_mut()?)?;
        let mut back = PinnedBuffer::<u32>::zeroed(stream.context(), width * height)?;
        stream.copy_pitched(image.pitched()?, back.pitched_mut(dense)?)?;
        assert_eq!(back.as_slice()?, values);
        // Copies one column.
        let column = Shape::plane(1, height).with_pitch(image.pitch());
        let part = image.as_bytes().slice(7 * 4..)?.cast::<u32>();
        let mut numbers = stream.alloc::<u32>(height)?;
        if let Ok(part) = part {
            stream.copy_pitched(part.pitched(column)?, numbers.pitched_mut(Shape::plane(1, height))?)?;
        }
        let mut back = vec![0; height];
        stream.download(&numbers, &mut back)?;
        let expected: Vec<u32> = (0..height).map(|y| (y * width + 7) as u32).collect();
        assert_eq!(back, expected);
        Ok(())
    }
}

gpu_test! {
    needs 1, asynchronous;
    fn j11_rows_across_streams() -> Result<()> {
        let device = Device::get(0)?;
        let (producer, consumer) = (device.create_stream()?, device.create_stream()?);
        let bytes = pattern(11, 1000);
        let source = PinnedBuffer::from_slice(producer.context(), &bytes)?;
        let mut a: DeviceBuffer<u8> = producer.alloc_zeroed(1000)?;
        let mut back = PinnedBuffer::<u8>::zeroed(producer.context(), 1000)?;
        let rows = Shape::plane(20, 10).with_pitch(100);
        for stalls in [false, true] {
            producer.fill(&mut a, 0)?;
            back.as_mut_slice()?.fill(1);
            let held = stalls.then(|| stall(producer.as_raw()));
            producer.copy_pitched(source.pitched(rows)?, a.pitched_mut(rows)?)?;
            // Touches the gaps between the rows, and the last two rows.
            consumer.download(a.slice(700..)?, back.slice_mut(700..)?)?;
            if let Some(held) = held {
                assert!(!consumer.query()?, "the consumer waits for the producer");
                held.release();
            }
            let back = back.as_slice()?;
            assert_eq!(back[700..720], bytes[700..720]);
            assert_eq!((back[699], back[720]), (1, 0));
        }
        Ok(())
    }
}
