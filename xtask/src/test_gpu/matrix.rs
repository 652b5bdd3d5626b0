//! The rows of the matrix: their settings, and the tests that each leaves out.

use std::env;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use crate::suite::{Case, Tag};
use crate::target::{RUNTIME, Target, simulator_seed};

/// Device counts of the rows.
const DEVICES: [u32; 4] = [1, 2, 4, 8];

/// compute-sanitizer's exit code after a finding; no test program uses it.
const SANITIZER_EXIT_CODE: &str = "99";

/// The settings of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Variant {
    /// No special settings.
    Default,
    /// `CUDA_LAUNCH_BLOCKING=1`: every launch and copy is complete when its call returns.
    Blocking,
    /// `CUDA_MODULE_LOADING=EAGER`.
    EagerLoading,
    /// compute-sanitizer's memcheck.
    Memcheck,
    /// The simulated driver in the test's own process, work done as late as CUDA permits.
    Lazy,
    /// The same, work done at enqueue.
    Eager,
    /// The same, work done by a seeded schedule.
    Threaded,
    /// The simulated driver as a library that `cuda-sys` opens.
    Library,
}

impl Variant {
    const REAL: [Self; 4] = [Self::Default, Self::Blocking, Self::EagerLoading, Self::Memcheck];
    const SIMULATED: [Self; 4] = [Self::Lazy, Self::Eager, Self::Threaded, Self::Library];

    fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Blocking => "launch-blocking",
            Self::EagerLoading => "eager-loading",
            Self::Memcheck => "memcheck",
            Self::Lazy => "sim-lazy",
            Self::Eager => "sim-eager",
            Self::Threaded => "sim-threaded",
            Self::Library => "sim-library",
        }
    }

    /// Why a test with this tag is meaningless under these settings, if so.
    fn refuses(self, tag: Tag) -> Option<&'static str> {
        match (self, tag) {
            (Self::Blocking, Tag::Asynchronous) => Some("calls block in this row"),
            (Self::Blocking, Tag::Timing) => Some("calls block in this row, which times them"),
            (Self::Memcheck, Tag::Asynchronous | Tag::Timing) => {
                Some("memcheck serialises and slows calls")
            }
            (Self::Memcheck, Tag::Faulting) => Some("memcheck would report the fault it provokes"),
            (variant, Tag::Real) if Self::SIMULATED.contains(&variant) => {
                Some("means nothing on the simulated driver")
            }
            (variant, Tag::Timing) if Self::SIMULATED.contains(&variant) => {
                Some("the simulated driver has no timing")
            }
            _ => None,
        }
    }
}

/// A combination of devices and settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) devices: u32,
    pub(crate) variant: Variant,
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.devices, self.variant.name())
    }
}

/// All rows, including those that cannot run.
pub(crate) fn rows(target: &Target) -> Vec<Row> {
    let variants: &[Variant] = match target {
        Target::Real { .. } => &Variant::REAL,
        Target::Simulated { .. } => &Variant::SIMULATED,
    };
    let row = |devices| move |&variant| Row { devices, variant };
    DEVICES.into_iter().flat_map(|devices| variants.iter().map(row(devices))).collect()
}

/// The program that must run the row's tests, if any; or why the row cannot run.
pub(crate) fn obstacle(row: &Row, target: &Target) -> Result<Vec<OsString>, String> {
    if target.devices() < row.devices {
        return Err(format!("needs {} devices, {} visible", row.devices, target.devices()));
    }
    match row.variant {
        Variant::Memcheck => match sanitizer() {
            Some(path) => Ok(memcheck(path)),
            None => Err("compute-sanitizer is neither on PATH nor in /usr/local/cuda*/bin".into()),
        },
        _ => Ok(Vec::new()),
    }
}

/// Tests provoke driver errors on purpose, so API errors are not reported; and a test without
/// driver calls has passed, not failed to start.
fn memcheck(sanitizer: PathBuf) -> Vec<OsString> {
    let mut words = vec![sanitizer.into_os_string()];
    words.extend(["--tool", "memcheck", "--report-api-errors", "no"].map(OsString::from));
    words.extend(["--require-cuda-init", "no"].map(OsString::from));
    words.extend(["--error-exitcode", SANITIZER_EXIT_CODE].map(OsString::from));
    words
}

fn sanitizer() -> Option<PathBuf> {
    let on_path = env::var_os("PATH").unwrap_or_default();
    let mut directories: Vec<PathBuf> = env::split_paths(&on_path).collect();
    if let Ok(entries) = Path::new("/usr/local").read_dir() {
        let toolkits = entries.flatten().map(|entry| entry.path());
        let is_cuda = |path: &PathBuf| {
            path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("cuda"))
        };
        directories.extend(toolkits.filter(is_cuda).map(|toolkit| toolkit.join("bin")));
    }
    directories.into_iter().map(|bin| bin.join("compute-sanitizer")).find(|path| path.is_file())
}

