//! Draws a snapshot: the largest allocated blocks, and the pools' segments.

use std::cmp::Reverse;

use anyhow::ensure;
use serde::Deserialize;

use super::picture::{TOP, heading, largest, list, page, size};
use super::segments::{self, Segment};

/// The JSON that `cuda_core::adaptors::Snapshot::to_json` writes.
#[derive(Deserialize)]
pub(crate) struct Snapshot {
    version: u32,
    allocator: String,
    outstanding: Vec<Outstanding>,
    segments: Vec<Segment>,
}

/// A block that was allocated.
#[derive(Deserialize)]
struct Outstanding {
    number: u64,
    bytes: usize,
    device: u32,
    stream: u64,
    thread: u64,
}

/// Whether a file is a snapshot; logs begin differently.
pub(crate) fn is_one(text: &str) -> bool {
    text.starts_with('{')
}

impl Snapshot {
    pub(crate) fn parse(text: &str) -> anyhow::Result<Self> {
        let snapshot: Self = serde_json::from_str(text)?;
        ensure!(snapshot.version == 1, "a snapshot of version {}, not 1", snapshot.version);
        Ok(snapshot)
    }

    /// The picture as self-contained SVG.
    pub(crate) fn draw(&self, name: &str) -> String {
        let allocated: usize = self.outstanding.iter().map(|block| block.bytes).sum();
        let title = format!("{} allocated: {name}", size(allocated as u64));
        let mut svg = heading(&title, &format!("by the allocator {}", self.allocator));
        let mut largest = largest(self.outstanding.iter(), |block| block.bytes);
        largest.sort_by_key(|block| Reverse(block.bytes));
        let lines = largest.into_iter().map(|block| {
            let about = format!(
                "block {}, on stream {} of device {}, by thread {}",
                block.number, block.stream, block.device, block.thread
            );
            (block.bytes as u64, about)
        });
        let y = list(&mut svg, TOP - 20.0, self.outstanding.len(), lines.collect());
        let y = segments::draw(&mut svg, "segments of pools", &self.segments, y);
        page(svg, y, &title)
    }
}

#[cfg(test)]
mod tests {
    use cuda_core::adaptors::{self, Tracking};
    use cuda_core::{Allocator, CachingPool, Device};
    use std::sync::Arc;

    use super::*;
    use crate::target;

    #[test]
    fn a_snapshot_is_drawn() -> anyhow::Result<()> {
        let _session = target::tests::simulated();
        let stream = Device::get(0)?.create_stream()?;
        let pool = CachingPool::new();
        let tracking = Arc::new(Tracking::new(pool.allocator()));
        let allocator = Allocator::new(Arc::clone(&tracking));
        let held = stream.alloc_with::<u8>(&allocator, 1 << 20)?;
        let json = adaptors::Snapshot::of(&*tracking).with_pool(&pool)?.to_json();
        drop(held);

        assert!(is_one(&json));
        let svg = Snapshot::parse(&json)?.draw("memory.json");
        for part in [
            "1 MiB allocated: memory.json",
            "The largest of 1 blocks",
            "of device 0, by thread",
            "segments of pools: 1, 2 MiB",
            "1 MiB of 2 MiB, in use",
        ] {
            assert!(svg.contains(part), "{part}: {svg}");
        }
        let other = json.replacen("\"version\":1", "\"version\":2", 1);
        assert!(Snapshot::parse(&other).is_err());
        Ok(())
    }
}
