//! F: reuse of pinned host memory.

use cuda_core::{
    Access, Context, ContextFlags, Device, DeviceBuffer, PinnedBuffer, PinnedPool,
    PointerAttributes, PoolUsage, Result, Stream, is_pinned, pinned::PinnedBackend, staging,
};
use cuda_sys::{CUDA_SUCCESS, symbol as cu};
use support::{gpu_test, one_stream, pattern, stall};

use crate::capture::Capture;
use crate::forms::same;

fn context() -> Result<Context> {
    Device::get(0)?.context()
}

fn address(buffer: &PinnedBuffer<u8>) -> Result<usize> {
    Ok(buffer.as_slice()?.as_ptr().addr())
}

/// Releases cached memory, so that earlier allocations are not counted.
fn from_scratch() -> Result<PoolUsage> {
    // The chunks of staging are pinned memory, too.
    staging::trim()?;
    PinnedPool::shared().trim(0)?;
    PinnedPool::shared().reset_peaks()?;
    PinnedPool::shared().usage()
}

gpu_test! {
    needs 1;
    fn f03_pool_reuse() -> Result<()> {
        let context = context()?;
        let first = PinnedBuffer::<u8>::zeroed(&context, 1000)?;
        let place = address(&first)?;
        drop(first);
        let same_size = PinnedBuffer::<u8>::new(&context, 1000)?;
        assert_eq!(address(&same_size)?, place);
        let other = PinnedBuffer::<u8>::new(&context, 2000)?;
        assert_ne!(address(&other)?, place);
        drop(same_size);
        let larger = PinnedBuffer::<u8>::new(&context, 2000)?;
        assert_ne!(address(&larger)?, place, "of another size");
        // `zeroed` also clears reused memory.
        drop(other);
        drop(larger);
        PinnedBuffer::<u8>::new(&context, 2000)?.as_mut_slice()?.fill(7);
        assert_eq!(PinnedBuffer::<u8>::zeroed(&context, 2000)?.as_slice()?, [0; 2000]);
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn f03_pools_of_ones_own() -> Result<()> {
        let (context, stream) = one_stream()?;
        let buffer = stream.upload_new(&pattern(3, 5000))?;
        let (pool, other) = (PinnedPool::new(), PinnedPool::new());
        let mut host = pool.alloc::<u8>(&context, 5000)?;
        let (usage, none) = (pool.usage()?, other.usage()?);
        assert!(usage.used >= 5000 && usage.reserved >= usage.used, "{usage:?}");
        assert_eq!((none.used, none.reserved), (0, 0));
        let place = address(&host)?;
        drop(host);
        assert_eq!(address(&pool.alloc(&context, 5000)?)?, place);
        // A buffer outlives its pool, and a copy outlives its buffer.
        host = pool.alloc(&context, 5000)?;
        drop(pool);
        let stalled = stall(stream.as_raw());
        stream.download(&buffer, &mut host)?;
        drop(host);
        let mut next = PinnedBuffer::<u8>::zeroed(&context, 5000)?;
        next.as_mut_slice()?.fill(0xEE);
        stalled.release();
        stream.synchronize()?;
        assert_eq!(next.as_slice()?, [0xEE; 5000]);
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn f03_nothing_overlaps() -> Result<()> {
        let context = context()?;
        let sizes = [1, 255, 256, 257, 2048, 2049, 4096, 5000, 65_537, 300_000];
        let mut buffers = Vec::new();
        for round in 0..3 {
            for (index, len) in sizes.into_iter().enumerate() {
                let seed = (round * sizes.len() + index) as u64;
                let buffer = PinnedBuffer::from_slice(&context, &pattern(seed, len))?;
                assert_eq!(address(&buffer)? % 256, 0, "{len} bytes");
                buffers.push((seed, buffer));
            }
            // Some buffers are returned, for the next round to reuse.
            buffers.swap_remove(round * 3);
            buffers.swap_remove(0);
        }
        for (seed, buffer) in &buffers {
            let what = format!("buffer {seed}");
            same(buffer.as_slice()?, &pattern(*seed, buffer.len()), &what);
        }
        Ok(())
    }
}

gpu_test! {
    needs 1, asynchronous;
    fn f03_not_reused_under_a_copy() -> Result<()> {
        const LEN: usize = if cfg!(miri) { 3000 } else { 100_000 };
        let (context, stream) = one_stream()?;
        let mut device = stream.alloc_zeroed::<u8>(LEN)?;
        let mut back = PinnedBuffer::<u8>::zeroed(&context, LEN)?;
        let up = PinnedBuffer::from_slice(&context, &pattern(1, LEN))?;
        let mut down = PinnedBuffer::<u8>::zeroed(&context, LEN)?;
        stream.upload(&up, &mut device)?;
        stream.download(&device, &mut down)?;
        stream.synchronize()?;

        let stall = stall(stream.as_raw());
        stream.upload(&up, &mut device)?;
        stream.download(&device, &mut down)?;
        stream.download(&device, &mut back)?;
        let places = [address(&up)?, address_of_written(&down)];
        // Neither drop waits for the copies.
        drop((up, down));
        assert!(PinnedPool::shared().usage()?.pending >= 2 * LEN, "{:?}", PinnedPool::shared().usage()?);
        let mut others = Vec::new();
        for seed in 0..4 {
            let other = PinnedBuffer::from_slice(&context, &pattern(50 + seed, LEN))?;
            assert!(!places.contains(&address(&other)?), "used by a copy that has yet to run");
            others.push(other);
        }
        stall.release();
        same(back.as_slice()?, &pattern(1, LEN), "what was uploaded");
        for (seed, other) in (0..).zip(&others) {
            same(other.as_slice()?, &pattern(50 + seed, LEN), "what others hold");
        }
        Ok(())
    }
}

/// Returns the buffer's address, without a wait for work that writes the buffer.
fn address_of_written(buffer: &PinnedBuffer<u8>) -> usize {
    let text = format!("{buffer:?}");
    let digits = text.split("0x").nth(1).expect("an address");
    let digits = digits.split(',').next().expect("its end");
    usize::from_str_radix(digits, 16).expect("a hexadecimal number")
}

gpu_test! {
    needs 1;
    fn f03_reused_after_a_copy() -> Result<()> {
        let (context, stream) = one_stream()?;
        let mut device = stream.alloc_zeroed::<u8>(5000)?;
        let before = from_scratch()?;
        let mut places = std::collections::BTreeSet::new();
        for seed in 0..200 {
            let up = PinnedBuffer::from_slice(&context, &pattern(seed, 5000))?;
            places.insert(address(&up)?);
            stream.upload(&up, &mut device)?;
            drop(up);
            stream.synchronize()?;
        }
        let mut back = vec![0; 5000];
        stream.download(&device, &mut back)?;
        same(&back, &pattern(199, 5000), "the last one");
        let usage = PinnedPool::shared().usage()?;
        assert!(places.len() < 200, "{} places", places.len());
        assert!(usage.reserved_peak - before.reserved <= 8 << 20, "{usage:?}");
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn f03_trim() -> Result<()> {
        let context = context()?;
        let before = from_scratch()?;
        let kept = PinnedBuffer::from_slice(&context, &pattern(3, 1000))?;
        // A separate allocation, since it is larger than the blocks of slabs.
        let large = PinnedBuffer::<u8>::new(&context, 40 << 20)?;
        let usage = PinnedPool::shared().usage()?;
        assert_eq!(usage.used - before.used, 1024 + (40 << 20));
        assert!(usage.reserved - before.reserved >= 40 << 20);
        assert_eq!(usage.reserved, usage.used + usage.free + usage.pending);
        drop(large);
        assert_eq!(PinnedPool::shared().usage()?.reserved, usage.reserved, "cached");
        let gone = PinnedPool::shared().trim(0)?;
        let trimmed = PinnedPool::shared().usage()?;
        assert_eq!(gone, usage.reserved - trimmed.reserved);
        assert!(trimmed.reserved <= usage.reserved - (40 << 20), "{trimmed:?}");
        same(kept.as_slice()?, &pattern(3, 1000), "what is used stays");
        drop(kept);
        PinnedPool::shared().trim(0)?;
        let last = PinnedPool::shared().usage()?;
        assert_eq!((last.used, last.reserved), (before.used, before.reserved));
        assert_eq!(last.used_peak, usage.used);
        Ok(())
    }
}

gpu_test! {
    needs 1, asynchronous;
    fn f03_trim_waits_for_nothing() -> Result<()> {
        let (context, stream) = one_stream()?;
        let mut device = stream.alloc_zeroed::<u8>(4096)?;
        let before = from_scratch()?;
        let up = PinnedBuffer::from_slice(&context, &pattern(4, 4096))?;
        stream.upload(&up, &mut device)?;
        stream.synchronize()?;
        let stall = stall(stream.as_raw());
        stream.upload(&up, &mut device)?;
        drop(up);
        PinnedPool::shared().trim(0)?;
        let usage = PinnedPool::shared().usage()?;
        assert!(usage.reserved > before.reserved && usage.pending >= 4096, "{usage:?}");
        stall.release();
        stream.synchronize()?;
        PinnedPool::shared().trim(0)?;
        assert_eq!(PinnedPool::shared().usage()?.reserved, before.reserved);
        let mut back = vec![0; 4096];
        stream.download(&device, &mut back)?;
        same(&back, &pattern(4, 4096), "uploaded behind the trim");
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn f03_limit() -> Result<()> {
        let context = context()?;
        let before = from_scratch()?;
        let slab = 34 << 20;
        PinnedPool::shared().set_limit(before.reserved + 2 * slab);
        let each = |extra: usize| PinnedBuffer::<u8>::new(&context, slab + extra);
        let used = (each(0)?, each(0)?, each(0)?);
        let usage = PinnedPool::shared().usage()?;
        assert_eq!(usage.reserved - before.reserved, 3 * slab, "memory in use is not limited");
        drop(used);
        assert_eq!(PinnedPool::shared().usage()?.reserved, usage.reserved, "nor released by a drop");
        // The buffers are larger, so that no cached block fits.
        let larger = each(1)?;
        let usage = PinnedPool::shared().usage()?;
        assert!(usage.reserved - before.reserved <= 2 * slab + (2 << 20), "{usage:?}");
        PinnedPool::shared().set_limit(usize::MAX);
        drop(larger);
        PinnedPool::shared().trim(0).map(drop)
    }
}

gpu_test! {
    needs 1;
    fn f03_backend() -> Result<()> {
        let context = context()?;
        let before = from_scratch()?;
        let cached = PinnedBuffer::from_slice(&context, &pattern(5, 3000))?;
        PinnedPool::set_backend(PinnedBackend::Driver);
        let plain = PinnedBuffer::from_slice(&context, &pattern(6, 3000))?;
        // Each buffer is freed by the backend that allocated it.
        assert_eq!(PinnedPool::shared().usage()?.used - before.used, 3072);
        same(cached.as_slice()?, &pattern(5, 3000), "of a slab");
        drop(cached);
        PinnedPool::set_backend(PinnedBackend::Slab);
        same(plain.as_slice()?, &pattern(6, 3000), "of the driver");
        drop(plain);
        assert_eq!(PinnedPool::shared().usage()?.used, before.used);
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn f02_cached_memory_is_pinned() -> Result<()> {
        let context = context()?;
        let buffer = PinnedBuffer::<u8>::zeroed(&context, 10_000)?;
        for at in [0, 5000, 9999] {
            let inside = &raw const buffer.as_slice()?[at];
            assert!(is_pinned(inside)?, "byte {at}");
            // To the driver, the allocation is the whole slab.
            let attributes = PointerAttributes::of_host(inside)?;
            assert!(attributes.range_start as usize <= address(&buffer)?, "{attributes:?}");
            assert!(attributes.range_size >= 10_000, "{attributes:?}");
        }
        assert_eq!(buffer.context(), &context);
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn f09_cached_memory_is_mapped() -> Result<()> {
        let (context, stream) = one_stream()?;
        // Makes the next block start inside a slab.
        let _before = PinnedBuffer::<u8>::new(&context, 4096)?;
        let mut host = PinnedBuffer::from_slice(&context, &pattern(9, 4096))?;
        let address = host.device_ptr()?;
        {
            let _current = context.enter()?;
            let (mut known, place) = (0, host.as_mut_slice()?.as_mut_ptr().cast());
            // SAFETY: the call writes one address, to a local; the memory is pinned.
            let code = unsafe { cu::cuMemHostGetDevicePointer_v2(&mut known, place, 0) };
            assert_eq!((code, known), (CUDA_SUCCESS, address), "it is not asked for");
        }
        // SAFETY: the address is that of the pinned memory, which is kept below.
        let mut mapped =
            unsafe { DeviceBuffer::<u8>::from_raw(address, 4096, &context, ()) }?;
        let mut copy = stream.alloc::<u8>(4096)?;
        stream.copy(&mapped, &mut copy)?;
        let mut read = vec![0; 4096];
        stream.download(&copy, &mut read)?;
        same(&read, &pattern(9, 4096), "read in place");
        // SAFETY: only the fill below uses it before the second call.
        unsafe { host.note_use(&stream, Access::Write) }?;
        stream.fill(&mut mapped, 3)?;
        // SAFETY: only the fill above has used it since the first call.
        unsafe { host.note_use(&stream, Access::Write) }?;
        assert_eq!(host.as_mut_slice()?, [3; 4096], "written in place");
        drop(mapped);
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn f11_cached_memory_outlives_contexts() -> Result<()> {
        let device = Device::get(0)?;
        let created = Context::new(device, ContextFlags::SCHED_AUTO)?;
        let stream = created.create_stream()?;
        let up = PinnedBuffer::from_slice(&created, &pattern(12, 7000))?;
        let place = address(&up)?;
        let mut buffer = stream.alloc::<u8>(7000)?;
        stream.upload(&up, &mut buffer)?;
        stream.synchronize()?;
        drop((up, buffer, stream, created));
        let again = PinnedBuffer::from_slice(&device.context()?, &pattern(13, 7000))?;
        assert_eq!(address(&again)?, place);
        round_trip(&device.create_stream()?, &again, &pattern(13, 7000))
    }
}

gpu_test! {
    needs 2;
    fn f11_cached_memory_is_everywhere() -> Result<()> {
        let host = PinnedBuffer::from_slice(&context()?, &pattern(14, 7000))?;
        for device in Device::all()? {
            round_trip(&device.create_stream()?, &host, &pattern(14, 7000))?;
            // Later requests also get memory that all contexts can use.
            let own = PinnedBuffer::from_slice(&device.context()?, &pattern(15, 7000))?;
            round_trip(&context()?.create_stream()?, &own, &pattern(15, 7000))?;
        }
        Ok(())
    }
}

fn round_trip(stream: &Stream, host: &PinnedBuffer<u8>, bytes: &[u8]) -> Result<()> {
    let mut buffer = stream.alloc::<u8>(bytes.len())?;
    let mut back = PinnedBuffer::<u8>::zeroed(stream.context(), bytes.len())?;
    stream.upload(host, &mut buffer)?;
    stream.download(&buffer, &mut back)?;
    same(back.as_slice()?, bytes, "there and back");
    Ok(())
}

gpu_test! {
    needs 1;
    fn f03_while_this_thread_captures() -> Result<()> {
        let (context, stream) = one_stream()?;
        let other = context.create_stream()?;
        let mut buffer = other.alloc_zeroed::<u8>(1000)?;
        let pending = PinnedBuffer::from_slice(&context, &pattern(16, 1000))?;
        other.upload(&pending, &mut buffer)?;
        drop(pending);
        other.synchronize()?;
        PinnedPool::shared().trim(0)?;
        for mode in [
            cuda_sys::CU_STREAM_CAPTURE_MODE_GLOBAL,
            cuda_sys::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
        ] {
            let capture = Capture::begin(&stream, mode);
            let host = PinnedBuffer::from_slice(&context, &pattern(17, 1000))?;
            let mut back = PinnedBuffer::<u8>::new(&context, 1000)?;
            other.upload(&host, &mut buffer)?;
            drop(host);
            other.download(&buffer, &mut back)?;
            same(back.as_slice()?, &pattern(17, 1000), "beside the capture");
            drop(back);
            PinnedPool::shared().trim(0)?;
            let mut status = cuda_sys::CU_STREAM_CAPTURE_STATUS_NONE;
            // SAFETY: the stream is live; the pointer is valid for a write.
            let code = unsafe { cuda_sys::cuStreamIsCapturing(stream.as_raw(), &mut status) };
            support::check("cuStreamIsCapturing", code);
            assert_eq!(status, cuda_sys::CU_STREAM_CAPTURE_STATUS_ACTIVE, "not invalidated");
            drop(capture);
        }
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn f03_threads() -> Result<()> {
        const ROUNDS: u64 = if cfg!(miri) { 2 } else { 50 };
        let context = context()?;
        let before = from_scratch()?;
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..8)
                .map(|worker| {
                    let context = &context;
                    scope.spawn(move || -> Result<()> {
                        let stream = context.create_stream()?;
                        let mut buffer = stream.alloc_zeroed::<u8>(3000)?;
                        for round in 0..ROUNDS {
                            let bytes = pattern(worker * ROUNDS + round, 3000);
                            let up = PinnedBuffer::from_slice(context, &bytes)?;
                            stream.upload(&up, &mut buffer)?;
                            drop(up);
                            let mut down = PinnedBuffer::<u8>::new(context, 3000)?;
                            stream.download(&buffer, &mut down)?;
                            same(down.as_slice()?, &bytes, "a worker's own");
                        }
                        stream.synchronize()
                    })
                })
                .collect();
            for worker in workers {
                worker.join().expect("no panic")?;
            }
            Ok::<(), cuda_core::Error>(())
        })?;
        let usage = PinnedPool::shared().usage()?;
        assert_eq!(usage.used, before.used, "{usage:?}");
        PinnedPool::shared().trim(0)?;
        assert_eq!(PinnedPool::shared().usage()?.reserved, before.reserved);
        Ok(())
    }
}

// Miri has no processes.
#[cfg(all(target_os = "linux", not(miri)))]
gpu_test! {
    needs 1;
    fn s35_mappings_are_not_inherited() -> Result<()> {
        let buffer = PinnedBuffer::from_slice(&context()?, &pattern(18, 1000))?;
        let bytes = buffer.as_slice()?.as_ptr();
        let mut ends = [0; 2];
        // SAFETY: the array is valid for two descriptors.
        assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
        // The system call reports whether it can read the memory, without a signal.
        let readable = || {
            // SAFETY: the pipe has room for a byte; an unmapped address is an error.
            (unsafe { libc::write(ends[1], bytes.cast(), 1) }) == 1
        };
        assert!(readable(), "in the parent");
        // SAFETY: the child makes two system calls and ends.
        let pid = unsafe { libc::fork() };
        assert!(pid >= 0, "fork");
        if pid == 0 {
            let inherited = readable();
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(i32::from(inherited)) };
        }
        let mut status = 0;
        // SAFETY: `pid` is a child of this process that no other code waits for; the place is valid for a
        // write.
        assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
        assert!(libc::WIFEXITED(status), "ended by a signal");
        assert_eq!(libc::WEXITSTATUS(status), 0, "the child has the mapping");
        for end in ends {
            // SAFETY: the descriptor was opened above, and is closed once.
            unsafe { libc::close(end) };
        }
        Ok(())
    }
}
