//! The list of a bundle's files; `bundle` writes it and `test-gpu --bundle` reads it.

use std::path::Path;

use anyhow::{Context, ensure};
use fs_err as fs;
use serde::{Deserialize, Serialize};

use crate::suite::Program;

/// Raised whenever an older runner would misread a newer bundle.
const FORMAT: u32 = 1;

const FILE: &str = "manifest.json";

/// The content of a bundle, by names relative to its directory.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Manifest {
    format: u32,
    /// Version of the workspace.
    pub(crate) version: String,
    pub(crate) suites: Vec<Suite>,
    /// The simulated driver.
    pub(crate) simulator: String,
}

/// A test program of a bundle.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Suite {
    pub(crate) suite: String,
    pub(crate) file: String,
}

impl Manifest {
    pub(crate) fn new(suites: Vec<Suite>, simulator: String) -> Self {
        Self { format: FORMAT, version: env!("CARGO_PKG_VERSION").into(), suites, simulator }
    }

    pub(crate) fn write(&self, directory: &Path) -> anyhow::Result<()> {
        let text = serde_json::to_string_pretty(self)?;
        Ok(fs::write(directory.join(FILE), text + "\n")?)
    }

    pub(crate) fn read(directory: &Path) -> anyhow::Result<Self> {
        let path = directory.join(FILE);
        let text = fs::read_to_string(&path).context("not a bundle?")?;
        let manifest: Self =
            serde_json::from_str(&text).with_context(|| path.display().to_string())?;
        ensure!(
            manifest.format == FORMAT,
            "{}: format {}, this runner reads {FORMAT}",
            path.display(),
            manifest.format
        );
        Ok(manifest)
    }

    /// The test programs, below the directory of the unpacked bundle.
    pub(crate) fn programs(&self, directory: &Path) -> Vec<Program> {
        let program = |suite: &Suite| Program {
            suite: suite.suite.clone(),
            path: directory.join(&suite.file),
            directory: None,
        };
        self.suites.iter().map(program).collect()
    }
}
