//! A picture of a graph.

use std::collections::VecDeque;
use std::fmt::Write;

use super::{Graph, GraphNode, InnerGraph};
use crate::error::Result;
use crate::timeline::recording::NodeUses;

/// Size of a node, and of the gaps between columns and rows, in pixels.
const NODE: (usize, usize) = (230, 26);
const GAP: (usize, usize) = (50, 12);
const MARGIN: usize = 16;
/// Height of an edge's lane through a column.
const WAY: usize = 6;
/// The most columns that an edge crosses in lanes beside their nodes. A longer edge is drawn behind
/// the nodes, so that the picture of a long graph does not grow with the square of its length.
const MOST_WAYS: usize = 32;
/// Height of a line of the legend.
const LINE: usize = 20;
/// The most characters of a text in a node: they fit if most are not wider than half their height.
const CHARACTERS: usize = 32;
/// Colours of the streams, in turn, and of nodes whose stream is unknown.
const COLOURS: [&str; 8] =
    ["#dbe8fb", "#fbe3c8", "#d5f0d8", "#f6d5e5", "#e6def7", "#f7f1bf", "#cdeff0", "#e3e0d8"];
const UNKNOWN: &str = "#f5f5f5";

/// The [stream](NodeUses::stream) that a node was captured on, and the ordinal of its device.
type CapturedOn = ((u32, u32), u32);

/// # A picture
impl Graph {
    /// Draws the graph as SVG. The nodes are in columns, each to the right of those that it depends
    /// on. They show what they do, in the colours of the streams that they were captured on. A
    /// legend numbers these streams from 0 on, in their order, and names their devices. A node of
    /// [another](Graph::include) graph has the colour of the stream that it was included on.
    /// [Graphs inside nodes](GraphNode::graphs) are drawn below, under numbers that stand in their
    /// nodes. Texts that are too long for a node, such as long kernel names, end in "…"; the whole
    /// text is the node's title, which viewers show under the pointer.
    ///
    /// # Errors
    /// As [`Graph::nodes`] and [`Graph::edges`].
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// # let graph = cuda_core::Graph::capture(&context, |_stream| Ok(()))?;
    /// std::fs::write("graph.svg", graph.to_svg()?).expect("the folder can be written");
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn to_svg(&self) -> Result<String> {
        let known = |known: &NodeUses| (known.stream, known.context.device().ordinal());
        let on = |node: &GraphNode<'_>| self.uses.by_node.get(&node.id().raw).map(known);
        let mut parts = Vec::new();
        let mut found = VecDeque::from([(InnerGraph::whole(self), String::new(), None)]);
        while let Some((graph, caption, outer)) = found.pop_front() {
            let (nodes, edges) = (graph.nodes()?, graph.edges()?);
            let mut on: Vec<_> = nodes.iter().map(on).collect();
            spread(&mut on, &edges);
            on.iter_mut().for_each(|on| *on = on.or(outer));
            let mut labels = Vec::new();
            for (node, on) in nodes.iter().zip(&on) {
                let mut label = node.to_string();
                for inner in node.graphs()? {
                    let number = parts.len() + found.len() + 1;
                    found.push_back((inner, format!("[{number}] inside: {node}"), *on));
                    label = format!("{label} [{number}]");
                }
                labels.push(label);
            }
            parts.push(Part { caption, labels, edges, on });
        }
        Ok(draw(&parts))
    }
}

/// A graph in a picture: the whole one, or one inside a node.
struct Part {
    /// The text above the graph; empty for the whole graph.
    caption: String,
    labels: Vec<String>,
    edges: Vec<(usize, usize)>,
    on: Vec<Option<CapturedOn>>,
}

/// Gives a node without a known stream the stream of a node after it: only the last node of an
/// operation has a known stream.
fn spread(on: &mut [Option<CapturedOn>], edges: &[(usize, usize)]) {
    let mut moved = true;
    while std::mem::take(&mut moved) {
        for &(from, to) in edges {
            if on[from].is_none() && on[to].is_some() {
                on[from] = on[to];
                moved = true;
            }
        }
    }
}

/// Returns all streams, in order.
fn streams(parts: &[Part]) -> Vec<CapturedOn> {
    let mut streams: Vec<_> = parts.iter().flat_map(|part| &part.on).flatten().copied().collect();
    streams.sort_unstable();
    streams.dedup();
    streams
}

fn name(streams: &[CapturedOn], number: usize) -> String {
    format!("stream {number}, device {}", streams[number].1)
}

