//! The settings with which GPU suites run, and the tests that each setting leaves out.

use std::collections::HashSet;
use std::env;
use std::ffi::OsString;
use std::fmt;

use fs_err as fs;

use super::{Case, Invocation, Program, Row, Tag};
use crate::Refusal;
use crate::target::{DEVICE_RUNTIME, Libraries, RUNTIME, Target, visible};

/// compute-sanitizer's exit code after a finding; no test program uses it.
const SANITIZER_EXIT_CODE: &str = "99";

/// The oldest supported driver, by its CUDA version.
const OLDEST: (u32, u32) = (11, 8);
const ITS_SYMBOLS: &str = include_str!("../../../cuda-sys/build/floor_11_8.txt");

/// The functions that `cuda-sys` binds.
const FUNCTIONS: &str = include_str!("../../../cuda-sys/src/bindings/functions.rs");

/// The settings apart from the number of devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Variant {
    /// No special settings.
    Default,
    /// `CUDA_LAUNCH_BLOCKING=1`: every launch and copy is complete when its call returns.
    Blocking,
    /// `CUDA_MODULE_LOADING=EAGER`.
    EagerLoading,
    /// `CUDA_CORE_ALLOCATOR=driver`: the driver's pool instead of the cache.
    DriverPool,
    /// compute-sanitizer's memcheck.
    Memcheck,
    /// The simulated driver in the test's own process; work is done as late as CUDA permits.
    Lazy,
    /// As [`Self::Lazy`], but work is done at enqueue.
    Eager,
    /// As [`Self::Lazy`], but work is done by a seeded schedule: with the same seed, unless the environment
    /// sets another.
    Threaded,
    /// As [`Self::Lazy`], with the driver's pool instead of the cache.
    LazyDriverPool,
    /// As [`Self::Lazy`], with a driver call for each block.
    Plain,
    /// As [`Self::Lazy`], with only the symbols of the oldest supported driver.
    Oldest,
}

impl Variant {
    /// The rows on real GPUs.
    pub(crate) const REAL: &[Self] =
        &[Self::Default, Self::Blocking, Self::EagerLoading, Self::DriverPool, Self::Memcheck];
    /// The rows on the simulated driver, in place of real ones.
    pub(crate) const SIMULATED: &[Self] = &[Self::Lazy, Self::Eager, Self::Threaded];
    /// All rows on the simulated driver.
    pub(crate) const ALL_SIMULATED: &[Self] =
        &[Self::Lazy, Self::Eager, Self::Threaded, Self::LazyDriverPool, Self::Plain, Self::Oldest];

    /// Returns the variant's name, and the variables that it sets besides the devices.
    fn describe(self) -> (&'static str, Vec<(&'static str, String)>) {
        let mode = |mode: &str| ("CUDA_SIM_MODE", mode.to_owned());
        let allocator = |name: &str| ("CUDA_CORE_ALLOCATOR", name.to_owned());
        let seed = || env::var("CUDA_SIM_SEED").unwrap_or_else(|_| "1".into());
        let missing = || ("CUDA_SIM_MISSING", newer_symbols().join(","));
        match self {
            Self::Default => ("default", vec![]),
            Self::Blocking => ("launch-blocking", vec![("CUDA_LAUNCH_BLOCKING", "1".into())]),
            Self::EagerLoading => ("eager-loading", vec![("CUDA_MODULE_LOADING", "EAGER".into())]),
            Self::DriverPool => ("driver-pool", vec![allocator("driver")]),
            Self::Memcheck => ("memcheck", vec![("CUDA_TESTS_WATCHDOG", "300".into())]),
            Self::Lazy => ("sim-lazy", vec![mode("lazy")]),
            Self::Eager => ("sim-eager", vec![mode("eager")]),
            Self::Threaded => ("sim-threaded", vec![mode("threaded"), ("CUDA_SIM_SEED", seed())]),
            Self::LazyDriverPool => ("sim-driver-pool", vec![mode("lazy"), allocator("driver")]),
            Self::Plain => ("sim-plain", vec![mode("lazy"), allocator("plain")]),
            Self::Oldest => ("sim-cuda-11.8", vec![mode("lazy"), missing()]),
        }
    }

    fn is_simulated(self) -> bool {
        !Self::REAL.contains(&self)
    }

    /// Returns the reason why a test with this tag is meaningless under these settings, if it is.
    fn refuses(self, tag: Tag) -> Option<&'static str> {
        match (self, tag) {
            (Self::Blocking, Tag::Asynchronous) => Some("calls block in this row"),
            (Self::Blocking, Tag::Timing) => Some("calls block in this row, which times them"),
            (Self::Memcheck, Tag::Asynchronous | Tag::Timing) => {
                Some("memcheck serialises and slows calls")
            }
            (Self::Memcheck, Tag::Faulting) => Some("memcheck would report the fault it provokes"),
            (Self::Oldest, Tag::Cuda(major, minor)) if OLDEST < (major, minor) => {
                Some("the simulated driver is for CUDA 11.8 in this row")
            }
            (_, Tag::Real) if self.is_simulated() => {
                Some("means nothing on the simulated driver: cargo xtask test-gpu")
            }
            (_, Tag::Timing) if self.is_simulated() => {
                Some("the simulated driver has no timing: cargo xtask test-gpu")
            }
            _ => None,
        }
    }
}

