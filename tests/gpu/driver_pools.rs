//! The driver's pools as values, and access of other devices to them.

use cuda_core::{
    Allocator, CachingPool, Device, DeviceAllocator, Error, MemoryPool, PeerAccess, Result,
    interop::ShareableHandle, pools::PoolReuse, with_allocator,
};
use cuda_sys::symbol as cu;
use support::{check, context, gpu_test, hash, pattern, refusal};

use crate::forms::{contents, every_form, same};

gpu_test! {
    needs 1;
    fn e09_allocated_from_a_pool() -> Result<()> {
        let device = Device::get(0)?;
        let stream = device.create_stream()?;
        let pool = MemoryPool::builder(device).build()?;
        assert_eq!(pool.device(), device);
        assert!(!pool.is_default());
        let mut buffer = stream.alloc_from::<u8>(&pool, 100_000)?;
        assert!(pool.usage()?.used >= 100_000);
        stream.upload(&pattern(9, 100_000), &mut buffer)?;
        same(&contents(&stream, &buffer)?, &pattern(9, 100_000), "from the pool");
        // The stream and then the pool are dropped before the buffer.
        drop(stream);
        pool.clone().close()?;
        assert!(pool.usage()?.used >= 100_000, "another reference keeps it");
        pool.close()?;
        let stream = device.create_stream()?;
        same(&contents(&stream, &buffer)?, &pattern(9, 100_000), "after the pool");
        drop(buffer);
        every_form(&stream, &stream, 100)?;
        stream.synchronize()
    }
}