fn draw(parts: &[Part]) -> String {
    let streams = streams(parts);
    let (mut body, mut columns, mut below) = (String::new(), 1, MARGIN);
    for part in parts {
        if !part.caption.is_empty() {
            text(&mut body, MARGIN, below + LINE, &part.caption);
            below += 2 * LINE;
        }
        let layout = Layout::new(part.labels.len(), &part.edges, below);
        (columns, below) = (columns.max(layout.columns), layout.below);
        part.draw(&mut body, layout, &streams);
    }
    for number in 0..streams.len() {
        let (y, colour) = (below + number * LINE, COLOURS[number % COLOURS.len()]);
        // Writing to a string cannot fail.
        let _ = write!(
            body,
            "<rect x=\"{MARGIN}\" y=\"{y}\" width=\"14\" height=\"14\" fill=\"{colour}\" stroke=\"#345\"/>"
        );
        text(&mut body, MARGIN + 22, y + 11, &name(&streams, number));
    }
    let width = 2 * MARGIN + columns * (NODE.0 + GAP.0);
    let height = below + MARGIN + streams.len() * LINE;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <marker id=\"arrow\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" markerWidth=\"7\" \
         markerHeight=\"7\" orient=\"auto\"><path d=\"M0 0L8 4L0 8z\" fill=\"#888\"/></marker>\n\
         {body}</svg>\n"
    )
}

impl Part {
    fn draw(&self, svg: &mut String, layout: Layout, streams: &[CapturedOn]) {
        for stops in &layout.edges {
            // Writing to a string cannot fail.
            let mut way = String::new();
            for ((x1, y1), (x2, y2)) in stops.iter().zip(&stops[1..]) {
                let (x1, middle) = (x1 + NODE.0, x2 - GAP.0 / 2);
                let _ = write!(way, "L{x1} {y1}C{middle} {y1} {middle} {y2} {x2} {y2}");
            }
            let _ = writeln!(
                svg,
                "<path d=\"M{}\" fill=\"none\" stroke=\"#888\" marker-end=\"url(#arrow)\"/>",
                &way[1..]
            );
        }
        for ((label, (x, middle)), on) in self.labels.iter().zip(layout.nodes).zip(&self.on) {
            let ((w, h), y) = (NODE, middle - NODE.1 / 2);
            let mut title = escaped(label);
            let number = on.and_then(|on| streams.binary_search(&on).ok());
            let colour = number.map_or(UNKNOWN, |number| COLOURS[number % COLOURS.len()]);
            if let Some(number) = number {
                title = format!("{title} ({})", name(streams, number));
            }
            let _ = write!(
                svg,
                "<g><title>{title}</title><rect x=\"{x}\" y=\"{y}\" width=\"{w}\" height=\"{h}\" \
                 rx=\"5\" fill=\"{colour}\" stroke=\"#345\"/>"
            );
            text(svg, x + 8, middle + 4, &clipped(label));
            svg.push_str("</g>\n");
        }
    }
}

fn text(svg: &mut String, x: usize, y: usize, text: &str) {
    // Writing to a string cannot fail.
    let _ = writeln!(svg, "<text x=\"{x}\" y=\"{y}\">{}</text>", escaped(text));
}

