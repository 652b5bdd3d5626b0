//! The tokens of a text, without blanks and comments.

use super::{Complaint, syntax};

/// A word, a mark or a quoted text, and its line.
pub(super) struct Token<'a> {
    pub(super) text: &'a str,
    pub(super) line: usize,
}

/// The kind of token that a byte belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Blank,
    Word,
    /// A token by itself.
    Mark,
}

/// Classes by byte; a table, because Miri would interpret a computation. All significant characters are
/// ASCII; others count as letters.
static CLASSES: [Class; 256] = {
    let mut classes = [Class::Mark; 256];
    let mut number = 0;
    while number < classes.len() {
        let byte = number as u8;
        classes[number] = match byte {
            b'.' | b'_' | b'$' | b'%' => Class::Word,
            _ if byte.is_ascii_alphanumeric() || !byte.is_ascii() => Class::Word,
            _ if byte.is_ascii_whitespace() => Class::Blank,
            _ => Class::Mark,
        };
        number += 1;
    }
    classes
};

/// Splits a text into tokens. Shortens `text` by each token, because whenever Miri borrows a whole text, it
/// takes time for every piece that was cut from it.
pub(super) fn tokens(mut text: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let mut line = 1;
    while !text.is_empty() {
        let (class, length) = first(text);
        let (first, rest) = text.split_at(length);
        match class {
            Class::Blank => line += first.matches('\n').count(),
            Class::Word | Class::Mark => tokens.push(Token { text: first, line }),
        }
        text = rest;
    }
    tokens
}

/// Returns the class and the length of the first token. A comment is blank.
fn first(text: &str) -> (Class, usize) {
    let bytes = text.as_bytes();
    let through = |end| match text[1..].find(end) {
        Some(found) => 1 + found + str::len(end),
        None => text.len(),
    };
    let class = CLASSES[usize::from(bytes[0])];
    let mut length = 1;
    match (bytes[0], bytes.get(1)) {
        (b'/', Some(b'/')) => return (Class::Blank, through("\n")),
        (b'/', Some(b'*')) => return (Class::Blank, through("*/")),
        (b'"', _) => length = through("\""),
        _ if class == Class::Mark => {}
        _ => {
            while length < bytes.len() && CLASSES[usize::from(bytes[length])] == class {
                length += 1;
            }
        }
    }
    (class, length)
}

/// Returns the position of the closing token for the one at `open`.
pub(super) fn matching(
    tokens: &[Token<'_>],
    open: usize,
    opens: u8,
    closes: u8,
) -> Result<usize, Complaint> {
    let mut depth = 0;
    let mut at = open;
    while at < tokens.len() {
        match tokens[at].text.as_bytes() {
            [mark] if *mark == opens => depth += 1,
            [mark] if *mark == closes => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Ok(at);
        }
        at += 1;
    }
    Err(syntax(&tokens[open]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_marks_text_and_comments_are_distinguished() {
        let text = "a.b%1/*\n*/ \"x y\"{//\n é;\n\n@!";
        let found: Vec<_> = tokens(text).iter().map(|t| (t.text, t.line)).collect();
        let expected =
            [("a.b%1", 1), ("\"x y\"", 2), ("{", 2), ("é", 3), (";", 3), ("@", 5), ("!", 5)];
        assert_eq!(found, expected);
    }
}
