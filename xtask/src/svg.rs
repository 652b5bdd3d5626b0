//! Pictures, as self-contained SVG.

use std::fmt::{Display, Write as _};

use crate::xml::escape;

/// Light, or dark if the reader's page is; it paints its own background, so it is legible on
/// either.
pub(crate) const STYLE: &str = include_str!("svg/style.css");

/// A part of a picture.
#[derive(Default)]
pub(crate) struct Svg(String);

impl Svg {
    /// An element without content: its name and attributes.
    pub(crate) fn shape(&mut self, element: impl Display) {
        self.push(format_args!("<{element}/>"));
    }

    /// A text with its baseline at `y`.
    pub(crate) fn text(&mut self, x: f64, y: f64, class: &str, content: &str) {
        let content = escape(content);
        self.push(format_args!(r#"<text class="{class}" x="{x:.1}" y="{y:.1}">{content}</text>"#));
    }

    /// A text that is compressed to a width.
    pub(crate) fn narrow_text(&mut self, x: f64, y: f64, width: f64, content: &str) {
        let content = escape(content);
        self.push(format_args!(
            r#"<text x="{x}" y="{y}" textLength="{width}" lengthAdjust="spacingAndGlyphs">{content}</text>"#
        ));
    }

    /// A part with a tooltip.
    pub(crate) fn group(&mut self, tooltip: &str, draw: impl FnOnce(&mut Self)) {
        self.push(format_args!("<g><title>{}</title>", escape(tooltip)));
        draw(self);
        self.push("</g>");
    }

    /// Adds a part on top of this one.
    pub(crate) fn add(&mut self, other: Self) {
        self.0 += &other.0;
    }

    /// The whole picture.
    pub(crate) fn page(self, width: f64, height: f64, title: &str) -> String {
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
             width=\"{width}\" height=\"{height}\" role=\"img\">\n\
             <title>{}</title>\n<style>\n{STYLE}</style>\n\
             <rect class=\"page\" x=\"0.5\" y=\"0.5\" width=\"{}\" height=\"{}\" rx=\"8\"/>\n\
             {}</svg>\n",
            escape(title),
            width - 1.0,
            height - 1.0,
            self.0
        )
    }

    fn push(&mut self, line: impl Display) {
        // Writing to a string does not fail.
        let _ = writeln!(self.0, "{line}");
    }
}

/// Checks that tags nest, attributes are quoted, and no `<` or `&` is stray.
#[cfg(test)]
pub(crate) fn check(svg: &str) -> Result<(), String> {
    let mut open = Vec::new();
    let mut rest = svg;
    while let Some(at) = rest.find(['<', '&', '>']) {
        let from = &rest[at..];
        if let Some(entity) = from.strip_prefix('&') {
            let known = ["amp;", "lt;", "gt;", "quot;"];
            if !known.iter().any(|name| entity.starts_with(name)) {
                return Err(format!("stray &: {from:.20}"));
            }
            rest = entity;
            continue;
        }
        let end = from.find('>').ok_or("a tag without an end")?;
        let tag = from.get(1..end).ok_or("stray >")?;
        rest = &from[end + 1..];
        if tag.contains('<') || tag.matches('"').count() % 2 != 0 {
            return Err(format!("broken tag: {tag}"));
        }
        if let Some(name) = tag.strip_prefix('/') {
            if open.pop() != Some(name) {
                return Err(format!("</{name}> closes nothing"));
            }
        } else if !tag.ends_with('/') {
            open.push(tag.split(' ').next().unwrap_or_default());
        }
    }
    if open.is_empty() { Ok(()) } else { Err(format!("open: {open:?}")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_is_well_formed_and_the_check_detects_each_error() {
        let mut svg = Svg::default();
        svg.group("<tip>", |svg| {
            svg.text(1.0, 2.0, "quiet", "a & b");
            svg.shape(r#"rect x="1""#);
        });
        check(&svg.page(10.0, 10.0, "a < b")).unwrap();
        for broken in ["<a><b></a></b>", "<a>x & y</a>", "<a>", "<a b=\"></a>", "<a>1 > 0</a>"] {
            assert!(check(broken).is_err(), "{broken}");
        }
    }
}
