//! The layers of `cuda-core`: a room, which is a module right below `lib.rs`, uses only rooms under it.
//!
//! The picture in `ARCHITECTURE.md` lists the rooms, those further up first.

use std::collections::HashMap;

use crate::ci::named::{is_word, word, words_of};

const ROOT: &str = "cuda-core/src/";

const PICTURE: &str = "ARCHITECTURE.md";

/// The words that begin the picture and its parts.
const HEIGHTS: [&str; 3] = ["upper", "middle", "ground"];

/// The rooms, and which of them uses which.
#[derive(Default)]
pub(super) struct Layers {
    /// The modules that `lib.rs` declares.
    modules: Vec<String>,
    /// From the ground up.
    rooms: Vec<String>,
    /// The room of each name that `lib.rs` re-exports.
    exports: HashMap<String, String>,
    uses: Vec<Use>,
}

struct Use {
    place: String,
    from: String,
    /// What follows `crate::`: a room, or a name that `lib.rs` re-exports.
    name: String,
}

impl Layers {
    /// Takes in one file of the repository.
    pub(super) fn read(&mut self, file: &str, text: &str) {
        if file == PICTURE {
            self.rooms = rooms(text);
            return;
        }
        let Some(module) = file.strip_prefix(ROOT).and_then(|file| file.strip_suffix(".rs")) else {
            return;
        };
        let code = without_tests(without_text(text));
        let module = module.strip_suffix("/mod").unwrap_or(module);
        let path: Vec<&str> = module.split('/').collect();
        if module == "lib" {
            self.modules = declared(&code);
            self.exports = exports(&code);
        } else if path.last() != Some(&"tests") {
            for (at, name) in names(&code, path.len()) {
                let place = format!("{file}:{}", code[..at].matches('\n').count() + 1);
                self.uses.push(Use { place, from: path[0].to_owned(), name });
            }
        }
    }

    /// Arrows that lead up, and rooms without a height.
    pub(super) fn complaints(&self) -> Vec<String> {
        let undrawn = self.modules.iter().filter(|room| !self.rooms.contains(room));
        let gone = self.rooms.iter().filter(|room| !self.modules.contains(room));
        let undrawn = undrawn.map(|room| format!("{PICTURE}: no room {room}"));
        let gone = gone.map(|room| format!("{PICTURE}: {ROOT}lib.rs has no module {room}"));
        let height = |room: &str| self.rooms.iter().position(|other| other == room);
        let up = self.uses.iter().filter_map(|Use { place, from, name }| {
            let to = self.exports.get(name).unwrap_or(name);
            let is_up = height(from)? < height(to)?;
            is_up.then(|| format!("{place}: crate::{name}: {to} is above {from}"))
        });
        undrawn.chain(gone).chain(up).collect()
    }
}

/// The rooms of the picture, from the ground up: the first word of each line, after that of a height.
fn rooms(page: &str) -> Vec<String> {
    let first = |line: &&str| line.split_whitespace().next() == Some(HEIGHTS[0]);
    let lines = page.lines().skip_while(|line| !first(line));
    let rooms = lines.map_while(|line| {
        let mut words = line.split_whitespace().skip_while(|word| HEIGHTS.contains(word));
        words.next().filter(|room| room.chars().all(is_word)).map(str::to_owned)
    });
    let mut rooms: Vec<String> = rooms.collect();
    rooms.reverse();
    rooms
}

/// The code with comments and literals blanked, line for line.
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

/// Whether the text begins with a character in quotes; a lifetime has one quote.
fn is_char(text: &str) -> bool {
    let mut chars = text.chars();
    chars.next() == Some('\'') && (chars.next() == Some('\\') || chars.next() == Some('\''))
}

/// Bytes of the literal that `text` begins with.
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

/// The code with the items of tests blanked, line for line.
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

/// Bytes of the block in braces that `code` begins with.
fn block(code: &str) -> usize {
    let mut depth = 0_usize;
    for (at, c) in code.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 1 => return at + 1,
            '}' => depth -= 1,
            _ => {}
        }
    }
    code.len()
}

