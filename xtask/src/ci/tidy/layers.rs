//! The layers of `cuda-core`. A room is a module directly below `lib.rs`; it uses only rooms under it.
//!
//! The picture in `ARCHITECTURE.md` lists the rooms from the top down.

use std::collections::HashMap;

use super::{API_SOURCE, Files, sources};
use crate::ci::named::{is_word, word, words_of};

/// The file that declares the rooms.
const LIB: &str = "cuda-core/src/lib.rs";

const PICTURE: &str = "ARCHITECTURE.md";

/// The words that begin the picture's parts.
const HEIGHTS: [&str; 3] = ["upper", "middle", "ground"];

/// Returns complaints about rooms that the picture lacks, and about uses of rooms further up.
pub(super) fn complaints(files: &Files) -> Vec<String> {
    let rooms = files.get(PICTURE).map_or_else(Vec::new, |page| rooms(page));
    let lib = files.get(LIB).map(|text| without_tests(without_text(text))).unwrap_or_default();
    let (modules, exports) = (declared(&lib), exports(&lib));
    let undrawn = modules.iter().filter(|room| !rooms.contains(room));
    let gone = rooms.iter().filter(|room| !modules.contains(room));
    let mut complaints: Vec<_> = undrawn.map(|room| format!("{PICTURE}: no room {room}")).collect();
    complaints.extend(gone.map(|room| format!("{PICTURE}: {LIB} has no module {room}")));
    let height = |room: &str| rooms.iter().position(|other| *other == room);
    for (file, text) in sources(files).filter(|(file, _)| *file != LIB) {
        let code = without_tests(without_text(text));
        let module = file.strip_prefix(API_SOURCE).and_then(|file| file.strip_suffix(".rs"));
        let module = module.unwrap_or(file);
        let path: Vec<_> = module.strip_suffix("/mod").unwrap_or(module).split('/').collect();
        for (at, name) in names(&code, path.len()) {
            let (from, to) = (path[0], exports.get(name).copied().unwrap_or(name));
            if height(from).zip(height(to)).is_some_and(|(from, to)| from < to) {
                let line = code[..at].matches('\n').count() + 1;
                complaints.push(format!("{file}:{line}: crate::{name}: {to} is above {from}"));
            }
        }
    }
    complaints
}

/// The rooms of the picture, from the ground up: the first word of each line, after the word for a height.
fn rooms(page: &str) -> Vec<&str> {
    let first = |line: &&str| line.split_whitespace().next() == Some(HEIGHTS[0]);
    let lines = page.lines().skip_while(|line| !first(line));
    let rooms = lines.map_while(|line| {
        let mut words = line.split_whitespace().skip_while(|word| HEIGHTS.contains(word));
        words.next().filter(|room| room.chars().all(is_word))
    });
    let mut rooms: Vec<_> = rooms.collect();
    rooms.reverse();
    rooms
}

/// Blanks comments and literals; keeps the lines.
pub(super) fn without_text(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if first == '"' || is_char(rest) {
            literal(rest, first)
        } else {
            code.push(first);
            rest = &rest[first.len_utf8()..];
            continue;
        };
        code.extend(rest[..length].chars().filter(|c| *c == '\n'));
        rest = &rest[length..];
    }
    code
}

/// Whether the text begins with a character literal; a lifetime has only one quote.
fn is_char(text: &str) -> bool {
    let mut chars = text.chars();
    chars.next() == Some('\'') && (chars.next() == Some('\\') || chars.next() == Some('\''))
}

/// The length in bytes of the literal at the beginning of `text`.
fn literal(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        if c == quote && !escaped {
            return at + 1;
        }
        escaped = c == '\\' && !escaped;
    }
    text.len()
}

/// Blanks the items of tests; keeps the lines.
pub(super) fn without_tests(mut code: String) -> String {
    while let Some(start) = code.find("#[cfg(test)]") {
        let item = &code[start..];
        let end = match item.find([';', '{']) {
            Some(at) if item[at..].starts_with('{') => at + block(&item[at..]),
            Some(at) => at + 1,
            None => item.len(),
        };
        let lines = "\n".repeat(item[..end].matches('\n').count());
        code.replace_range(start..start + end, &lines);
    }
    code
}

