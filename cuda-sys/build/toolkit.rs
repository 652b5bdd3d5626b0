//! Finds a CUDA toolkit by the directory that contains its `cuda.h`.
//!
//! This module does not access the process's environment directly: the caller passes a function for the
//! variables and a root for the machine's directories, so that tests can use temporary directories.

use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::iter;
use std::path::{Path, PathBuf};

/// The oldest `CUDA_VERSION` of a header that the crate supports: 11.8.
pub(crate) const FLOOR: u32 = 11080;

/// Variables that name a toolkit's root, in the order of the search.
pub(crate) const ROOT_VARIABLES: [&str; 4] =
    ["CUDA_HOME", "CUDA_PATH", "CUDA_ROOT", "CUDA_TOOLKIT_ROOT_DIR"];

/// The variable that names the directory of `cuda.h` itself.
pub(crate) const INCLUDE_VARIABLE: &str = "CUDA_SYS_INCLUDE_DIR";

/// The places to search, and the target to search for.
pub(crate) struct Search<'a> {
    /// Reads a variable of the environment.
    pub(crate) env: &'a dyn Fn(&str) -> Option<OsString>,
    /// The root of the machine's own directories: `/`, except in tests.
    pub(crate) machine: &'a Path,
    /// The target triple of the machine that compiles.
    pub(crate) host: &'a str,
    /// The target triple of the build.
    pub(crate) target: &'a str,
}

/// A directory with NVIDIA's `cuda.h`, and its properties.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Toolkit {
    /// The toolkit's root.
    pub(crate) root: PathBuf,
    /// The directory of `cuda.h`.
    pub(crate) include: PathBuf,
    /// The header's `CUDA_VERSION`: 12040 is CUDA 12.4.
    pub(crate) version: u32,
}

/// The source that named a place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Source {
    /// An environment variable that names a CUDA directory.
    Variable(String),
    /// The compiler on `PATH`.
    Nvcc,
    /// A variable that names an activated conda environment, which need not hold CUDA.
    Conda(String),
    /// One of the usual directories.
    Customary,
}

/// The reason why a place yielded no toolkit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// No such directory.
    Absent,
    /// A directory without a `cuda.h` in any of the usual subdirectories.
    NoHeader,
    /// A directory of the host that has no `cuda.h` for the build's target.
    NoTargetHeader,
    /// A `cuda.h` that does not define `CUDA_VERSION`: another file with that name.
    NotNvidia,
    /// A `cuda.h` in a directory whose name is not UTF-8, which neither cargo nor bindgen accepts.
    NotUtf8,
}

/// A place without a usable header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tried {
    /// The source that named the place.
    pub(crate) source: Source,
    /// The directory.
    pub(crate) place: PathBuf,
    /// The reason why the place was not used.
    pub(crate) verdict: Verdict,
}

/// The result of the search.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// The first place with a header.
    pub(crate) toolkit: Option<Toolkit>,
    /// The places that were tried before.
    pub(crate) tried: Vec<Tried>,
}

impl fmt::Display for Tried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = self.place.display();
        match &self.source {
            Source::Variable(name) | Source::Conda(name) => write!(f, "{name}={place}")?,
            Source::Nvcc => write!(f, "{place} (of the nvcc on PATH)")?,
            Source::Customary => write!(f, "{place}")?,
        }
        f.write_str(match self.verdict {
            Verdict::Absent => ": no such directory",
            Verdict::NoHeader => ": no cuda.h",
            Verdict::NoTargetHeader => ": no cuda.h for this target",
            Verdict::NotNvidia => ": a cuda.h that does not define CUDA_VERSION",
            Verdict::NotUtf8 => ": a cuda.h, in a directory whose name is not UTF-8",
        })
    }
}

impl Found {
    /// Returns a place that looks like a toolkit, or was named as one, but has no usable header.
    pub(crate) fn suspicious(&self) -> Option<&Tried> {
        self.tried.iter().find(|tried| match (&tried.source, tried.verdict) {
            (_, Verdict::NoTargetHeader) | (Source::Conda(_), _) => false,
            (Source::Variable(_) | Source::Nvcc, _) => true,
            // Every machine has a `/usr`, but a `/usr/local/cuda` implies an installation.
            (Source::Customary, verdict) => {
                verdict == Verdict::NoHeader && !tried.place.ends_with("usr")
            }
        })
    }
}

/// A place to search.
struct Candidate {
    source: Source,
    place: PathBuf,
    layout: Layout,
}

