//! One mutation of `cuda-core`, as `tests/mutants/mutants.json` describes it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use fs_err as fs;
use serde::Deserialize;

/// The file with the mutations, within the workspace.
pub(super) const FILE: &str = "tests/mutants/mutants.json";

/// The directory of the files that the mutations change.
const SOURCE: &str = "cuda-core/src";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Mutation {
    pub(super) name: String,
    /// The error of the naive design.
    pub(super) wrong: String,
    edits: Vec<Edit>,
    /// Tests of the suites `sim` and `gpu`; each of them must fail.
    pub(super) tests: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Edit {
    /// A path below `cuda-core/src`.
    file: String,
    /// Text that occurs exactly once in the file.
    find: String,
    replace: String,
}

/// Reads all mutations.
pub(super) fn read(root: &Path) -> anyhow::Result<Vec<Mutation>> {
    let text = fs::read_to_string(root.join(FILE))?;
    let mutations: Vec<Mutation> = serde_json::from_str(&text).context(FILE)?;
    for mutation in &mutations {
        ensure!(!mutation.tests.is_empty(), "{FILE}: {} names no test", mutation.name);
    }
    Ok(mutations)
}

impl Mutation {
    /// Returns the files that the mutation changes, relative to the workspace, with the mutation applied.
    pub(super) fn mutants(&self, root: &Path) -> anyhow::Result<BTreeMap<PathBuf, String>> {
        let mut files = BTreeMap::new();
        for edit in &self.edits {
            let path = Path::new(SOURCE).join(&edit.file);
            let place = || format!("{}: {}", self.name, path.display());
            let text = match files.get(&path) {
                Some(text) => text,
                None => &fs::read_to_string(root.join(&path)).with_context(place)?,
            };
            let mutant = edit.apply(text).with_context(place)?;
            files.insert(path, mutant);
        }
        Ok(files)
    }
}

impl Edit {
    fn apply(&self, text: &str) -> anyhow::Result<String> {
        match text.matches(&self.find).count() {
            1 => Ok(text.replacen(&self.find, &self.replace, 1)),
            found => bail!("found {found} times instead of once: {:?}", self.find),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edit(find: &str) -> Edit {
        Edit { file: "guard.rs".into(), find: find.into(), replace: "new".into() }
    }

    #[test]
    fn text_that_occurs_once_is_replaced() {
        assert_eq!(edit("b").apply("a b c").ok(), Some("a new c".into()));
    }

    #[test]
    fn text_that_is_gone_or_ambiguous_is_named() {
        for (text, times) in [("a c", "0 times"), ("b b", "2 times")] {
            let error = edit("b").apply(text).expect_err("no single place");
            let message = error.to_string();
            assert!(message.contains(times) && message.contains("\"b\""), "{message}");
        }
    }
}
