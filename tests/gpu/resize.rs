//! E13: buffers that change their length, and views as another element type.

use cuda_core::{Device, Error, Graph, Rejected, Result};
use support::{gpu_test, pattern, refusal};

use crate::forms::{contents, same};

gpu_test! {
    needs 1;
    fn e13_resize() -> Result<()> {
        let stream = Device::get(0)?.create_stream()?;
        let mut buffer = stream.alloc::<u8>(5000)?;
        stream.upload(&pattern(13, 5000), &mut buffer)?;
        let address = buffer.as_raw();
        buffer.truncate(6000);
        assert_eq!(buffer.len(), 5000, "never longer");
        buffer.truncate(2000);
        assert_eq!((buffer.len(), buffer.capacity(), buffer.as_raw()), (2000, 5000, address));
        same(&contents(&stream, &buffer)?, &pattern(13, 5000)[..2000], "shrunk");
        // Resizes within the capacity.
        buffer.resize(&stream, 4000)?;
        assert_eq!((buffer.len(), buffer.as_raw()), (4000, address));
        buffer.truncate(1500);
        buffer.shrink_to_fit(&stream)?;
        assert_eq!((buffer.len(), buffer.capacity()), (1500, 1500));
        same(&contents(&stream, &buffer)?, &pattern(13, 5000)[..1500], "moved");
        let moved = buffer.as_raw();
        buffer.shrink_to_fit(&stream)?;
        assert_eq!(buffer.as_raw(), moved, "it fits already");
        buffer.resize(&stream, 9000)?;
        assert_eq!((buffer.len(), buffer.capacity()), (9000, 9000));
        same(&contents(&stream, &buffer)?[..1500], &pattern(13, 5000)[..1500], "grown");
        buffer.reserve(&stream, 1000)?;
        assert_eq!((buffer.len(), buffer.capacity()), (9000, 10_000));
        same(&contents(&stream, &buffer)?[..1500], &pattern(13, 5000)[..1500], "with more room");
        Ok(buffer.close()?)
    }
}

