//! The `cuda.h` files from which rows make toolkits.

use std::cell::OnceCell;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;

use super::report::not_run;
use crate::headers::fetch::{self, Release};

/// A file that defines `CUDA_VERSION`.
#[derive(Debug, Clone)]
pub(super) struct Header {
    pub(super) version: u32,
    pub(super) file: PathBuf,
}

/// The available headers: those passed on the command line, or those that `cargo xtask headers`
/// keeps, which are fetched when a row first needs them.
pub(super) struct Headers {
    root: PathBuf,
    named: Vec<Header>,
    newest: OnceCell<Result<Header, String>>,
    oldest: OnceCell<Result<Header, String>>,
}

impl Headers {
    pub(super) fn new(named: &[PathBuf], root: &Path) -> anyhow::Result<Self> {
        let mut named: Vec<Header> =
            named.iter().map(|file| read(file)).collect::<Result<_, _>>()?;
        named.sort_by_key(|header| header.version);
        Ok(Self { root: root.to_owned(), named, newest: OnceCell::new(), oldest: OnceCell::new() })
    }

    /// The newest header; without one, a row that needs it counts as not run.
    pub(super) fn newest(&self) -> anyhow::Result<&Header> {
        match self.named.last() {
            Some(header) => Ok(header),
            None => self.fetched(&self.newest, fetch::NEWEST),
        }
    }

    /// A header that differs from the newest, if there are two.
    pub(super) fn oldest(&self) -> anyhow::Result<&Header> {
        match self.named.first() {
            Some(header) => Ok(header),
            None => self.fetched(&self.oldest, fetch::FLOOR),
        }
    }

    fn fetched<'a>(
        &self,
        kept: &'a OnceCell<Result<Header, String>>,
        release: Release,
    ) -> anyhow::Result<&'a Header> {
        let header = kept.get_or_init(|| {
            let include = fetch::include(&self.root, release);
            include
                .and_then(|include| read(&include.join("cuda.h")))
                .map_err(|error| format!("{error:#}"))
        });
        header.as_ref().map_err(|why| {
            not_run(format!("no cuda.h: {why}; --header FILE names one of this machine's"))
        })
    }
}

fn read(file: &Path) -> anyhow::Result<Header> {
    let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
    let version = text
        .lines()
        .find_map(|line| line.strip_prefix("#define CUDA_VERSION ")?.trim().parse().ok())
        .with_context(|| format!("{} does not define CUDA_VERSION", file.display()))?;
    let file = std::path::absolute(file)?;
    Ok(Header { version, file })
}
