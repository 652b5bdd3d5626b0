//! The last commit for which every check ran and passed.

use std::path::Path;

use fs_err as fs;

use crate::workspace::git;

/// The file's first word is the commit, the second the date.
pub(super) const FILE: &str = ".ci/last-full-run";

/// Commits after which another full run is due.
const DUE: u64 = 20;

/// The commit that the files in the checkout are those of, if there is one.
pub(super) fn commit(root: &Path) -> Option<String> {
    let changes = git(root, "status --porcelain")?;
    git(root, "rev-parse --short=12 HEAD").filter(|_| changes.is_empty())
}

/// Records that everything passed for the commit that the files were those of when the run began.
pub(super) fn write(root: &Path, began: Option<String>) -> anyhow::Result<()> {
    let (Some(commit), Some(date)) = (began, git(root, "log -1 --format=%cs")) else {
        println!("not written to {FILE}: the files are not those of a commit");
        return Ok(());
    };
    fs::write(root.join(FILE), format!("{commit} {date}\n"))?;
    println!("{commit} is in {FILE} now: commit that file");
    Ok(())
}

/// What is wrong with the last full run, if anything. A checkout without history has no commits to
/// count, and before the first full run there is no file.
pub(super) fn complaint(root: &Path) -> Option<String> {
    if git(root, "rev-parse --is-shallow-repository")? == "true" {
        return None;
    }
    let Ok(text) = fs::read_to_string(root.join(FILE)) else {
        println!("{FILE} is not there: no full run has passed yet");
        return None;
    };
    let commit = text.split_whitespace().next().unwrap_or_default();
    let since = git(root, &format!("rev-list --count {commit}..HEAD"));
    match since.and_then(|count| count.parse().ok()) {
        Some(0..=DUE) => None,
        Some(since) => Some(format!(
            "{FILE}: the last full run was {since} commits ago, more than {DUE}: cargo xtask ci --full"
        )),
        None => Some(format!("{FILE}: there is no commit `{commit}` here: cargo xtask ci --full")),
    }
}
