//! The part that needs bindgen: the build script's generator, run for the checked-in copy.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Error};

use crate::Outcome;
use crate::headers::{declared, fetch};

#[path = "../../../cuda-sys/build/bindings.rs"]
mod bindings;
#[path = "../../../cuda-sys/build/generate.rs"]
mod generate;

/// Symbols that first appeared after the floor's header and that the newest no longer declares.
const DROPPED: [&str; 3] = [
    "cuGraphAddNode",
    "cuMemcpy3DBatchAsync",
    "cuMemcpyBatchAsync",
];

/// How many lines of a difference are printed.
const SHOWN: usize = 5;

/// Writes the bindings of the header.
pub(super) fn write(root: &Path, header: Option<&Path>) -> anyhow::Result<Outcome> {
    let Some(include) = include(root, header) else {
        return Ok(Outcome::CouldNotRun);
    };
    let directory = directory(root);
    let bindings = generate(root, &include)?;
    bindings.write(&directory, None).map_err(Error::msg)?;
    println!(
        "{} is of CUDA {}",
        directory.display(),
        fetch::version(&include)?
    );
    Ok(Outcome::Passed)
}

/// Compares the bindings of the header with the checked-in ones.
pub(super) fn check(root: &Path, header: Option<&Path>) -> anyhow::Result<Outcome> {
    let Some(include) = include(root, header) else {
        return Ok(Outcome::CouldNotRun);
    };
    let version = fetch::version(&include)?;
    let bindings = generate(root, &include)?;
    let mut differs = false;
    for (file, text) in bindings.files(None) {
        let path = directory(root).join(file);
        let found = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        if let Some(difference) = difference(&found, &text) {
            println!(
                "{} is not what cuda.h {version} yields:\n{difference}",
                path.display()
            );
            differs = true;
        }
    }
    if differs {
        println!("to regenerate the bindings: cargo xtask bindings");
    }
    let Some(floor) = self::include_of(root, fetch::FLOOR) else {
        return Ok(Outcome::CouldNotRun);
    };
    if let Some(complaint) = floor_complaint(&floor)? {
        println!("{complaint}");
        differs = true;
    }
    if differs {
        return Ok(Outcome::Failed);
    }
    println!("the bindings are what cuda.h {version} yields, the floor is that of 11.8");
    Ok(Outcome::Passed)
}

/// The bindings of the header, with every symbol that an older header has declared.
fn generate(root: &Path, include: &Path) -> anyhow::Result<bindings::Bindings> {
    let kept: Vec<&str> = generate::FLOOR.lines().chain(DROPPED).collect();
    Ok(generate::generate(include, &root.join("cuda-sys"), &kept)?)
}

fn directory(root: &Path) -> PathBuf {
    root.join("cuda-sys/src/bindings")
}

/// The header's directory that was passed, or the newest header's.
fn include(root: &Path, header: Option<&Path>) -> Option<PathBuf> {
    match header {
        Some(include) if include.join("cuda.h").is_file() => Some(include.to_owned()),
        Some(include) => {
            eprintln!("error: no cuda.h in {}", include.display());
            None
        }
        None => include_of(root, fetch::NEWEST),
    }
}

/// The header of a release, if it can be fetched.
fn include_of(root: &Path, release: fetch::Release) -> Option<PathBuf> {
    fetch::include(root, release)
        .map_err(|error| eprintln!("cuda.h {} could not be fetched: {error:#}", release.name))
        .ok()
}

/// The differences between the list of the floor's functions and its header, if any.
fn floor_complaint(include: &Path) -> anyhow::Result<Option<String>> {
    let declared = declared::functions(include)?;
    let listed: BTreeSet<String> = generate::FLOOR.lines().map(str::to_owned).collect();
    if declared == listed {
        return Ok(None);
    }
    let names = |a: &BTreeSet<String>, b: &BTreeSet<String>| {
        a.difference(b).cloned().collect::<Vec<_>>().join(" ")
    };
    Ok(Some(format!(
        "cuda-sys/build/floor_11_8.txt is not what cuda.h 11.8 declares; missing: [{}]; too many: [{}]",
        names(&declared, &listed),
        names(&listed, &declared),
    )))
}

/// The first lines that differ between two texts.
fn difference(found: &str, expected: &str) -> Option<String> {
    if found == expected {
        return None;
    }
    let same = found
        .lines()
        .zip(expected.lines())
        .take_while(|(a, b)| a == b)
        .count();
    let mut text = format!("  from line {} on\n", same + 1);
    for (sign, side) in [('-', found), ('+', expected)] {
        for line in side.lines().skip(same).take(SHOWN) {
            text.push_str(&format!("  {sign} {line}\n"));
        }
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::difference;

    #[test]
    fn a_difference_begins_where_the_texts_part() {
        assert_eq!(difference("a\nb\n", "a\nb\n"), None);
        assert_eq!(
            difference("a\nb\n", "a\nc\n").as_deref(),
            Some("  from line 2 on\n  - b\n  + c\n")
        );
    }
}
