//! Draws a log: bytes in use over its operations, with the peak marked and the largest blocks
//! named.

use std::fmt::Write as _;

use super::log::{Block, Log};
use super::segments::{Rows, Segment};

const WIDTH: f64 = 1200.0;
pub(crate) const LEFT: f64 = 84.0;
const RIGHT: f64 = 190.0;
/// The height at which the content below the heading begins.
pub(crate) const TOP: f64 = 100.0;
const PLOT: f64 = 440.0;
/// Width of the part that is to scale.
pub(crate) const WIDE: f64 = WIDTH - LEFT - RIGHT;
/// Between the plot and the list of the blocks: the axis and its title.
const AXIS: f64 = 64.0;
pub(crate) const ROW: f64 = 20.0;

/// Steps are combined into this many columns: two per unit of the picture, more would not be
/// visible.
const COLUMNS: usize = 1800;

/// Blocks that get a colour, a letter and a line in the list.
pub(crate) const NAMED: usize = 12;

const COLOURS: [&str; NAMED] = [
    "#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#76b7b2", "#edc948", "#b07aa1", "#9c755f",
    "#2f6f73", "#ff9da7", "#8cd17d", "#d4a6c8",
];

/// The picture as self-contained SVG. `reserved` holds levels to draw beside the log's requests:
/// what allocators took from the device for it; `segments` are those of a caching pool at the peak.
pub(crate) fn draw(
    log: &Log,
    title: &str,
    reserved: &[(String, u64)],
    segments: &[Segment],
) -> String {
    let plot = Plot::new(log, reserved);
    let named = largest(&log.blocks);
    let listed = TOP + PLOT + AXIS + ROW * (named.len() + 2) as f64;
    let rows = Rows::new(segments, WIDE);
    let source = log.source.as_deref().unwrap_or("");
    let mut svg = begin(listed + rows.height(), title, source);
    plot.grid(&mut svg);
    plot.areas(&mut svg, &named);
    plot.levels(&mut svg, reserved);
    plot.peak(&mut svg);
    list(&mut svg, &named, log);
    rows.draw(&mut svg, "segments of the cache at the peak", listed);
    svg.push_str("</svg>\n");
    svg
}

/// A picture of that height, up to the end of its heading.
pub(crate) fn begin(height: f64, title: &str, source: &str) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"system-ui, sans-serif\" font-size=\"13\">\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"white\"/>\n\
         <text x=\"{LEFT}\" y=\"28\" font-size=\"19\" font-weight=\"bold\">{}</text>\n\
         <text x=\"{LEFT}\" y=\"50\" fill=\"#555\">{}</text>\n",
        escaped(title),
        escaped(source)
    )
}

/// The layout of the picture.
struct Plot {
    /// The step that each column shows: the one with most bytes in use, of those it covers.
    columns: Vec<usize>,
    in_use: Vec<u64>,
    peak: (usize, u64),
    /// Bytes at the upper edge.
    top: u64,
}

impl Plot {
    fn new(log: &Log, reserved: &[(String, u64)]) -> Self {
        let in_use = log.in_use();
        let wide = in_use.len().div_ceil(COLUMNS).max(1);
        let columns = (0..in_use.len()).step_by(wide).map(|first| {
            let last = (first + wide).min(in_use.len());
            // The first of several equal ones, as for the peak itself.
            (first..last).rev().max_by_key(|step| in_use[*step]).unwrap_or(first)
        });
        let columns = columns.collect();
        let peak = log.peak();
        // A level far above the rest would compress the plot.
        let near = |bytes: &u64| *bytes <= 2 * peak.1;
        let levels = reserved.iter().map(|(_, bytes)| *bytes);
        let highest = levels.filter(near).max().unwrap_or(0);
        Self { columns, in_use, peak, top: (highest.max(peak.1).max(1) as f64 * 1.06) as u64 }
    }

    fn x(&self, step: usize) -> f64 {
        let steps = self.in_use.len().max(1) as f64;
        LEFT + (WIDTH - LEFT - RIGHT) * step as f64 / steps
    }

    fn y(&self, bytes: u64) -> f64 {
        TOP + PLOT * (1.0 - bytes as f64 / self.top as f64)
    }

