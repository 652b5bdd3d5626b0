//! Sizes and offsets of declared parameters and variables.

use super::Token;

/// The offset and size of a parameter among a kernel's parameters, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Parameter {
    pub(crate) start: usize,
    pub(crate) size: usize,
}

/// Returns the bytes of a type: `.u32`, `.b8`.
fn type_size(word: &str) -> Option<usize> {
    let digits = word.strip_prefix('.')?;
    let digits = digits.trim_start_matches(['b', 'u', 's', 'f']);
    match (word, digits) {
        (".pred", _) => Some(1),
        (_, "8") => Some(1),
        (_, "16") => Some(2),
        (_, "32") => Some(4),
        (_, "64") => Some(8),
        _ => None,
    }
}

/// Returns the parameters of a list.
pub(super) fn parameters(list: &[Token<'_>]) -> Vec<Parameter> {
    let mut end: usize = 0;
    let parameters = list.split(|token| token.text == ",");
    let parameters = parameters.filter(|words| !words.is_empty());
    let placed = parameters.map(|words| {
        let (element, size) = extent(words);
        let start = end.next_multiple_of(alignment(words).unwrap_or(element).max(1));
        end = start + size;
        Parameter { start, size }
    });
    placed.collect()
}

/// Returns the alignment that a declaration requires. An alignment after `.ptr` is that of the pointee.
fn alignment(words: &[Token<'_>]) -> Option<usize> {
    let mut words = words.iter().map(|token| token.text).take_while(|word| *word != ".ptr");
    words.find(|word| *word == ".align")?;
    words.next()?.parse().ok()
}

/// Returns the size of an element and of the whole declaration, in bytes.
pub(super) fn extent(words: &[Token<'_>]) -> (usize, usize) {
    let element = words.iter().find_map(|token| type_size(token.text));
    let element = element.unwrap_or(0);
    let mut count = 1;
    for (at, token) in words.iter().enumerate() {
        if token.text == "[" {
            let number = words.get(at + 1).and_then(|token| token.text.parse().ok());
            count *= number.unwrap_or(1);
        }
    }
    (element, element * count)
}
