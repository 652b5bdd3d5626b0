//! The caching pool: no block is lost, used too early or allocated twice, whichever call fails.

use cuda_core::{
    Allocator, CachingPool, Context, ContextFlags, Device, DeviceBuffer, Rejected, Result, Stream,
    pools::PoolLimit,
};

use super::harness::sweep;

/// The size of a segment of the pool.
const U: usize = 2 << 20;

/// Allocates, and checks that a failed allocation changes no counter.
fn alloc(stream: &Stream, pool: &CachingPool, bytes: usize) -> Result<DeviceBuffer<u8>> {
    let before = agree(pool, stream);
    let buffer = stream.alloc_with(&pool.allocator(), bytes);
    let after = agree(pool, stream);
    match &buffer {
        Ok(_) => assert!(after >= before + bytes, "{after} after {before}"),
        Err(_) => assert_eq!(after, before),
    }
    buffer
}

/// Returns the bytes in use, and asserts that all counters agree.
fn agree(pool: &CachingPool, stream: &Stream) -> usize {
    let usage = pool.usage(stream.device());
    assert_eq!(usage.used + usage.free + usage.pending, usage.reserved, "{usage:?}");
    usage.used
}

/// Writes the first bytes on one stream, and reads them on the other.
fn round_trip(buffer: &mut DeviceBuffer<u8>, writes: &Stream, reads: &Stream) -> Result<()> {
    writes.fill(buffer.slice_mut(..64)?, 0x5A)?;
    let mut back = [0; 64];
    reads.download(buffer.slice(..64)?, &mut back)?;
    assert_eq!(back, [0x5A; 64]);
    Ok(())
}

#[test]
fn grown_and_trimmed() {
    sweep(|| {
        let stream = Device::get(0)?.create_stream()?;
        let pool = CachingPool::new();
        let mut small = alloc(&stream, &pool, 1000)?;
        let mut large = alloc(&stream, &pool, 3 * U)?;
        round_trip(&mut small, &stream, &stream)?;
        round_trip(&mut large, &stream, &stream)?;
        drop(large);
        pool.trim(0)?;
        round_trip(&mut small, &stream, &stream)?;
        drop(small);
        assert_eq!(agree(&pool, &stream), 0);
        pool.trim(0).map(drop)
    });
}

#[test]
fn used_elsewhere() {
    sweep(|| {
        let device = Device::get(0)?;
        let (one, two) = (device.create_stream()?, device.create_stream()?);
        let pool = CachingPool::builder().limit(PoolLimit::Bytes(2 * U)).build()?;
        for _ in 0..2 {
            let mut buffer = alloc(&one, &pool, 2 * U)?;
            round_trip(&mut buffer, &one, &one)?;
            two.fill(buffer.slice_mut(..64)?, 1)?;
            drop(buffer);
            // No more memory is available: one stream has to wait for the other.
            let mut buffer = alloc(&two, &pool, 2 * U)?;
            round_trip(&mut buffer, &two, &one)?;
        }
        Ok(())
    });
}

#[test]
fn in_the_shared_pool() {
    sweep(|| {
        let device = Device::get(0)?;
        let pool = CachingPool::shared()?;
        let (one, two) = (device.create_stream()?, device.create_stream()?);
        let mut first = alloc(&one, &pool, 5000)?;
        round_trip(&mut first, &one, &two)?;
        two.fill(first.slice_mut(..64)?, 1)?;
        drop(first);
        let mut second = alloc(&one, &pool, 5000)?;
        round_trip(&mut second, &one, &one)?;
        // The stream is dropped with blocks that it keeps, and with blocks that other streams use.
        drop(second);
        drop(one);
        let mut third = alloc(&two, &pool, 5000)?;
        round_trip(&mut third, &two, &two)?;
        drop(two);
        drop(third);
        Ok(())
    });
}

#[test]
fn in_a_pool_that_goes_first() {
    sweep(|| {
        let device = Device::get(0)?;
        let pools = [CachingPool::new(), CachingPool::new()];
        let (one, two) = (device.create_stream()?, device.create_stream()?);
        let mut first = alloc(&one, &pools[0], 5000)?;
        let mut second = alloc(&one, &pools[1], 5000)?;
        round_trip(&mut first, &one, &two)?;
        round_trip(&mut second, &one, &one)?;
        two.fill(second.slice_mut(..64)?, 1)?;
        drop(first);
        drop(pools);
        // The pool's segment is freed with it, after both streams' work.
        drop(second);
        drop(one);
        two.synchronize()
    });
}

#[test]
fn in_a_context_that_goes() {
    sweep(|| {
        let context = Context::new(Device::get(0)?, ContextFlags::default())?;
        let stream = context.create_stream()?;
        let mut buffer = alloc(&stream, &CachingPool::shared()?, 5000)?;
        round_trip(&mut buffer, &stream, &stream)?;
        drop(context);
        drop(stream);
        drop(buffer);
        Ok(())
    });
}

#[test]
fn from_the_drivers_pool() {
    sweep(|| {
        let stream = Device::get(0)?.create_stream()?;
        let upstream = Allocator::driver_pool();
        let pool = CachingPool::builder().upstream(&upstream).build()?;
        let mut buffer = alloc(&stream, &pool, 3 * U)?;
        round_trip(&mut buffer, &stream, &stream)?;
        drop(buffer);
        pool.trim(0).map(drop)
    });
}

#[test]
fn dropped_in_a_host_function() {
    sweep(|| {
        let device = Device::get(0)?;
        let (stream, other) = (device.create_stream()?, device.create_stream()?);
        let own = alloc(&stream, &CachingPool::new(), 1000)?;
        let shared = alloc(&stream, &CachingPool::shared()?, 1000)?;
        let last = stream.clone();
        drop(stream);
        other.launch_host_func(move || drop((own, shared, last)))?;
        other.synchronize()
    });
}

#[test]
fn plain_memory_in_order() {
    sweep(|| {
        let device = Device::get(0)?;
        let (one, two) = (device.create_stream()?, device.create_stream()?);
        let mut buffer = one.alloc_with::<u8>(&Allocator::plain(), 1000)?;
        round_trip(&mut buffer, &one, &two)?;
        two.fill(buffer.slice_mut(..64)?, 1)?;
        if let Err(Rejected { error, value: buffer }) = buffer.close() {
            drop(buffer);
            return Err(error);
        }
        Ok(())
    });
}
