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

/// By byte, as a table because Miri would interpret a computation. All significant characters are
/// ASCII; the others count as letters.
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

pub(super) fn tokens(text: &str) -> Vec<Token<'_>> {
    let bytes = text.as_bytes();
    let mut tokens = Vec::new();
    let mut line = 1;
    let mut at = 0;
    while at < bytes.len() {
        let start = at;
        let class = CLASSES[usize::from(bytes[at])];
        let through = |end: &str| match text[start + 1..].find(end) {
            Some(found) => start + 1 + found + end.len(),
            None => text.len(),
        };
        let is_token = match (bytes[at], bytes.get(at + 1)) {
            (b'/', Some(b'/')) => {
                at = through("\n");
                false
            }
            (b'/', Some(b'*')) => {
                at = through("*/");
                false
            }
            (b'"', _) => {
                at = through("\"");
                true
            }
            _ => {
                at += 1;
                while class != Class::Mark
                    && at < bytes.len()
                    && CLASSES[usize::from(bytes[at])] == class
                {
                    at += 1;
                }
                class != Class::Blank
            }
        };
        if is_token {
            let text = &text[start..at];
            tokens.push(Token { text, line });
        } else {
            let mut blank = start;
            while blank < at {
                line += usize::from(bytes[blank] == b'\n');
                blank += 1;
            }
        }
    }
    tokens
}

/// The closing token for the one at `open`.
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
