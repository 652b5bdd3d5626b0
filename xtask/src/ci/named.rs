//! The tests that the documentation names: a claim whose test is gone is no claim.

use std::collections::HashSet;

/// Tests that `page` names: what stands in backticks in the column `Tests` of a table, and whatever
/// looks like a test with an id, such as `a01_guard_basic`, anywhere else.
pub(crate) fn named(page: &str) -> Vec<&str> {
    let mut names = Vec::new();
    // The column of the table that the line is in.
    let mut column = None;
    for line in page.lines() {
        if !line.starts_with('|') {
            column = None;
        } else if column.is_none() {
            column = line.split('|').position(|cell| cell.trim() == "Tests");
        }
        for (number, cell) in line.split('|').enumerate() {
            let tests = quoted(cell).filter(|name| column == Some(number) || has_id(name));
            names.extend(tests);
        }
    }
    names
}

/// Names of all functions that `source` defines.
pub(crate) fn defined(source: &str) -> impl Iterator<Item = &str> {
    source.split("fn ").skip(1).filter_map(|rest| {
        let end = rest.find(|c: char| !is_word(c)).unwrap_or(rest.len());
        Some(&rest[..end]).filter(|name| !name.is_empty())
    })
}

/// Tests that `page` names and nobody defines.
pub(crate) fn missing<'p>(page: &'p str, defined: &HashSet<String>) -> Vec<&'p str> {
    let mut names = named(page);
    names.retain(|name| !defined.contains(*name));
    names
}

/// Every second piece between backticks is inside of them.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// `a01_guard_basic`: a letter, two digits, words.
fn has_id(name: &str) -> bool {
    let bytes = name.as_bytes();
    bytes.len() > 4
        && bytes[0].is_ascii_lowercase()
        && bytes[1].is_ascii_digit()
        && bytes[2].is_ascii_digit()
        && bytes[3] == b'_'
        && name.chars().all(is_word)
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_without_its_test_is_missed() {
        let source = "gpu_test! { needs 1; fn a01_guard_basic() {} }\nfn round_trip() {}";
        let defined: HashSet<String> = defined(source).map(str::to_owned).collect();
        assert_eq!(defined.len(), 2);
        let page = "| `a01_guard_basic` | `b02_gone` | a03_not_quoted | `cuMemAlloc` |\n";
        assert_eq!(missing(page, &defined), ["b02_gone"]);
    }

    #[test]
    fn a_column_of_tests_holds_nothing_else() {
        let defined = HashSet::from(["round_trip".to_owned()]);
        let table = "| API | Tests |\n|---|---|\n| `copy` | `round_trip`, `gone` |\n";
        assert_eq!(missing(table, &defined), ["gone"]);
        let other = "| API | Calls |\n|---|---|\n| `copy` | `cuMemcpyAsync` |\n";
        let page = format!("{table}\n{other}\n`text`\n");
        assert_eq!(missing(&page, &defined), ["gone"]);
    }
}
