//! The workspace: its root and its files.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use fs_err as fs;

use crate::process::{cargo, command, output};

/// Returns the root of the workspace that contains the current directory.
pub(crate) fn root() -> anyhow::Result<PathBuf> {
    let manifest = output(&mut cargo("locate-project --workspace --message-format plain"))
        .context("the current directory is not inside the workspace")?;
    let root = Path::new(manifest.trim_end()).parent();
    Ok(root.context("a manifest lies in a directory")?.to_owned())
}

/// Returns the directory in which cargo builds the workspace.
pub(crate) fn target(root: &Path) -> anyhow::Result<PathBuf> {
    let mut cargo = cargo("metadata --no-deps --offline --format-version=1");
    let metadata: serde_json::Value = serde_json::from_str(&output(cargo.current_dir(root))?)?;
    Ok(metadata["target_directory"].as_str().context("cargo names its target")?.into())
}

/// Returns the output of a git command, if it succeeds.
pub(crate) fn git(root: &Path, words: &str) -> Option<String> {
    let answer = output(command(&format!("git {words}")).current_dir(root)).ok()?;
    Some(answer.trim().to_owned())
}

/// Returns the files below `root` that are in the repository or could be added to it.
pub(crate) fn files(root: &Path) -> anyhow::Result<Vec<String>> {
    let mut git = command("git ls-files -z --cached --others --exclude-standard");
    let names = output(git.current_dir(root))?;
    // A deleted file may still be in git's index.
    let names = names.split_terminator('\0').map(str::to_owned);
    Ok(names.filter(|name| root.join(name).is_file()).collect())
}

/// Makes the files in `copy` equal those of the repository in `root`. Equal files keep their times, so that
/// cargo rebuilds only what has changed. Removes other files, since cargo would compile a moved file in both
/// places.
pub(crate) fn mirror(root: &Path, copy: &Path) -> anyhow::Result<()> {
    let mut kept = BTreeSet::new();
    for name in files(root)? {
        let (from, to) = (root.join(&name), copy.join(&name));
        let text = fs::read(&from)?;
        if fs::read(&to).ok().as_ref() != Some(&text) {
            write(&to, text)?;
            fs::set_permissions(&to, fs::metadata(&from)?.permissions())?;
        }
        kept.insert(to);
    }
    prune(copy, &kept)
}

/// Removes the files that are not in `kept`, except git's own.
fn prune(directory: &Path, kept: &BTreeSet<PathBuf>) -> anyhow::Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            if path.file_name().is_some_and(|name| name != ".git") {
                prune(&path, kept)?;
            }
        } else if !kept.contains(&path) {
            fs::remove_file(&path)?;
        }
    }
    Ok(())
}

/// Writes a file; creates its directory if that is absent.
pub(crate) fn write(file: &Path, content: impl AsRef<[u8]>) -> anyhow::Result<()> {
    file.parent().map(fs::create_dir_all).transpose()?;
    Ok(fs::write(file, content)?)
}

/// Replaces a text that the file must contain.
pub(crate) fn replace(file: &Path, text: &str, by: &str) -> anyhow::Result<()> {
    let old = fs::read_to_string(file)?;
    ensure!(old.contains(text), "{}: no {text}", file.display());
    Ok(fs::write(file, old.replace(text, by))?)
}

/// Creates an empty directory at this path.
pub(crate) fn empty(directory: &Path) -> anyhow::Result<()> {
    if directory.exists() {
        fs::remove_dir_all(directory)?;
    }
    Ok(fs::create_dir_all(directory)?)
}
