//! E: device memory.

use std::time::Duration;

use cuda_core::{
    Allocator, CachingPool, Device, Error, MemoryInfo, PinnedBuffer, Pod, Result, Stream,
    with_allocator,
};
use cuda_sys::{
    CU_MEMPOOL_ATTR_USED_MEM_CURRENT, cuDeviceGetDefaultMemPool, cuMemPoolGetAttribute,
};
use support::{check, gpu_test, pattern, refusal, stall, two_streams};

use crate::forms::{contents, every_form, same, scaled, varied};

/// Returns the bytes in use of a device's default pool, once no work is queued.
#[track_caller]
fn held(device: Device) -> Result<u64> {
    device.synchronize()?;
    let (mut pool, mut bytes) = (std::ptr::null_mut(), 0_u64);
    // SAFETY: `pool` is valid for the one handle that the driver writes.
    check("cuDeviceGetDefaultMemPool", unsafe {
        cuDeviceGetDefaultMemPool(&mut pool, device.as_raw())
    });
    // SAFETY: the attribute's value is a cuuint64_t, which `bytes` is valid for.
    check("cuMemPoolGetAttribute", unsafe {
        cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, (&raw mut bytes).cast())
    });
    Ok(bytes)
}

/// Runs `refused`, which must allocate nothing, with each allocator that reports bytes in use, and compares
/// the bytes. The process's default allocator may report none, or take its memory elsewhere.
#[track_caller]
fn leaves_nothing(device: Device, refused: impl Fn() -> Result<()>) -> Result<()> {
    let pools = [CachingPool::shared()?, CachingPool::new()];
    let in_use = || -> Result<(u64, [_; 2])> {
        let cached = pools.each_ref().map(|pool| pool.usage(device).used);
        Ok((held(device)?, cached))
    };
    let [shared, own] = pools.each_ref().map(CachingPool::allocator);
    for allocator in [shared, own, Allocator::driver_pool()] {
        let before = in_use()?;
        with_allocator(&allocator, &refused)?;
        assert_eq!(in_use()?, before, "in use after what {allocator:?} refused, and before");
    }
    Ok(())
}

gpu_test! {
    needs 1;
    fn e02_buffers_name_the_stream_that_they_were_allocated_on() -> Result<()> {
        let (context, stream, other) = two_streams()?;
        for allocator in [Allocator::cache(), CachingPool::new().allocator(), Allocator::plain()] {
            let mut buffer = stream.alloc_with::<u8>(&allocator, 1000)?;
            other.fill(&mut buffer, 1)?;
            assert_eq!(buffer.home_stream().as_ref(), Some(&stream));
        }
        let default = context.default_stream()?;
        assert_eq!(default.alloc::<u8>(1000)?.home_stream(), Some(default));
        assert_eq!(context.alloc::<u8>(1000)?.home_stream(), None);
        // The last handle of the home stream may be dropped.
        let mut kept = stream.alloc::<u8>(1000)?;
        let id = stream.id();
        drop(stream);
        let again = kept.home_stream().expect("the buffer keeps it");
        assert_eq!(again.id(), id);
        again.fill(&mut kept, 7)?;
        assert_eq!(other.download_vec(&kept)?, [7; 1000]);
        drop(kept);
        assert_eq!(again.alloc::<u8>(1000)?.home_stream(), Some(again));
        Ok(())
    }
}

/// The value of bytes that a fill must not change.
const CANARY: u8 = 0xEE;

gpu_test! {
    needs 1;
    fn e02_sizes() -> Result<()> {
        let stream = Device::get(0)?.create_stream()?;
        for len in [1, 3, 511, 512, 513, 1 << 10, 1 << 20, 1 << 30] {
            let mut buffer = stream.alloc::<u8>(len)?;
            assert_eq!((buffer.len(), buffer.byte_len()), (len, len));
            assert_eq!(buffer.as_raw() % 256, 0, "{len} bytes at {:#x}", buffer.as_raw());
            stream.upload(&[0x5C], buffer.slice_mut(len - 1..)?)?;
            let mut last = [0];
            stream.download(buffer.slice(len - 1..)?, &mut last)?;
            assert_eq!(last, [0x5C], "the last of {len} bytes");
        }
        Ok(())
    }
}

