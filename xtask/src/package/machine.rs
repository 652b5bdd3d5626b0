//! The machine's own CUDA toolkits, and how they are hidden from rows.
//!
//! Variables are not passed on. A toolkit in a usual directory is covered: the row's commands run
//! in a mount namespace of their own, in which the directory is empty.

use std::env;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Variables that rows inherit; all others are removed.
const PASSED_ON: [&str; 28] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "LANG",
    "TMPDIR",
    "TEMP",
    "TMP",
    "SYSTEMROOT",
    "USERPROFILE",
    "RUSTUP_HOME",
    "RUSTUP_TOOLCHAIN",
    "LIBCLANG_PATH",
    "LLVM_CONFIG_PATH",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "ALL_PROXY",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "all_proxy",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "CARGO_HTTP_CAINFO",
    "CARGO_HTTP_PROXY",
    "CARGO_NET_OFFLINE",
    "CARGO_BUILD_JOBS",
];

/// Directories in which cuda-sys searches without being pointed there.
const CUSTOMARY: [&str; 4] =
    ["/usr/local/cuda", "/opt/cuda", "/usr/include/cuda.h", "/usr/bin/nvcc"];

/// A change to the file system that a command sees.
pub(super) enum Mount {
    /// An empty directory, or an unreadable file, over the path.
    Cover(PathBuf),
    /// The files of `upper` among those of `lower`.
    Overlay { lower: PathBuf, upper: PathBuf, scratch: PathBuf },
}

pub(super) struct Machine {
    environment: Vec<(OsString, OsString)>,
    toolkits: Vec<PathBuf>,
    namespaces: bool,
}

impl Machine {
    pub(super) fn look() -> Self {
        let mut environment: Vec<(OsString, OsString)> = PASSED_ON
            .iter()
            .filter_map(|name| Some((OsString::from(name), env::var_os(name)?)))
            .collect();
        for (name, value) in &mut environment {
            if name == "PATH" {
                *value = without_nvcc(value);
            }
        }
        let toolkits = CUSTOMARY.map(PathBuf::from).into_iter().filter(|path| path.exists());
        Self { environment, toolkits: toolkits.collect(), namespaces: namespaces() }
    }

    /// Whether toolkits can be hidden from rows; otherwise why not.
    pub(super) fn is_bare(&self) -> Result<(), String> {
        match self.toolkits.first() {
            Some(toolkit) if !self.namespaces => Err(format!(
                "this machine has {}, and no user namespaces to hide it in",
                toolkit.display()
            )),
            _ => Ok(()),
        }
    }

    /// Whether a command can run with other mounts.
    pub(super) fn has_namespaces(&self) -> bool {
        self.namespaces
    }

    /// A command that sees no CUDA of this machine, neither by variables nor in directories.
    pub(super) fn command(&self, program: &OsStr) -> Command {
        let covers: Vec<Mount> = if self.namespaces {
            self.toolkits.iter().cloned().map(Mount::Cover).collect()
        } else {
            Vec::new()
        };
        self.command_among(program, &covers)
    }

    /// A command that sees these mounts.
    pub(super) fn command_among(&self, program: &OsStr, mounts: &[Mount]) -> Command {
        let mut command = if mounts.is_empty() {
            Command::new(program)
        } else {
            let mut command = Command::new("unshare");
            command.args(["--user", "--map-root-user", "--mount", "--", "sh", "-c"]);
            command.arg(script(mounts)).arg("sh").arg(program);
            command
        };
        command.env_clear().envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.env("CARGO_TERM_COLOR", "never").env("CARGO_TERM_PROGRESS_WHEN", "never");
        command.stdin(Stdio::null());
        command
    }

    /// The `PATH` that commands get.
    pub(super) fn path(&self) -> OsString {
        let path = self.environment.iter().find(|(name, _)| name == "PATH");
        path.map(|(_, value)| value.clone()).unwrap_or_default()
    }
}

/// `path` without the directories of CUDA compilers, except the system's own.
fn without_nvcc(path: &OsStr) -> OsString {
    let kept = env::split_paths(path)
        .filter(|dir| dir == Path::new("/usr/bin") || !dir.join("nvcc").is_file());
    env::join_paths(kept).unwrap_or_default()
}

fn namespaces() -> bool {
    let probe = ["--user", "--map-root-user", "--mount", "--", "true"];
    cfg!(target_os = "linux")
        && Command::new("unshare")
            .args(probe)
            .stdin(Stdio::null())
            .output()
            .is_ok_and(|output| output.status.success())
}

/// A shell script that mounts and then replaces itself by the command in its arguments.
fn script(mounts: &[Mount]) -> String {
    let mut text = String::from("set -e\n");
    for mount in mounts {
        match mount {
            Mount::Cover(path) => {
                let path = quoted(path);
                text += &format!(
                    "if [ -d {path} ]; then mount -t tmpfs none {path}; \
                     else mount --bind /dev/null {path}; fi\n"
                );
            }
            Mount::Overlay { lower, upper, scratch } => {
                let option = format!(
                    "lowerdir={},upperdir={},workdir={}",
                    lower.display(),
                    upper.display(),
                    scratch.display()
                );
                let option = quoted(Path::new(&option));
                text += &format!("mount -t overlay overlay -o {option} {}\n", quoted(lower));
            }
        }
    }
    text + "exec \"$@\"\n"
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