gpu_test! {
    needs 1;
    fn e13_resize_from_and_to_nothing() -> Result<()> {
        let stream = Device::get(0)?.create_stream()?;
        let mut buffer = stream.alloc::<u32>(0)?;
        buffer.resize(&stream, 100)?;
        stream.fill(&mut buffer, 4)?;
        buffer.truncate(0);
        assert!(buffer.is_empty());
        assert_eq!(buffer.capacity(), 100);
        buffer.shrink_to_fit(&stream)?;
        assert_eq!(buffer.capacity(), 0);
        buffer.reserve(&stream, 0)?;
        let mut nothing = stream.alloc::<[u32; 0]>(5)?;
        assert_eq!(nothing.capacity(), usize::MAX);
        nothing.resize(&stream, 1 << 40)?;
        assert_eq!((nothing.len(), nothing.byte_len()), (1 << 40, 0));
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn e13_a_failure_changes_nothing() -> Result<()> {
        let stream = Device::get(0)?.create_stream()?;
        let mut buffer = stream.alloc_zeroed::<u32>(100)?;
        let address = buffer.as_raw();
        assert!(buffer.resize(&stream, 1 << 48).is_err());
        let overflow = buffer.reserve(&stream, usize::MAX).expect_err("more than there are");
        assert!(matches!(overflow, Error::SizeOverflow { .. }), "{overflow:?}");
        assert_eq!((buffer.len(), buffer.capacity(), buffer.as_raw()), (100, 100, address));
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn e13_other_streams_work_comes_first() -> Result<()> {
        let device = Device::get(0)?;
        let (home, writer, mover) =
            (device.create_stream()?, device.create_stream()?, device.create_stream()?);
        let mut buffer = home.alloc::<u32>(1000)?;
        for round in 0..5 {
            writer.fill(&mut buffer, round)?;
            // The copy comes after the fill, and the free after the copy.
            buffer.reserve(&mover, 1000 + round as usize)?;
            buffer.resize(&mover, 1000)?;
            buffer.shrink_to_fit(&home)?;
            let mut back = vec![0; 1000];
            home.download(&buffer, &mut back)?;
            assert!(back.iter().all(|value| *value == round), "{round}: {:?}", &back[..5]);
        }
        Ok(())
    }
}

gpu_test! {
    needs 2;
    fn e13_moves_to_the_streams_device() -> Result<()> {
        let (here, there) = (Device::get(0)?, Device::get(1)?);
        let (one, two) = (here.create_stream()?, there.create_stream()?);
        let mut buffer = one.alloc::<u8>(3000)?;
        one.upload(&pattern(14, 3000), &mut buffer)?;
        buffer.reserve(&two, 1)?;
        assert_eq!(buffer.device(), there);
        same(&contents(&two, &buffer)?, &pattern(14, 3000), "on the other device");
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn e13_plain_memory_gets_a_home() -> Result<()> {
        let device = Device::get(0)?;
        let stream = device.create_stream()?;
        let mut buffer = device.context()?.alloc::<u8>(100)?;
        stream.fill(&mut buffer, 3)?;
        buffer.resize(&stream, 200)?;
        same(&contents(&stream, &buffer)?[..100], &[3; 100], "the prefix");
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn s20_casts() -> Result<()> {
        let stream = Device::get(0)?.create_stream()?;
        let mut bytes = stream.alloc::<u8>(1000)?;
        stream.upload(&pattern(20, 1000), &mut bytes)?;
        let refused = |error: Error| {
            let why = refusal(Err::<(), _>(error));
            let numbers: Vec<usize> = why.split(' ').filter_map(|word| word.parse().ok()).collect();
            (numbers[0], numbers[1], numbers[2])
        };
        // Not a whole number of elements, then a whole number, but misaligned.
        assert_eq!(refused(bytes.slice(..6)?.cast::<u32>().expect_err("six bytes")), (6, 4, 4));
        assert_eq!(refused(bytes.slice(2..6)?.cast::<u32>().expect_err("at 2")), (4, 4, 4));
        assert_eq!(refused(bytes.slice(1..3)?.cast::<u16>().expect_err("at 1")), (2, 2, 2));
        assert_eq!(refused(bytes.slice_mut(4..12)?.cast::<u64>().expect_err("at 4")), (8, 8, 8));
        // Elements of alignment one may start anywhere.
        assert_eq!(bytes.slice(1..10)?.cast::<[u8; 3]>()?.len(), 3);
        // An empty range is empty for any type; bytes are no elements of size zero.
        assert_eq!(bytes.slice(8..8)?.cast::<u64>()?.len(), 0);
        assert_eq!(bytes.slice(..0)?.cast::<[u64; 0]>()?.len(), 0);
        assert_eq!(refused(bytes.as_view().cast::<[u8; 0]>().expect_err("no size")), (1000, 0, 1));
        // Casts to words and back.
        let words = bytes.cast::<u32>()?;
        assert_eq!(words.len(), 250);
        let Rejected { error, value: words } = words.cast::<[u32; 3]>().expect_err("250 are no triples");
        assert_eq!(refused(error), (1000, 12, 4));
        stream.fill(&mut words.cast::<u8>()?, 1)
    }
}

gpu_test! {
    needs 1;
    fn l_memory_of_a_graph_does_not_move() -> Result<()> {
        let stream = Device::get(0)?.create_stream()?;
        let mut x = stream.alloc_zeroed::<u32>(1000)?;
        let graph = Graph::capture(stream.context(), |stream| stream.fill(&mut x, 2))?;
        let (address, more) = (x.as_raw(), x.capacity() + 1);
        assert!(refusal(x.resize(&stream, more)).contains("a graph uses the memory"));
        let named = |op, error: Error| assert!(error.to_string().starts_with(op), "{error}");
        named("DeviceBuffer::reserve: ", x.reserve(&stream, more).expect_err("the graph's"));
        x.truncate(10);
        named("DeviceBuffer::shrink_to_fit: ", x.shrink_to_fit(&stream).expect_err("the graph's"));
        x.resize(&stream, 1000)?; // has room
        assert_eq!((x.as_raw(), x.len()), (address, 1000));
        graph.instantiate()?.launch(&stream)?;
        assert_eq!(stream.download_vec(&x)?, [2; 1000]);
        drop(graph);
        x.resize(&stream, more)?;
        // In a capture, moving the elements is an operation of the graph.
        let mut last = stream.alloc::<u32>(1)?;
        let graph = Graph::capture(stream.context(), |stream| {
            let mut list = stream.alloc::<u32>(100)?;
            stream.fill(&mut list, 5)?;
            list.reserve(stream, list.capacity())?;
            stream.copy(list.slice(99..)?, &mut last)
        })?;
        graph.instantiate()?.launch(&stream)?;
        assert_eq!(stream.download_vec(&last)?, [5]);
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn l_memory_of_another_graph_does_not_move_in_a_capture() -> Result<()> {
        let stream = Device::get(0)?.create_stream()?;
        let mut x = stream.alloc_zeroed::<u32>(1000)?;
        let first = Graph::capture(stream.context(), |stream| stream.fill(&mut x, 2))?;
        let more = x.capacity();
        Graph::capture(stream.context(), |captured| {
            assert!(refusal(x.reserve(captured, more)).contains("a graph uses the memory"));
            Ok(())
        })?;
        first.instantiate()?.launch(&stream)?;
        assert_eq!(stream.download_vec(&x)?, [2; 1000]);
        Ok(())
    }
}
