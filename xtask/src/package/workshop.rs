//! The folder in which rows build, with a snapshot of the sources, and cargo commands that run there.

use std::cell::OnceCell;
use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, anyhow};
use fs_err as fs;

use super::machine::{Machine, Mount};
use super::{Consumer, Crates, Features, Source};
use crate::cargo::Built;
use crate::headers::fetch::{self, Release};
use crate::process::{command, or_named_by, output};
use crate::refuse;
use crate::workspace;

pub(super) struct Workshop {
    root: PathBuf,
    folder: PathBuf,
    pub(super) machine: Machine,
    /// The newest and the oldest of the headers from the command line; else those that `cargo xtask headers`
    /// keeps, fetched when a row first needs one.
    newest: OnceCell<Result<Header, String>>,
    oldest: OnceCell<Result<Header, String>>,
    simulator: OnceCell<PathBuf>,
    /// The snapshot's commit.
    pub(super) commit: String,
}

/// A file that defines `CUDA_VERSION`.
#[derive(Debug, Clone)]
pub(super) struct Header {
    pub(super) version: u32,
    pub(super) text: String,
    /// The directory of the file.
    pub(super) include: PathBuf,
}

impl Header {
    fn read(file: &Path) -> Result<Self> {
        let absolute = std::path::absolute(file)?;
        let include = absolute.parent().context("a file is in a directory")?.to_owned();
        let text = fs::read_to_string(file)?;
        Ok(Self { version: fetch::cuda_version(file)?, text, include })
    }
}

impl Workshop {
    /// Creates the folder and takes the snapshot: the files that a commit of the working tree would contain.
    pub(super) fn open(headers: &[PathBuf]) -> Result<Self> {
        let root = workspace::root()?;
        let named = headers.iter().map(|file| Header::read(file));
        let mut named: Vec<Header> = named.collect::<Result<_, _>>()?;
        named.sort_by_key(|header| header.version);
        let known =
            |header: Option<&Header>| header.map_or_else(OnceCell::new, |it| Ok(it.clone()).into());
        let mut workshop = Self {
            machine: Machine::look(),
            newest: known(named.last()),
            oldest: known(named.first()),
            simulator: OnceCell::new(),
            commit: String::new(),
            folder: workspace::target(&root)?.join("xtask-package"),
            root,
        };
        workshop.cargo_home()?;
        workshop.commit = workshop.snapshot()?;
        Ok(workshop)
    }

    /// Removes the folder, or prints its path.
    pub(super) fn close(self, keep: bool) -> Result<()> {
        if keep {
            eprintln!("kept: {}", self.folder.display());
            return Ok(());
        }
        Ok(fs::remove_dir_all(&self.folder)?)
    }

    /// The snapshot: a git repository with the working tree as its only commit.
    pub(super) fn source(&self) -> PathBuf {
        self.folder.join("source")
    }

    /// The target directory of builds, shared by the rows: compiling bindgen again would take longer than a
    /// row.
    pub(super) fn target(&self) -> PathBuf {
        self.folder.join("target")
    }

    /// Creates an empty directory with this name.
    pub(super) fn directory(&self, name: &str) -> Result<PathBuf> {
        let directory = self.folder.join(name);
        workspace::empty(&directory)?;
        Ok(directory)
    }

    /// Creates a toolkit with this name and a `cuda.h` in its directory `below`; returns the toolkit's root.
    pub(super) fn toolkit(&self, name: &str, below: &str, header: &str) -> Result<PathBuf> {
        let root = self.directory(&format!("toolkits/{name}"))?;
        workspace::write(&root.join(below).join("cuda.h"), header)?;
        Ok(root)
    }

    /// Creates a directory `name` with a crate that has these dependencies and no sources.
    pub(super) fn project(&self, name: &str, krate: &str, dependencies: &str) -> Result<PathBuf> {
        let directory = self.directory(name)?;
        let package = format!("[package]\nname = '{krate}'\nversion = '0.0.0'\nedition = '2024'\n");
        let manifest = format!("{package}\n[workspace]\n\n[dependencies]\n{dependencies}");
        fs::write(directory.join("Cargo.toml"), manifest)?;
        // The versions that the workspace was tested with, which are already downloaded.
        fs::copy(self.source().join("Cargo.lock"), directory.join("Cargo.lock"))?;
        Ok(directory)
    }

