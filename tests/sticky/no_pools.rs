//! E11: devices without stream-ordered allocation.

use cuda_core::{
    Allocator, CachingPool, Device, Error, Event, EventFlags, MemoryPool, PinnedBuffer, Result,
    with_allocator,
};
use cuda_sim::{Config, Session};

use support::child;

#[test]
fn e11_async_unsupported() -> Result<()> {
    if child::ran(concat!(module_path!(), "::e11_async_unsupported"), &[]) {
        return Ok(());
    }
    cuda_sim::install(Config::from_env().devices(2).without_memory_pools())
        .expect("a process without a driver");
    let session = Session::begin();
    let devices = [Device::get(0)?, Device::get(1)?];
    assert!(!devices[0].attributes().memory_pools_supported()?);
    let stream = devices[0].create_stream()?;
    let pool = Allocator::driver_pool();
    let refused = [
        stream.alloc_with::<u8>(&pool, 1000).err(),
        with_allocator(&pool, || stream.alloc_zeroed::<f64>(3)).err(),
        stream.context().default_stream()?.alloc_with::<u8>(&pool, 1).err(),
    ];
    for error in refused {
        match error {
            Some(Error::Unsupported { device, feature, .. }) => {
                assert_eq!(device, 0);
                assert!(feature.contains("memory pools"), "{feature}");
            }
            other => panic!("{other:?}"),
        }
    }
    for call in ["cuMemAllocAsync", "cuMemAllocFromPoolAsync", "cuMemAlloc_v2"] {
        assert_eq!(session.calls(call), 0, "{call} was made");
    }
    let pools =
        [devices[0].default_memory_pool().err(), MemoryPool::builder(devices[0]).build().err()];
    for error in pools {
        assert!(matches!(error, Some(Error::Unsupported { .. })), "{error:?}");
    }
    // Everything else works, also the caching pool.
    let mut cached = stream.alloc_with::<u8>(&Allocator::cache(), 1000)?;
    stream.fill(&mut cached, 6)?;
    let mut plain = stream.context().alloc::<u8>(1000)?;
    stream.fill(&mut plain, 7)?;
    let mut back = [0; 1000];
    stream.download(&plain, &mut back)?;
    assert_eq!(back, [7; 1000]);
    let mut pinned = PinnedBuffer::from_slice(stream.context(), &[1, 2, 3])?;
    assert_eq!(pinned.as_mut_slice()?, [1, 2, 3]);
    let event = Event::new(stream.context(), EventFlags::DEFAULT)?;
    event.record(&stream)?;
    event.synchronize()?;
    let [a, b] = [devices[0].context()?, devices[1].context()?];
    a.enable_peer_access(&b)?;
    a.disable_peer_access(&b)?;
    drop((stream, plain, cached, pinned, event));
    session.settle();
    CachingPool::shared()?.trim(0)?;
    cuda_core::staging::trim()?;
    session.assert_clean();
    child::done();
    Ok(())
}