/// A combination of devices and settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Setting {
    pub(crate) devices: u32,
    pub(crate) variant: Variant,
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.devices, self.variant.describe().0)
    }
}

impl Setting {
    /// Returns how to run tests with the setting, or the reason why that is impossible here.
    pub(crate) fn invocation(&self, target: &Target) -> Result<Invocation, Refusal> {
        let there = target.devices();
        if there < self.devices {
            let needed = self.devices;
            return Err(Refusal(format!("needs {needed} devices, {there} visible")));
        }
        let why = "compute-sanitizer is neither on PATH nor in /usr/local/cuda*/bin";
        let wrapper = match self.variant {
            Variant::Memcheck => memcheck().ok_or_else(|| Refusal(why.to_owned()))?,
            _ => Vec::new(),
        };
        let mut environment = vec![match self.variant.is_simulated() {
            true => ("CUDA_TESTS_SIM", self.devices.to_string()),
            false => ("CUDA_VISIBLE_DEVICES", visible(self.devices)),
        }];
        environment.extend(self.variant.describe().1);
        if let Some(Libraries { runtime, device_runtime, .. }) = target.libraries() {
            environment.extend(runtime.iter().map(|library| (RUNTIME, library.path.clone())));
            environment.extend(device_runtime.iter().map(|path| (DEVICE_RUNTIME, path.clone())));
        }
        Ok(Invocation { wrapper, environment, of_gpu: true })
    }

    /// Returns how to run a program's tests with the setting, and their names. The row lists the other tests
    /// as left out.
    pub(crate) fn choose<'a>(
        &self,
        row: &mut Row,
        program: &Program,
        cases: &'a [Case],
        target: &Target,
    ) -> Result<(Invocation, Vec<&'a str>), Refusal> {
        let invocation = self.invocation(target)?;
        let mut names = Vec::new();
        for case in cases {
            match self.leaves_out(case, target) {
                None => names.push(case.name.as_str()),
                Some(reason) => row.leave_out(&program.suite, &case.title, &reason),
            }
        }
        Ok((invocation, names))
    }

    /// Returns the reason why a test is not run, if it is not.
    fn leaves_out(&self, case: &Case, target: &Target) -> Option<String> {
        if case.needs > self.devices {
            return Some(format!("needs {} devices", case.needs));
        }
        if case.needs == 0 && self.variant == Variant::Memcheck {
            return Some("asks no device: there is nothing for memcheck to see".into());
        }
        let is_of_ranks = case.needs > 1 && case.tags.contains(&Tag::Nccl);
        if is_of_ranks && self.variant == Variant::Blocking {
            return Some("the launch of one rank blocks until the others have launched".into());
        }
        case.tags.iter().find_map(|&tag| {
            let refused = self.variant.refuses(tag).map(str::to_owned);
            let reason = refused.or_else(|| target.lacks(tag))?;
            Some(format!("{}: {reason}", tag.name()))
        })
    }
}

/// Returns the symbols that only drivers newer than the oldest have.
fn newer_symbols() -> Vec<&'static str> {
    let old: HashSet<&str> = ITS_SYMBOLS.lines().collect();
    let all = FUNCTIONS.lines().filter_map(|line| line.trim().strip_prefix("pub fn "));
    let all = all.filter_map(|declared| Some(declared.split_once('(')?.0));
    all.filter(|symbol| !old.contains(symbol)).collect()
}

