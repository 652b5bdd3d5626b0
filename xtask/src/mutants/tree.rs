//! A copy of the workspace, in which mutations are made.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

pub(super) struct Tree {
    path: PathBuf,
    target: PathBuf,
}

impl Tree {
    /// Copies the files that git tracks or would add to `target/mutants/tree`. Files that are equal
    /// there keep their times, so that cargo rebuilds only what has changed.
    pub(super) fn copy(root: &Path) -> anyhow::Result<Self> {
        let scratch = root.join("target/mutants");
        let tree = Self { path: scratch.join("tree"), target: scratch.join("build") };
        let files = files(root)?;
        for file in &files {
            let text = fs::read(root.join(file)).with_context(|| file.display().to_string())?;
            if fs::read(tree.path.join(file)).ok().as_ref() != Some(&text) {
                tree.write(file, &text)?;
            }
        }
        tree.remove_others(&files)?;
        Ok(tree)
    }

    /// The copy of the workspace's root.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The target directory, the same for every mutant.
    pub(super) fn target(&self) -> &Path {
        &self.target
    }

    /// Replaces a file's text and returns the old one.
    pub(super) fn replace(&self, file: &Path, text: &str) -> anyhow::Result<String> {
        let old = fs::read_to_string(self.path.join(file))?;
        self.write(file, text.as_bytes())?;
        Ok(old)
    }

    fn write(&self, file: &Path, text: &[u8]) -> anyhow::Result<()> {
        let to = self.path.join(file);
        if let Some(directory) = to.parent() {
            fs::create_dir_all(directory)?;
        }
        fs::write(&to, text).with_context(|| to.display().to_string())
    }

    /// Removes other files: cargo would compile a moved file in both places.
    fn remove_others(&self, files: &BTreeSet<PathBuf>) -> anyhow::Result<()> {
        let mut folders = vec![self.path.clone()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder)? {
                let path = entry?.path();
                if path.is_dir() {
                    folders.push(path);
                } else if !path.strip_prefix(&self.path).is_ok_and(|file| files.contains(file)) {
                    fs::remove_file(path)?;
                }
            }
        }
        Ok(())
    }
}

/// The workspace's files, within `root`.
fn files(root: &Path) -> anyhow::Result<BTreeSet<PathBuf>> {
    let output = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .context("git ls-files")?;
    if !output.status.success() {
        bail!("git ls-files: {}", String::from_utf8_lossy(&output.stderr));
    }
    let names = String::from_utf8(output.stdout).context("a file name is not UTF-8")?;
    Ok(names
        .split('\0')
        .filter(|name| !name.is_empty())
        .map(PathBuf::from)
        // Deleted, but still in git's index.
        .filter(|file| root.join(file).is_file())
        .collect())
}
