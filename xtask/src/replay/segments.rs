//! Draws a caching pool's segments to scale: the parts in use, and the cached ones.

use std::fmt::Write as _;

use cuda_core::{CacheBlock, CacheBlockState, CacheSegment};
use serde::{Deserialize, Deserializer, de};

use super::picture::{LEFT, ROW, size};

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

impl From<&CacheSegment> for Segment {
    fn from(segment: &CacheSegment) -> Self {
        let block = |block: &CacheBlock| Block {
            address: block.address,
            bytes: block.bytes,
            state: match block.state {
                CacheBlockState::Used => State::Used,
                CacheBlockState::Free => State::Free,
                CacheBlockState::Pending => State::Pending,
            },
        };
        Self {
            address: segment.address,
            bytes: segment.bytes,
            blocks: segment.blocks.iter().map(block).collect(),
        }
    }
}

/// The form in a snapshot: `"0x7f2c14000000"`.
fn address<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    let text = String::deserialize(from)?;
    let digits = text.strip_prefix("0x").unwrap_or_default();
    u64::from_str_radix(digits, 16).map_err(|_| de::Error::custom(format!("no address: {text}")))
}

/// The gap between two segments of a row.
const GAP: f64 = 3.0;

/// A segment's height.
const HIGH: f64 = 13.0;

/// All segments together fill this many rows, unless the largest segment needs a longer row.
const LEAST_ROWS: usize = 4;

/// Segments in rows, by address.
pub(crate) struct Rows<'a> {
    segments: &'a [Segment],
    /// The row of each segment, and its left edge in that row.
    places: Vec<(usize, f64)>,
    bytes_to_width: f64,
}

impl<'a> Rows<'a> {
    pub(crate) fn new(segments: &'a [Segment], width: f64) -> Self {
        let bytes = |segment: &Segment| segment.bytes;
        let total: usize = segments.iter().map(bytes).sum();
        let largest = segments.iter().map(bytes).max().unwrap_or(0);
        let in_a_row = largest.max(total / LEAST_ROWS).max(1);
        let bytes_to_width = width / in_a_row as f64;
        let (mut row, mut at) = (0, 0.0);
        let places = segments.iter().map(|segment| {
            let wide = segment.bytes as f64 * bytes_to_width;
            if at > 0.0 && at + wide > width {
                (row, at) = (row + 1, 0.0);
            }
            let place = (row, at);
            at += wide + GAP;
            place
        });
        Self { segments, places: places.collect(), bytes_to_width }
    }

    pub(crate) fn height(&self) -> f64 {
        let rows = self.places.last().map(|(row, _)| row + 1);
        rows.map_or(0.0, |rows| ROW * (rows + 3) as f64)
    }

    /// Draws them below `title`.
    pub(crate) fn draw(&self, svg: &mut String, title: &str, top: f64) {
        if self.segments.is_empty() {
            return;
        }
        let all = self.segments.iter().map(|segment| segment.bytes as u64);
        _ = writeln!(
            svg,
            "<text x=\"{LEFT}\" y=\"{:.1}\" font-weight=\"bold\">{title}: {}, {}</text>\
             <text x=\"{LEFT}\" y=\"{:.1}\" fill=\"#555\">blue: in use, orange: streams may still \
             use it, grey: free</text>",
            top + ROW,
            self.segments.len(),
            size(all.sum()),
            top + 2.0 * ROW
        );
        for (segment, &(row, at)) in self.segments.iter().zip(&self.places) {
            let y = top + ROW * (row as f64 + 2.5);
            for block in &segment.blocks {
                let offset = block.address.saturating_sub(segment.address) as f64;
                let (fill, state) = match block.state {
                    State::Used => ("#4e79a7", "in use"),
                    State::Free => ("#c9ced6", "free"),
                    State::Pending => ("#f28e2b", "may still be in use"),
                };
                _ = writeln!(
                    svg,
                    "<rect x=\"{:.2}\" y=\"{y:.1}\" width=\"{:.2}\" height=\"{HIGH}\" \
                     fill=\"{fill}\" stroke=\"white\" stroke-width=\"0.3\">\
                     <title>{} of {}, {state}</title></rect>",
                    LEFT + at + offset * self.bytes_to_width,
                    block.bytes as f64 * self.bytes_to_width,
                    size(block.bytes as u64),
                    size(segment.bytes as u64)
                );
            }
        }
    }
}
