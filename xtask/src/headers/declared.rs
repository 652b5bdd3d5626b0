//! The functions that a header declares, found without bindgen: by a C preprocessor and a scan.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use anyhow::Context;

use crate::process::{or_named_by, output};

/// Names of the functions that a program sees when it includes this `cuda.h`.
pub(crate) fn functions(include: &Path) -> anyhow::Result<BTreeSet<String>> {
    let mut compiler = Command::new(or_named_by("CC", "cc"));
    compiler.args(["-E", "-P"]).arg(include.join("cuda.h"));
    Ok(scan(&output(&mut compiler).context("declared functions")?))
}

/// A declaration is `CUresult`, a name that begins with `cu`, and a parenthesis.
fn scan(preprocessed: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut words = preprocessed
        .split_inclusive(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .filter(|word| !word.trim().is_empty());
    let mut after_result = false;
    let mut pending: Option<&str> = None;
    // Each word includes the character after it: the parenthesis, or a space before it.
    for word in &mut words {
        if let Some(name) = pending.take().filter(|_| word == "(") {
            names.insert(name.to_owned());
        }
        let name = word.trim_end_matches(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        if after_result && name.starts_with("cu") {
            match &word[name.len()..] {
                "(" => drop(names.insert(name.to_owned())),
                _ => pending = Some(name),
            }
        }
        after_result = name == "CUresult";
    }
    names
}

#[cfg(test)]
mod tests {
    use super::scan;

    #[test]
    fn declarations_are_distinguished_from_uses() {
        let text = "typedef enum cudaError_enum { CUDA_SUCCESS = 0 } CUresult;\n\
                    typedef void (*CUstreamCallback)(CUstream hStream, CUresult status, void *d);\n\
                    typedef CUresult (*CUgraphCallback)(void *data);\n\
                    CUresult cuInit(unsigned int Flags);\n\
                    __attribute__((deprecated)) CUresult\ncuMemAlloc_v2 (size_t n);\n\
                    CUresult cuOther(CUresult error, const char **pStr);\n";
        assert_eq!(Vec::from_iter(scan(text)), ["cuInit", "cuMemAlloc_v2", "cuOther"]);
    }
}
