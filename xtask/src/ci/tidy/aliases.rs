//! Checks that users find each public function of `cuda-core` by the names of the CUDA calls that it stands
//! for.
//!
//! The `#[doc(alias(…))]` of a function lists the driver's functions that the first paragraph of its
//! documentation names, and the runtime's names for them. The aliases of any items include all of CUDA's
//! names for which the page for users of other libraries has a counterpart.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::{Files, sources};
use crate::ci::named::{in_column, is_word, quoted, word, words_of};

/// Lines with a driver's function and the runtime's names for it, the usual one first, and lines with names
/// that only the runtime has.
const RUNTIME: &str = include_str!("runtime.txt");

/// The page that maps CUDA's names to this crate's, the heading of its table of missing items, and its
/// columns with CUDA's names.
const COMING_FROM: &str = "docs/coming-from.md";
const MISSING: &str = "\n## Not here";
const COLUMNS: [&str; 2] = ["CUDA runtime", "CUDA driver"];

/// The file with the driver's functions.
const BINDINGS: &str = "cuda-sys/src/bindings/functions.rs";

/// A public function.
struct Found {
    place: String,
    name: String,
    /// The first paragraph of the function's documentation.
    about: String,
    aliases: Vec<String>,
}

pub(super) fn complaints(files: &Files) -> Vec<String> {
    let text = |file| files.get(file).map_or("", String::as_str);
    let driver = words_of(text(BINDINGS)).filter(|word| is_call(word));
    let driver: HashSet<_> = driver.map(unversioned).collect();
    let known: HashSet<_> = RUNTIME.split_whitespace().collect();
    let usual = RUNTIME.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        Some((words.next()?, words.next()?))
    });
    let usual: HashMap<_, _> = usual.collect();
    let mut complaints = Vec::new();
    let found = sources(files).flat_map(|(file, text)| functions(file, text));
    for Found { place, name, about, aliases } in found {
        let aliases: BTreeSet<_> = aliases.iter().map(String::as_str).collect();
        let named = quoted(&about).map(unversioned);
        let named = named.filter(|text| is_call(text) && text.chars().all(is_word));
        let calls: BTreeSet<_> = aliases.iter().copied().chain(named).collect();
        let of_runtime = calls.iter().filter_map(|call| usual.get(call).copied()).collect();
        let lacking = &(&calls | &of_runtime) - &aliases;
        let lacking = lacking.iter().map(|call| format!("{place}: {name} has no alias {call}"));
        complaints.extend(lacking);
        let is_invented = |alias: &&&str| {
            alias.starts_with("cu") && !driver.contains(*alias) && !known.contains(*alias)
        };
        let invented = aliases.iter().filter(is_invented);
        complaints.extend(invented.map(|alias| format!("{place}: {alias} is no call of CUDA")));
    }
    let all: HashSet<_> = sources(files).flat_map(|(_, text)| aliases(text)).collect();
    let here = text(COMING_FROM).split(MISSING).next().unwrap_or_default();
    let promised = COLUMNS.iter().flat_map(|column| in_column(here, column));
    let lost = promised.filter(|name| is_of_cuda(name) && !all.contains(name));
    complaints.extend(lost.map(|name| format!("{COMING_FROM}: no item has the alias {name}")));
    complaints
}

/// Whether a name is a function of the driver: `cuMemAlloc`, not `cuda` or `cudaMalloc`.
fn is_call(name: &str) -> bool {
    name.strip_prefix("cu").is_some_and(|rest| rest.starts_with(char::is_uppercase))
}

/// Whether a name is one of CUDA's, of the driver or the runtime: `cuMemAlloc`, `cudaMalloc`,
/// `cuFloatComplex`.
fn is_of_cuda(name: &str) -> bool {
    let rest = name.strip_prefix("cuda").or_else(|| name.strip_prefix("cu"));
    let named = rest.is_some_and(|rest| rest.starts_with(char::is_uppercase));
    (named || name.starts_with("CU")) && name.chars().all(is_word)
}

/// Removes the version of a name: `cuMemAlloc_v2` becomes `cuMemAlloc`.
fn unversioned(name: &str) -> &str {
    match name.rsplit_once("_v") {
        Some((name, version)) if version.chars().all(|c| c.is_ascii_digit()) => name,
        _ => name,
    }
}

/// The public functions of a file.
fn functions(file: &str, text: &str) -> Vec<Found> {
    let mut found = Vec::new();
    // The documentation and the attributes directly above the line.
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
                    aliases: aliases(&attributes).map(str::to_owned).collect(),
                });
            }
            docs.clear();
            attributes.clear();
        }
    }
    found
}

/// Returns the name of the public function that begins on this line.
fn function(line: &str) -> Option<&str> {
    let (before, after) = line.split_once("fn ")?;
    let begins = before.strip_prefix("pub ")?;
    let is_public = begins.split_whitespace().all(|word| ["const", "unsafe"].contains(&word));
    is_public.then(|| word(after))
}

/// Returns the aliases that the attributes list.
fn aliases(attributes: &str) -> impl Iterator<Item = &str> {
    let lists = attributes.split("#[doc(alias(").skip(1);
    let lists = lists.filter_map(|list| list.split(')').next());
    lists.flat_map(|list| list.split('"').skip(1).step_by(2))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints_of(files: &[(&str, &str)]) -> Vec<String> {
        let file = |&(name, text): &(&str, &str)| (name.to_owned(), text.to_owned());
        super::complaints(&files.iter().map(file).collect())
    }

    fn complaints(text: &str) -> Vec<String> {
        let bindings = "pub fn cuMemAlloc_v2(); pub fn cuCtxGetId();";
        complaints_of(&[(BINDINGS, bindings), ("cuda-core/src/a.rs", text)])
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
        let complaints = |text| complaints_of(&[(COMING_FROM, page), ("cuda-core/src/a.rs", text)]);
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