/// The length in bytes of the block in braces at the beginning of `code`.
fn block(code: &str) -> usize {
    let mut depth = 0;
    let end = code.char_indices().find(|(_, c)| {
        depth += i32::from(*c == '{') - i32::from(*c == '}');
        depth == 0
    });
    end.map_or(code.len(), |(at, _)| at + 1)
}

/// The modules that the code declares without their contents.
fn declared(code: &str) -> Vec<&str> {
    let lines = code.lines().filter(|line| line.ends_with(';'));
    let lines = lines.map(|line| line.strip_prefix("pub ").unwrap_or(line));
    lines.filter_map(|line| line.strip_prefix("mod ")).map(word).collect()
}

/// The names that `lib.rs` re-exports, with the room that each comes from.
fn exports(code: &str) -> HashMap<&str, &str> {
    let paths = code.split("pub use ").skip(1).filter_map(|path| path.split(';').next());
    let exports = paths.flat_map(|path| {
        let names = path.rsplit("::").next().unwrap_or(path);
        words_of(names).map(move |name| (name, word(path)))
    });
    exports.collect()
}

/// The first name of each path from the root of the crate, with its position: the name after `crate::`, or
/// after as many `super::` as the module is deep.
fn names(code: &str, depth: usize) -> Vec<(usize, &str)> {
    let mut names = Vec::new();
    for root in ["crate::", &"super::".repeat(depth)] {
        for (at, _) in code.match_indices(root) {
            let start = at + root.len();
            if code[..at].ends_with(|c| is_word(c) || c == ':') {
                continue;
            }
            if !code[start..].starts_with('{') {
                names.push((start, word(&code[start..])));
                continue;
            }
            let list = &code[start..start + block(&code[start..])];
            let mut depth = 0_usize;
            for (at, c) in list.char_indices() {
                depth += usize::from(c == '{');
                depth -= usize::from(c == '}');
                if depth == 1 && matches!(c, '{' | ',') {
                    let item = list[at + 1..].trim_start();
                    names.push((start + list.len() - item.len(), word(item)));
                }
            }
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the complaints about a crate with two rooms and these additional files.
    fn complaints_with(files: &[(&str, &str)]) -> Vec<String> {
        let lib = "pub mod high;\n\n// Ground.\nmod low;\n\npub use high::part::{Name, Other};\nmod m {}\n";
        let picture = "```\n  upper   high  above\n  ground  low   below\n  ───\n  sys\n```\n";
        let usual = [("cuda-core/src/lib.rs", lib), (PICTURE, picture)];
        let files = usual.iter().chain(files);
        let file = |&(name, text): &(&str, &str)| (name.to_owned(), text.to_owned());
        complaints(&files.map(file).collect())
    }

    fn complaints_of(text: &str) -> Vec<String> {
        complaints_with(&[("cuda-core/src/low/part.rs", text)])
    }

    #[test]
    fn an_arrow_up_is_a_complaint() {
        assert_eq!(
            complaints_of("use std::fmt;\nuse crate::high::Thing;\n"),
            ["cuda-core/src/low/part.rs:2: crate::high: high is above low"]
        );
        assert_eq!(complaints_of("fn f() { super::super::high::f() }").len(), 1);
        assert_eq!(complaints_of("use crate::{Name, low::{A, B}, high};").len(), 2);
        assert_eq!(
            complaints_of("/// \"\nuse crate::{\n    low::A,\n    Other,\n};"),
            ["cuda-core/src/low/part.rs:4: crate::Other: high is above low"]
        );
    }

    #[test]
    fn the_picture_has_every_room() {
        assert!(complaints_with(&[]).is_empty());
        assert_eq!(
            complaints_with(&[("cuda-core/src/lib.rs", "mod high;\npub mod middle;\n")]),
            [
                "ARCHITECTURE.md: no room middle",
                "ARCHITECTURE.md: cuda-core/src/lib.rs has no module low"
            ]
        );
    }

    #[test]
    fn what_is_no_arrow_up() {
        assert!(complaints_of("use super::high;\nuse crate::low::high;").is_empty());
        assert!(complaints_of("// crate::high\nconst A: &str = \"crate::high\";").is_empty());
        assert!(complaints_of("#[cfg(test)]\nmod t {\n    use crate::high; {}\n}").is_empty());
        assert!(complaints_of("fn f<'a>(c: char) -> bool { c == '\"' }\n").is_empty());
        assert!(complaints_with(&[("cuda-core/src/high/mod.rs", "use crate::low;")]).is_empty());
    }
}
