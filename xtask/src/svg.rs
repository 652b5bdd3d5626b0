//! Pictures, as self-contained SVG.

use std::fmt::{Display, Write as _};

use crate::xml::escape;

/// The style sheet: light, or dark if the reader's page is. The picture paints its own background, so it is
/// legible on either.
pub(crate) const STYLE: &str = include_str!("svg/style.css");

/// A part of a picture.
#[derive(Default)]
pub(crate) struct Svg(String);

impl Svg {
    /// Adds an element without content, given by its name and attributes.
    pub(crate) fn shape(&mut self, element: impl Display) {
        self.push(format_args!("<{element}/>"));
    }

    /// Adds a text with its baseline at `y`.
    pub(crate) fn text(&mut self, x: f64, y: f64, class: &str, content: &str) {
        self.text_with(x, y, format_args!(r#"class="{class}""#), content);
    }

    /// Adds a text with other attributes.
    pub(crate) fn text_with(&mut self, x: f64, y: f64, attributes: impl Display, content: &str) {
        let content = escape(content);
        self.push(format_args!(r#"<text {attributes} x="{x:.1}" y="{y:.1}">{content}</text>"#));
    }

    /// Adds a part with a tooltip.
    pub(crate) fn group(&mut self, tooltip: &str, draw: impl FnOnce(&mut Self)) {
        self.push(format_args!("<g><title>{}</title>", escape(tooltip)));
        draw(self);
        self.push("</g>");
    }

    /// Adds a part on top of this one.
    pub(crate) fn add(&mut self, other: Self) {
        self.0 += &other.0;
    }

    /// Returns the whole picture.
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

#[cfg(test)]
pub(crate) mod tests;
