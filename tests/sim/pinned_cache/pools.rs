//! Pools of pinned memory of a program's own.

use super::*;

/// Pinned memory that a queued copy of `stream` writes.
fn written(pool: &PinnedPool, stream: &cuda_core::Stream, len: usize) -> Result<PinnedBuffer<u8>> {
    let mut host = pool.alloc(stream.context(), len)?;
    stream.download(&stream.alloc_zeroed::<u8>(len)?, &mut host)?;
    Ok(host)
}

#[test]
fn f03_a_pool_of_ones_own_has_its_own_memory() -> Result<()> {
    let session = cached();
    // It is the pool's, whatever allocates other memory.
    PinnedPool::set_backend(PinnedBackend::Driver);
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
    finish(&session)
}

/// Whatever state it is in, and only when its copies are done.
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

/// As of the shared one.
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