/// Returns as much of a text as fits into a node.
fn clipped(text: &str) -> String {
    match text.char_indices().nth(CHARACTERS) {
        Some(_) => text.chars().take(CHARACTERS - 1).chain(['…']).collect(),
        None => text.to_owned(),
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// The positions of everything drawn.
struct Layout {
    /// The left end of each node, at half its height.
    nodes: Vec<(usize, usize)>,
    /// For each edge its two nodes, and between them its lanes through the columns that it crosses.
    edges: Vec<Vec<(usize, usize)>>,
    columns: usize,
    /// The first line below everything.
    below: usize,
}

impl Layout {
    /// Lays out a graph below the line `above`.
    fn new(nodes: usize, edges: &[(usize, usize)], above: usize) -> Self {
        // The columns of the nodes, then of the edges' lanes.
        let mut column_of = columns(nodes, edges);
        let columns = column_of.iter().max().map_or(0, |last| last + 1);
        let mut before = vec![Vec::new(); nodes];
        let mut stops = Vec::with_capacity(edges.len());
        for &(from, to) in edges {
            let ways = column_of.len()..;
            let crossed = column_of[from] + 1..column_of[to];
            let crossed = if crossed.len() > MOST_WAYS { 0..0 } else { crossed };
            let ways = ways.zip(crossed.clone()).map(|(way, _)| way);
            let chain: Vec<usize> = [from].into_iter().chain(ways).chain([to]).collect();
            column_of.extend(crossed);
            before.resize(column_of.len(), Vec::new());
            chain.iter().zip(&chain[1..]).for_each(|(&left, &right)| before[right].push(left));
            stops.push(chain);
        }
        let mut in_columns = vec![Vec::new(); columns];
        column_of.iter().zip(0..).for_each(|(&column, item)| in_columns[column].push(item));
        let mut places = vec![(0, 0); column_of.len()];
        let mut below = above;
        for (column, mut items) in in_columns.into_iter().enumerate() {
            // At the average height of what they come after, so that few edges cross.
            items.sort_unstable_by_key(|&item: &usize| {
                let heights = before[item].iter().map(|&left: &usize| places[left].1);
                (heights.sum::<usize>() / before[item].len().max(1), item)
            });
            let mut top = above;
            for item in items {
                let height = if item < nodes { NODE.1 } else { WAY };
                places[item] = (MARGIN + column * (NODE.0 + GAP.0), top + height / 2);
                top += height + GAP.1;
            }
            below = below.max(top);
        }
        let placed = |chain: Vec<usize>| chain.into_iter().map(|item| places[item]).collect();
        let edges = stops.into_iter().map(placed).collect();
        places.truncate(nodes);
        Self { nodes: places, edges, columns, below }
    }
}

/// Returns the column of each node: one more than the last column of the nodes it depends on.
fn columns(nodes: usize, edges: &[(usize, usize)]) -> Vec<usize> {
    let mut columns = vec![0; nodes];
    // At most as many rounds as the longest path has nodes; a graph has no cycles.
    for _ in 0..nodes {
        let mut moved = false;
        for &(from, to) in edges {
            if columns[to] <= columns[from] {
                columns[to] = columns[from] + 1;
                moved = true;
            }
        }
        if !moved {
            break;
        }
    }
    columns
}

#[cfg(test)]
mod tests {
    use super::{
        CHARACTERS, COLOURS, CapturedOn, Layout, MARGIN, NODE, Part, UNKNOWN, WAY, columns, draw,
        spread,
    };

    /// A picture of one graph.
    fn picture(labels: &[&str], edges: &[(usize, usize)], on: &[Option<CapturedOn>]) -> String {
        let labels = labels.iter().map(|label| (*label).to_owned()).collect();
        draw(&[Part { caption: String::new(), labels, edges: edges.to_vec(), on: on.to_vec() }])
    }

    #[test]
    fn nodes_are_right_of_what_they_depend_on() {
        assert_eq!(columns(4, &[(2, 3), (0, 2), (1, 2), (0, 3)]), [0, 0, 1, 2]);
        assert_eq!(columns(0, &[]), [0; 0]);
    }

    #[test]
    fn a_picture_has_each_node_and_edge() {
        let svg = picture(&["a <b>", "c"], &[(0, 1)], &[None; 2]);
        assert_eq!(svg.matches("<text").count(), 2);
        assert_eq!(svg.matches("<path").count(), 2, "the edge, and an arrow");
        assert!(svg.contains("a &lt;b&gt;"));
    }

    #[test]
    fn an_edge_passes_no_node() {
        // The last edge crosses the column of node 1.
        let layout = Layout::new(3, &[(0, 1), (1, 2), (0, 2)], MARGIN);
        let [first, way, last] = layout.edges[2][..] else {
            panic!("it has a way: {:?}", layout.edges);
        };
        assert_eq!((first, last), (layout.nodes[0], layout.nodes[2]));
        let node = layout.nodes[1];
        assert_eq!(way.0, node.0, "in the same column");
        assert!(way.1.abs_diff(node.1) >= NODE.1 / 2 + WAY / 2, "beside it: {way:?}, {node:?}");
    }

    #[test]
    fn nodes_are_beside_what_they_come_after() {
        let layout = Layout::new(4, &[(0, 3), (1, 2)], MARGIN);
        let heights = layout.nodes.iter().map(|(_, y)| *y).collect::<Vec<_>>();
        assert_eq!((heights[3], heights[2]), (heights[0], heights[1]));
    }

    #[test]
    fn nodes_have_the_colours_of_their_streams() {
        let on = |device, stream| Some(((0, stream), device));
        // The second node is the first node of the third one's operation.
        let edges = [(0, 1), (1, 2)];
        let mut streams = [on(7, 1), None, on(3, 0), None];
        spread(&mut streams, &edges);
        let svg = picture(&["a", "b", "c", "d"], &edges, &streams);
        assert_eq!(svg.matches(COLOURS[0]).count(), 3, "two nodes, and the legend: {svg}");
        assert_eq!(svg.matches(COLOURS[1]).count(), 2, "{svg}");
        assert_eq!(svg.matches(UNKNOWN).count(), 1, "{svg}");
        let first = svg.find(">stream 0, device 3<").expect("the legend");
        assert!(first < svg.find(">stream 1, device 7<").expect("the legend"), "{svg}");
        assert!(svg.contains("<title>a (stream 1, device 7)</title>"), "{svg}");
    }

    #[test]
    fn a_text_that_is_too_long_is_clipped() {
        let fits = "ä".repeat(CHARACTERS);
        let long = format!("{}<int> <<<1, 2>>>", "k".repeat(CHARACTERS - 2));
        let svg = picture(&[&fits, &long], &[], &[None; 2]);
        assert!(svg.contains(&format!(">{fits}</text>")), "{svg}");
        let shown = format!(">{}&lt;…</text>", "k".repeat(CHARACTERS - 2));
        assert!(svg.contains(&shown), "{svg}");
        let whole = format!(
            "{}&lt;int&gt; &lt;&lt;&lt;1, 2&gt;&gt;&gt;</title>",
            "k".repeat(CHARACTERS - 2)
        );
        assert!(svg.contains(&whole), "{svg}");
    }
}
