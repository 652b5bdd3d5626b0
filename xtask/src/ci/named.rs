//! The tests and API items that the documentation names: each must exist.

use std::collections::HashSet;

/// Returns tests that `page` names and that are not among `defined`. In the column `Tests` of a table, all
/// text in backticks names tests; elsewhere, text that looks like a test with an id, such as
/// `a01_guard_basic`.
pub(crate) fn missing<'p>(page: &'p str, defined: &HashSet<&str>) -> Vec<&'p str> {
    let cells = cells(page, "Tests").into_iter();
    let named =
        |(cell, is_in_column)| quoted(cell).filter(move |name| is_in_column || has_id(name));
    cells.flat_map(named).filter(|name| !defined.contains(name)).collect()
}

/// Returns text in backticks, in the columns called `header` of a page's tables, that is not a command and
/// has a word that is not among `words`.
pub(crate) fn unknown<'p>(page: &'p str, header: &str, words: &HashSet<&str>) -> Vec<&'p str> {
    let mut names = in_column(page, header);
    let is_unknown = |name: &str| words_of(name).any(|word| !words.contains(word));
    names.retain(|name| !name.starts_with("cargo ") && is_unknown(name));
    names
}

/// Returns paths in backticks, such as `Type::name`, with a word that is not among `words`.
pub(crate) fn unknown_paths<'p>(page: &'p str, words: &HashSet<&str>) -> Vec<&'p str> {
    let is_path = |it: &&str| it.contains("::") && it.chars().all(|c| is_word(c) || c == ':');
    let is_unknown = |it: &&str| words_of(it).any(|word| !words.contains(word));
    quoted(page).filter(is_path).filter(is_unknown).collect()
}

/// Returns text in backticks in the columns called `header` of a page's tables.
pub(crate) fn in_column<'p>(page: &'p str, header: &str) -> Vec<&'p str> {
    let cells = cells(page, header).into_iter().filter(|(_, is_in_column)| *is_in_column);
    cells.flat_map(|(cell, _)| quoted(cell)).collect()
}

/// The words of `source`, without lines that are only a comment.
pub(crate) fn words_in(source: &str) -> impl Iterator<Item = &str> {
    let code = source.lines().map(str::trim_start);
    code.filter(|line| !line.starts_with("//")).flat_map(words_of)
}

/// Returns each cell of a table line, or the whole line outside of tables, and whether the cell is in a
/// column with that header.
fn cells<'p>(page: &'p str, header: &str) -> Vec<(&'p str, bool)> {
    let mut cells = Vec::new();
    // The index of the column with that header, in the table of the current line.
    let mut column = None;
    for line in page.lines() {
        if !line.starts_with('|') {
            column = None;
        } else if column.is_none() {
            column = line.split('|').position(|cell| cell.trim() == header);
        }
        let numbered = line.split('|').enumerate();
        cells.extend(numbered.map(|(number, cell)| (cell, column == Some(number))));
    }
    cells
}

/// The names of all functions that `source` defines.
pub(crate) fn defined(source: &str) -> impl Iterator<Item = &str> {
    source.split("fn ").skip(1).map(word).filter(|name| !name.is_empty())
}

/// Returns the texts inside backticks.
pub(crate) fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// Whether a name is a letter, two digits and words, like `a01_guard_basic`.
fn has_id(name: &str) -> bool {
    let begins = matches!(name.as_bytes(), [b'a'..=b'z', b'0'..=b'9', b'0'..=b'9', b'_', _, ..]);
    begins && name.chars().all(is_word)
}

/// The word at the beginning of `text`, if any.
pub(crate) fn word(text: &str) -> &str {
    text.split(|c| !is_word(c)).next().unwrap_or_default()
}

pub(crate) fn words_of(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c| !is_word(c)).filter(|word| !word.is_empty())
}

pub(crate) fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_without_its_test_is_missed() {
        let source = "gpu_test! { needs 1; fn a01_guard_basic() {} }\nfn round_trip() {}";
        let defined: HashSet<&str> = defined(source).collect();
        assert_eq!(defined.len(), 2);
        let page = "| `a01_guard_basic` | `b02_gone` | a03_not_quoted | `cuMemAlloc` |\n";
        assert_eq!(missing(page, &defined), ["b02_gone"]);
    }

    #[test]
    fn a_column_of_tests_holds_nothing_else() {
        let defined = HashSet::from(["round_trip"]);
        let table = "| API | Tests |\n|---|---|\n| `copy` | `round_trip`, `gone` |\n";
        assert_eq!(missing(table, &defined), ["gone"]);
        let other = "| API | Calls |\n|---|---|\n| `copy` | `cuMemcpyAsync` |\n";
        let page = format!("{table}\n{other}\n`text`\n");
        assert_eq!(missing(&page, &defined), ["gone"]);
    }

    #[test]
    fn a_name_that_the_source_has_not_is_unknown() {
        let source = "// Renamed: old.\nimpl Stream {\n    pub fn copy() {}\n}";
        let words = words_in(source).collect();
        let page = "| Here | There |\n|---|---|\n\
                    | `Stream::copy`, `Stream::old` | `cudaMemcpy` |\n\
                    | `cargo run`, `Gone` | `old` |\n";
        assert_eq!(unknown(page, "Here", &words), ["Stream::old", "Gone"]);
        let page = "`Stream::copy` calls `Stream::old`, in `a::b.rs`:\n```\nStream::gone();\n```\n`Gone::copy`";
        assert_eq!(unknown_paths(page, &words), ["Stream::old", "Gone::copy"]);
    }
}
