//! The functions that a header declares, found without bindgen: with a C preprocessor and a scan.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use anyhow::Context;

use crate::ci::named::is_word;
use crate::process::{or_named_by, output};

/// The names of the functions that a program sees when it includes this `cuda.h`.
pub(crate) fn functions(include: &Path) -> anyhow::Result<BTreeSet<String>> {
    let mut compiler = Command::new(or_named_by("CC", "cc"));
    compiler.args(["-E", "-P"]).arg(include.join("cuda.h"));
    Ok(scan(&output(&mut compiler).context("declared functions")?))
}

/// Finds the declarations: `CUresult`, a name that begins with `cu`, and a parenthesis.
fn scan(preprocessed: &str) -> BTreeSet<String> {
    let after_result = preprocessed.split("CUresult").skip(1);
    let declared = after_result.filter(|rest| rest.starts_with(char::is_whitespace));
    let names = declared.filter_map(|rest| {
        let (name, _) = rest.split_once('(')?;
        let name = name.trim();
        let is_name = name.starts_with("cu") && name.chars().all(is_word);
        is_name.then(|| name.to_owned())
    });
    names.collect()
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
