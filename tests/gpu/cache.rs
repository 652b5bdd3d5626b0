//! H: the caching pool.

mod order;

use cuda_core::{
    Allocator, CachingPool, Device, DeviceBuffer, Error, MemoryPool, PointerAttributes, Result,
    Stream, pools::PoolLimit, with_allocator,
};
use cuda_sys::cuStreamIsCapturing;
use support::{check, gpu_test, pattern, refusal, report};

use crate::capture::Capture;
use crate::forms::{contents, same, scaled};

/// The unit of the tests: a segment of the pool.
const U: usize = 2 << 20;

fn address(buffer: &DeviceBuffer<u8>) -> u64 {
    buffer.as_raw()
}

/// Allocates from the pool, whatever the default allocator is.
fn cached(stream: &Stream, bytes: usize) -> Result<DeviceBuffer<u8>> {
    stream.alloc_with(&Allocator::cache(), bytes)
}

gpu_test! {
    needs 1;
    fn h01_reused_at_home() -> Result<()> {
        let stream = Device::get(0)?.create_stream()?;
        for bytes in [1, 256, 257, 5000, 1 << 20, (1 << 20) + 1, 3 * U, 30 << 20] {
            let first = cached(&stream, bytes)?;
            let place = address(&first);
            assert_eq!(place % 256, 0, "{bytes} bytes");
            drop(first);
            let again = cached(&stream, bytes)?;
            assert_eq!(address(&again), place, "{bytes} bytes");
            let other = cached(&stream, bytes)?;
            assert_ne!(address(&other), place, "{bytes} bytes");
        }
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn h06_stats_sequence() -> Result<()> {
        let device = Device::get(0)?;
        let stream = device.create_stream()?;
        let pool = CachingPool::new();
        let allocator = pool.allocator();
        let look = |used: usize| {
            let usage = pool.usage(device);
            assert_eq!(usage.used, used * U, "{usage:?}");
            assert_eq!(usage.used + usage.free + usage.pending, usage.reserved, "{usage:?}");
            assert!(usage.used_peak >= usage.used && usage.reserved_peak >= usage.reserved);
            usage.reserved
        };
        assert_eq!(look(0), 0);
        let a = stream.alloc_with::<u8>(&allocator, 2 * U)?;
        look(2);
        let b = stream.alloc_with::<u8>(&allocator, 4 * U)?;
        let reserved = look(6);
        drop(b);
        assert_eq!(look(2), reserved);
        drop(a);
        assert_eq!(look(0), reserved);
        let c = stream.alloc_with::<u8>(&allocator, U)?;
        assert_eq!(look(1), reserved);
        drop(c);
        assert_eq!(pool.trim(0)?, reserved);
        assert_eq!(look(0), 0);
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn h10_live_untouched() -> Result<()> {
        let device = Device::get(0)?;
        let stream = device.create_stream()?;
        let (mut live, dead) = (cached(&stream, 100_000)?, cached(&stream, 100_000)?);
        stream.upload(&pattern(10, 100_000), &mut live)?;
        drop(dead);
        CachingPool::shared()?.trim(0)?;
        same(&contents(&stream, &live)?, &pattern(10, 100_000), "after the trim");
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn h11_limit() -> Result<()> {
        let device = Device::get(0)?;
        let stream = device.create_stream()?;
        let pool = CachingPool::builder().limit(PoolLimit::Bytes(6 * U)).build()?;
        let allocator = pool.allocator();
        let five = stream.alloc_with::<u8>(&allocator, 5 * U)?;
        let one = stream.alloc_with::<u8>(&allocator, U)?;
        let before = pool.usage(device);
        match stream.alloc_with::<u8>(&allocator, U) {
            Err(Error::PoolExhausted(it)) => {
                assert_eq!((it.requested, it.device), (U, 0));
                let usage = &it.usage;
                assert_eq!((usage.used, usage.limit), (6 * U, Some(6 * U)));
                assert_eq!((usage.free, usage.pending, usage.largest_free), (0, 0, 0));
            }
            other => panic!("beyond the limit: {other:?}"),
        }
        assert_eq!(pool.usage(device), before, "no counter moved");
        pool.set_limit(7 * U)?;
        drop(stream.alloc_with::<u8>(&allocator, U)?);
        drop((five, one));
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn h14_a_limit_of_zero_is_refused() -> Result<()> {
        let limit = PoolLimit::Bytes(6 * U);
        let pool = CachingPool::builder().limit(limit).build()?;
        for zero in [PoolLimit::Bytes(0), PoolLimit::Fraction(0.0)] {
            refusal(CachingPool::builder().limit(zero).build().map(drop));
            refusal(pool.set_limit(zero));
            assert_eq!(pool.limit(), limit);
        }
        refusal(MemoryPool::builder(Device::get(0)?).max_size(0).build().map(drop));
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn h12_limit_fragmented() -> Result<()> {
        let stream = Device::get(0)?.create_stream()?;
        let pool = CachingPool::builder().limit(PoolLimit::Bytes(6 * U)).build()?;
        drop(stream.alloc_with::<u8>(&pool.allocator(), 5 * U)?);
        // Cached memory is released first.
        drop(stream.alloc_with::<u8>(&pool.allocator(), 6 * U)?);
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn h17_pool_outlived() -> Result<()> {
        let stream = Device::get(0)?.create_stream()?;
        let pool = CachingPool::new();
        let mut buffer = stream.alloc_with::<u8>(&pool.allocator(), 1000)?;
        drop(pool);
        stream.fill(&mut buffer, 17)?;
        same(&contents(&stream, &buffer)?, &[17; 1000], "without its pool");
        Ok(())
    }
}

gpu_test! {
    needs 2;
    fn h18_per_device() -> Result<()> {
        let devices = [Device::get(0)?, Device::get(1)?];
        let pool = CachingPool::new();
        let mut buffers = Vec::new();
        for (index, device) in devices.into_iter().enumerate() {
            let stream = device.create_stream()?;
            let bytes = (index + 1) * U;
            let buffer = stream.alloc_with::<u8>(&pool.allocator(), bytes)?;
            assert_eq!(PointerAttributes::of_device(buffer.as_raw())?.device, Some(device));
            assert_eq!(pool.usage(device).used, bytes);
            buffers.push(buffer);
        }
        drop(buffers);
        assert!(devices.iter().all(|device| pool.usage(*device).used == 0));
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn h20_config() -> Result<()> {
        let device = Device::get(0)?;
        let stream = device.create_stream()?;
        let with = |initial, limit| {
            CachingPool::builder()
                .initial(initial)
                .limit(PoolLimit::Bytes(limit))
                .build()
        };
        assert!(with(6 * U, 5 * U).is_err(), "the initial size is beyond the limit");
        assert!(CachingPool::builder().limit(PoolLimit::Fraction(1.5)).build().is_err());
        let pool = with(6 * U, 6 * U)?;
        let buffer = stream.alloc_with::<u8>(&pool.allocator(), 100)?;
        assert_eq!(pool.usage(device).reserved, 6 * U);
        drop(buffer);
        // Sizes are rounded up to whole segments.
        let pool = with(U + 1, 4 * U)?;
        drop(stream.alloc_with::<u8>(&pool.allocator(), 1)?);
        assert_eq!(pool.usage(device).reserved, 2 * U);
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn h22_large() -> Result<()> {
        let device = Device::get(0)?;
        let stream = device.create_stream()?;
        let free = scaled(device.memory_info()?.free, 64 << 20, 16 << 20);
        let pool = CachingPool::builder().limit(PoolLimit::Bytes(free / 2 + 2 * U)).build()?;
        let mut two = Vec::new();
        for _ in 0..2 {
            two.push(stream.alloc_with::<u8>(&pool.allocator(), free / 4)?);
        }
        assert!(pool.usage(device).used >= free / 2);
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn h31_peak_and_reset() -> Result<()> {
        let device = Device::get(0)?;
        let stream = device.create_stream()?;
        for pool in [CachingPool::new(), CachingPool::shared()?] {
            let allocator = pool.allocator();
            pool.reset_peaks(device);
            let before = pool.usage(device);
            let held: Vec<_> = (1..4)
                .map(|n| stream.alloc_with::<u8>(&allocator, n * U))
                .collect::<Result<_>>()?;
            drop(held);
            let after = pool.usage(device);
            assert_eq!(after.used, before.used);
            assert_eq!(after.used_peak, before.used_peak + 6 * U);
            assert_eq!(after.allocations, before.allocations + 3);
            assert_eq!(after.allocated, before.allocated + 6 * U as u64);
            pool.reset_peaks(device);
            let reset = pool.usage(device);
            assert_eq!((reset.used_peak, reset.reserved_peak), (reset.used, reset.reserved));
            assert_eq!(reset.allocated, after.allocated);
        }
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn h33_capture_growth() -> Result<()> {
        let device = Device::get(0)?;
        let (stream, captured) = (device.create_stream()?, device.create_stream()?);
        for mode in [
            cuda_sys::CU_STREAM_CAPTURE_MODE_RELAXED,
            cuda_sys::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
            cuda_sys::CU_STREAM_CAPTURE_MODE_GLOBAL,
        ] {
            let pool = CachingPool::new();
            let capture = Capture::begin(&captured, mode);
            let grown = stream.alloc_with::<u8>(&pool.allocator(), U)?;
            let again = stream.alloc_with::<u8>(&pool.allocator(), 9 * U)?;
            drop((grown, again));
            pool.trim(0)?;
            let mut status = cuda_sys::CU_STREAM_CAPTURE_STATUS_NONE;
            // SAFETY: the stream is live; the pointer is valid for a write.
            let asked = unsafe { cuStreamIsCapturing(captured.as_raw(), &mut status) };
            check("cuStreamIsCapturing", asked);
            let active = cuda_sys::CU_STREAM_CAPTURE_STATUS_ACTIVE;
            assert_eq!(status, active, "{mode:?}: the capture goes on");
            drop(capture);
        }
        Ok(())
    }
}

gpu_test! {
    needs 2;
    fn k06_cached_memory_reaches_peers() -> Result<()> {
        let contexts = [Device::get(0)?.context()?, Device::get(1)?.context()?];
        let [near, far] = [contexts[0].create_stream()?, contexts[1].create_stream()?];
        let mut source = cached(&near, 100_000)?;
        near.upload(&pattern(6, 100_000), &mut source)?;
        let mut target = cached(&far, 100_000)?;
        far.copy(&source, &mut target)?;
        same(&contents(&far, &target)?, &pattern(6, 100_000), "without access");
        if !contexts[1].device().can_access_peer(contexts[0].device())? {
            report!("no access from device 1 to 0: only copies without it were tried");
            return Ok(());
        }
        contexts[1].enable_peer_access(&contexts[0])?;
        far.fill(&mut target, 0)?;
        far.copy(&source, &mut target)?;
        same(&contents(&far, &target)?, &pattern(6, 100_000), "with access");
        contexts[1].disable_peer_access(&contexts[0])
    }
}

gpu_test! {
    needs 1;
    fn e11_cached_memory_is_not_shareable() -> Result<()> {
        let device = Device::get(0)?;
        let stream = device.create_stream()?;
        let own = CachingPool::new().allocator();
        for allocator in [Allocator::cache(), own] {
            let buffer = stream.alloc_with::<u8>(&allocator, 1000)?;
            let refused = buffer.ipc_handle().expect_err("part of a segment");
            assert!(matches!(refused, Error::Invalid(_)), "{refused:?}");
            let pool = device.default_memory_pool()?;
            let refused = pool.export_pointer(&buffer).expect_err("part of a segment");
            assert!(matches!(refused, Error::Invalid(_)), "{refused:?}");
        }
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn h_upstreams() -> Result<()> {
        let device = Device::get(0)?;
        let stream = device.create_stream()?;
        for upstream in [Allocator::plain(), Allocator::driver_pool(), CachingPool::new().allocator()] {
            let pool = CachingPool::builder().upstream(&upstream).build()?;
            let mut buffer = with_allocator(&pool.allocator(), || stream.alloc::<u8>(3 * U))?;
            stream.fill(&mut buffer, 3)?;
            same(&contents(&stream, &buffer)?[..10], &[3; 10], "from another allocator");
            drop(buffer);
            stream.synchronize()?;
            assert!(pool.trim(0)? >= 3 * U, "{upstream:?}");
            assert_eq!(pool.usage(device).reserved, 0);
        }
        Ok(())
    }
}