/// Returns the command prefix that runs a program under memcheck. Tests provoke driver errors on purpose, so
/// API errors are not reported. A test without driver calls has passed, not failed to start.
fn memcheck() -> Option<Vec<OsString>> {
    let on_path = env::var_os("PATH").unwrap_or_default();
    let local = fs::read_dir("/usr/local").into_iter().flatten().flatten();
    let toolkits = local.filter(|it| it.file_name().to_string_lossy().starts_with("cuda"));
    let of_toolkits = toolkits.map(|toolkit| toolkit.path().join("bin"));
    let mut programs =
        env::split_paths(&on_path).chain(of_toolkits).map(|bin| bin.join("compute-sanitizer"));
    let program = programs.find(|path| path.is_file())?;
    let options = "--tool memcheck --report-api-errors no --require-cuda-init no --error-exitcode";
    let options = options.split(' ').chain([SANITIZER_EXIT_CODE]);
    Some([program.into()].into_iter().chain(options.map(OsString::from)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::{Gpus, tests};

    fn real(devices: u32) -> Target {
        let gpus = Gpus { devices, driver: (12, 2), names: Vec::new() };
        Target::Real(gpus, tests::none().into())
    }

    fn setting(devices: u32, variant: Variant) -> Setting {
        Setting { devices, variant }
    }

    fn reason(variant: Variant, target: &Target, test: &str) -> Option<String> {
        setting(1, variant).leaves_out(&Case::parse(test), target)
    }

    fn environment(variant: Variant, target: &Target) -> Vec<(&'static str, String)> {
        let invocation = setting(2, variant).invocation(target);
        invocation.expect("two devices").environment
    }

    #[test]
    fn more_devices_than_there_are_is_said() {
        let reason = setting(4, Variant::Default).invocation(&real(2));
        let reason = reason.map(drop).expect_err("two are too few");
        assert_eq!(reason.to_string(), "needs 4 devices, 2 visible");
    }

    #[test]
    fn tags_leave_tests_out_where_they_mean_nothing() {
        let target = real(2);
        let reason = |variant, test| reason(variant, &target, test);
        let asynchronous = "a::asynchronous::needs_1";
        assert_eq!(reason(Variant::Default, asynchronous), None);
        assert_eq!(reason(Variant::EagerLoading, asynchronous), None);
        assert_eq!(reason(Variant::Lazy, asynchronous), None);
        assert!(reason(Variant::Blocking, asynchronous).is_some());
        assert!(reason(Variant::Memcheck, asynchronous).is_some());
        assert_eq!(reason(Variant::Default, "a::asks_no_device"), None);
        assert!(reason(Variant::Memcheck, "a::asks_no_device").is_some());
        let expected = Some("needs 2 devices".into());
        assert_eq!(reason(Variant::Default, "a::needs_2"), expected);
        let ranks =
            |variant| setting(2, variant).leaves_out(&Case::parse("a::nccl::needs_2"), &target);
        assert!(ranks(Variant::Blocking).is_some_and(|reason| reason.contains("one rank")));
        assert!(ranks(Variant::Default).is_none_or(|reason| reason.starts_with("nccl: ")));
    }

    #[test]
    fn tests_are_left_out_that_lack_a_library_or_a_newer_driver() {
        let target = real(1);
        let reason_of = |test| reason(Variant::Default, &target, test);
        let nvrtc = "a::real::nvrtc::needs_1";
        assert_eq!(reason_of(nvrtc), Some("nvrtc: nowhere".into()));
        assert_eq!(reason_of("a::nccl::needs_1"), Some("nccl: nowhere".into()));
        let runtime = "a::real::runtime::needs_1";
        assert_eq!(reason_of(runtime), Some("runtime: nowhere".into()));
        let expected = "cuda_12_4: the driver is for CUDA 12.2";
        assert_eq!(reason_of("a::cuda_12_4::needs_1"), Some(expected.into()));
        assert_eq!(reason_of("a::cuda_12_2::needs_1"), None);
    }

    #[test]
    fn what_the_simulator_cannot_do_is_said() {
        let target = Target::Simulated { devices: 1, without_nvrtc: None };
        for variant in [Variant::Lazy, Variant::Plain] {
            let reason = |test| reason(variant, &target, test);
            let real = reason("a::real::needs_1");
            assert!(real.is_some_and(|reason| reason.starts_with("real: ")));
            assert!(reason("a::timing::needs_1").is_some());
            assert_eq!(reason("a::cuda_12_4::needs_1"), None);
        }
    }

    #[test]
    fn the_oldest_driver_lacks_what_came_later() {
        let target = Target::Simulated { devices: 2, without_nvrtc: None };
        let environment = environment(Variant::Oldest, &target);
        let (_, missing) = environment.last().expect("several");
        let missing: Vec<_> = missing.split(',').collect();
        assert!(missing.contains(&"cuGreenCtxCreate"));
        assert!(!missing.contains(&"cuStreamCreate"));
        assert!(reason(Variant::Oldest, &target, "a::cuda_12_4::needs_1").is_some());
        assert_eq!(reason(Variant::Oldest, &target, "a::needs_1"), None);
        let version = format!("CUDA {}.{}", OLDEST.0, OLDEST.1);
        let said = Variant::Oldest.refuses(Tag::Cuda(12, 4));
        assert!(said.is_some_and(|said| said.contains(&version)));
    }

    #[test]
    fn a_row_shows_its_devices_only() {
        let expected = [("CUDA_VISIBLE_DEVICES", "0,1"), ("CUDA_LAUNCH_BLOCKING", "1")];
        let expected = expected.map(|(name, value)| (name, value.to_owned()));
        assert_eq!(environment(Variant::Blocking, &real(8)), expected);
    }
}
