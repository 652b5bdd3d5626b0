//! E: device memory that belongs to no stream, contiguous or in rows.

use cuda_core::{Allocator, Device, DeviceAllocator as _, Error, PitchedBuffer, Result};
use support::{gpu_test, pattern, refusal};

use crate::forms::{contents, same};

gpu_test! {
    needs 1;
    fn e02_plain_sizes() -> Result<()> {
        let device = Device::get(0)?;
        let (context, stream) = (device.context()?, device.create_stream()?);
        for len in [1, 3, 511, 512, 513, 1 << 10, 1 << 20] {
            let mut buffer = context.alloc::<u8>(len)?;
            assert_eq!((buffer.len(), buffer.as_raw() % 256), (len, 0));
            stream.upload(&[0x5C], buffer.slice_mut(len - 1..)?)?;
            let mut last = [0];
            stream.download(buffer.slice(len - 1..)?, &mut last)?;
            assert_eq!(last, [0x5C], "the last of {len} bytes");
        }
        let empty = context.alloc::<u64>(0)?;
        assert!(empty.is_empty() && empty.as_raw() != 0);
        // The allocator refuses, because it would have to free that address.
        let refused = Allocator::plain().allocate(&stream, 0);
        assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
        Ok(empty.close()?)
    }
}

gpu_test! {
    needs 1;
    fn e03_plain_too_large() -> Result<()> {
        let context = Device::get(0)?.context()?;
        match context.alloc::<u8>(1 << 50) {
            Err(Error::OutOfMemory(it)) => {
                assert_eq!(it.requested, 1 << 50);
                let memory = it.memory.expect("the error has the device's figures");
                assert!(memory.total < 1 << 50, "{memory:?}");
            }
            Err(Error::Driver { code, .. }) => assert_eq!(code, cuda_sys::CUDA_ERROR_INVALID_VALUE),
            other => panic!("a pebibyte: {other:?}"),
        }
        let overflow = context.alloc::<u64>(1 << 61).expect_err("wraps to nothing");
        assert!(matches!(overflow, Error::SizeOverflow { .. }), "{overflow:?}");
        // E04: the error does not persist.
        let stream = context.create_stream()?;
        let mut buffer = context.alloc::<u8>(100)?;
        stream.fill(&mut buffer, 4)?;
        same(&contents(&stream, &buffer)?, &[4; 100], "after an error");
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn b08_mem_info_follows_plain_memory() -> Result<()> {
        const BYTES: usize = 256 << 20;
        let context = Device::get(0)?.context()?;
        // Other processes may allocate and free meanwhile.
        for attempt in 0.. {
            let before = context.memory_info()?;
            assert!(0 < before.free && before.free <= before.total, "{before:?}");
            let buffer = context.alloc::<u8>(BYTES)?;
            let during = context.memory_info()?;
            buffer.close()?;
            let after = context.memory_info()?;
            if during.free + BYTES <= before.free && after.free >= before.free {
                return Ok(());
            }
            assert!(attempt < 3, "{before:?}, {during:?}, {after:?}");
        }
        Ok(())
    }
}

gpu_test! {
    needs 2;
    fn a38_plain_memory_dropped_elsewhere() -> Result<()> {
        let (here, there) = (Device::get(0)?, Device::get(1)?);
        let stream = there.create_stream()?;
        let mut buffer = there.context()?.alloc::<u8>(1000)?;
        stream.fill(&mut buffer, 1)?;
        let guard = here.enter()?;
        drop(buffer);
        guard.restore()?;
        let mut buffer = there.context()?.alloc::<u8>(1000)?;
        stream.fill(&mut buffer, 1)?;
        std::thread::spawn(move || drop(buffer)).join().expect("no panic");
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn e02_pitched_rows() -> Result<()> {
        let device = Device::get(0)?;
        let (context, stream) = (device.context()?, device.create_stream()?);
        let mut rows: PitchedBuffer<u32> = context.alloc_pitched(1001, 7)?;
        assert_eq!((rows.width(), rows.height(), rows.device()), (1001, 7, device));
        assert!(rows.pitch() >= 4004 && !rows.is_empty());
        stream.fill_bytes(rows.as_bytes_mut(), 0xEE)?;
        for y in 0..7 {
            stream.fill(rows.row_mut(y)?, y as u32)?;
        }
        for y in 0..7 {
            let mut row = vec![0; 1001];
            stream.download(rows.row(y)?, &mut row)?;
            assert!(row.iter().all(|value| *value == y as u32), "row {y}: {row:?}");
        }
        // The gaps between the rows are unchanged.
        let mut all = vec![0; rows.pitch() * 7];
        stream.download(rows.as_bytes(), &mut all)?;
        for y in 0..7 {
            let gap = &all[y * rows.pitch() + 4004..(y + 1) * rows.pitch()];
            assert!(gap.iter().all(|byte| *byte == 0xEE), "behind row {y}");
        }
        assert!(refusal(rows.row(7)).contains("there is no row 7 among 7"));
        Ok(rows.close()?)
    }
}

gpu_test! {
    needs 1;
    fn e02_pitched_sizes() -> Result<()> {
        let device = Device::get(0)?;
        let (context, stream) = (device.context()?, device.create_stream()?);
        for (width, height) in [(0, 0), (0, 5), (5, 0)] {
            let rows = context.alloc_pitched::<u64>(width, height)?;
            assert!(rows.is_empty());
            assert_eq!((rows.width(), rows.height()), (width, height));
        }
        assert_eq!(context.alloc_pitched::<u64>(0, 5)?.row(4)?.len(), 0);
        for width in [1, 3, 511, 512, 513] {
            let mut bytes = context.alloc_pitched::<u8>(width, 3)?;
            stream.upload(&pattern(2, width), bytes.row_mut(2)?)?;
            same(&contents_of(&stream, bytes.row(2)?)?, &pattern(2, width), "the last row");
            let mut odd = context.alloc_pitched::<[u8; 3]>(width, 3)?;
            stream.fill_bytes(odd.row_mut(1)?, 1)?;
            assert_eq!(odd.row(1)?.len(), width);
        }
        for (width, height) in [(1 << 61, 1), (1 << 40, 1 << 40), (1, usize::MAX)] {
            let overflow = context.alloc_pitched::<u64>(width, height).expect_err("too large");
            assert!(matches!(overflow, Error::SizeOverflow { .. }), "{overflow:?}");
        }
        Ok(())
    }
}

fn contents_of(
    stream: &cuda_core::Stream,
    from: cuda_core::DeviceSlice<'_, u8>,
) -> Result<Vec<u8>> {
    let mut bytes = vec![0; from.len()];
    stream.download(from, &mut bytes)?;
    Ok(bytes)
}
