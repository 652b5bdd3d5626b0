//! Draws a log: the bytes in use over its operations, with the peak marked and the largest blocks named.

use super::log::{Block, Log};
use super::snapshot::{self, Segment};
use crate::svg::Svg;

pub(super) const WIDTH: f64 = 1200.0;
pub(super) const LEFT: f64 = 84.0;
/// The right edge of the part drawn to scale.
pub(super) const RIGHT: f64 = 1010.0;
/// The height at which the content below the heading begins.
pub(super) const TOP: f64 = 100.0;
const BOTTOM: f64 = 540.0;
/// The bottom of the axis and its title.
const AXIS: f64 = 604.0;
pub(super) const ROW: f64 = 20.0;

/// The number of columns that steps are combined into: two per unit of the picture, since more would not be
/// visible.
const COLUMNS: usize = 1800;

/// The colours of the listed blocks.
const COLOURS: [&str; 12] = [
    "#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#76b7b2", "#edc948", "#b07aa1", "#9c755f",
    "#2f6f73", "#ff9da7", "#8cd17d", "#d4a6c8",
];

/// Returns the picture as self-contained SVG. `reserved` are levels to draw beside the log's requests: the
/// bytes that allocators took from the device. `segments` are a caching pool's segments at the peak.
pub(crate) fn draw(
    log: &Log,
    title: &str,
    reserved: &[(String, u64)],
    segments: &[Segment],
) -> String {
    let plot = Plot::new(log, reserved);
    let named = largest(log.blocks.iter().copied().enumerate(), |(_, block)| block.bytes);
    let mut svg = heading(title, log.source.as_deref().unwrap_or(""));
    plot.grid(&mut svg);
    plot.areas(&mut svg, &named);
    plot.levels(&mut svg, reserved);
    plot.peak(&mut svg);
    let lines = named.iter().map(|(number, block)| {
        let stream = log.streams[block.stream];
        let (life, id, device) = (life(block), stream.id, stream.device);
        let about = format!("block {number}, {life}, on stream {id} of device {device}");
        (block.bytes as u64, about)
    });
    let y = list(&mut svg, AXIS, log.blocks.len(), lines.collect());
    let y = snapshot::draw(&mut svg, "segments of the cache at the peak", segments, y);
    svg.page(WIDTH, y + ROW, title)
}

/// Draws the heading of a picture.
pub(super) fn heading(title: &str, source: &str) -> Svg {
    let mut svg = Svg::default();
    svg.text(LEFT, 28.0, "title", title);
    svg.text(LEFT, 50.0, "quiet", source);
    svg
}

