//! The `cuda.h` files that rows make toolkits of.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;

use super::report::not_run;

/// Where `cargo xtask headers` keeps what it fetched, below the workspace.
const CACHE: &str = ".cuda-headers";

/// A file that defines `CUDA_VERSION`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Header {
    pub(super) version: u32,
    pub(super) file: PathBuf,
}

/// Headers, the newest last.
#[derive(Debug)]
pub(super) struct Headers(Vec<Header>);

impl Headers {
    /// Those named, or those in the cache below `root`.
    pub(super) fn find(named: &[PathBuf], root: &Path) -> anyhow::Result<Self> {
        let mut headers = Vec::new();
        for file in named {
            let header = read(file)?;
            headers.push(header.with_context(|| {
                format!(
                    "{} is not NVIDIA's: it does not define CUDA_VERSION",
                    file.display()
                )
            })?);
        }
        if named.is_empty() {
            search(&root.join(CACHE), &mut headers)?;
        }
        headers.sort();
        Ok(Self(headers))
    }

    pub(super) fn newest(&self) -> anyhow::Result<&Header> {
        self.0.last().ok_or_else(|| {
            not_run("no cuda.h here: `cargo xtask headers` fetches some, --header names one")
        })
    }

    pub(super) fn oldest(&self) -> anyhow::Result<&Header> {
        self.0.first().map_or_else(|| self.newest(), Ok)
    }
}

fn search(directory: &Path, headers: &mut Vec<Header>) -> anyhow::Result<()> {
    let Ok(entries) = fs::read_dir(directory) else {
        return Ok(());
    };
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            search(&path, headers)?;
        } else if path.file_name().is_some_and(|name| name == "cuda.h") {
            headers.extend(read(&path)?);
        }
    }
    Ok(())
}

fn read(file: &Path) -> anyhow::Result<Option<Header>> {
    let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
    let version = text.lines().find_map(|line| {
        line.strip_prefix("#define CUDA_VERSION")?
            .trim()
            .parse()
            .ok()
    });
    let file = std::path::absolute(file)?;
    Ok(version.map(|version| Header { version, file }))
}