    fn grid(&self, svg: &mut String) {
        let right = WIDTH - RIGHT;
        let step = bytes_apart(self.top);
        for bytes in (0..=self.top / step).map(|index| index * step) {
            let y = self.y(bytes);
            _ = writeln!(
                svg,
                "<path d=\"M{LEFT} {y:.1}H{right}\" stroke=\"#ddd\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"#555\">{}</text>",
                LEFT - 8.0,
                y + 4.5,
                size(bytes)
            );
        }
        let bottom = TOP + PLOT;
        let steps = self.in_use.len() as u64;
        let each = steps_apart(steps);
        for step in (0..=steps / each).map(|index| index * each) {
            let x = self.x(step as usize);
            _ = writeln!(
                svg,
                "<path d=\"M{x:.1} {bottom}v5\" stroke=\"#999\"/>\
                 <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\" fill=\"#555\">{step}</text>",
                bottom + 20.0
            );
        }
        _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\" fill=\"#555\">operations</text>",
            (LEFT + right) / 2.0,
            bottom + 40.0
        );
    }

    /// Draws named blocks stacked in the order of their allocation, and everything else above them.
    fn areas(&self, svg: &mut String, named: &[(usize, Block)]) {
        let mut base = vec![0; self.columns.len()];
        for (index, (number, block)) in named.iter().enumerate() {
            let alive =
                |step: &usize| block.from <= *step && block.until.is_none_or(|until| *step < until);
            let first = self.columns.iter().position(alive);
            let Some(first) = first else { continue };
            let last = self.columns.iter().rposition(alive).unwrap_or(first);
            let lower: Vec<_> = base[first..=last].to_vec();
            for bytes in &mut base[first..=last] {
                *bytes += block.bytes as u64;
            }
            let letter = letter(index);
            let about =
                format!("{letter}: block {number}, {}, {}", size(block.bytes as u64), life(block));
            self.area(svg, first, &lower, &base[first..=last], COLOURS[index], &about);
            self.letter(svg, first, &lower, block, letter);
        }
        let all: Vec<_> = self.columns.iter().map(|step| self.in_use[*step]).collect();
        self.area(svg, 0, &base, &all, "#c9ced6", "all other blocks");
        let edge = self.edge(0, &all);
        _ = writeln!(
            svg,
            "<path d=\"M{}\" fill=\"none\" stroke=\"#333\" stroke-width=\"1.2\"/>",
            edge.join("L")
        );
    }

    fn area(
        &self,
        svg: &mut String,
        from: usize,
        low: &[u64],
        high: &[u64],
        fill: &str,
        about: &str,
    ) {
        let mut outline = self.edge(from, high);
        outline.extend(self.edge(from, low).into_iter().rev());
        _ = writeln!(
            svg,
            "<path d=\"M{}Z\" fill=\"{fill}\"><title>{about}</title></path>",
            outline.join("L")
        );
    }

    /// The corners of a stepped line, one step per column.
    fn edge(&self, from: usize, bytes: &[u64]) -> Vec<String> {
        let mut corners = Vec::new();
        for (index, level) in bytes.iter().enumerate() {
            let changed = index == 0 || bytes[index - 1] != *level;
            let y = self.y(*level);
            if changed {
                corners.push(format!("{:.1} {y:.1}", self.left_of(from + index)));
            }
            let changes = bytes.get(index + 1).is_none_or(|next| next != level);
            if changes {
                corners.push(format!("{:.1} {y:.1}", self.left_of(from + index + 1)));
            }
        }
        corners
    }

    /// The left edge of a column.
    fn left_of(&self, column: usize) -> f64 {
        let columns = self.columns.len().max(1);
        LEFT + (WIDTH - LEFT - RIGHT) * column as f64 / columns as f64
    }

    /// Writes a block's letter, if its area has room for one.
    fn letter(&self, svg: &mut String, first: usize, lower: &[u64], block: &Block, letter: char) {
        let middle = lower.len() / 2;
        let wide = self.left_of(lower.len()) - LEFT;
        let high = PLOT * block.bytes as f64 / self.top as f64;
        if wide < 14.0 || high < 14.0 {
            return;
        }
        _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\" fill=\"white\" \
             font-weight=\"bold\">{letter}</text>",
            self.left_of(first + middle),
            self.y(lower[middle] + block.bytes as u64 / 2) + 4.5
        );
    }

    /// Draws what allocators reserved, as lines with their names at the right, without overlaps.
    fn levels(&self, svg: &mut String, reserved: &[(String, u64)]) {
        let mut levels: Vec<_> = reserved.iter().collect();
        levels.sort_by_key(|(_, bytes)| *bytes);
        let mut above = TOP + PLOT;
        for (name, bytes) in levels {
            let within = *bytes <= self.top;
            let y = if within { self.y(*bytes) } else { TOP };
            above = (y + 4.5).min(above - 16.0);
            let right = WIDTH - RIGHT;
            if within {
                _ = writeln!(
                    svg,
                    "<path d=\"M{LEFT} {y:.1}H{right}L{:.1} {:.1}\" stroke=\"#06c\" fill=\"none\" \
                     stroke-dasharray=\"2 3\"/>",
                    right + 10.0,
                    above - 4.5
                );
            }
            _ = writeln!(
                svg,
                "<text x=\"{:.1}\" y=\"{above:.1}\" fill=\"#06c\">{}{} {}</text>",
                right + 13.0,
                if within { "" } else { "↑ " },
                escaped(name),
                size(*bytes)
            );
        }
    }

    fn peak(&self, svg: &mut String) {
        let (step, bytes) = self.peak;
        let Some(column) = self.columns.iter().position(|shown| *shown == step) else {
            return;
        };
        let (x, y) = (self.left_of(column), self.y(bytes));
        // On the side with more room.
        let (at, anchor) = match x < WIDTH / 2.0 {
            true => (x + 9.0, "start"),
            false => (x - 9.0, "end"),
        };
        _ = writeln!(
            svg,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4.5\" fill=\"#c00\"/>\
             <text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\" fill=\"#c00\" \
             font-weight=\"bold\" stroke=\"white\" stroke-width=\"3\" paint-order=\"stroke\">\
             peak {} after operation {step}</text>",
            y - 8.0,
            size(bytes)
        );
    }
}

