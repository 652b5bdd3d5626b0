//! Draws a snapshot: the largest allocated blocks, and the pools' segments.

use std::cmp::Reverse;
use std::fmt::Write as _;

use anyhow::ensure;
use serde::Deserialize;

use super::picture::{LEFT, NAMED, ROW, TOP, WIDE, begin, size};
use super::segments::{Rows, Segment};

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
    bytes: u64,
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
        let mut largest: Vec<_> = self.outstanding.iter().collect();
        largest.sort_by_key(|block| Reverse(block.bytes));
        largest.truncate(NAMED);
        let rows = Rows::new(&self.segments, WIDE);
        let listed = TOP + ROW * (largest.len() + 2) as f64;
        let allocated = self.outstanding.iter().map(|block| block.bytes).sum();
        let title = format!("{} allocated: {name}", size(allocated));
        let source = format!("by the allocator {}", self.allocator);
        let mut svg = begin(listed + rows.height(), &title, &source);
        _ = writeln!(
            svg,
            "<text x=\"{LEFT}\" y=\"{TOP}\" font-weight=\"bold\">The largest of {} blocks</text>",
            self.outstanding.len()
        );
        for (index, block) in largest.iter().enumerate() {
            let y = TOP + ROW * (index + 1) as f64;
            _ = writeln!(
                svg,
                "<text x=\"{}\" y=\"{y}\" text-anchor=\"end\">{}</text>\
                 <text x=\"{}\" y=\"{y}\">block {}, on stream {} of device {}, by thread {}</text>",
                LEFT + 108.0,
                size(block.bytes),
                LEFT + 124.0,
                block.number,
                block.stream,
                block.device,
                block.thread
            );
        }
        rows.draw(&mut svg, "segments of pools", listed);
        svg.push_str("</svg>\n");
        svg
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
        let _session = target::simulated();
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
