//! Rules about files that no compiler checks.

mod aliases;
mod layers;
mod messages;
mod names;

use std::collections::BTreeMap;
use std::path::Path;

use fs_err as fs;

use super::{full_run, named};
use crate::{mutants, workspace};

/// The texts of the repository's files, by file name.
type Files = BTreeMap<String, String>;

/// The page whose claims name the tests that prove them.
const CLAIMS: &str = "docs/features.md";

/// Columns of pages that name API items; all their words must occur in [`API_SOURCE`].
const API: [(&str, &str); 2] = [(CLAIMS, "API"), (OTHER_CRATES, "Here")];

/// The page that also has names of other crates.
const OTHER_CRATES: &str = "docs/coming-from.md";

/// The page that also has names of removed items.
const CHANGES: &str = "CHANGELOG.md";

const API_SOURCE: &str = "cuda-core/src/";

/// Directories that contain tests.
const TESTS: [&str; 3] = ["tests/", "cuda-core/src/", "cuda-sys/"];

/// Directories where each file is a test.
const CASES: [&str; 2] = ["tests/misuse/", "cuda-core/examples/"];

/// A test that is not written in Rust.
const SCRIPT: &str = "tests/interop/interop.py";

/// The longest permitted file; a longer one holds more than one concept.
const LINES: usize = 500;

/// Marks of unfinished work. Written in halves, since this file is checked too.
const MARKS: [&str; 6] = [
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X:"),
    concat!("todo", "!("),
    concat!("unimplemented", "!("),
    concat!("dbg", "!("),
];

/// Directories that exist only on one developer's machine.
const MACHINE_PATHS: [&str; 4] =
    [concat!("/ho", "me/"), concat!("/ro", "ot/"), concat!("/Us", "ers/"), concat!("/wo", "rk/")];

/// Returns the violations in the files of the repository, one line each.
pub(crate) fn check(root: &Path) -> anyhow::Result<Vec<String>> {
    let (mut complaints, mut files) = (Vec::new(), Files::new());
    for name in workspace::files(root)? {
        match String::from_utf8(fs::read(root.join(&name))?) {
            Ok(text) => drop(files.insert(name, text)),
            Err(_) => complaints.push(format!("{name}: not text")),
        }
    }
    complaints.extend(files.iter().flat_map(|(name, text)| complaints_of(name, text)));
    let tests = files.iter().flat_map(|(name, text)| tests_of(name, text)).collect();
    let claims = files.get(CLAIMS).map_or("", String::as_str);
    let gone = named::missing(claims, &tests).into_iter();
    complaints.extend(gone.map(|test| format!("{CLAIMS}: no test {test}")));
    let words = sources(&files).flat_map(|(_, text)| named::words_in(text)).collect();
    for (page, column) in API {
        let Some(text) = files.get(page) else {
            complaints.push(format!("{page}: there is no such page"));
            continue;
        };
        let unknown = named::unknown(text, column, &words).into_iter();
        complaints.extend(unknown.map(|name| format!("{page}: {API_SOURCE} has no {name}")));
    }
    let words = rust(&files).flat_map(|(_, text)| named::words_in(text)).collect();
    let is_checked = |name: &str| name.ends_with(".md") && ![OTHER_CRATES, CHANGES].contains(&name);
    for (page, text) in files.iter().filter(|(name, _)| is_checked(name)) {
        let unknown = named::unknown_paths(text, &words).into_iter();
        complaints.extend(unknown.map(|path| format!("{page}: no source has {path}")));
    }
    complaints.extend(layers::complaints(&files));
    complaints.extend(names::complaints(&files));
    complaints.extend(messages::complaints(&files));
    complaints.extend(aliases::complaints(&files));
    complaints.extend(mutants::complaints(root, &tests)?);
    complaints.extend(full_run::complaints(root));
    Ok(complaints)
}

/// The names and texts of the Rust files.
fn rust(files: &Files) -> impl Iterator<Item = (&str, &str)> {
    let files = files.iter().map(|(name, text)| (name.as_str(), text.as_str()));
    files.filter(|(name, _)| name.ends_with(".rs"))
}