impl Row {
    /// Why the row does not run a test, if so.
    pub(crate) fn leaves_out(&self, case: &Case, target: &Target) -> Option<String> {
        if case.needs > self.devices {
            return Some(format!("needs {} devices", case.needs));
        }
        if case.needs == 0 && self.variant == Variant::Memcheck {
            return Some("asks no device: there is nothing for memcheck to see".into());
        }
        case.tags.iter().find_map(|&tag| {
            let refused = self.variant.refuses(tag).map(str::to_owned);
            let reason = refused.or_else(|| target.lacks(tag))?;
            Some(format!("{}: {reason}", tag.name()))
        })
    }

    /// The environment of the row's processes.
    pub(crate) fn environment(&self, target: &Target, simulator: &Path) -> Vec<(String, String)> {
        let devices = self.devices.to_string();
        let visible = ("CUDA_VISIBLE_DEVICES", target.visible(self.devices));
        let libraries = target.libraries();
        let runtime = libraries.and_then(|libraries| libraries.runtime.as_ref().ok());
        let runtime = runtime.map(|library| (RUNTIME, library.path.clone()));
        let in_process = |mode: &str| {
            vec![("CUDA_TESTS_SIM", devices.clone()), ("CUDA_SIM_MODE", mode.to_owned())]
        };
        let variables = match self.variant {
            Variant::Default => vec![visible],
            Variant::Blocking => vec![visible, ("CUDA_LAUNCH_BLOCKING", "1".into())],
            Variant::EagerLoading => vec![visible, ("CUDA_MODULE_LOADING", "EAGER".into())],
            Variant::Memcheck => vec![visible, ("CUDA_TESTS_WATCHDOG", "300".into())],
            Variant::Lazy => in_process("lazy"),
            Variant::Eager => in_process("eager"),
            Variant::Threaded => [in_process("threaded"), vec![simulator_seed()]].concat(),
            Variant::Library => vec![
                ("CUDA_SYS_LIBRARY", simulator.display().to_string()),
                ("CUDA_SIM_DEVICES", devices.clone()),
            ],
        };
        variables.into_iter().chain(runtime).map(|(name, value)| (name.to_owned(), value)).collect()
    }
}

#[cfg(test)]
mod tests {
    use cuda_core::Version;

    use super::*;
    use crate::target::libraries;

    fn real(devices: u32) -> Target {
        Target::Real {
            devices,
            driver: Version::new(12, 2),
            names: Vec::new(),
            libraries: libraries::none(),
            visible: None,
        }
    }

    fn row(devices: u32, variant: Variant) -> Row {
        Row { devices, variant }
    }

    #[test]
    fn rows_beyond_the_machine_are_there_and_say_why() {
        let target = real(2);
        let rows = rows(&target);
        assert_eq!(rows.len(), 16);
        assert_eq!(rows[4].to_string(), "2-default");
        let reason = obstacle(&row(4, Variant::Default), &target);
        assert_eq!(reason, Err("needs 4 devices, 2 visible".into()));
        assert_eq!(obstacle(&row(2, Variant::Default), &target), Ok(Vec::new()));
    }

    #[test]
    fn tags_leave_tests_out_where_they_mean_nothing() {
        let target = real(2);
        let case = Case::parse("a::asynchronous::needs_1");
        assert_eq!(row(1, Variant::Default).leaves_out(&case, &target), None);
        assert_eq!(row(1, Variant::EagerLoading).leaves_out(&case, &target), None);
        assert!(row(1, Variant::Blocking).leaves_out(&case, &target).is_some());
        let plain = Case::parse("a::asks_no_device");
        assert_eq!(row(1, Variant::Default).leaves_out(&plain, &target), None);
        assert!(row(1, Variant::Memcheck).leaves_out(&plain, &target).is_some());
        assert!(row(1, Variant::Memcheck).leaves_out(&case, &target).is_some());
        let case = Case::parse("a::needs_2");
        assert_eq!(
            row(1, Variant::Default).leaves_out(&case, &target),
            Some("needs 2 devices".into())
        );
    }

    #[test]
    fn tests_are_left_out_that_lack_a_library_or_a_newer_driver() {
        let target = real(1);
        let reason = |path| row(1, Variant::Default).leaves_out(&Case::parse(path), &target);
        assert_eq!(reason("a::real::nvrtc::needs_1"), Some("nvrtc: nowhere".into()));
        assert_eq!(reason("a::real::runtime::needs_1"), Some("runtime: nowhere".into()));
        assert_eq!(
            reason("a::cuda_12_4::needs_1"),
            Some("cuda_12_4: the driver is for CUDA 12.2".into())
        );
        assert_eq!(reason("a::cuda_12_2::needs_1"), None);
        let simulated = Target::Simulated { devices: 1 };
        let case = Case::parse("a::real::nvrtc::needs_1");
        let reason = row(1, Variant::Lazy).leaves_out(&case, &simulated);
        assert!(reason.is_some_and(|reason| reason.starts_with("real: ")));
    }

    #[test]
    fn a_row_shows_its_devices_only() {
        let environment = row(2, Variant::Blocking).environment(&real(8), Path::new("x"));
        let expected = [("CUDA_VISIBLE_DEVICES", "0,1"), ("CUDA_LAUNCH_BLOCKING", "1")];
        assert_eq!(environment, expected.map(|(n, v)| (n.to_owned(), v.to_owned())));
    }
}
