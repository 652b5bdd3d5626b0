//! Adds the items that only a header declares to the bundled bindings.
//!
//! If both declare an item, the bundled declaration is used, so code that compiles with the bundled bindings
//! compiles with every header. That is sound because names are the ABI: no symbol ever changed its signature,
//! and no type whose size determines what the driver reads or writes ever changed its size. Releases differ
//! only in how a header spells the same bytes: a field of a reserved tail gets a name, a number moves into an
//! anonymous union. `tests/abi.rs` compares the two for each release.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use super::bindings::{Bindings, FUNCTIONS, declarations, function_name, head, items};

impl Bindings {
    /// Reads the files of [`files`](Self::files) from `directory`.
    pub(crate) fn read(directory: &Path) -> Result<Self, String> {
        let read = |file: &str| {
            let file = directory.join(file);
            fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))
        };
        let functions = read("functions.rs")?;
        let functions = functions
            .strip_prefix(FUNCTIONS)
            .and_then(|text| text.strip_suffix("}\n"))
            .ok_or("functions.rs is not one invocation of driver_api!")?;
        Ok(Self {
            functions: functions.to_owned(),
            names: read("names.rs")?,
            types: read("types.rs")?,
            constants: read("constants.rs")?,
            layout: read("layout.rs")?,
        })
    }
}

/// The result of completing the bundled bindings with a header.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Completed {
    /// The bundled bindings and the header's additions.
    pub(crate) bindings: Bindings,
    /// Names of the items that the header adds.
    pub(crate) added: Vec<String>,
    /// Names of the header's items that could not be added, since they build on a type whose size in the
    /// header differs from the bundled one.
    pub(crate) unfit: Vec<String>,
}

/// Completes the bundled bindings with those of the header.
pub(crate) fn complete(bundled: &Bindings, header: &Bindings) -> Completed {
    let (bundled_parts, header_parts) = (Parts::of(bundled), Parts::of(header));
    let spelled = bundled_parts.spelled_otherwise(&header_parts);
    let mut unfit = bundled_parts.of_other_size(&header_parts);
    let aliases = header_parts.aliases.clone();
    let mut lacking = header_parts.beyond(&bundled_parts);
    for item in &mut lacking {
        item.text = spell(&item.text, &spelled);
        // A bundled union within the type does not implement `Debug`.
        if item.kind == Kind::Type && item.text.contains(" {\n    pub ") {
            item.text = item.text.replace("#[derive(Debug, ", "#[derive(");
        }
    }

    loop {
        let before = unfit.len();
        let items = lacking.iter().map(|item| (&*item.name, &*item.text));
        let built_on: Vec<_> = items
            .chain(aliases.iter().map(|(name, target)| (*name, *target)))
            .filter(|(_, text)| words(text).any(|word| unfit.contains(word)))
            .map(|(name, _)| name.to_owned())
            .collect();
        unfit.extend(built_on);
        if unfit.len() == before {
            break;
        }
    }

    let mut completed = Completed { bindings: bundled.clone(), ..Completed::default() };
    for Item { kind, name, text } in lacking {
        if unfit.contains(&name) {
            completed.unfit.push(name);
            continue;
        }
        let bindings = &mut completed.bindings;
        match kind {
            Kind::Function => &mut bindings.functions,
            Kind::Name => &mut bindings.names,
            Kind::Type => &mut bindings.types,
            Kind::Constant => &mut bindings.constants,
            Kind::Layout => &mut bindings.layout,
        }
        .push_str(&text);
        completed.added.push(name);
    }
    for names in [&mut completed.added, &mut completed.unfit] {
        // A type has several items: its declaration, its `Default` and its layout.
        names.sort();
        names.dedup();
    }
    completed
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Function,
    Name,
    Type,
    Constant,
    Layout,
}

struct Item {
    kind: Kind,
    name: String,
    text: String,
}

/// Bindings, split into items.
struct Parts<'a> {
    items: Vec<Item>,
    /// The targets of type aliases, by their names.
    aliases: BTreeMap<&'a str, &'a str>,
    /// Assertions on the sizes and alignments of types.
    sizes: BTreeMap<String, Vec<String>>,
}

