//! A public function of `cuda-core` is found by the names of the calls that it stands for.
//!
//! The driver's functions that the first paragraph of its documentation names, and what the runtime calls
//! them, are in its `#[doc(alias(…))]`. So are, on any item, all of CUDA's names that the page for users of
//! other libraries has a counterpart for.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::API_SOURCE;
use crate::ci::named::{in_column, is_word};

/// Lines of a driver's function and the names that the runtime has for it, the usual one first; and what
/// the runtime alone has.
const RUNTIME: &str = include_str!("runtime.txt");

/// The page that says what CUDA's names are called here, the heading of its table of what is missing,
/// and its columns with CUDA's names.
const COMING_FROM: &str = "docs/coming-from.md";
const MISSING: &str = "\n## Not here";
const COLUMNS: [&str; 2] = ["CUDA runtime", "CUDA driver"];

/// The driver's functions.
const BINDINGS: &str = "cuda-sys/src/bindings/functions.rs";

#[derive(Default)]
pub(super) struct Aliases {
    driver: HashSet<String>,
    found: Vec<Found>,
    /// Aliases of items of any kind.
    all: HashSet<String>,
    /// CUDA's names on the page for users of other libraries.
    promised: Vec<String>,
}

/// A public function.
struct Found {
    place: String,
    name: String,
    /// The first paragraph of its documentation.
    about: String,
    aliases: Vec<String>,
}

impl Aliases {
    /// Takes in one file of the repository.
    pub(super) fn read(&mut self, file: &str, text: &str) {
        if file == BINDINGS {
            let names = text.split(|c| !is_word(c)).filter(|word| is_call(word));
            self.driver.extend(names.map(|name| unversioned(name).to_owned()));
        } else if file.starts_with(API_SOURCE) && file.ends_with(".rs") {
            self.found.extend(functions(file, text));
            self.all.extend(aliases(text));
        } else if file == COMING_FROM {
            let here = text.split(MISSING).next().unwrap_or_default();
            let names = COLUMNS.iter().flat_map(|column| in_column(here, column));
            self.promised.extend(names.filter(|name| is_of_cuda(name)).map(str::to_owned));
        }
    }

    pub(super) fn complaints(&self) -> Vec<String> {
        let runtime: HashMap<_, _> = table().collect();
        let known: HashSet<_> =
            table().flat_map(|(first, more)| [vec![first], more].concat()).collect();
        let mut complaints = Vec::new();
        for Found { place, name, about, aliases } in &self.found {
            let has = |wanted: &str| aliases.iter().any(|alias| alias == wanted);
            let named = about.split('`').skip(1).step_by(2).map(unversioned);
            let named = named.filter(|text| is_call(text) && text.chars().all(is_word));
            let calls: HashSet<_> = named.chain(aliases.iter().map(String::as_str)).collect();
            let usual = calls.iter().filter_map(|call| runtime.get(call)?.first()).copied();
            let wanted: BTreeSet<_> =
                calls.iter().copied().chain(usual).filter(|call| !has(call)).collect();
            let lacking = |call: &&str| format!("{place}: {name} has no alias {call}");
            complaints.extend(wanted.iter().map(lacking));
            let invented = aliases.iter().map(String::as_str).filter(|alias| {
                alias.starts_with("cu") && !self.driver.contains(*alias) && !known.contains(alias)
            });
            complaints.extend(invented.map(|alias| format!("{place}: {alias} is no call of CUDA")));
        }
        let lost = self.promised.iter().filter(|name| !self.all.contains(*name));
        complaints.extend(lost.map(|name| format!("{COMING_FROM}: no item has the alias {name}")));
        complaints
    }
}

fn table() -> impl Iterator<Item = (&'static str, Vec<&'static str>)> {
    RUNTIME.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        Some((words.next()?, words.collect()))
    })
}

/// A function of the driver: `cuMemAlloc`, not `cuda` or `cudaMalloc`.
fn is_call(name: &str) -> bool {
    name.strip_prefix("cu").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_uppercase()))
}

/// One of CUDA's names, of the driver or the runtime: `cuMemAlloc`, `cudaMalloc`, `cuFloatComplex`.
fn is_of_cuda(name: &str) -> bool {
    let rest = name.strip_prefix("cuda").or_else(|| name.strip_prefix("cu"));
    let named = rest.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_uppercase()));
    (named || name.starts_with("CU")) && name.chars().all(is_word)
}

/// `cuMemAlloc` of `cuMemAlloc_v2`.
fn unversioned(name: &str) -> &str {
    match name.rsplit_once("_v") {
        Some((name, version)) if version.chars().all(|c| c.is_ascii_digit()) => name,
        _ => name,
    }
}