/// The modules that the code declares and does not contain.
fn declared(code: &str) -> Vec<String> {
    let lines = code.lines().filter(|line| line.ends_with(';'));
    let lines = lines.map(|line| line.strip_prefix("pub ").unwrap_or(line));
    lines.filter_map(|line| Some(word(line.strip_prefix("mod ")?).to_owned())).collect()
}

/// What `lib.rs` re-exports, with the room it comes from.
fn exports(code: &str) -> HashMap<String, String> {
    let mut exports = HashMap::new();
    for path in code.split("pub use ").skip(1) {
        let path = path.split(';').next().unwrap_or_default();
        let names = path.rsplit("::").next().unwrap_or(path);
        for name in words_of(names) {
            exports.insert(name.to_owned(), word(path).to_owned());
        }
    }
    exports
}

/// The first name of each path from the root of the crate, with its position: after `crate::`, or after as
/// many `super::` as the module is deep.
fn names(code: &str, depth: usize) -> Vec<(usize, String)> {
    let mut names = Vec::new();
    let roots = ["crate::".to_owned(), "super::".repeat(depth)];
    for root in &roots {
        for (at, _) in code.match_indices(root.as_str()) {
            let start = at + root.len();
            if code[..at].ends_with(|c| is_word(c) || c == ':') {
                continue;
            }
            if !code[start..].starts_with('{') {
                names.push((start, word(&code[start..]).to_owned()));
                continue;
            }
            let list = &code[start..start + block(&code[start..])];
            let mut depth = 0_usize;
            for (at, c) in list.char_indices() {
                depth += usize::from(c == '{');
                depth -= usize::from(c == '}');
                if depth == 1 && matches!(c, '{' | ',') {
                    let item = list[at + 1..].trim_start();
                    names.push((start + list.len() - item.len(), word(item).to_owned()));
                }
            }
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layers(files: &[(&str, &str)]) -> Layers {
        let mut layers = Layers::default();
        layers.read(
            "cuda-core/src/lib.rs",
            "pub mod high;\n\n// Ground.\nmod low;\n\npub use high::part::{Name, Other};\nmod m {}\n",
        );
        layers.read(
            PICTURE,
            "```\n  upper   high  above\n  ground  low   below\n  ───\n  sys\n```\n",
        );
        for (file, text) in files {
            layers.read(&format!("cuda-core/src/{file}"), text);
        }
        layers
    }

    fn complaints(text: &str) -> Vec<String> {
        layers(&[("low/part.rs", text)]).complaints()
    }

    #[test]
    fn an_arrow_up_is_a_complaint() {
        assert_eq!(
            complaints("use std::fmt;\nuse crate::high::Thing;\n"),
            ["cuda-core/src/low/part.rs:2: crate::high: high is above low"]
        );
        assert_eq!(complaints("fn f() { super::super::high::f() }").len(), 1);
        assert_eq!(complaints("use crate::{Name, low::{A, B}, high};").len(), 2);
        assert_eq!(
            complaints("/// \"\nuse crate::{\n    low::A,\n    Other,\n};"),
            ["cuda-core/src/low/part.rs:4: crate::Other: high is above low"]
        );
    }

    #[test]
    fn the_picture_has_every_room() {
        let mut layers = layers(&[]);
        assert!(layers.complaints().is_empty());
        layers.read("cuda-core/src/lib.rs", "mod high;\npub mod middle;\n");
        assert_eq!(
            layers.complaints(),
            [
                "ARCHITECTURE.md: no room middle",
                "ARCHITECTURE.md: cuda-core/src/lib.rs has no module low"
            ]
        );
    }

    #[test]
    fn what_is_no_arrow_up() {
        assert!(complaints("use super::high;\nuse crate::low::high;").is_empty());
        assert!(complaints("// crate::high\nconst A: &str = \"crate::high\";").is_empty());
        assert!(complaints("#[cfg(test)]\nmod t {\n    use crate::high; {}\n}").is_empty());
        assert!(complaints("fn f<'a>(c: char) -> bool { c == '\"' }\n").is_empty());
        let down = layers(&[("high/mod.rs", "use crate::low;")]);
        assert!(down.complaints().is_empty());
    }
}
