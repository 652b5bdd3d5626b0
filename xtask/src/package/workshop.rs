//! The folder in which rows build, with a snapshot of the sources, and cargo set up to run there.

use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, anyhow};

use super::build::{Built, output};
use super::headers::Headers;
use super::machine::{Machine, Mount};
use super::report::not_run;
use crate::suite::build::workspace_root;

/// The target directory of a build. Rows share one if compiling bindgen again would cost more than
/// the row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Target {
    /// Shared by the debug builds of all rows.
    Shared,
    /// The row's own, emptied first.
    Fresh(&'static str),
}

pub(super) struct Workshop {
    folder: PathBuf,
    cargo: OsString,
    pub(super) machine: Machine,
    pub(super) headers: Headers,
    simulator: OnceCell<PathBuf>,
    commit: String,
}

impl Workshop {
    /// Makes the folder and takes the snapshot: what a commit of the working tree would contain.
    pub(super) fn open(headers: &[PathBuf]) -> anyhow::Result<Self> {
        let root = workspace_root()?;
        let metadata = output(crate::suite::build::cargo().current_dir(&root).args([
            "metadata",
            "--no-deps",
            "--offline",
            "--format-version=1",
        ]))?;
        let metadata: serde_json::Value = serde_json::from_str(&metadata)?;
        let target = metadata["target_directory"].as_str().context("cargo names its target")?;
        let folder = Path::new(target).join("xtask-package");
        let mut workshop = Self {
            cargo: std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()),
            machine: Machine::look(),
            headers: Headers::new(headers, &root)?,
            simulator: OnceCell::new(),
            commit: String::new(),
            folder,
        };
        workshop.cargo_home()?;
        workshop.commit = workshop.snapshot(&root)?;
        Ok(workshop)
    }

    /// Removes the folder, or prints its path.
    pub(super) fn close(self, keep: bool) -> anyhow::Result<()> {
        if keep {
            eprintln!("kept: {}", self.folder.display());
            return Ok(());
        }
        fs::remove_dir_all(&self.folder).with_context(|| self.folder.display().to_string())
    }

    /// The snapshot: a git repository that holds the working tree as one commit.
    pub(super) fn source(&self) -> PathBuf {
        self.folder.join("source")
    }

    /// The snapshot's commit.
    pub(super) fn commit(&self) -> &str {
        &self.commit
    }

    /// The directory of shared builds.
    pub(super) fn target(&self) -> PathBuf {
        self.folder.join("target")
    }

    /// An empty directory of this name.
    pub(super) fn directory(&self, name: &str) -> anyhow::Result<PathBuf> {
        let directory = self.folder.join(name);
        if directory.exists() {
            fs::remove_dir_all(&directory).with_context(|| directory.display().to_string())?;
        }
        fs::create_dir_all(&directory)?;
        Ok(directory)
    }

    /// cargo in `directory`, without CUDA in its environment.
    pub(super) fn cargo(&self, directory: &Path, target: Target) -> anyhow::Result<Command> {
        self.prepare(self.machine.command(&self.cargo), directory, target)
    }

    /// cargo in `directory`, with these mounts.
    pub(super) fn cargo_among(
        &self,
        mounts: &[Mount],
        directory: &Path,
        target: Target,
    ) -> anyhow::Result<Command> {
        self.prepare(self.machine.command_among(&self.cargo, mounts), directory, target)
    }

    fn prepare(
        &self,
        mut command: Command,
        directory: &Path,
        target: Target,
    ) -> anyhow::Result<Command> {
        let target = match target {
            Target::Shared => self.target(),
            Target::Fresh(name) => self.directory(name)?,
        };
        command
            .current_dir(directory)
            .env("CARGO_HOME", self.folder.join("cargo"))
            .env("CARGO_TARGET_DIR", target)
            // Saves gigabytes: nothing here is debugged or rebuilt.
            .env("CARGO_INCREMENTAL", "0")
            .env("CARGO_PROFILE_DEV_DEBUG", "0");
        Ok(command)
    }

    /// The simulated driver's library.
    pub(super) fn simulator(&self) -> anyhow::Result<&Path> {
        if let Some(library) = self.simulator.get() {
            return Ok(library);
        }
        let mut cargo = self.cargo(&self.source(), Target::Shared)?;
        cargo.args(["build", "--locked", "--package=cuda-driver-sim"]);
        let built = Built::run(&mut cargo)?.succeeded().context("the simulated driver")?;
        let library = built.file("cuda_sim", |name| {
            [".so", ".dll", ".dylib"].iter().any(|end| name.ends_with(end))
        })?;
        Ok(self.simulator.get_or_init(|| library))
    }

    /// The triple of this machine.
    pub(super) fn host(&self) -> anyhow::Result<String> {
        let text = output(self.machine.command("rustc".as_ref()).arg("-vV"))?;
        let host = text.lines().find_map(|line| line.strip_prefix("host: "));
        host.map(str::to_owned).ok_or_else(|| anyhow!("rustc does not name its host"))
    }

    /// An error if a toolkit is visible.
    pub(super) fn needs_no_toolkit(&self) -> anyhow::Result<()> {
        self.machine.is_bare().map_err(not_run)
    }

    /// A cargo home with the user's downloads only: cargo keeps an unpacked package by its version
    /// forever, and the workspace's crates change without a new version.
    fn cargo_home(&self) -> anyhow::Result<()> {
        let home = self.folder.join("cargo");
        fs::create_dir_all(home.join("registry"))?;
        let unpacked = home.join("registry/src");
        if unpacked.exists() {
            fs::remove_dir_all(&unpacked).with_context(|| unpacked.display().to_string())?;
        }
        let user = match std::env::var_os("CARGO_HOME") {
            Some(home) => Some(PathBuf::from(home)),
            None => ["HOME", "USERPROFILE"]
                .into_iter()
                .find_map(std::env::var_os)
                .map(|home| Path::new(&home).join(".cargo")),
        };
        let user = user.context("cargo's home is unknown")?;
        for entry in ["registry/cache", "registry/index", "config.toml"] {
            if user.join(entry).exists() && !home.join(entry).exists() {
                link(&user.join(entry), &home.join(entry))?;
            }
        }
        Ok(())
    }

    /// Copies the files that git tracks or would add, and commits them. Unchanged files keep their
    /// times, so that cargo does not build them again.
    fn snapshot(&self, root: &Path) -> anyhow::Result<String> {
        let git = |directory: &Path| {
            let mut git = self.machine.command("git".as_ref());
            git.current_dir(directory).env("GIT_CONFIG_GLOBAL", "/dev/null");
            git
        };
        let listed = output(git(root).args([
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ]))
        .context("a snapshot needs git and a checkout")?;
        let source = self.source();
        fs::create_dir_all(&source)?;
        let mut kept = BTreeSet::new();
        for name in listed.split_terminator('\0') {
            let from = root.join(name);
            // A file deleted but not yet committed is still listed.
            let Ok(text) = fs::read(&from) else { continue };
            let to = source.join(name);
            if fs::read(&to).ok().as_ref() != Some(&text) {
                to.parent().map(fs::create_dir_all).transpose()?;
                fs::write(&to, text)?;
                fs::set_permissions(&to, fs::metadata(&from)?.permissions())?;
            }
            kept.insert(to);
        }
        prune(&source, &kept)?;
        if !source.join(".git").exists() {
            output(git(&source).args(["init", "--quiet"]))?;
        }
        output(git(&source).args(["add", "--all"]))?;
        output(git(&source).args([
            "-c",
            "user.name=xtask",
            "-c",
            "user.email=xtask@localhost",
            "commit",
            "--quiet",
            "--allow-empty",
            "--message=The working tree",
        ]))?;
        Ok(output(git(&source).args(["rev-parse", "HEAD"]))?.trim().to_owned())
    }
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

#[cfg(unix)]
fn link(original: &Path, link: &Path) -> std::io::Result<()> {
    std::os::unix::fs::symlink(original, link)
}

#[cfg(windows)]
fn link(original: &Path, link: &Path) -> std::io::Result<()> {
    if original.is_dir() {
        std::os::windows::fs::symlink_dir(original, link)
    } else {
        std::os::windows::fs::symlink_file(original, link)
    }
}
