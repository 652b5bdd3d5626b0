//! Draws a caching pool's segments to scale, with the parts in use and the cached ones. Draws a snapshot: the
//! largest allocated blocks, and the pools' segments.

use std::cmp::Reverse;

use anyhow::ensure;
use cuda_core::adaptors::{self, Tracking};
use cuda_core::{Allocator, CachingPool};
use serde::{Deserialize, Deserializer, de};

use super::picture::{LEFT, RIGHT, ROW, TOP, WIDTH, heading, largest, list, size};
use crate::svg::Svg;

/// A segment of a pool of this process, or in a snapshot.
#[derive(Deserialize)]
pub(crate) struct Segment {
    #[serde(deserialize_with = "address")]
    address: u64,
    bytes: usize,
    blocks: Vec<Block>,
}

/// A part of a segment.
#[derive(Deserialize)]
struct Block {
    #[serde(deserialize_with = "address")]
    address: u64,
    bytes: usize,
    state: State,
}

#[derive(Deserialize, Clone, Copy)]
#[serde(rename_all = "lowercase")]
enum State {
    Used,
    Free,
    Pending,
}

/// Returns the segments that a pool of this process holds now.
pub(super) fn segments(pool: &CachingPool) -> anyhow::Result<Vec<Segment>> {
    let nothing = Tracking::new(Allocator::plain());
    let snapshot = adaptors::Snapshot::of(&nothing).with_pool(pool)?;
    Ok(Snapshot::parse(&snapshot.to_json())?.segments)
}

/// Reads an address in a snapshot's form: `"0x7f2c14000000"`.
fn address<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    let text = String::deserialize(from)?;
    let digits = text.strip_prefix("0x").unwrap_or_default();
    u64::from_str_radix(digits, 16).map_err(|_| de::Error::custom(format!("no address: {text}")))
}

/// The gap between segments in a row.
const GAP: f64 = 3.0;

/// The height of a segment.
const HIGH: f64 = 13.0;

/// The number of rows that all segments together fill, unless the largest segment needs a longer row.
const LEAST_ROWS: usize = 4;

/// Draws segments in rows, by address, from `top` down. Returns the y coordinate of their end.
pub(super) fn draw(svg: &mut Svg, title: &str, segments: &[Segment], top: f64) -> f64 {
    if segments.is_empty() {
        return top;
    }
    let total: usize = segments.iter().map(|segment| segment.bytes).sum();
    let largest = segments.iter().map(|segment| segment.bytes).max();
    let in_a_row = largest.unwrap_or(0).max(total / LEAST_ROWS).max(1);
    let scale = (RIGHT - LEFT) / in_a_row as f64;
    let title = format!("{title}: {}, {}", segments.len(), size(total as u64));
    svg.text(LEFT, top + ROW, "bold", &title);
    let legend = "blue: in use, orange: streams may still use it, grey: free";
    svg.text(LEFT, top + 2.0 * ROW, "quiet", legend);
    let (mut x, mut y) = (LEFT, top + 2.5 * ROW);
    for segment in segments {
        let wide = segment.bytes as f64 * scale;
        if x > LEFT && x + wide > RIGHT {
            (x, y) = (LEFT, y + ROW);
        }
        for block in &segment.blocks {
            let (class, state) = match block.state {
                State::Used => ("used", "in use"),
                State::Free => ("free", "free"),
                State::Pending => ("pending", "may still be in use"),
            };
            let sizes = [block.bytes, segment.bytes].map(|bytes| size(bytes as u64));
            let left = x + block.address.saturating_sub(segment.address) as f64 * scale;
            let width = block.bytes as f64 * scale;
            svg.group(&format!("{}, {state}", sizes.join(" of ")), |svg| {
                svg.shape(format_args!(
                    r#"rect class="{class}" x="{left:.2}" y="{y}" width="{width:.2}" height="{HIGH}""#
                ));
            });
        }
        x += wide + GAP;
    }
    y + ROW
}

/// The JSON that `cuda_core::adaptors::Snapshot::to_json` writes.
#[derive(Deserialize)]
pub(crate) struct Snapshot {
    version: u32,
    allocator: String,
    outstanding: Vec<Outstanding>,
    segments: Vec<Segment>,
}

/// An allocated block.
#[derive(Deserialize)]
struct Outstanding {
    number: u64,
    bytes: usize,
    device: u32,
    stream: u64,
    thread: u64,
}

impl Snapshot {
    pub(crate) fn parse(text: &str) -> anyhow::Result<Self> {
        let snapshot: Self = serde_json::from_str(text)?;
        ensure!(snapshot.version == 1, "a snapshot of version {}, not 1", snapshot.version);
        Ok(snapshot)
    }

    /// Returns the picture as self-contained SVG.
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
        let y = draw(&mut svg, "segments of pools", &self.segments, y);
        svg.page(WIDTH, y + ROW, &title)
    }
}

#[cfg(test)]
mod tests {
    use cuda_core::Device;
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

        assert!(json.starts_with('{'), "how it is told from a log");
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