/// Lists the largest of `all` blocks from `top` down, with sizes and colours. Returns the y coordinate of the
/// list's end.
pub(super) fn list(svg: &mut Svg, top: f64, all: usize, blocks: Vec<(u64, String)>) -> f64 {
    let mut y = top + ROW;
    svg.text(LEFT, y, "bold", &format!("The largest of {all} blocks"));
    for ((bytes, about), colour) in blocks.iter().zip(COLOURS) {
        y += ROW;
        let square = r#"width="14" height="14""#;
        let top = y - 11.5;
        svg.shape(format_args!(r#"rect fill="{colour}" x="{LEFT}" y="{top}" {square}"#));
        svg.text(LEFT + 130.0, y, "end", &size(*bytes));
        svg.text(LEFT + 146.0, y, "", about);
    }
    y + ROW
}

/// The layout of the picture.
struct Plot {
    /// The step that each column shows: of the steps that it covers, the one with most bytes in use.
    columns: Vec<usize>,
    in_use: Vec<u64>,
    peak: (usize, u64),
    /// The number of bytes at the upper edge.
    top: u64,
}

impl Plot {
    fn new(log: &Log, reserved: &[(String, u64)]) -> Self {
        let in_use = log.in_use();
        let wide = in_use.len().div_ceil(COLUMNS).max(1);
        let columns = (0..in_use.len()).step_by(wide).map(|first| {
            let steps = first..(first + wide).min(in_use.len());
            // The first of several equal ones, as for the peak itself.
            let highest = steps.rev().max_by_key(|step| in_use[*step]);
            highest.unwrap_or(first)
        });
        let columns = columns.collect();
        let peak = log.peak();
        // A level far above the rest would compress the plot.
        let near = |bytes: &u64| *bytes <= 2 * peak.1;
        let levels = reserved.iter().map(|(_, bytes)| *bytes);
        let highest = levels.filter(near).max().unwrap_or(0);
        Self { columns, in_use, peak, top: (highest.max(peak.1).max(1) as f64 * 1.06) as u64 }
    }

    /// The left edge of a column.
    fn x(&self, column: usize) -> f64 {
        let columns = self.columns.len().max(1);
        LEFT + (RIGHT - LEFT) * column as f64 / columns as f64
    }

    fn y(&self, bytes: u64) -> f64 {
        BOTTOM - (BOTTOM - TOP) * bytes as f64 / self.top as f64
    }

    fn grid(&self, svg: &mut Svg) {
        let step = bytes_apart(self.top);
        for bytes in (0..=self.top / step).map(|index| index * step) {
            let y = self.y(bytes);
            svg.shape(format_args!(r#"path class="grid" d="M{LEFT} {y:.1}H{RIGHT}""#));
            svg.text(LEFT - 8.0, y + 4.5, "quiet end", &size(bytes));
        }
        let operations = format!("{} operations", self.in_use.len());
        svg.text(LEFT, BOTTOM + ROW, "quiet", "0");
        svg.text(RIGHT, BOTTOM + ROW, "quiet end", &operations);
    }

    /// Draws the named blocks, stacked in the order of their allocation, and all other blocks above them.
    fn areas(&self, svg: &mut Svg, named: &[(usize, Block)]) {
        let mut base = vec![0; self.columns.len()];
        for ((number, block), colour) in named.iter().zip(COLOURS) {
            let alive =
                |step: &usize| block.from <= *step && block.until.is_none_or(|until| *step < until);
            let first = self.columns.iter().position(alive);
            let last = self.columns.iter().rposition(alive);
            let (Some(first), Some(last)) = (first, last) else {
                continue;
            };
            let lower = base[first..=last].to_vec();
            for bytes in &mut base[first..=last] {
                *bytes += block.bytes as u64;
            }
            let (bytes, life) = (size(block.bytes as u64), life(block));
            svg.group(&format!("block {number}, {bytes}, {life}"), |svg| {
                self.area(svg, first, &lower, &base[first..=last], colour);
            });
        }
        let all: Vec<_> = self.columns.iter().map(|step| self.in_use[*step]).collect();
        svg.group("all other blocks", |svg| {
            self.area(svg, 0, &base, &all, "#c9ced6");
        });
        let edge = self.edge(0, &all).join("L");
        svg.shape(format_args!(r#"path class="outline" d="M{edge}""#));
    }

    fn area(&self, svg: &mut Svg, from: usize, low: &[u64], high: &[u64], fill: &str) {
        let mut outline = self.edge(from, high);
        outline.extend(self.edge(from, low).into_iter().rev());
        let outline = outline.join("L");
        svg.shape(format_args!(r#"path fill="{fill}" d="M{outline}Z""#));
    }

    /// Returns the corners of a stepped line, one step per column.
    fn edge(&self, from: usize, bytes: &[u64]) -> Vec<String> {
        let mut corners = Vec::new();
        let mut at = from;
        for level in bytes.chunk_by(|a, b| a == b) {
            let y = self.y(level[0]);
            for column in [at, at + level.len()] {
                corners.push(format!("{:.1} {y:.1}", self.x(column)));
            }
            at += level.len();
        }
        corners
    }

    /// Draws the bytes that allocators reserved as lines, with their names at the right, without overlaps.
    fn levels(&self, svg: &mut Svg, reserved: &[(String, u64)]) {
        let mut levels: Vec<_> = reserved.iter().collect();
        levels.sort_by_key(|(_, bytes)| *bytes);
        let mut above = BOTTOM;
        for (name, bytes) in levels {
            let within = *bytes <= self.top;
            let y = if within { self.y(*bytes) } else { TOP };
            above = (y + 4.5).min(above - 16.0);
            let (end, at) = (RIGHT + 10.0, above - 4.5);
            if within {
                svg.shape(format_args!(
                    r#"path class="level" d="M{LEFT} {y:.1}H{RIGHT}L{end} {at:.1}""#
                ));
            }
            let arrow = if within { "" } else { "↑ " };
            let text = format!("{arrow}{name} {}", size(*bytes));
            svg.text(RIGHT + 13.0, above, "level", &text);
        }
    }

    fn peak(&self, svg: &mut Svg) {
        let (step, bytes) = self.peak;
        let Some(column) = self.columns.iter().position(|shown| *shown == step) else {
            return;
        };
        let (x, y) = (self.x(column), self.y(bytes));
        svg.shape(format_args!(r#"circle class="peak" cx="{x:.1}" cy="{y:.1}" r="4.5""#));
        let text = format!("peak {} after operation {step}", size(bytes));
        // The text is on the side with more room.
        let (beside, class) = if x < WIDTH / 2.0 { (9.0, "peak") } else { (-9.0, "peak end") };
        svg.text(x + beside, y - 8.0, class, &text);
    }
}

/// Returns the largest blocks, one for each colour, in their given order.
pub(super) fn largest<T>(blocks: impl Iterator<Item = T>, bytes: impl Fn(&T) -> usize) -> Vec<T> {
    let mut blocks: Vec<_> = blocks.enumerate().collect();
    blocks.sort_by_key(|(_, block)| std::cmp::Reverse(bytes(block)));
    blocks.truncate(COLOURS.len());
    blocks.sort_by_key(|(number, _)| *number);
    blocks.into_iter().map(|(_, block)| block).collect()
}

fn life(block: &Block) -> String {
    match block.until {
        Some(until) => format!("operations {} to {until}", block.from),
        None => format!("operation {} to the end", block.from),
    }
}

/// The greatest number of marks on an axis.
const MARKS: u64 = 10;

/// Returns the distance between the marks of an axis of bytes: a power of two.
fn bytes_apart(range: u64) -> u64 {
    range.div_ceil(MARKS).max(1).next_power_of_two()
}

/// Formats a byte count in human-readable form.
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let power = (bytes.max(1).ilog2() as usize / 10).min(UNITS.len() - 1);
    let number = bytes as f64 / (1u64 << (10 * power)) as f64;
    // Three digits; trailing zeros after the point are left out.
    let digits = 2_usize.saturating_sub(number.log10() as usize);
    let text = format!("{number:.digits$}");
    let short = if digits > 0 { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{short} {}", UNITS[power])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::svg::tests::check;

    #[test]
    fn a_picture_names_its_peak_and_its_largest_blocks() {
        let text = "time_ns,thread,device,stream,op,address,bytes\n\
                    0,0,0,0,allocate,0x1,1048576\n\
                    1,0,0,0,allocate,0x2,3145728\n\
                    2,0,0,0,deallocate,0x1,1048576\n";
        let log = Log::parse(text).expect("a log");
        let svg = draw(&log, "a < b", &[("cache".to_owned(), 5 << 20)], &[]);
        for part in [
            "a &lt; b",
            "peak 4 MiB after operation 1",
            "block 0, operations 0 to 2",
            "block 1, operation 1 to the end",
            "cache 5 MiB",
        ] {
            assert!(svg.contains(part), "{part}: {svg}");
        }
        assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"));
        check(&svg).unwrap();
        check(&draw(&Log::default(), "nothing", &[], &[])).unwrap();
    }

    #[test]
    fn marks_of_axes_are_round_and_not_many() {
        for range in [1, 7, 100, 6000, 123_456_789, 5 << 30, 3 << 40] {
            assert!(range / bytes_apart(range) <= MARKS, "{range}");
        }
        assert_eq!(bytes_apart(9 << 30), 1 << 30);
    }

    #[test]
    fn sizes_are_short() {
        assert_eq!(size(0), "0 B");
        assert_eq!(size(1536), "1.5 KiB");
        assert_eq!(size(1100), "1.07 KiB");
        assert_eq!(size(100 << 20), "100 MiB");
    }
}
