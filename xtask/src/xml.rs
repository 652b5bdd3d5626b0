//! Text in XML.

/// The text for an element or an attribute. XML cannot represent most control characters, so they are
/// replaced.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            '\n' | '\t' => escaped.push(character),
            _ if character.is_control() => escaped.push('\u{FFFD}'),
            _ => escaped.push(character),
        }
    }
    escaped
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
