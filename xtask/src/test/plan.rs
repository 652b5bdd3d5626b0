//! Which program runs how often, and which of its tests each time.

use crate::suite::{Case, Program, Tag};

/// Whether tests of a program share a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Together,
    Apart,
}

/// One run of a program.
#[derive(Debug)]
pub(crate) struct Pass {
    pub(crate) label: Option<&'static str>,
    pub(crate) mode: Mode,
    pub(crate) environment: Vec<(String, String)>,
    /// The tests are those that `#[ignore]` keeps from a plain `cargo test`.
    pub(crate) ignored: bool,
    /// Devices of the simulated driver.
    pub(crate) devices: u32,
}

/// The GPU suites run on the simulated driver, all others as they are.
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
            }];
        }
    };
    let pass = |label: &'static str, work: &str| Pass {
        label: Some(label),
        mode,
        environment: vec![
            ("CUDA_TESTS_SIM".into(), devices.to_string()),
            ("CUDA_SIM_MODE".into(), work.into()),
        ],
        ignored: true,
        devices,
    };
    vec![
        pass("simulated, lazy", "lazy"),
        pass("simulated, eager", "eager"),
    ]
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
    lacks.then(|| {
        format!(
            "needs {} devices, the simulated driver has {}",
            case.needs, pass.devices
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(suite: &str) -> Program {
        Program {
            suite: suite.into(),
            path: "x".into(),
            directory: None,
        }
    }

    #[test]
    fn gpu_suites_run_lazily_and_eagerly() {
        let passes = passes(&program("cuda-tests::sticky"), 4);
        assert_eq!(passes.len(), 2);
        assert!(
            passes
                .iter()
                .all(|pass| pass.mode == Mode::Apart && pass.ignored)
        );
        assert_eq!(
            passes[1].environment[1],
            ("CUDA_SIM_MODE".into(), "eager".into())
        );
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
