//! A pool's segments, as a snapshot shows them.

use std::sync::Arc;

use cuda_core::adaptors::{Snapshot, Tracking};
use cuda_core::{
    Allocator, CachingPool, Device, DeviceBuffer, Result, pools::CacheBlockState, with_allocator,
};
use proptest::prelude::*;
use support::simulator;

/// Asserts that blocks tile their segment, that each outstanding buffer lies in a used block of its own, and
/// that the sums equal the pool's counters.
fn tiled(pool: &CachingPool, device: Device, buffers: &[DeviceBuffer<u8>]) {
    let segments = pool.segments(device);
    let mut used: Vec<(u64, usize)> = Vec::new();
    let (mut reserved, mut free, mut pending) = (0, 0, 0);
    for segment in &segments {
        let mut at = segment.address;
        for block in &segment.blocks {
            assert_eq!(block.address, at, "a gap, or blocks that overlap: {segment:?}");
            at += block.bytes as u64;
            match block.state {
                CacheBlockState::Used => used.push((block.address, block.bytes)),
                CacheBlockState::Free => free += block.bytes,
                CacheBlockState::Pending => pending += block.bytes,
            }
        }
        assert_eq!(at, segment.address + segment.bytes as u64, "{segment:?}");
        assert_eq!(segment.device, device);
        reserved += segment.bytes;
    }
    let usage = pool.usage(device);
    assert_eq!((reserved, free, pending), (usage.reserved, usage.free, usage.pending));
    assert_eq!(used.iter().map(|(_, bytes)| bytes).sum::<usize>(), usage.used);
    let mut expected: Vec<_> = buffers.iter().map(DeviceBuffer::as_raw).collect();
    expected.sort_unstable();
    let found: Vec<_> = used.iter().map(|(address, _)| *address).collect();
    assert_eq!(found, expected);
    for buffer in buffers {
        let fits = used.iter().any(|&(at, bytes)| at == buffer.as_raw() && bytes >= buffer.len());
        assert!(fits, "{buffer:?}");
    }
}

fn runs(pool: &CachingPool, acts: &[(bool, usize)]) -> Result<()> {
    let device = Device::get(0)?;
    let streams = [device.create_stream()?, device.create_stream()?];
    let mut buffers = Vec::new();
    for (index, &(allocates, number)) in acts.iter().enumerate() {
        if allocates || buffers.is_empty() {
            let bytes = 1 + number % (1 << (number % 24));
            let stream = &streams[index % 2];
            let alloc = || stream.alloc::<u8>(bytes);
            buffers.push(with_allocator(&pool.allocator(), alloc)?);
        } else {
            let mut buffer = buffers.swap_remove(number % buffers.len());
            // The buffer is freed while a stream other than its home may use it.
            streams[number % 2].fill(buffer.slice_mut(..1)?, 1)?;
            drop(buffer);
        }
        tiled(pool, device, &buffers);
    }
    Ok(())
}

#[test]
fn segments_are_tiled_by_their_blocks() -> Result<()> {
    let session = simulator();
    let config = crate::property::config(if cfg!(miri) { 1 } else { 64 });
    let acts = prop::collection::vec(any::<(bool, usize)>(), 1..if cfg!(miri) { 12 } else { 60 });
    proptest!(config, |(acts in acts)| {
        let pools = [CachingPool::new(), CachingPool::shared().expect("no limit is set")];
        pools[1].trim(0).expect("nothing fails");
        for pool in &pools {
            runs(pool, &acts).expect("nothing fails");
        }
    });
    // Blocks that streams may still use are freed once their work has completed.
    cuda_core::drops::flush();
    support::trim_cache(&session)?;
    session.assert_clean();
    Ok(())
}

#[test]
fn a_snapshot_shows_segments() -> Result<()> {
    let _session = simulator();
    let stream = Device::get(0)?.create_stream()?;
    let pool = CachingPool::new();
    let tracking = Arc::new(Tracking::new(pool.allocator()));
    let allocator = Allocator::new(Arc::clone(&tracking));
    let buffer = with_allocator(&allocator, || stream.alloc::<u8>(1000))?;
    let text = Snapshot::of(&*tracking).with_pool(&pool)?.to_json();
    let (place, rest) = (buffer.as_raw(), buffer.as_raw() + 1024);
    let outstanding = format!("{{\"number\":0,\"address\":\"{place:#x}\",\"bytes\":1000,");
    assert!(text.contains(&outstanding), "{text}");
    let segments = format!(
        "\"segments\":[\n{{\"device\":0,\"address\":\"{place:#x}\",\"bytes\":2097152,\"blocks\":[\n\
         {{\"address\":\"{place:#x}\",\"bytes\":1024,\"state\":\"used\"}},\n\
         {{\"address\":\"{rest:#x}\",\"bytes\":2096128,\"state\":\"free\"}}]}}]}}\n"
    );
    assert!(text.ends_with(&segments), "{text}");
    Ok(())
}
