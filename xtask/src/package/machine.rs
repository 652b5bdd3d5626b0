//! The machine's own CUDA toolkits, and how rows hide them.
//!
//! Variables are not passed on. A toolkit in a usual directory is covered: the row's commands run in a mount
//! namespace of their own, where the directory is empty.

use std::env;
use std::ffi::{OsStr, OsString};
use std::iter;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::bail;

use crate::process::{command, succeeds};
use crate::refuse;

/// Variables that rows inherit; all others are removed.
const PASSED_ON: &str = "PATH HOME USER LOGNAME LANG TMPDIR TEMP TMP SYSTEMROOT USERPROFILE \
    RUSTUP_HOME RUSTUP_TOOLCHAIN LIBCLANG_PATH LLVM_CONFIG_PATH HTTP_PROXY HTTPS_PROXY NO_PROXY \
    ALL_PROXY http_proxy https_proxy no_proxy all_proxy SSL_CERT_FILE SSL_CERT_DIR \
    CARGO_HTTP_CAINFO CARGO_HTTP_PROXY CARGO_NET_OFFLINE CARGO_BUILD_JOBS";

/// The directories that cuda-sys searches by default.
const CUSTOMARY: [&str; 4] =
    ["/usr/local/cuda", "/opt/cuda", "/usr/include/cuda.h", "/usr/bin/nvcc"];

/// A line of shell code that changes the file system for a command.
pub(super) type Mount = String;

pub(super) struct Machine {
    environment: Vec<(&'static str, OsString)>,
    toolkits: Vec<&'static str>,
    /// Whether commands can run with mounts of their own.
    pub(super) namespaces: bool,
}

impl Machine {
    pub(super) fn look() -> Self {
        let value = |name: &str| match name {
            "PATH" => Some(without_nvcc(&env::var_os(name)?)),
            _ => env::var_os(name),
        };
        let passed_on = PASSED_ON.split_whitespace();
        let probe = command("unshare --user --map-root-user --mount -- true");
        Self {
            environment: passed_on.filter_map(|name| Some((name, value(name)?))).collect(),
            toolkits: CUSTOMARY.into_iter().filter(|path| Path::new(path).exists()).collect(),
            namespaces: cfg!(target_os = "linux") && succeeds(probe),
        }
    }

    /// Returns an error if a row needs toolkits to be hidden and they cannot be.
    pub(super) fn needs_no_toolkit(&self) -> anyhow::Result<()> {
        if let Some(toolkit) = self.toolkits.first().filter(|_| !self.namespaces) {
            let why = "and no user namespaces to hide it in";
            bail!(refuse(format!("this machine has {toolkit}, {why}")));
        }
        Ok(())
    }

    /// The mounts that hide this machine's toolkits: an empty directory or an unreadable file over each.
    pub(super) fn covers(&self) -> Vec<Mount> {
        let cover = |path| {
            format!(
                "if [ -d {path} ]; then mount -t tmpfs none {path}; \
                 else mount --bind /dev/null {path}; fi\n"
            )
        };
        self.toolkits.iter().filter(|_| self.namespaces).map(cover).collect()
    }

    /// Returns a command that sees no CUDA of this machine, neither through variables nor in directories.
    pub(super) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        self.command_among(program.as_ref(), &self.covers())
    }

    /// Returns a command that sees these mounts.
    pub(super) fn command_among(&self, program: &OsStr, mounts: &[Mount]) -> Command {
        let mut command = if mounts.is_empty() {
            Command::new(program)
        } else {
            let mut command = command("unshare --user --map-root-user --mount -- sh -c");
            // The shell mounts, then replaces itself with the command in its arguments.
            let script = format!("set -e\n{}exec \"$@\"\n", mounts.concat());
            command.arg(script).arg("sh").arg(program);
            command
        };
        command
            .env_clear()
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .env("CARGO_TERM_COLOR", "never")
            .env("CARGO_TERM_PROGRESS_WHEN", "never")
            .stdin(Stdio::null());
        command
    }

    /// Returns the `PATH` that commands get, with `first` in front.
    pub(super) fn path_behind(&self, first: &Path) -> anyhow::Result<OsString> {
        let path = self.environment.iter().find(|(name, _)| *name == "PATH");
        let others = path.iter().flat_map(|(_, value)| env::split_paths(value));
        Ok(env::join_paths(iter::once(first.to_owned()).chain(others))?)
    }
}

/// Removes the directories of CUDA compilers from `path`, except the system's own.
fn without_nvcc(path: &OsStr) -> OsString {
    let kept = env::split_paths(path)
        .filter(|dir| dir == Path::new("/usr/bin") || !dir.join("nvcc").is_file());
    env::join_paths(kept).unwrap_or_default()
}

/// Returns a mount that shows the files of `upper` among those of `lower`.
pub(super) fn overlay(lower: &Path, upper: &Path, scratch: &Path) -> Mount {
    let [below, above, work] = [lower, upper, scratch].map(Path::display);
    let option = format!("lowerdir={below},upperdir={above},workdir={work}");
    let [option, lower] = [Path::new(&option), lower].map(quoted);
    format!("mount -t overlay overlay -o {option} {lower}\n")
}

fn quoted(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_one_word_of_the_shell() {
        assert_eq!(quoted(Path::new("/a b/it's")), r"'/a b/it'\''s'");
    }

    #[test]
    fn a_command_inherits_nothing_of_cuda() {
        let machine = Machine::look();
        let command = machine.command(OsStr::new("cargo"));
        let names: Vec<_> = command.get_envs().map(|(name, _)| name.to_owned()).collect();
        assert!(names.iter().any(|name| name == "PATH"));
        let cuda = |name: &&OsString| name.to_string_lossy().contains("CUDA");
        assert_eq!(names.iter().find(cuda), None);
    }
}