/// Requests more than the device has, in every way; each error has its type.
fn ask_for_too_much(stream: &Stream) -> Result<()> {
    const PIB: usize = 1 << 50;
    let plausible = |asked, memory: Option<MemoryInfo>| {
        assert_eq!(asked, (PIB, 0));
        let memory = memory.expect("the error has the device's figures");
        assert!(memory.free <= memory.total && memory.total < PIB, "{memory:?}");
    };
    match stream.alloc::<u8>(PIB) {
        Err(Error::OutOfMemory(it)) => plausible((it.requested, it.device), it.memory),
        Err(Error::PoolExhausted(it)) => plausible((it.requested, it.device), it.memory),
        Err(Error::Driver { code, .. }) => assert_eq!(code, cuda_sys::CUDA_ERROR_INVALID_VALUE),
        other => panic!("a pebibyte: {other:?}"),
    }
    let error = stream.alloc::<u8>(isize::MAX as usize).expect_err("half an address space");
    assert!(error.code().is_some(), "the driver's to refuse: {error:?}");
    // These are found without a driver call: the size that wraps around would be a tiny block.
    let overflow = |error: Option<Error>| match error {
        Some(Error::SizeOverflow { len, element_size, .. }) => (len, element_size),
        other => panic!("an overflow: {other:?}"),
    };
    assert_eq!(overflow(stream.alloc::<u8>(usize::MAX).err()), (usize::MAX, 1));
    assert_eq!(overflow(stream.alloc::<u64>(usize::MAX / 8 + 1).err()), (1 << 61, 8));
    assert_eq!(overflow(stream.alloc::<u64>((1 << 61) + 1).err()), ((1 << 61) + 1, 8));
    assert_eq!(overflow(stream.alloc_zeroed::<u32>(1 << 62).err()), (1 << 62, 4));
    assert_eq!(overflow(stream.alloc::<[u16; 3]>(usize::MAX / 3).err()), (usize::MAX / 3, 6));
    Ok(())
}

gpu_test! {
    needs 1;
    fn e03_too_large() -> Result<()> {
        let device = Device::get(0)?;
        let stream = device.create_stream()?;
        leaves_nothing(device, || ask_for_too_much(&stream))
    }
}

gpu_test! {
    needs 1;
    fn e04_after_oom() -> Result<()> {
        let stream = Device::get(0)?.create_stream()?;
        ask_for_too_much(&stream)?;
        every_form(&stream, &stream, 1000)?;
        stream.synchronize()
    }
}