/// The public functions of a file.
fn functions(file: &str, text: &str) -> Vec<Found> {
    let mut found = Vec::new();
    // The documentation and the attributes above the line.
    let (mut docs, mut attributes) = (Vec::new(), String::new());
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if let Some(doc) = line.strip_prefix("///") {
            docs.push(doc.trim());
        } else if line.starts_with("#[") || attributes.ends_with(['(', ',', '"']) || line == "))]" {
            attributes.push_str(line);
        } else {
            if let Some(name) = function(line) {
                let about = docs.split(|doc: &&str| doc.is_empty()).next().unwrap_or_default();
                found.push(Found {
                    place: format!("{file}:{}", number + 1),
                    name: name.to_owned(),
                    about: about.join(" "),
                    aliases: aliases(&attributes),
                });
            }
            docs.clear();
            attributes.clear();
        }
    }
    found
}

/// The public function that the line begins.
fn function(line: &str) -> Option<&str> {
    let (before, after) = line.split_once("fn ")?;
    let begins = before.strip_prefix("pub ")?;
    begins.split_whitespace().all(|word| ["const", "unsafe"].contains(&word)).then_some(())?;
    after.split(|c| !is_word(c)).next()
}

/// What the attributes list as aliases.
fn aliases(attributes: &str) -> Vec<String> {
    let lists = attributes.split("#[doc(alias(").skip(1);
    let lists = lists.filter_map(|list| list.split(')').next());
    lists.flat_map(|list| list.split('"').skip(1).step_by(2)).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(text: &str) -> Vec<String> {
        let mut aliases = Aliases::default();
        aliases.read(BINDINGS, "pub fn cuMemAlloc_v2(); pub fn cuCtxGetId();");
        aliases.read("cuda-core/src/a.rs", text);
        aliases.complaints()
    }

    #[test]
    fn a_call_without_an_alias_is_a_complaint() {
        let text = "/// Memory: `cuMemAlloc_v2`.\n#[inline]\npub unsafe fn alloc() {}\n";
        assert_eq!(
            complaints(text),
            [
                "cuda-core/src/a.rs:3: alloc has no alias cuMemAlloc",
                "cuda-core/src/a.rs:3: alloc has no alias cudaMalloc"
            ]
        );
        let half = "/// A.\n#[doc(alias(\n    \"cuMemAlloc\"\n))]\npub fn alloc() {}\n";
        assert_eq!(complaints(half), ["cuda-core/src/a.rs:5: alloc has no alias cudaMalloc"]);
        let invented = "#[doc(alias(\"cudaAlloc\", \"cuAlloc\"))]\npub fn alloc() {}\n";
        assert_eq!(complaints(invented).len(), 2);
    }

    #[test]
    fn a_name_of_the_table_without_an_alias_is_a_complaint() {
        let page = "| Here | CUDA runtime | CUDA driver |\n|---|---|---|\n\
                    | `alloc` | `cudaMalloc`, `p + 1` | `cuMemAlloc`, `CUdeviceptr` |\n\
                    \n## Not here\n\n| What | CUDA driver |\n|---|---|\n| A | `cuArrayCreate` |\n";
        let complaints = |text| {
            let mut aliases = Aliases::default();
            aliases.read(COMING_FROM, page);
            aliases.read("cuda-core/src/a.rs", text);
            aliases.complaints()
        };
        let text = "#[doc(alias(\"cudaMalloc\"))]\npub struct A;\n#[doc(alias(\n\"cuMemAlloc\"\n))]\nmacro!();";
        assert_eq!(complaints(text), ["docs/coming-from.md: no item has the alias CUdeviceptr"]);
        assert!(
            complaints(&format!("{text}\n#[doc(alias(\"CUdeviceptr\"))]\ntype B = u8;")).is_empty()
        );
    }

    #[test]
    fn what_needs_no_alias() {
        for text in [
            "/// `cuMemAlloc`.\n#[doc(alias(\"cuMemAlloc\", \"cudaMalloc\"))]\npub fn alloc() {}\n",
            "/// `cuCtxGetId`.\n#[doc(alias(\"cuCtxGetId\"))]\n#[inline]\npub fn id() {}\n",
            "/// Memory.\n///\n/// Not `cuMemAlloc`.\npub fn alloc() {}\n",
            "/// `cuMemAlloc`.\npub(crate) fn alloc() {}\n",
            "/// `cuBLAS handle`, `cudaMalloc`.\npub fn alloc() {}\n",
        ] {
            assert!(complaints(text).is_empty(), "{text}");
        }
    }
}
