//! Pools of pinned memory that a program creates.

use support::two_devices;

use super::*;

/// Allocates pinned memory, and enqueues a copy on `stream` that writes it.
fn written(pool: &PinnedPool, stream: &cuda_core::Stream, len: usize) -> Result<PinnedBuffer<u8>> {
    let mut host = pool.alloc(stream.context(), len)?;
    stream.download(&stream.alloc_zeroed::<u8>(len)?, &mut host)?;
    Ok(host)
}

#[test]
fn f03_a_pool_of_ones_own_has_its_own_memory() -> Result<()> {
    let session = cached();
    // The pool decides the backend, whatever allocates other memory.
    PinnedPool::set_backend(PinnedBackend::Driver);
    assert_eq!(PinnedPool::backend()?, PinnedBackend::Driver);
    let (context, pool) = (context()?, PinnedPool::new());
    let first = pool.alloc::<u8>(&context, 1000)?;
    assert_eq!((session.calls(REGISTER), session.calls(ALLOC)), (1, 0));
    assert_eq!(PinnedPool::shared().usage()?.reserved, 0);
    let at = place(&first);
    no_calls(&session, "the first drop", || drop(first));
    let again = no_calls(&session, "a hit", || pool.clone().alloc::<u8>(&context, 1000))?;
    assert_eq!(place(&again), at);
    assert!(pool.alloc::<u8>(&context, 0)?.is_empty());
    pool.set_limit(5 << 20);
    assert_eq!((pool.limit(), PinnedPool::shared().limit()), (Some(5 << 20), None));
    let other = PinnedPool::new();
    drop(other.alloc::<u8>(&context, 1000)?);
    let (used, free) = (pool.usage()?, other.usage()?);
    assert_eq!((used.used, free.used, free.free), (1024, 0, free.reserved));
    assert_eq!((pool.trim(0)?, other.trim(0)?), (0, free.reserved));
    drop(again);
    assert_eq!(pool.trim(0)?, used.reserved);
    PinnedPool::set_backend(PinnedBackend::Slab);
    assert_eq!(PinnedPool::backend()?, PinnedBackend::Slab);
    finish(&session)
}

/// The memory may be in any state; it is reused only once its copies have completed.
#[test]
fn f03_what_a_pool_kept_goes_to_the_shared_one() -> Result<()> {
    let session = cached();
    let (context, pool) = (context()?, PinnedPool::new());
    let stream = context.create_stream()?;
    let (one, two) = (written(&pool, &stream, 1000)?, written(&pool, &stream, 3 << 20)?);
    let (idle, last) = (pool.alloc::<u8>(&context, 500)?, pool.alloc::<u8>(&context, 1000)?);
    let at = [&one, &two, &idle, &last].map(place);
    drop((one, two, idle));
    let kept = pool.usage()?;
    assert!(kept.pending >= 3 << 20 && kept.free > 0, "{kept:?}");
    drop(pool);
    assert_eq!(PinnedPool::shared().usage()?.reserved, 0, "a buffer uses the pool");
    no_calls(&session, "the end of a pool", || drop(last));
    let moved = PinnedPool::shared().usage()?;
    assert_eq!((moved.reserved, moved.pending, moved.used), (kept.reserved, kept.pending, 0));
    assert_eq!(moved.free, kept.free + kept.used);
    let mut again = PinnedBuffer::<u8>::new(&context, 1000)?;
    assert_eq!(place(&again), at[3], "the first is being written");
    let idle = PinnedBuffer::<u8>::new(&context, 500)?;
    assert_eq!(place(&idle), at[2]);
    again.as_mut_slice()?.fill(1);
    stream.synchronize()?;
    let mut others = [1000, 3 << 20].map(|len| PinnedBuffer::<u8>::new(&context, len));
    for (other, at) in others.iter_mut().zip(&at) {
        let other = other.as_mut().expect("it was kept");
        other.as_mut_slice()?.fill(2);
        assert_eq!(place(other), *at);
    }
    drop((others, again, idle, stream));
    finish(&session)
}