impl<'a> Parts<'a> {
    fn of(bindings: &'a Bindings) -> Self {
        let mut parts = Self {
            items: Vec::new(),
            aliases: bindings.types.split(';').filter_map(alias).collect(),
            sizes: BTreeMap::new(),
        };
        let mut push = |kind, name: Option<&str>, text: &str| {
            parts.items.extend(name.map(|name| Item {
                kind,
                name: name.to_owned(),
                text: text.to_owned(),
            }));
        };
        for text in declarations(&bindings.functions) {
            push(Kind::Function, function_name(&text), &text);
        }
        for text in bindings.names.split_inclusive('\n') {
            let plain = text.trim_end().strip_suffix(';');
            push(Kind::Name, plain.and_then(|text| Some(text.rsplit_once(" as ")?.1)), text);
        }
        for text in items(&bindings.types) {
            push(Kind::Type, type_name(head(&text)), &text);
        }
        for text in items(&bindings.constants) {
            let name = words(head(&text)).nth(2);
            push(Kind::Constant, name, &text);
        }
        for text in items(&bindings.layout) {
            let Some((_, rest)) = text.split_once("Size of ") else {
                continue;
            };
            let name = words(rest).next();
            push(Kind::Layout, name, &text);
            let claims = text
                .split("];")
                .filter(|claim| claim.contains("\"Size of ") || claim.contains("\"Alignment of "));
            let claims = claims.map(|claim| claim.split_whitespace().collect());
            parts.sizes.extend(name.map(|name| (name.to_owned(), claims.collect())));
        }
        parts
    }

    /// Returns the items that these bindings have and `bundled_parts` lack.
    fn beyond(self, bundled_parts: &Parts<'_>) -> Vec<Item> {
        let have: BTreeSet<(Kind, &str)> =
            bundled_parts.items.iter().map(|item| (item.kind, owner(&item.name))).collect();
        let mut lacking = self.items;
        lacking.retain(|item| {
            let has = |kind| have.contains(&(kind, owner(&item.name)));
            match item.kind {
                // A plain name that is a symbol in the bundled bindings stays that symbol.
                Kind::Name => !has(Kind::Name) && !has(Kind::Function),
                Kind::Layout => !has(Kind::Type),
                kind => !has(kind),
            }
        });
        lacking
    }

    /// Returns the aliases whose target differs between the two, with the header's target:
    /// `CUDA_KERNEL_NODE_PARAMS` was once `CUDA_KERNEL_NODE_PARAMS_v1`.
    fn spelled_otherwise<'b>(&self, header_parts: &Parts<'b>) -> BTreeMap<&'b str, &'b str> {
        let mut aliases = header_parts.aliases.clone();
        aliases
            .retain(|name, target| self.aliases.get(name).is_some_and(|bundled| bundled != target));
        aliases
    }

    /// Returns the types of both whose size or alignment differs. An unnamed part counts as a part of the
    /// type around it.
    fn of_other_size(&self, header_parts: &Parts<'_>) -> BTreeSet<String> {
        let sizes = header_parts.sizes.iter();
        sizes
            .filter(|(name, _)| owner(name) == name.as_str())
            .filter(|(name, size)| self.sizes.get(*name).is_some_and(|bundled| bundled != *size))
            .map(|(name, _)| name.clone())
            .collect()
    }
}

/// Returns the name of a type or alias, or of the type that an `impl`, or a list of an enum's values, belongs
/// to.
fn type_name(head: &str) -> Option<&str> {
    let mut words = words(head).skip_while(|word| *word == "pub");
    match words.next()? {
        "struct" | "union" | "type" | "by_name" => words.next(),
        "use" | "impl" => words.last(),
        _ => None,
    }
}

/// Returns the name and target of `pub type A = B` and of `pub use self::B as A`.
fn alias(item: &str) -> Option<(&str, &str)> {
    let item = item.trim_start();
    if let Some(rest) = item.strip_prefix("pub type ") {
        return rest.split_once(" = ");
    }
    let (target, name) = item.strip_prefix("pub use self::")?.split_once(" as ")?;
    Some((name, target))
}

/// Returns the type around an unnamed part, or the type itself.
fn owner(name: &str) -> &str {
    name.split("__bindgen_ty_").next().unwrap_or(name)
}

/// Splits Rust text into its identifiers and keywords.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !is_identifier(c)).filter(|word| !word.is_empty())
}

fn is_identifier(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Replaces each of these aliases in `text` by its target.
fn spell(text: &str, aliases: &BTreeMap<&str, &str>) -> String {
    let mut spelled = String::new();
    let mut rest = text;
    while let Some(start) = rest.find(is_identifier) {
        let (between, word) = rest.split_at(start);
        let end = word.find(|c| !is_identifier(c)).unwrap_or(word.len());
        let (word, after) = word.split_at(end);
        spelled.push_str(between);
        spelled.push_str(aliases.get(word).unwrap_or(&word));
        rest = after;
    }
    spelled + rest
}