    /// Writes a consumer of the snapshot, by path, to a directory `name`.
    pub(super) fn consumer(
        &self,
        name: &str,
        crates: Crates,
        features: Features,
    ) -> Result<Consumer<'_>> {
        Consumer::write(self, name, &Source::Path(self.source()), crates, features)
    }

    /// Returns the newest header. Without one, a row that needs it counts as not run.
    pub(super) fn newest_header(&self) -> Result<&Header> {
        self.header(&self.newest, fetch::NEWEST)
    }

    /// Returns the oldest header, which differs from the newest if there are two.
    pub(super) fn oldest_header(&self) -> Result<&Header> {
        self.header(&self.oldest, fetch::FLOOR)
    }

    fn header<'a>(
        &self,
        known: &'a OnceCell<Result<Header, String>>,
        release: Release,
    ) -> Result<&'a Header> {
        let header = known.get_or_init(|| {
            let include = fetch::include(&self.root, release);
            let header = include.and_then(|include| Header::read(&include.join("cuda.h")));
            header.map_err(|error| format!("{error:#}"))
        });
        header.as_ref().map_err(|why| {
            let help = "--header FILE names one of this machine's";
            refuse(format!("no cuda.h: {why}; {help}"))
        })
    }

    /// Returns a cargo command for `directory`, without CUDA in its environment.
    pub(super) fn cargo(&self, directory: &Path, arguments: &str) -> Command {
        self.cargo_among(&self.machine.covers(), directory, arguments)
    }

    /// Returns a cargo command for `directory`, with these mounts.
    pub(super) fn cargo_among(
        &self,
        mounts: &[Mount],
        directory: &Path,
        arguments: &str,
    ) -> Command {
        let mut command = self.machine.command_among(&or_named_by("CARGO", "cargo"), mounts);
        command
            .args(arguments.split_whitespace())
            .current_dir(directory)
            .env("CARGO_HOME", self.folder.join("cargo"))
            .env("CARGO_TARGET_DIR", self.target())
            // Saves gigabytes: nothing here is debugged or rebuilt.
            .env("CARGO_INCREMENTAL", "0")
            .env("CARGO_PROFILE_DEV_DEBUG", "0");
        command
    }

    /// Returns the simulated driver's library; builds it on the first call.
    pub(super) fn simulator(&self) -> Result<&Path> {
        if let Some(library) = self.simulator.get() {
            return Ok(library);
        }
        let arguments = "build --locked --profile=quick --package=cuda-driver-sim-library";
        let built = Built::of(&mut self.cargo(&self.source(), arguments));
        let built = built.context("the simulated driver")?;
        let library = built.library("cuda_sim")?.to_owned();
        Ok(self.simulator.get_or_init(|| library))
    }

    /// The target triple of this machine.
    pub(super) fn host(&self) -> Result<String> {
        let text = output(self.machine.command("rustc").arg("-vV"))?;
        let host = text.lines().find_map(|line| line.strip_prefix("host: "));
        host.map(str::to_owned).ok_or_else(|| anyhow!("rustc does not name its host"))
    }

    /// Creates a cargo home that has only the user's downloads: cargo keeps an unpacked package by its
    /// version forever, and the workspace's crates change without a new version.
    fn cargo_home(&self) -> Result<()> {
        let home = self.folder.join("cargo");
        workspace::empty(&home.join("registry/src"))?;
        let user = env::var_os("CARGO_HOME").map(PathBuf::from);
        let user = user.or_else(|| Some(env::home_dir()?.join(".cargo")));
        let user = user.context("cargo's home is unknown")?;
        for entry in ["registry/cache", "registry/index", "config.toml"] {
            if user.join(entry).exists() && !home.join(entry).exists() {
                link(user.join(entry), home.join(entry))?;
            }
        }
        Ok(())
    }

    /// Copies the files that git tracks or would add, and commits them.
    fn snapshot(&self) -> Result<String> {
        let source = self.source();
        workspace::mirror(&self.root, &source).context("a snapshot needs git and a checkout")?;
        let git = |words: &str| {
            let mut git = command(&format!("git {words}"));
            git.current_dir(&source).env("GIT_CONFIG_GLOBAL", "/dev/null");
            output(&mut git)
        };
        git("init --quiet")?;
        git("add --all")?;
        git("-c user.name=xtask -c user.email=xtask@localhost commit --quiet --allow-empty \
             --message=snapshot")?;
        Ok(git("rev-parse HEAD")?.trim().to_owned())
    }
}

#[cfg(unix)]
use std::os::unix::fs::symlink as link;

#[cfg(windows)]
fn link(original: PathBuf, link: PathBuf) -> std::io::Result<()> {
    if original.is_dir() {
        std::os::windows::fs::symlink_dir(original, link)
    } else {
        std::os::windows::fs::symlink_file(original, link)
    }
}
