//! A simulated machine for the search for a toolkit.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use super::LINUX;
use super::choice::{Mode, Plan};
use super::toolkit::{Found, Search};

/// A machine: a directory with files, and an environment.
pub(crate) struct Machine {
    pub(crate) root: PathBuf,
    pub(crate) env: HashMap<String, OsString>,
    pub(crate) target: &'static str,
}

impl Machine {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join("toolkit").join(name);
        fs::create_dir_all(&root).expect("a fresh directory");
        Self { root, env: HashMap::new(), target: LINUX }
    }

    pub(crate) fn target(mut self, target: &'static str) -> Self {
        self.target = target;
        self
    }

    pub(crate) fn file(self, path: &str, text: &str) -> Self {
        let file = self.root.join(path);
        fs::create_dir_all(file.parent().expect("below the root")).expect("directories");
        fs::write(file, text).expect("a file");
        self
    }

    /// Adds NVIDIA's header, with only the text that the search reads.
    pub(crate) fn header(self, directory: &str, version: u32) -> Self {
        let text = format!("/* x */\n#define CUDA_VERSION {version}\n");
        self.file(&format!("{directory}/cuda.h"), &text)
    }

    /// Sets a variable to a directory of the machine.
    pub(crate) fn var(mut self, name: &str, path: &str) -> Self {
        let path = self.root.join(path);
        self.env.insert(name.to_owned(), path.into());
        self
    }

    pub(crate) fn with<R>(&self, action: impl FnOnce(&Search<'_>) -> R) -> R {
        action(&Search {
            env: &|name| self.env.get(name).cloned(),
            machine: &self.root,
            host: LINUX,
            target: self.target,
        })
    }

    pub(crate) fn search(&self) -> Found {
        self.with(|search| search.run())
    }

    /// Returns the include directory, relative to the machine, and the version of the toolkit that is found.
    pub(crate) fn found(&self) -> Option<(String, u32)> {
        let toolkit = self.search().toolkit?;
        Some((self.relative(&toolkit.include), toolkit.version))
    }

    pub(crate) fn relative(&self, path: &Path) -> String {
        path.strip_prefix(&self.root).expect("below the root").to_string_lossy().into_owned()
    }

    pub(crate) fn plan(&self, mode: Mode) -> Result<Plan, String> {
        mode.plan(&self.search(), true)
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.root);
    }
}
