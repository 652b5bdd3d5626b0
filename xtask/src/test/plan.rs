//! How often each program runs, and which of its tests in each pass.

use std::collections::HashSet;

use crate::suite::{Case, Program, Tag};
use crate::target::simulator_seed;

/// The oldest supported driver, by its CUDA version.
const OLDEST: (u32, u32) = (11, 8);
const ITS_SYMBOLS: &str = include_str!("../../../cuda-sys/build/floor_11_8.txt");

/// The symbols that later drivers have.
fn newer_symbols() -> Vec<&'static str> {
    let old: HashSet<&str> = ITS_SYMBOLS.lines().collect();
    let all = cuda_sys::DriverApi::SYMBOLS.iter().copied();
    all.filter(|symbol| !old.contains(symbol)).collect()
}

/// Whether tests of a program share a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Together,
    Apart,
}

/// One run of a program.
#[derive(Debug)]
pub(crate) struct Pass {
    pub(crate) label: Option<String>,
    pub(crate) mode: Mode,
    pub(crate) environment: Vec<(String, String)>,
    /// Whether the tests are those that a plain `cargo test` skips because of `#[ignore]`.
    pub(crate) ignored: bool,
    /// Devices of the simulated driver.
    pub(crate) devices: u32,
    /// The CUDA version of the driver, if it is not the newest.
    pub(crate) driver: Option<(u32, u32)>,
}

/// The GPU suites run on the simulated driver, all others without one.
pub(crate) fn passes(program: &Program, devices: u32) -> Vec<Pass> {
    let mode = match program.suite.as_str() {
        "cuda-tests::gpu" => Mode::Together,
        "cuda-tests::sticky" => Mode::Apart,
        _ => {
            return vec![Pass {
                label: None,
                mode: Mode::Together,
                environment: Vec::new(),
                ignored: false,
                devices,
                driver: None,
            }];
        }
    };
    let (seed, schedule) = simulator_seed();
    let pass = |label: String, work: &str| Pass {
        label: Some(label),
        mode,
        environment: vec![
            ("CUDA_TESTS_SIM".into(), devices.to_string()),
            ("CUDA_SIM_MODE".into(), work.into()),
        ],
        ignored: true,
        devices,
        driver: None,
    };
    let mut passes: Vec<_> =
        ["lazy", "eager"].map(|work| pass(format!("simulated, {work}"), work)).into();
    // Tests in processes of their own are about how a process ends, which the schedule does not
    // affect.
    if mode == Mode::Together {
        let mut threaded = pass(format!("simulated, threaded, {seed}={schedule}"), "threaded");
        threaded.environment.push((seed.into(), schedule));
        passes.push(threaded);
        // The passes above use the cache, which is the default.
        for allocator in ["driver", "plain"] {
            let mut other = pass(format!("simulated, allocator {allocator}"), "lazy");
            let name = "CUDA_CORE_ALLOCATOR".to_owned();
            other.environment.push((name, allocator.to_owned()));
            passes.push(other);
        }
        let (major, minor) = OLDEST;
        let mut oldest = pass(format!("simulated, driver of {major}.{minor}"), "lazy");
        let missing = ("CUDA_SIM_MISSING".into(), newer_symbols().join(","));
        oldest.environment.push(missing);
        oldest.driver = Some(OLDEST);
        passes.push(oldest);
    }
    passes
}

/// Why a test cannot run in a pass, if so.
pub(crate) fn obstacle(case: &Case, pass: &Pass) -> Option<String> {
    if !pass.ignored {
        return None;
    }
    if case.tags.contains(&Tag::Real) {
        return Some("means nothing on the simulated driver: cargo xtask test-gpu".into());
    }
    if case.tags.contains(&Tag::Timing) {
        return Some("the simulated driver has no timing: cargo xtask test-gpu".into());
    }
    let lacks = case.needs > pass.devices;
    lacks
        .then(|| format!("needs {} devices, the simulated driver has {}", case.needs, pass.devices))
}

/// The CUDA version that a test needs and the pass's driver lacks, if any: unlike an [`obstacle`],
/// it does not exclude other passes.
pub(crate) fn too_old(case: &Case, pass: &Pass) -> Option<String> {
    let driver = pass.driver?;
    case.tags.iter().find_map(|tag| match *tag {
        Tag::Cuda(major, minor) if driver < (major, minor) => {
            Some(format!("needs a driver for CUDA {major}.{minor}"))
        }
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(suite: &str) -> Program {
        Program { suite: suite.into(), path: "x".into(), directory: None }
    }

    #[test]
    fn gpu_suites_run_in_every_mode() {
        let labels: Vec<_> = passes(&program("cuda-tests::gpu"), 4)
            .into_iter()
            .filter_map(|pass| pass.label)
            .collect();
        assert_eq!(labels[..2], ["simulated, lazy", "simulated, eager"]);
        assert!(labels[2].starts_with("simulated, threaded, CUDA_SIM_SEED="));
        let allocators = ["simulated, allocator driver", "simulated, allocator plain"];
        assert_eq!(labels[3..5], allocators);
        assert_eq!(labels[5..], ["simulated, driver of 11.8"]);
    }

    #[test]
    fn the_oldest_driver_lacks_what_came_later() {
        let passes = passes(&program("cuda-tests::gpu"), 4);
        let oldest = passes.last().expect("several");
        let (_, missing) = oldest.environment.last().expect("several");
        let missing: Vec<_> = missing.split(',').collect();
        // The header may be equally old.
        let newer = "cuGreenCtxCreate";
        let known = cuda_sys::DriverApi::SYMBOLS.contains(&newer);
        assert_eq!(missing.contains(&newer), known);
        assert!(!missing.contains(&"cuStreamCreate"));
        let reason = |name, pass| too_old(&Case::parse(name), pass);
        let told = reason("a::cuda_12_4::needs_1", oldest);
        assert_eq!(told.as_deref(), Some("needs a driver for CUDA 12.4"));
        assert_eq!(reason("a::needs_1", oldest), None);
        assert_eq!(reason("a::cuda_12_4::needs_1", &passes[0]), None);
    }

    #[test]
    fn tests_apart_run_lazily_and_eagerly() {
        let passes = passes(&program("cuda-tests::sticky"), 4);
        assert_eq!(passes.len(), 2);
        assert!(passes.iter().all(|pass| pass.mode == Mode::Apart && pass.ignored));
        assert_eq!(passes[1].environment[1], ("CUDA_SIM_MODE".into(), "eager".into()));
    }

    #[test]
    fn what_the_simulator_cannot_do_is_said() {
        let pass = &passes(&program("cuda-tests::gpu"), 4)[0];
        let reason = |name| obstacle(&Case::parse(name), pass);
        assert_eq!(reason("a::asynchronous::needs_4"), None);
        assert!(reason("a::needs_8").is_some_and(|reason| reason.contains("needs 8")));
        assert!(reason("a::real::needs_1").is_some());
        assert!(reason("a::timing::needs_1").is_some());
    }
}