/// The possible locations of the header in a place.
#[derive(Clone, Copy)]
enum Layout {
    /// The place is the include directory.
    Include,
    /// The place is the root of a toolkit for this target.
    TargetRoot,
    /// The place is a root for the host: when cross-compiling, only its `targets/` directories count.
    HostRoot,
}

impl Search<'_> {
    /// Searches each place in turn and stops at the first that holds NVIDIA's header; variables
    /// that name later places are not read.
    pub(crate) fn run(&self) -> Found {
        // This variable names the header's directory itself, so no other place is searched.
        let pointed = self.variable(INCLUDE_VARIABLE).map(|(name, place)| Candidate {
            source: Source::Variable(name),
            place,
            layout: Layout::Include,
        });
        match pointed {
            Some(only) => self.first_of([only]),
            None => self.first_of(self.candidates()),
        }
    }

    fn first_of(&self, candidates: impl IntoIterator<Item = Candidate>) -> Found {
        let mut found = Found::default();
        for candidate in candidates {
            match self.examine(&candidate) {
                Ok(toolkit) => {
                    found.toolkit = Some(toolkit);
                    break;
                }
                Err(verdict) => found.tried.push(Tried {
                    source: candidate.source,
                    place: candidate.place,
                    verdict,
                }),
            }
        }
        found
    }

    /// Returns the directories of `toolkit` in which the linker finds the driver's library or its stub.
    pub(crate) fn link_directories(&self, toolkit: &Toolkit) -> Vec<PathBuf> {
        // A root of the host has the host's libraries, too, which lld does not skip.
        let of_host =
            !self.is_native() && toolkit.include.starts_with(toolkit.root.join("targets"));
        let of_target = self.target_directories().into_iter().map(|dir| format!("{dir}/lib"));
        let multiarch = self.debian_multiarch().map(|multiarch| format!("lib/{multiarch}"));
        let customary = ["lib64", "lib", "lib/x64"].map(str::to_owned);
        let customary = customary.into_iter().filter(|_| !of_host);
        let below: Vec<_> = of_target.chain(multiarch).chain(customary).collect();
        let library = if self.target.contains("windows") { "cuda.lib" } else { "libcuda.so" };
        below
            .iter()
            .map(|dir| toolkit.root.join(dir))
            .flat_map(|dir| [dir.join("stubs"), dir])
            .filter(|dir| dir.join(library).is_file())
            .collect()
    }

    /// Returns the value of `name`, or of its form for this target (`AARCH64_UNKNOWN_LINUX_GNU_CUDA_HOME`),
    /// and the name under which it was found.
    pub(crate) fn variable(&self, name: &str) -> Option<(String, PathBuf)> {
        let prefixed = format!("{}_{name}", self.target.to_uppercase().replace(['-', '.'], "_"));
        [prefixed, name.to_owned()].into_iter().find_map(|name| {
            let value = (self.env)(&name).filter(|value| !value.is_empty())?;
            Some((name, PathBuf::from(value)))
        })
    }

    fn candidates(&self) -> impl Iterator<Item = Candidate> {
        let host = |source, place| Candidate { source, place, layout: Layout::HostRoot };
        let named = |name, source: fn(String) -> Source| {
            let (found, place) = self.variable(name)?;
            // A variable for this target names a toolkit for this target.
            let layout = if found == name { Layout::HostRoot } else { Layout::TargetRoot };
            Some(Candidate { source: source(found), place, layout })
        };
        let later = iter::once_with(move || {
            let nvcc = self.nvcc_roots().into_iter();
            let nvcc = nvcc.map(move |root| host(Source::Nvcc, root));
            let conda = iter::once_with(move || named("CONDA_PREFIX", Source::Conda)).flatten();
            let customary = ["usr/local/cuda", "opt/cuda", "usr"].into_iter();
            let customary =
                customary.map(move |root| host(Source::Customary, self.machine.join(root)));
            nvcc.chain(conda).chain(customary)
        });
        let first =
            ROOT_VARIABLES.into_iter().filter_map(move |name| named(name, Source::Variable));
        first.chain(later.flatten())
    }

    /// Returns the roots of each `nvcc` on `PATH`, of which the first may be a compiler cache's: by its path
    /// there, and by the path with links resolved.
    fn nvcc_roots(&self) -> Vec<PathBuf> {
        let Some(path) = (self.env)("PATH") else {
            return Vec::new();
        };
        let name = if cfg!(windows) { "nvcc.exe" } else { "nvcc" };
        let root = |nvcc: &Path| Some(nvcc.parent()?.parent()?.to_owned());
        let mut roots: Vec<_> = std::env::split_paths(&path)
            .map(|dir| dir.join(name))
            .filter(|nvcc| nvcc.is_file())
            .flat_map(|nvcc| {
                [root(&nvcc), fs::canonicalize(&nvcc).ok().and_then(|real| root(&real))]
            })
            .flatten()
            .collect();
        roots.dedup();
        roots
    }

    fn examine(&self, candidate: &Candidate) -> Result<Toolkit, Verdict> {
        let place = &candidate.place;
        if !place.is_dir() {
            return Err(Verdict::Absent);
        }
        let mut verdict = match candidate.layout {
            Layout::HostRoot if !self.is_native() => Verdict::NoTargetHeader,
            _ => Verdict::NoHeader,
        };
        for include in self.include_directories(place, candidate.layout) {
            let Ok(header) = fs::read(include.join("cuda.h")) else {
                continue;
            };
            let Some(version) = version(&String::from_utf8_lossy(&header)) else {
                verdict = Verdict::NotNvidia;
                continue;
            };
            if include.to_str().is_none() {
                verdict = Verdict::NotUtf8;
                continue;
            }
            let root = match candidate.layout {
                Layout::Include => include.parent().unwrap_or(&include).to_owned(),
                // Each of pip's packages is a root of its own, below the named one, and so is conda's
                // `Library` on Windows.
                _ if include.ends_with("Library/include")
                    || include.starts_with(place.join("nvidia")) =>
                {
                    include.parent().unwrap_or(place).to_owned()
                }
                _ => place.clone(),
            };
            return Ok(Toolkit { root, include, version });
        }
        Err(verdict)
    }

    fn include_directories(&self, place: &Path, layout: Layout) -> Vec<PathBuf> {
        if let Layout::Include = layout {
            return vec![place.to_owned()];
        }
        let mut directories = Vec::new();
        if matches!(layout, Layout::TargetRoot) || self.is_native() {
            directories.push(place.join("include"));
            directories.push(place.join("Library/include")); // conda on Windows
            directories.extend(pip_directories(place));
        }
        let targets = self.target_directories();
        directories.extend(targets.iter().map(|dir| place.join(dir).join("include")));
        directories
    }

    /// Returns CUDA's directories for the target: `targets/x86_64-linux`. AArch64 has different ones for
    /// servers and for Jetsons.
    fn target_directories(&self) -> Vec<String> {
        if !self.target.contains("-linux-") {
            return Vec::new();
        }
        let names: &[&str] = match architecture(self.target) {
            "aarch64" => &["sbsa", "aarch64"],
            "powerpc64le" => &["ppc64le"],
            other => &[other],
        };
        names.iter().map(|name| format!("targets/{name}-linux")).collect()
    }

    /// Returns Debian's name of the target's library directory: `x86_64-linux-gnu`.
    fn debian_multiarch(&self) -> Option<String> {
        self.target
            .contains("-linux-gnu")
            .then(|| format!("{}-linux-gnu", architecture(self.target)))
    }

    /// Whether the host's headers describe the target: same architecture and system, any C library.
    fn is_native(&self) -> bool {
        architecture(self.host) == architecture(self.target)
            && ["linux", "windows"]
                .iter()
                .all(|system| self.host.contains(system) == self.target.contains(system))
    }
}