/// The files of [`API_SOURCE`], without those that contain only tests.
fn sources(files: &Files) -> impl Iterator<Item = (&str, &str)> {
    rust(files).filter(|(name, _)| name.starts_with(API_SOURCE) && !name.ends_with("/tests.rs"))
}

/// The tests in a file: its functions; or the file itself, or its folder, if each file of the directory is a
/// test.
fn tests_of<'f>(name: &'f str, text: &'f str) -> Vec<&'f str> {
    let Some(file) = name.strip_suffix(".rs") else {
        return if name == SCRIPT { vec![SCRIPT] } else { vec![] };
    };
    if let Some(case) = CASES.iter().find_map(|folder| file.strip_prefix(folder)) {
        return vec![case.strip_suffix("/main").unwrap_or(case)];
    }
    let has_tests = TESTS.iter().any(|folder| name.starts_with(folder));
    named::defined(text).filter(|_| has_tests).collect()
}

fn complaints_of(name: &str, text: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    let generated = name.starts_with("cuda-sys/src/bindings/") || name == "Cargo.lock";
    if name.ends_with(".rs") && !generated && text.lines().count() > LINES {
        complaints.push(format!("{name}: over {LINES} lines"));
    }
    if !text.is_empty() && !text.ends_with('\n') {
        complaints.push(format!("{name}: no line break at the end"));
    }
    for (number, line) in text.lines().enumerate() {
        let place = format!("{name}:{}", number + 1);
        if line.ends_with([' ', '\t', '\r']) {
            complaints.push(format!("{place}: space at the end of the line"));
        }
        if let Some(mark) = MARKS.iter().find(|mark| line.contains(**mark)) {
            complaints.push(format!("{place}: {mark}"));
        }
        if let Some(path) = MACHINE_PATHS.iter().find(|path| is_absolute(line, path)) {
            complaints.push(format!("{place}: a path of one machine, {path}"));
        }
    }
    complaints
}

/// Whether `path` occurs in `line` at the beginning of a path, not inside another one.
fn is_absolute(line: &str, path: &str) -> bool {
    line.match_indices(path).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        before.is_none_or(|c| !c.is_alphanumeric() && !['/', '.', '-', '_', '}', '>'].contains(&c))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rule_finds_its_breach() {
        let long = "\n".repeat(LINES + 1);
        assert_eq!(complaints_of("a.rs", &long), ["a.rs: over 500 lines"]);
        assert!(complaints_of("cuda-sys/src/bindings/types.rs", &long).is_empty());
        assert_eq!(complaints_of("a", "x"), ["a: no line break at the end"]);
        assert_eq!(complaints_of("a", "x \n"), ["a:1: space at the end of the line"]);
        assert_eq!(complaints_of("a", &format!("// {}\n", MARKS[0])).len(), 1);
        assert_eq!(complaints_of("a", &format!("cd {}me\n", MACHINE_PATHS[0])).len(), 1);
    }

    #[test]
    fn what_is_no_machine_path() {
        let line = format!("see docs{}x and $HOME{0}x\n", MACHINE_PATHS[3]);
        assert!(complaints_of("a", &line).is_empty(), "{line}");
    }

    #[test]
    fn some_files_are_tests() {
        assert_eq!(
            tests_of("tests/misuse/a26_guard_cloned.rs", "fn main() {}"),
            ["a26_guard_cloned"]
        );
        assert_eq!(tests_of("cuda-core/examples/ipc.rs", "fn main() {}"), ["ipc"]);
        assert_eq!(tests_of("cuda-core/examples/b/main.rs", "fn main() {}"), ["b"]);
        assert_eq!(tests_of(SCRIPT, "def main(): pass"), [SCRIPT]);
        assert_eq!(tests_of("tests/gpu/guards.rs", "fn nests() {}"), ["nests"]);
        assert!(tests_of("xtask/src/main.rs", "fn main() {}").is_empty());
        assert!(tests_of("docs/a.md", "fn nests() {}").is_empty());
    }
}
