//! For each long step, the last commit at which it ran in full and passed.

use std::collections::BTreeMap;
use std::path::Path;

use fs_err as fs;

use crate::workspace::git;

/// The file with a line for each step: its name, the commit, and the commit's date.
pub(super) const FILE: &str = ".ci/last-full-run";

/// The steps that an ordinary run only samples.
const LONG: [&str; 4] = ["headers", "package", "faults", "miri"];

/// The number of commits to [`TESTED`], the files that full runs test, after which another full run is due.
/// It takes hours, so there is a delay before changes are refused.
const DUE: u64 = 20;
const OVERDUE: u64 = 2 * DUE;
const TESTED: &str = "cuda-sys cuda-core tests :!*.md";

/// Returns the checked-out commit, unless files have changed since. Files that full runs write do not count
/// as changes, so that one step may follow another.
pub(crate) fn commit(root: &Path) -> Option<String> {
    let changes = git(
        root,
        "status --porcelain -- . :!.ci/last-full-run :!.ci/miri-times :!.ci/miri-passed",
    )?;
    git(root, "rev-parse --short=12 HEAD").filter(|_| changes.is_empty())
}

/// Records that these steps passed in full at the commit `began`, which was checked out when the run began.
pub(super) fn write<'a>(
    root: &Path,
    began: Option<String>,
    passed: impl Iterator<Item = &'a str>,
) -> anyhow::Result<()> {
    let passed: Vec<&str> = passed.filter(|step| LONG.contains(step)).collect();
    if passed.is_empty() {
        return Ok(());
    }
    let date = |commit: &String| git(root, &format!("log -1 --format=%cs {commit}"));
    let (Some(date), Some(commit)) = (began.as_ref().and_then(date), &began) else {
        println!("not written to {FILE}: the files are not those of a commit");
        return Ok(());
    };
    let known = fs::read_to_string(root.join(FILE)).unwrap_or_default();
    let mut lines: BTreeMap<_, _> = known.lines().filter_map(|line| line.split_once(' ')).collect();
    let now = format!("{commit} {date}");
    lines.extend(passed.iter().map(|step| (*step, now.as_str())));
    let text: String = lines.iter().map(|(step, when)| format!("{step} {when}\n")).collect();
    fs::write(root.join(FILE), text)?;
    println!("{FILE} names {commit} for {} now: commit that file", passed.join(", "));
    Ok(())
}

/// Returns complaints about the last full runs. A checkout without history has no commits to count, and
/// before its first full run a step has no line.
pub(super) fn complaints(root: &Path) -> Vec<String> {
    if git(root, "rev-parse --is-shallow-repository").as_deref() != Some("false") {
        return Vec::new();
    }
    let text = fs::read_to_string(root.join(FILE)).unwrap_or_default();
    LONG.iter().filter_map(|step| complaint(root, &text, step)).collect()
}

fn complaint(root: &Path, text: &str, step: &str) -> Option<String> {
    let again = format!("cargo xtask ci --full --step {step}");
    let mut lines = text.lines().filter_map(|line| line.split_once(' '));
    let Some((_, when)) = lines.find(|(known, _)| *known == step) else {
        println!("{FILE}: {step} has not passed in full yet: {again}");
        return None;
    };
    let commit = when.split(' ').next().unwrap_or_default();
    let since = git(root, &format!("rev-list --count {commit}..HEAD -- {TESTED}"));
    let Some(since) = since.and_then(|count| count.parse::<u64>().ok()) else {
        return Some(format!("{FILE}: there is no commit `{commit}` here: {again}"));
    };
    let late = format!(
        "{FILE}: {since} commits have changed code since {step} passed in full, more than {DUE}: {again}"
    );
    if (DUE + 1..=OVERDUE).contains(&since) {
        println!("warning: {late} (after {OVERDUE}, this is an error)");
    }
    (since > OVERDUE).then_some(late)
}

#[cfg(test)]
mod tests {
    use super::LONG;
    use crate::ci::steps::STEPS;

    #[test]
    fn the_long_steps_are_steps() {
        assert!(LONG.iter().all(|long| STEPS.iter().any(|step| step.name == *long)));
    }
}