fn architecture(triple: &str) -> &str {
    triple.split('-').next().unwrap_or(triple)
}

/// Returns the include directories of pip's wheels below `site-packages`: `nvidia/cu13`, the newest first,
/// then `nvidia/cuda_runtime`, which CUDA up to 12 uses.
fn pip_directories(site_packages: &Path) -> Vec<PathBuf> {
    let nvidia = site_packages.join("nvidia");
    let mut releases: Vec<(u32, PathBuf)> = fs::read_dir(&nvidia)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let release = entry.file_name().to_str()?.strip_prefix("cu")?.parse().ok()?;
            Some((release, entry.path().join("include")))
        })
        .collect();
    releases.sort_by(|a, b| b.cmp(a));
    releases
        .into_iter()
        .map(|(_, include)| include)
        .chain([nvidia.join("cuda_runtime/include")])
        .collect()
}

/// Returns the value of `CUDA_VERSION` in a header's text.
pub(crate) fn version(header: &str) -> Option<u32> {
    header.lines().find_map(|line| {
        let mut words = line.trim_start().strip_prefix('#')?.split_whitespace();
        match (words.next()?, words.next()?, words.next()?) {
            ("define", "CUDA_VERSION", value) => value.parse().ok(),
            _ => None,
        }
    })
}

/// Formats a `CUDA_VERSION`: 12040 is `12.4`.
pub(crate) fn release(version: u32) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}