gpu_test! {
    needs 1;
    fn e08_fill() -> Result<()> {
        let stream = Device::get(0)?.create_stream()?;
        let mut buffer = stream.alloc::<u8>(8192)?;
        for count in [1, 2, 7, 255, 256, 257, 1001] {
            for (width, start) in [(1, 257), (2, 258), (4, 260)] {
                let range = start..start + count * width;
                stream.fill_bytes(&mut buffer, CANARY)?;
                let part = buffer.slice_mut(range.clone())?;
                match width {
                    1 => stream.fill(part, 0xA1)?,
                    2 => stream.fill(part.cast::<u16>()?, 0xB2A1)?,
                    _ => stream.fill(part.cast::<u32>()?, 0xD4C3_B2A1)?,
                }
                let mut expected = vec![CANARY; 8192];
                let value = &0xD4C3_B2A1_u32.to_le_bytes()[..width];
                expected[range].copy_from_slice(&value.repeat(count));
                same(&contents(&stream, &buffer)?, &expected, &format!("{count} of {width} bytes"));
            }
        }
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn e08_fill_by_element_type() -> Result<()> {
        fn filled<T: Pod + PartialEq + std::fmt::Debug>(stream: &Stream, value: T) -> Result<()> {
            let mut buffer = stream.alloc::<T>(37)?;
            stream.fill(&mut buffer, value)?;
            let mut back = vec![buffer_default::<T>(stream)?; 37];
            stream.download(&buffer, &mut back)?;
            assert!(back.iter().all(|element| *element == value), "{value:?}: {back:?}");
            Ok(())
        }
        /// Returns some value of the type.
        fn buffer_default<T: Pod>(stream: &Stream) -> Result<T> {
            let context = stream.context();
            Ok(cuda_core::PinnedBuffer::<T>::zeroed(context, 1)?.as_slice()?[0])
        }
        let stream = Device::get(0)?.create_stream()?;
        filled(&stream, 0x12_u8)?;
        filled(&stream, -2_i8)?;
        filled(&stream, 0x1234_u16)?;
        filled(&stream, 1.5_f32)?;
        filled(&stream, u32::MAX)?;
        filled(&stream, 0.0_f64)?;
        filled(&stream, 0x0101_0101_0101_0101_u64)?;
        filled(&stream, 0x1234_5678_1234_5678_u64)?;
        filled(&stream, [9_u8; 3])?;
        filled(&stream, [0x1234_u16; 3])?;
        filled(&stream, 1.5_f64)?;
        filled(&stream, [1.0_f32, 2.0, 3.0])?;
        filled(&stream, [1_u32, 1, 1, 2, 2, 3])?;
        filled(&stream, [1_u16, 2, 3])?;
        filled(&stream, [1_u8, 2, 3, 4, 5])?;
        filled(&stream, u128::MAX - 1)
    }
}

gpu_test! {
    needs 1;
    fn e08_fill_of_any_width() -> Result<()> {
        fn filled<T: Pod>(stream: &Stream, value: &[u8], start: usize) -> Result<()> {
            let size = size_of::<T>();
            let element: T = {
                let mut one = stream.alloc::<u8>(size)?;
                stream.upload(value, &mut one)?;
                stream.download_vec(one.as_view().cast::<T>()?)?[0]
            };
            for len in [1, 2, 3, 511, 512, 513, 1024, 1025, 3000] {
                let bytes = size * len;
                let mut buffer = stream.alloc::<u8>(start + bytes + 16)?;
                stream.fill_bytes(&mut buffer, CANARY)?;
                stream.fill(buffer.slice_mut(start..start + bytes)?.cast::<T>()?, element)?;
                let mut expected = vec![CANARY; start + bytes + 16];
                expected[start..start + bytes].copy_from_slice(&value.repeat(len));
                same(&contents(stream, &buffer)?, &expected, &format!("{len} of {value:?}"));
            }
            Ok(())
        }
        let stream = Device::get(0)?.create_stream()?;
        let value = pattern(8, 32);
        filled::<u64>(&stream, &value[..8], 16)?;
        filled::<[u32; 3]>(&stream, &value[..12], 4)?;
        filled::<[u16; 3]>(&stream, &value[..6], 2)?;
        filled::<[u8; 3]>(&stream, &value[..3], 1)?;
        // Fills at an address that is not a multiple of the size's divisors.
        filled::<[u8; 8]>(&stream, &value[..8], 1)?;
        filled::<[u8; 8]>(&stream, &value[..8], 2)?;
        filled::<[u8; 4]>(&stream, &[7; 4], 3)?;
        filled::<[u64; 4]>(&stream, &value, 32)
    }
}

gpu_test! {
    needs 1;
    fn e08_fill_indivisible() -> Result<()> {
        let stream = Device::get(0)?.create_stream()?;
        let mut buffer = stream.alloc::<u8>(64)?;
        stream.upload(&pattern(8, 64), &mut buffer)?;
        // The range is not a whole number of patterns.
        assert!(refusal(buffer.slice_mut(..7)?.cast::<u16>()).contains("7 bytes"));
        assert!(refusal(buffer.slice_mut(..6)?.cast::<u32>()).contains("6 bytes"));
        // The range is a whole number of patterns, but not aligned to them.
        assert!(refusal(buffer.slice_mut(1..9)?.cast::<u16>()).contains("8 bytes"));
        assert!(refusal(buffer.slice_mut(2..10)?.cast::<u32>()).contains("8 bytes"));
        same(&contents(&stream, &buffer)?, &pattern(8, 64), "after what was refused");
        // An empty range is a whole number of any pattern.
        stream.fill(buffer.slice_mut(4..4)?.cast::<u32>()?, 1)
    }
}

gpu_test! {
    needs 1;
    fn e09_async_stream_gone() -> Result<()> {
        let device = Device::get(0)?;
        let before = held(device)?;
        for (len, closes) in [(1 << 20, false), (3, false), (1 << 20, true)] {
            let stream = device.create_stream()?;
            let mut buffer = stream.alloc_with::<u8>(&Allocator::driver_pool(), len)?;
            stream.fill(&mut buffer, 7)?;
            if closes {
                stream.close()?;
            } else {
                drop(stream);
            }
            assert!(held(device)? >= before + len as u64, "the buffer keeps its home");
            let other = device.create_stream()?;
            same(&contents(&other, &buffer)?, &vec![7; len], "read elsewhere");
            if closes {
                buffer.close()?;
            } else {
                drop(buffer);
            }
            assert_eq!(held(device)?, before, "{len} bytes went back");
        }
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn e12_no_leak_on_failed_ctor() -> Result<()> {
        #[derive(Clone, Copy)]
        #[repr(align(512))]
        struct Wide(#[expect(dead_code, reason = "only its size counts")] [u8; 512]);
        // SAFETY: 512 bytes without padding, of which any value is valid.
        unsafe impl Pod for Wide {}

        let device = Device::get(0)?;
        let stream = device.create_stream()?;
        leaves_nothing(device, || {
            assert!(stream.alloc_zeroed::<u8>(1 << 50).is_err());
            let why = refusal(stream.alloc::<Wide>(1));
            assert_eq!(why, "elements aligned to 512 bytes do not fit memory aligned to 256");
            Ok(())
        })
    }
}

gpu_test! {
    needs 1;
    fn e02_many_live_buffers_do_not_overlap() -> Result<()> {
        let stream = Device::get(0)?.create_stream()?;
        let mut buffers = Vec::new();
        for index in 0..scaled(200, 200, 20) {
            let len = 1 + index * 37 % 2048;
            let mut buffer = stream.alloc::<u8>(len)?;
            stream.upload(&varied(index as u64, len), &mut buffer)?;
            buffers.push((index as u64, buffer));
        }
        // Freeing every other buffer does not affect its neighbours.
        buffers.retain(|(index, _)| index % 2 == 1);
        for (index, buffer) in &buffers {
            same(&contents(&stream, buffer)?, &varied(*index, buffer.len()), "a live buffer");
        }
        Ok(())
    }
}

gpu_test! {
    needs 1, asynchronous;
    fn parts_are_waited_for() -> Result<()> {
        let device = Device::get(0)?;
        let (reader, writer) = (device.create_stream()?, device.create_stream()?);
        let mut buffer = writer.alloc_zeroed::<u8>(1000)?;
        let mut host = PinnedBuffer::<u8>::zeroed(reader.context(), 7)?;
        let held = stall(reader.as_raw());
        reader.download(buffer.slice(..7)?, &mut host)?;
        buffer.slice(..7)?.synchronize()?; // only for writers
        buffer.synchronize()?;
        buffer.slice_mut(7..)?.synchronize_mut()?; // the download reads other elements
        assert!(host.try_as_slice()?.is_none());
        held.release_after(Duration::from_millis(10));
        buffer.slice_mut(..7)?.synchronize_mut()?;
        host.try_as_slice()?.expect("the download was waited for");
        let held = stall(reader.as_raw());
        reader.download(buffer.slice(..7)?, &mut host)?;
        held.release_after(Duration::from_millis(10));
        buffer.synchronize_mut()?;
        host.try_as_slice()?.expect("the download was waited for");
        Ok(())
    }
}