/// Lists the named blocks, below the plot.
fn list(svg: &mut String, named: &[(usize, Block)], log: &Log) {
    let mut y = TOP + PLOT + AXIS + ROW;
    _ = writeln!(
        svg,
        "<text x=\"{LEFT}\" y=\"{y}\" font-weight=\"bold\">The largest of {} blocks</text>",
        log.blocks.len()
    );
    for (index, (number, block)) in named.iter().enumerate() {
        y += ROW;
        let stream = log.streams[block.stream];
        _ = writeln!(
            svg,
            "<rect x=\"{LEFT}\" y=\"{}\" width=\"14\" height=\"14\" fill=\"{}\"/>\
             <text x=\"{}\" y=\"{y}\">{}</text>\
             <text x=\"{}\" y=\"{y}\" text-anchor=\"end\">{}</text>\
             <text x=\"{}\" y=\"{y}\">block {number}, {}, on stream {} of device {}</text>",
            y - 11.5,
            COLOURS[index],
            LEFT + 22.0,
            letter(index),
            LEFT + 130.0,
            size(block.bytes as u64),
            LEFT + 146.0,
            life(block),
            stream.id,
            stream.device
        );
    }
}

/// The largest blocks with their numbers, in the order of their allocation.
fn largest(blocks: &[Block]) -> Vec<(usize, Block)> {
    let mut blocks: Vec<_> = blocks.iter().copied().enumerate().collect();
    blocks.sort_by_key(|(_, block)| std::cmp::Reverse(block.bytes));
    blocks.truncate(NAMED);
    blocks.sort_by_key(|(number, _)| *number);
    blocks
}

fn letter(index: usize) -> char {
    char::from(b'A' + index as u8)
}

fn life(block: &Block) -> String {
    match block.until {
        Some(until) => format!("operations {} to {until}", block.from),
        None => format!("operation {} to the end", block.from),
    }
}

/// The most marks of an axis.
const MARKS: u64 = 10;

/// The distance between marks of an axis of bytes: a power of two.
fn bytes_apart(range: u64) -> u64 {
    range.div_ceil(MARKS).max(1).next_power_of_two()
}

/// The distance between marks of an axis of steps: 1, 2, 5, 10, 20, 50 and so on.
fn steps_apart(range: u64) -> u64 {
    let mut power = 1;
    loop {
        let fits = |apart: &u64| range / apart <= MARKS;
        if let Some(apart) = [power, 2 * power, 5 * power].into_iter().find(fits) {
            return apart;
        }
        power *= 10;
    }
}

/// A byte count in human-readable form.
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let power = (bytes.max(1).ilog2() as usize / 10).min(UNITS.len() - 1);
    let number = bytes as f64 / (1u64 << (10 * power)) as f64;
    let digits = match number {
        _ if number >= 100.0 => 0,
        _ if number >= 10.0 => 1,
        _ => 2,
    };
    let mut text = format!("{number:.digits$}");
    if digits > 0 {
        let short = text.trim_end_matches('0').trim_end_matches('.').len();
        text.truncate(short);
    }
    format!("{text} {}", UNITS[power])
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

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
        draw(&Log::default(), "nothing", &[], &[]);
    }

    #[test]
    fn marks_of_axes_are_round_and_not_many() {
        for range in [1, 7, 100, 6000, 123_456_789, 5 << 30, 3 << 40] {
            assert!(range / bytes_apart(range) <= MARKS, "{range}");
            assert!(range / steps_apart(range) <= MARKS, "{range}");
        }
        assert_eq!(bytes_apart(9 << 30), 1 << 30);
        assert_eq!(steps_apart(5000), 500);
        assert_eq!(steps_apart(0), 1);
    }

    #[test]
    fn sizes_are_short() {
        assert_eq!(size(0), "0 B");
        assert_eq!(size(1536), "1.5 KiB");
        assert_eq!(size(1100), "1.07 KiB");
        assert_eq!(size(100 << 20), "100 MiB");
    }
}
