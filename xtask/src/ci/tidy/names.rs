//! Checks that a type name of `cuda-core` means one thing: it is declared once.

use std::collections::BTreeMap;

use super::layers::{without_tests, without_text};
use super::{Files, sources};
use crate::ci::named::word;

/// Names that may be declared more than once, by Rust's conventions.
const TWICE: [&str; 1] = ["Sealed"];

pub(super) fn complaints(files: &Files) -> Vec<String> {
    let mut declarations = BTreeMap::<String, Vec<String>>::new();
    for (file, text) in sources(files) {
        for (number, line) in without_tests(without_text(text)).lines().enumerate() {
            if let Some(name) = declared(line) {
                let places = declarations.entry(name.to_owned()).or_default();
                places.push(format!("{file}:{}", number + 1));
            }
        }
    }
    declarations.retain(|name, places| places.len() > 1 && !TWICE.contains(&name.as_str()));
    let line =
        |(name, places): (_, Vec<_>)| format!("{name} is declared twice: {}", places.join(", "));
    declarations.into_iter().map(line).collect()
}

/// Returns the name of the type that the line declares. An indented `type` is an associated one.
fn declared(line: &str) -> Option<&str> {
    let mut words = line.split_whitespace();
    let keyword = words.find(|word| !word.starts_with("pub") && *word != "unsafe")?;
    let is_own = keyword == "type" && !line.starts_with(' ');
    let declares = is_own || ["struct", "enum", "trait", "union"].contains(&keyword);
    let name = words.next().filter(|_| declares).map(word)?;
    (!name.is_empty()).then_some(name)
}

#[cfg(test)]
mod tests {
    fn complaints(files: &[(&str, &str)]) -> Vec<String> {
        let file = |(name, text): &(_, &str)| (format!("cuda-core/src/{name}"), (*text).to_owned());
        super::complaints(&files.iter().map(file).collect())
    }

    #[test]
    fn a_name_of_two_types_is_a_complaint() {
        let (one, other) = ("pub(crate) struct A<T>(T);\n", "\nmod m {\n    enum A {}\n}\n");
        assert_eq!(
            complaints(&[("a.rs", one), ("b/mod.rs", other)]),
            ["A is declared twice: cuda-core/src/a.rs:1, cuda-core/src/b/mod.rs:3"]
        );
        assert_eq!(complaints(&[("a.rs", "type B = u8;\npub unsafe trait B {}\n")]).len(), 1);
    }

    #[test]
    fn what_is_no_second_type() {
        let one = "struct A;\nimpl I for A {\n    type A = u8;\n}\n// struct A;\nfn f() -> A {}\n";
        let tests = "#[cfg(test)]\nmod tests {\n    struct A;\n}\npub trait Sealed {}\n";
        let more = "pub(crate) trait Sealed {}\nstruct $name;\nstruct $name;\n";
        assert!(complaints(&[("a.rs", one), ("b.rs", tests), ("c.rs", more)]).is_empty());
        assert!(complaints(&[("a.rs", one), ("b/tests.rs", one)]).is_empty());
    }
}