/// The same as for the shared pool.
#[test]
fn a_context_is_not_kept_by_what_a_pool_keeps() -> Result<()> {
    let session = cached();
    let context = Context::new(Device::get(0)?, ContextFlags::default())?;
    let (stream, pool) = (context.create_stream()?, PinnedPool::new());
    drop(written(&pool, &stream, 1000)?);
    drop(stream);
    let Rejected { error, value: context } = context.close().expect_err("its copy may run");
    assert!(matches!(error, Error::ContextInUse), "{error}");
    context.synchronize()?;
    cuda_core::drops::flush();
    context.close()?;
    drop(pool);
    finish(&session)
}

#[test]
fn f03_pools_and_buffers_go_in_any_order() -> Result<()> {
    let session = cached();
    let (contexts, streams) = two_devices()?;
    let mut seed = 12345u64;
    let mut next = move |n: u64| {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed >> 33) % n
    };
    let mut pools: Vec<PinnedPool> = Vec::new();
    let mut buffers: Vec<(PinnedBuffer<u8>, u8)> = Vec::new();
    // For an interpreter, slabs are smaller by the same factor.
    let (steps, smaller) = if cfg!(miri) { (150, 32) } else { (1500, 1) };
    let sizes = [1, 300, 1000, 4096, 100_000, 1 << 20, 1 << 20, 3 << 20];
    let sizes = sizes.map(|size: usize| size.div_ceil(smaller));
    for step in 0..steps {
        match next(12) {
            0 => pools.push(PinnedPool::new()),
            1 if !pools.is_empty() => {
                let at = next(pools.len() as u64) as usize;
                drop(pools.swap_remove(at));
            }
            2 if !pools.is_empty() => {
                let at = next(pools.len() as u64) as usize;
                pools[at].trim(next(8 << 20) as usize)?;
            }
            3 => {
                PinnedPool::shared().trim(next(16 << 20) as usize)?;
            }
            4 => {}
            5 => streams[next(2) as usize].synchronize()?,
            6 | 7 if !buffers.is_empty() => {
                let at = next(buffers.len() as u64) as usize;
                let (buffer, _) = buffers.swap_remove(at);
                match next(2) {
                    0 => drop(buffer),
                    _ => std::thread::scope(|s| {
                        s.spawn(|| drop(buffer));
                    }),
                }
            }
            8 if !buffers.is_empty() => {
                let at = next(buffers.len() as u64) as usize;
                let which = next(2) as usize;
                let (mut buffer, _) = buffers.swap_remove(at);
                let mut device = streams[which].alloc_zeroed::<u8>(buffer.len())?;
                streams[which].fill(&mut device, 200)?;
                streams[which].download(&device, &mut buffer)?;
                drop(buffer);
            }
            9 if !pools.is_empty() => {
                let at = next(pools.len() as u64) as usize;
                pools[at].set_limit(if next(2) == 0 { Some(next(9 << 20) as usize) } else { None });
            }
            _ => {
                let (which, len) = (next(2) as usize, sizes[next(8) as usize]);
                let mut buffer = match next(pools.len() as u64 + 1) as usize {
                    0 => PinnedBuffer::new(&contexts[which], len)?,
                    at => pools[at - 1].alloc(&contexts[which], len)?,
                };
                buffer.as_mut_slice()?.iter_mut().take(300).for_each(|it| *it = step as u8);
                buffers.push((buffer, step as u8));
                if buffers.len() > 20 {
                    buffers.remove(0);
                }
            }
        }
        for pool in pools.iter().chain([&PinnedPool::shared()]) {
            let u = pool.usage()?;
            assert_eq!(u.used + u.free + u.pending, u.reserved, "{step}: {u:?}");
            assert!(u.used <= u.used_peak && u.reserved <= u.reserved_peak, "{u:?}");
        }
        for (buffer, value) in &buffers {
            assert!(buffer.as_slice()?.iter().take(300).all(|it| it == value), "{step}");
        }
    }
    drop((pools, buffers));
    for stream in &streams {
        stream.synchronize()?;
    }
    drop(streams);
    PinnedPool::shared().trim(0)?;
    assert_eq!(PinnedPool::shared().usage()?.reserved, 0);
    finish(&session)
}
