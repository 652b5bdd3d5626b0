//! Text in XML.

/// Escapes text for an element or an attribute. XML cannot represent most control characters, so they are
/// replaced.
pub(crate) fn escape(text: &str) -> String {
    let is_lost = |c: char| c.is_control() && !['\n', '\t'].contains(&c);
    let text = text.replace(is_lost, "\u{FFFD}");
    // `&` is replaced first, since the other replacements contain it.
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    text.replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::escape;

    #[test]
    fn what_xml_cannot_hold_is_replaced() {
        assert_eq!(
            escape("a < b && \"c\"\u{1b}[0m\n"),
            "a &lt; b &amp;&amp; &quot;c&quot;\u{FFFD}[0m\n"
        );
    }
}
