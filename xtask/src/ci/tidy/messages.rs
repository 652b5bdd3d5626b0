//! Checks that a source has each message that the page for troubleshooting quotes: readers search for it.

use super::{Files, rust};

const PAGE: &str = "docs/troubleshooting.md";

/// A part with fewer words proves nothing.
const WORDS: usize = 3;

pub(super) fn complaints(files: &Files) -> Vec<String> {
    let page = files.get(PAGE).map_or("", String::as_str);
    let sources: String = rust(files).map(|(_, text)| joined(text)).collect();
    let gone = parts(page).into_iter().filter(|part| !sources.contains(part));
    gone.map(|part| format!("{PAGE}: no source has \"{part}\"")).collect()
}

/// Returns what does not vary in the quoted messages.
fn parts(page: &str) -> Vec<String> {
    let text = page.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut parts = Vec::new();
    let mut rest = &*text;
    while let Some(start) = rest.find('`') {
        let mark = if rest[start..].starts_with("``") { "``" } else { "`" };
        let Some((quoted, after)) = rest[start + mark.len()..].split_once(mark) else { break };
        rest = after;
        if quoted.starts_with("cargo ") {
            continue;
        }
        let fixed = quoted.split('…').flat_map(|part| part.split(": "));
        let fixed = fixed.map(|part| part.trim_matches([' ', ';', ',', '.', '(']));
        let long = fixed.filter(|part| part.split(' ').count() >= WORDS);
        parts.extend(long.map(str::to_owned));
    }
    parts
}

/// Returns a source whose string literals are one line each, without escapes.
fn joined(source: &str) -> String {
    let mut lines = source.split("\\\n");
    let first = lines.next().unwrap_or_default().to_owned();
    let all = lines.fold(first, |text, line| text + line.trim_start());
    all.replace("\\\"", "\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_that_no_source_has_is_a_complaint() {
        let page =
            "* **``… is no `a` that\n  works: …``**. Run `cargo run -p it`, or call `f(a)`.\n";
        let complaints = |source: &str| {
            let files = [(PAGE, page), ("a.rs", source)];
            complaints(&files.map(|(name, text)| (name.to_owned(), text.to_owned())).into())
        };
        assert_eq!(complaints("\"{it} is no `a` \\\n    that works: {why}\""), [""; 0]);
        let gone = "docs/troubleshooting.md: no source has \"is no `a` that works\"";
        assert_eq!(complaints("\"{it} is no `b` that works\""), [gone]);
    }
}