gpu_test! {
    needs 1;
    fn e09_a_pool_is_an_allocator() -> Result<()> {
        let device = Device::get(0)?;
        let stream = device.create_stream()?;
        let pool = MemoryPool::builder(device).build()?;
        let before = format!("{:?}", device.allocator()?);
        let mut buffer = with_allocator(&pool.allocator(), || {
            assert_ne!(format!("{:?}", device.allocator()?), before);
            stream.alloc::<u8>(100_000)
        })?;
        assert_eq!(format!("{:?}", device.allocator()?), before);
        assert!(pool.usage()?.used >= 100_000);
        stream.upload(&pattern(9, 100_000), &mut buffer)?;
        same(&contents(&stream, &buffer)?, &pattern(9, 100_000), "from the pool");
        buffer.close()?;
        stream.synchronize()?;
        assert_eq!(pool.usage()?.used, 0);
        device.set_allocator(Some(&pool.allocator()))?;
        let none = stream.alloc::<u8>(0);
        let some = stream.alloc::<u8>(1000);
        device.set_allocator(None)?;
        assert!(none?.is_empty());
        drop(some?);
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn e09_usage_follows() -> Result<()> {
        const BYTES: usize = 4 << 20;
        let device = Device::get(0)?;
        let stream = device.create_stream()?;
        let pool = MemoryPool::builder(device).build()?;
        assert_eq!(pool.usage()?.used, 0);
        let first = stream.alloc_from::<u8>(&pool, BYTES)?;
        let second = stream.alloc_from::<u8>(&pool, BYTES)?;
        stream.synchronize()?;
        let usage = pool.usage()?;
        assert!(usage.used >= 2 * BYTES && usage.reserved >= usage.used, "{usage:?}");
        drop(first);
        stream.synchronize()?;
        let usage = pool.usage()?;
        assert!(usage.used < 2 * BYTES && usage.used_peak >= 2 * BYTES, "{usage:?}");
        pool.reset_peaks()?;
        let usage = pool.usage()?;
        assert_eq!(usage.used_peak, usage.used);
        drop(second);
        stream.synchronize()?;
        assert_eq!(pool.usage()?.used, 0);
        // The memory is cached until a trim, since the threshold is at its maximum.
        assert!(pool.usage()?.reserved > 0);
        let reserved = pool.usage()?.reserved;
        assert_eq!(pool.trim(0)?, reserved);
        assert_eq!(pool.usage()?.reserved, 0);
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn e09_attributes() -> Result<()> {
        let device = Device::get(0)?;
        let pool = MemoryPool::builder(device).release_threshold(1 << 20).build()?;
        assert_eq!(pool.release_threshold()?, 1 << 20);
        pool.set_release_threshold(7 << 20)?;
        assert_eq!(pool.release_threshold()?, 7 << 20);
        for reuse in [
            PoolReuse::FollowEventDependencies,
            PoolReuse::Opportunistic,
            PoolReuse::InternalDependencies,
        ] {
            assert!(pool.reuse(reuse)?, "{reuse:?} to begin with");
            pool.set_reuse(reuse, false)?;
            assert!(!pool.reuse(reuse)?, "{reuse:?}");
        }
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn e09_the_devices_pool() -> Result<()> {
        let device = Device::get(0)?;
        let stream = device.create_stream()?;
        let default = device.default_memory_pool()?;
        assert!(default.is_default());
        assert_eq!(default.release_threshold()?, usize::MAX);
        assert_eq!(device.memory_pool()?.as_ref(), Some(&default));
        assert_eq!(hash(&default), hash(device.memory_pool()?.as_ref().expect("as above")));
        let caching = CachingPool::shared()?;
        assert_eq!(hash(&caching), hash(&caching.clone()));
        assert_ne!(hash(&caching), hash(&CachingPool::new()));
        let pool = MemoryPool::builder(device).build()?;
        device.set_memory_pool(&pool)?;
        assert_eq!(device.memory_pool()?.as_ref(), Some(&pool));
        let buffer = stream.alloc_with::<u8>(&Allocator::driver_pool(), 1 << 20)?;
        assert!(pool.usage()?.used >= 1 << 20, "allocated from there now");
        drop(buffer);
        stream.synchronize()?;
        // An allocator is trimmed by the pool that it uses, although another is the device's default.
        pool.set_release_threshold(usize::MAX)?;
        drop(stream.alloc_with::<u8>(&Allocator::driver_pool(), 64 << 20)?);
        stream.synchronize()?;
        let reserved = pool.usage()?.reserved;
        let kept = default.usage()?.reserved;
        assert!(Allocator::driver_pool().trim(0)? >= 64 << 20);
        assert!(pool.usage()?.reserved <= reserved - (64 << 20));
        assert_eq!(default.usage()?.reserved, kept);
        // A destroyed pool is no longer the device's pool.
        drop(pool);
        assert_eq!(device.memory_pool()?, Some(default.clone()));
        // A pool that other code made is recognised as a different pool.
        default.close()?;
        drop(stream.alloc::<u8>(10)?);
        stream.synchronize()
    }
}

gpu_test! {
    needs 1, cuda_12_2;
    fn e09_limited() -> Result<()> {
        let device = Device::get(0)?;
        let stream = device.create_stream()?;
        // Before CUDA 12.2 the field for the size was reserved.
        let pool = MemoryPool::builder(device).max_size(64 << 20).build()?;
        let fits = stream.alloc_from::<u8>(&pool, 32 << 20)?;
        match stream.alloc_from::<u8>(&pool, 1 << 30) {
            Err(Error::OutOfMemory(it)) => assert_eq!(it.requested, 1 << 30),
            other => panic!("beyond the limit: {other:?}"),
        }
        drop(fits);
        stream.synchronize()
    }
}

gpu_test! {
    needs 1;
    fn e09_nothing() -> Result<()> {
        let device = Device::get(0)?;
        let stream = device.create_stream()?;
        let pool = MemoryPool::builder(device).build()?;
        assert!(stream.alloc_from::<u64>(&pool, 0)?.is_empty());
        let overflow = stream.alloc_from::<u64>(&pool, 1 << 61).expect_err("wraps to nothing");
        assert!(matches!(overflow, Error::SizeOverflow { .. }), "{overflow:?}");
        assert_eq!(pool.usage()?.used, 0);
        Ok(())
    }
}

gpu_test! {
    needs 2;
    fn k06_pool_access() -> Result<()> {
        const LEN: usize = 100_003;
        let (here, there) = (Device::get(0)?, Device::get(1)?);
        let (one, two) = (here.create_stream()?, there.create_stream()?);
        let _guard = here.enter()?;
        let before = context::current();
        let pool = MemoryPool::builder(here).build()?;
        assert_eq!(pool.access(here)?, PeerAccess::ReadWrite);
        assert_eq!(pool.access(there)?, PeerAccess::None);
        pool.set_access(there, PeerAccess::ReadWrite)?;
        assert_eq!(pool.access(there)?, PeerAccess::ReadWrite);
        let mut source = one.alloc_from::<u8>(&pool, LEN)?;
        one.upload(&pattern(6, LEN), &mut source)?;
        let mut target = two.alloc::<u8>(LEN)?;
        two.copy(&source, &mut target)?;
        same(&contents(&two, &target)?, &pattern(6, LEN), "with access");
        // The access of a pool's own device cannot be revoked.
        pool.set_access(here, PeerAccess::ReadWrite)?;
        let own = pool.set_access(here, PeerAccess::None).expect_err("its own device");
        assert!(matches!(own, Error::Invalid(_)), "{own:?}");
        assert_eq!(context::current(), before);

        pool.set_access(there, PeerAccess::None)?;
        assert_eq!(pool.access(there)?, PeerAccess::None);
        assert_eq!(context::current(), before);
        {
            let _there = there.enter()?;
            // SAFETY: both buffers have this many bytes and no other code uses them meanwhile.
            let refused = unsafe {
                cu::cuMemcpyAsync(target.as_raw(), source.as_raw(), LEN, two.as_raw())
            };
            assert_eq!(refused, cuda_sys::CUDA_ERROR_INVALID_VALUE);
        }
        two.fill_bytes(&mut target, 0)?;
        two.copy(&source, &mut target)?;
        same(&contents(&two, &target)?, &pattern(6, LEN), "without access");
        Ok(())
    }
}

gpu_test! {
    needs 2, asynchronous;
    fn s42_revoking_waits_for_the_work() -> Result<()> {
        let (here, there) = (Device::get(0)?, Device::get(1)?);
        let (one, two) = (here.create_stream()?, there.create_stream()?);
        let pool = MemoryPool::builder(here).build()?;
        pool.set_access(there, PeerAccess::ReadWrite)?;
        let mut source = one.alloc_from::<u8>(&pool, 1 << 16)?;
        one.fill(&mut source, 5)?;
        let mut target = two.alloc_zeroed::<u8>(1 << 16)?;
        two.copy(&source, &mut target)?;
        two.fill(&mut target, 0)?;
        two.synchronize()?;
        let stall = support::stall(two.as_raw());
        two.copy(&source, &mut target)?;
        let (begun, begins) = std::sync::mpsc::channel();
        let revoker = std::thread::spawn({
            let (pool, two) = (pool.clone(), two.clone());
            move || -> Result<bool> {
                let _ = begun.send(());
                pool.set_access(there, PeerAccess::None)?;
                two.query()
            }
        });
        let _ = begins.recv();
        stall.release();
        assert!(revoker.join().expect("no panic")?, "the copy came first");
        same(&contents(&two, &target)?, &[5; 1 << 16], "copied");
        Ok(())
    }
}

gpu_test! {
    needs 2;
    fn e09_wrong_device() -> Result<()> {
        let (here, there) = (Device::get(0)?, Device::get(1)?);
        let pool = MemoryPool::builder(here).build()?;
        let stream = there.create_stream()?;
        let wrong = stream.alloc_from::<u8>(&pool, 10).expect_err("another device's pool");
        assert!(matches!(wrong, Error::WrongDevice(ref it) if it.memory == 0 && it.stream == 1), "{wrong:?}");
        assert!(refusal(there.set_memory_pool(&pool)).contains("the pool is of device 0"));
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn e09_a_pool_that_other_code_made() -> Result<()> {
        let device = Device::get(0)?;
        let pool = MemoryPool::builder(device).build()?;
        device.set_memory_pool(&pool)?;
        // A raw call, unknown to the library, sets the default pool again.
        // SAFETY: the default pool lives as long as the driver.
        check("cuDeviceSetMemPool", unsafe {
            cu::cuDeviceSetMemPool(device.as_raw(), device.default_memory_pool()?.as_raw())
        });
        assert!(device.memory_pool()?.is_some_and(|pool| pool.is_default()));
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn e09_export_of_what_is_not_shareable() -> Result<()> {
        let device = Device::get(0)?;
        let stream = device.create_stream()?;
        let pool = MemoryPool::builder(device).shareable(ShareableHandle::None).build()?;
        #[cfg(unix)]
        assert!(pool.export_fd().is_err());
        let empty = stream.alloc_from::<u8>(&pool, 0)?;
        let refused = pool.export_pointer(&empty).expect_err("nothing");
        assert!(matches!(refused, Error::Invalid(_)), "{refused:?}");
        Ok(())
    }
}
