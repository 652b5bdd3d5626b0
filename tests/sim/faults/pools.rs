//! The driver's memory pools.

use cuda_core::{Device, MemoryPool, PeerAccess, Result, pools::PoolReuse};

use super::harness::{first, sweep};

#[test]
fn pools() {
    sweep(|| {
        let (device, context) = first()?;
        let stream = context.create_stream()?;
        let pool = MemoryPool::builder(device).max_size(1 << 20).build()?;
        let mut a = stream.alloc_from::<u32>(&pool, 16)?;
        stream.fill(&mut a, 1)?;
        let other = pool.clone();
        pool.close()?;
        other.set_reuse(PoolReuse::Opportunistic, false)?;
        other.reset_peaks()?;
        other.trim(0)?;
        assert!(other.usage()?.used >= 64);
        other.close()?;
        let mut back = [0; 16];
        stream.download(&a, &mut back)?;
        assert_eq!(back, [1; 16]);
        Ok(())
    });
}

#[test]
fn the_devices_pool() {
    sweep(|| {
        let (device, context) = first()?;
        let stream = context.create_stream()?;
        let pool = MemoryPool::builder(device).build()?;
        device.set_memory_pool(&pool)?;
        let buffer = stream.alloc_zeroed::<u32>(16)?;
        drop(pool);
        assert!(device.memory_pool()?.is_none_or(|pool| {
            pool == device.default_memory_pool().expect("it was found before")
        }));
        drop(buffer);
        Ok(())
    });
    // A pool that could not be destroyed may still be the device's default.
    restore().expect("no fault is left");
}

fn restore() -> Result<()> {
    let _session = support::simulator();
    let device = Device::get(0)?;
    device.set_memory_pool(&device.default_memory_pool()?)
}

#[test]
fn access_of_peers() {
    sweep(|| {
        let (device, context) = first()?;
        let peer = Device::get(1)?;
        let (s, t) = (context.create_stream()?, peer.create_stream()?);
        let pool = MemoryPool::builder(device).build()?;
        pool.set_access(peer, PeerAccess::ReadWrite)?;
        let mut a = s.alloc_from::<u32>(&pool, 16)?;
        s.fill(&mut a, 7)?;
        let mut b = t.alloc::<u32>(16)?;
        t.copy(&a, &mut b)?;
        pool.set_access(peer, PeerAccess::None)?;
        assert_eq!(pool.access(peer)?, PeerAccess::None);
        t.copy(&a, &mut b)?;
        let mut back = [0; 16];
        t.download(&b, &mut back)?;
        assert_eq!(back, [7; 16]);
        Ok(())
    });
}

#[cfg(unix)]
#[test]
#[cfg_attr(miri, ignore = "opens files")]
fn shared_pools() {
    use cuda_core::interop::{PoolPointer, ShareableHandle};

    sweep(|| {
        let (device, context) = first()?;
        let stream = context.create_stream()?;
        let pool = MemoryPool::builder(device).shareable(ShareableHandle::PosixFd).build()?;
        let buffer = stream.alloc_from::<u32>(&pool, 16)?;
        stream.synchronize()?;
        let fd = pool.export_fd()?;
        let name = PoolPointer::from_bytes(pool.export_pointer(&buffer)?.to_bytes());
        // SAFETY: the pool is of the same device.
        let imported = unsafe { MemoryPool::import_fd(device, &fd) }?;
        assert!(stream.alloc_from::<u32>(&imported, 16).is_err());
        // SAFETY: `buffer` stays alive.
        let mut opened = unsafe { imported.import_pointer::<u32>(&context, name, 16) }?;
        drop(imported);
        stream.fill(&mut opened, 5)?;
        Ok(opened.close()?)
    });
}
