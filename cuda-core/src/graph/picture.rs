//! A picture of a graph.

use std::fmt::Write;

use super::Graph;
use crate::error::Result;

/// Size of a node, and of the gaps between columns and rows, in pixels.
const NODE: (usize, usize) = (230, 26);
const GAP: (usize, usize) = (50, 12);
const MARGIN: usize = 16;
/// Characters of a text that fit into a node, if most are not wider than half their height.
const CHARACTERS: usize = 32;

/// # A picture
impl Graph {
    /// A picture as SVG: the nodes in columns, each to the right of those that it depends on, with
    /// what they do. Texts that are too long for a node, such as long names of kernels, end in "…";
    /// the whole text is the node's title, which viewers show under the pointer.
    ///
    /// # Errors
    /// Those of [`Graph::nodes`] and [`Graph::edges`].
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// # let graph = cuda_core::Graph::capture(&context, |_stream| Ok(()))?;
    /// std::fs::write("graph.svg", graph.to_svg()?).expect("the folder can be written");
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn to_svg(&self) -> Result<String> {
        let labels: Vec<String> = self.nodes()?.iter().map(ToString::to_string).collect();
        Ok(draw(&labels, &self.edges()?))
    }
}

fn draw(labels: &[String], edges: &[(usize, usize)]) -> String {
    let columns = columns(labels.len(), edges);
    let mut heights = Vec::new();
    let mut places = Vec::with_capacity(labels.len());
    for &column in &columns {
        heights.resize(heights.len().max(column + 1), 0);
        let x = MARGIN + column * (NODE.0 + GAP.0);
        places.push((x, MARGIN + heights[column] * (NODE.1 + GAP.1)));
        heights[column] += 1;
    }
    let rows = heights.iter().copied().max().unwrap_or(0);
    let width = 2 * MARGIN + heights.len() * (NODE.0 + GAP.0);
    let height = 2 * MARGIN + rows * (NODE.1 + GAP.1);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    for &(from, to) in edges {
        let ((x1, y1), (x2, y2)) = (places[from], places[to]);
        let (x1, y1, y2) = (x1 + NODE.0, y1 + NODE.1 / 2, y2 + NODE.1 / 2);
        let middle = (x1 + x2) / 2;
        // Writing to a string cannot fail.
        let _ = writeln!(
            svg,
            "<path d=\"M{x1} {y1}C{middle} {y1} {middle} {y2} {x2} {y2}\" fill=\"none\" \
             stroke=\"#888\"/>"
        );
    }
    for (label, (x, y)) in labels.iter().zip(&places) {
        let ((w, h), middle) = (NODE, y + NODE.1 / 2 + 4);
        let (title, text) = (escaped(label), escaped(&clipped(label)));
        let _ = writeln!(
            svg,
            "<g><title>{title}</title><rect x=\"{x}\" y=\"{y}\" width=\"{w}\" height=\"{h}\" \
             rx=\"5\" fill=\"#eef3fb\" stroke=\"#345\"/>\
             <text x=\"{}\" y=\"{middle}\">{text}</text></g>",
            x + 8
        );
    }
    svg + "</svg>\n"
}

/// As much of a text as fits into a node.
fn clipped(text: &str) -> String {
    match text.char_indices().nth(CHARACTERS) {
        Some(_) => text.chars().take(CHARACTERS - 1).chain(['…']).collect(),
        None => text.to_owned(),
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// The column of each node: one more than the last of those that it depends on.
fn columns(nodes: usize, edges: &[(usize, usize)]) -> Vec<usize> {
    let mut columns = vec![0; nodes];
    // As many rounds as the longest path has nodes, at most; a graph has no cycles.
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
    use super::{CHARACTERS, columns, draw};

    #[test]
    fn nodes_are_right_of_what_they_depend_on() {
        assert_eq!(columns(4, &[(2, 3), (0, 2), (1, 2), (0, 3)]), [0, 0, 1, 2]);
        assert_eq!(columns(0, &[]), [0; 0]);
    }

    #[test]
    fn a_picture_has_each_node_and_edge() {
        let svg = draw(&["a <b>".into(), "c".into()], &[(0, 1)]);
        assert_eq!(svg.matches("<text").count(), 2);
        assert_eq!(svg.matches("<path").count(), 1);
        assert!(svg.contains("a &lt;b&gt;"));
    }

    #[test]
    fn a_text_that_is_too_long_is_clipped() {
        let fits = "ä".repeat(CHARACTERS);
        let long = format!("{}<int> <<<1, 2>>>", "k".repeat(CHARACTERS - 2));
        let svg = draw(&[fits.clone(), long], &[]);
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
