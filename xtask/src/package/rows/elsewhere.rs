//! The simulator and its tests, run for other targets: on an emulated processor, and on wine.

use std::ffi::OsString;
use std::process::Command;

use anyhow::{Context, bail, ensure};
use fs_err as fs;

use super::targets::has_std;
use crate::cargo::Built;
use crate::package::Workshop;
use crate::process::{command, output, require, succeeds};
use crate::refuse;
use crate::suite::process::follow;
use crate::suite::{Finished, Program, Verdict};

/// Build the tests of both libraries, then what a user's tests need and the simulator's own tests. Apart,
/// because `--lib` would compile the simulator as a test, too, which has no tests of its own. Leave out
/// `tests/sim`, which takes ten minutes there.
const TESTS: [&str; 2] = [
    "test --no-run --locked --no-default-features -p cuda-sys -p cuda-core -p cuda-tests --lib",
    "test --no-run --locked --no-default-features -p cuda-driver-sim -p cuda-tests \
        --test driver --test environment --test gpu",
];

/// The suite whose tests' paths say where they can run.
const GPU: &str = "cuda-tests::gpu";

/// Tests of that suite that run on none of these targets, by a part of their paths, with the reason.
const NOT_HERE: [(&str, &str); 3] = [
    ("::real::", "they mean nothing on the simulated driver"),
    ("::nvrtc::", "a library for the target would be needed"),
    ("::timing::", "they assert durations, and another program interprets this one"),
];

/// A way to run another target's programs.
struct Elsewhere {
    triple: &'static str,
    linker: &'static str,
    /// The program that runs the target's programs.
    runner: &'static str,
    /// Debian's packages with the linker and the runner, named if they are missing.
    packages: &'static str,
    /// Other tests of the suite that cannot run there, by a part of their paths, with the reason.
    not_there: &'static [(&'static str, &'static str)],
}

const AARCH64: Elsewhere = Elsewhere {
    triple: "aarch64-unknown-linux-gnu",
    linker: "aarch64-linux-gnu-gcc",
    runner: "qemu-aarch64",
    packages: "qemu-user gcc-aarch64-linux-gnu libc6-dev-arm64-cross",
    not_there: &[
        ("s35_mappings_are_not_inherited", "qemu ignores MADV_DONTFORK"),
        ("n06_", "they bound the memory of a process, and qemu keeps some for each thread"),
    ],
};

const WINDOWS: Elsewhere = Elsewhere {
    triple: "x86_64-pc-windows-gnu",
    linker: "x86_64-w64-mingw32-gcc",
    runner: "wine",
    packages: "wine wine64 gcc-mingw-w64-x86-64",
    not_there: &[],
};

pub(super) fn aarch64_linux(workshop: &Workshop) -> anyhow::Result<String> {
    AARCH64.check(workshop, &[("QEMU_LD_PREFIX", "/usr/aarch64-linux-gnu".into())])
}

pub(super) fn windows(workshop: &Workshop) -> anyhow::Result<String> {
    let folder = workshop.directory("wine")?;
    let libraries = folder.join("libraries");
    fs::create_dir_all(&libraries)?;
    let source = folder.join("bcryptprimitives.c");
    fs::write(&source, include_str!("../../../package/bcryptprimitives.c"))?;
    let variables: [(_, OsString); 3] = [
        ("WINEPREFIX", folder.join("prefix").into()),
        ("WINEPATH", format!("Z:{}", libraries.display().to_string().replace('/', "\\")).into()),
        ("WINEDEBUG", "-all".into()),
    ];
    let mut compiler = workshop.machine.command(WINDOWS.linker);
    compiler.args(["-shared", "-o"]).arg(libraries.join("bcryptprimitives.dll"));
    WINDOWS.find(WINDOWS.linker, "")?;
    output(compiler.arg(&source).arg("-ladvapi32")).context("bcryptprimitives.dll")?;
    let checked = WINDOWS.check(workshop, &variables);
    // Wine's server holds files in the folder until it ends.
    let mut server = command("wineserver --wait");
    server.envs(variables);
    succeeds(server);
    checked
}

impl Elsewhere {
    /// Builds the tests, and runs them all with these variables set.
    fn check(&self, workshop: &Workshop, variables: &[(&str, OsString)]) -> anyhow::Result<String> {
        let why = "it is this machine's own target: cargo xtask test";
        ensure!(workshop.host()? != self.triple, refuse(why));
        has_std(workshop, self.triple)?;
        self.find(self.linker, "")?;
        let linker = self.triple.replace('-', "_").to_uppercase();
        let mut programs = Vec::new();
        for tests in TESTS {
            let mut cargo = workshop.cargo(&workshop.source(), tests);
            cargo.env(format!("CARGO_TARGET_{linker}_LINKER"), self.linker);
            let built = Built::of(cargo.args(["--target", self.triple]))?;
            programs.extend(built.tests());
        }
        self.find(self.runner, "its tests compile, but ")?;
        let mut passed = 0;
        let mut failures = Vec::new();
        for program in programs {
            let mut run = workshop.machine.command(self.runner);
            run.arg(&program.path).envs(variables.iter().cloned());
            let tests = self.run(run, &program)?;
            passed += tests.iter().filter(|test| !test.has_failed()).count();
            failures.extend(tests.into_iter().filter_map(|test| match test.verdict {
                Verdict::Failed(why) => Some(format!("{}: {}: {why}", program.suite, test.name)),
                _ => None,
            }));
        }
        let (failed, failures) = (failures.len(), failures.join("\n"));
        ensure!(failed == 0, "{passed} passed, {failed} failed\n{failures}");
        let left_out = NOT_HERE.iter().chain(self.not_there);
        let left_out = left_out.map(|(tests, why)| format!("{}: {why}", tests.trim_matches(':')));
        let left_out = left_out.collect::<Vec<_>>().join("; ");
        Ok(format!("{passed} tests passed with {}; not run: {left_out}", self.runner))
    }

    /// Runs a test program. Returns an error if it has no tests.
    fn run(&self, mut command: Command, program: &Program) -> anyhow::Result<Vec<Finished>> {
        if let Some(directory) = &program.directory {
            command.current_dir(directory);
        }
        if program.suite == GPU {
            let left_out = NOT_HERE.iter().chain(self.not_there);
            command.arg("--include-ignored");
            command.args(left_out.flat_map(|(tests, _)| ["--skip", tests]));
            command.env("CUDA_TESTS_SIM", "4").env("CUDA_TESTS_WATCHDOG", "300");
        }
        let run = follow(command, &mut |_| {})?.run;
        if let Some(complaint) = run.complaint {
            bail!("{}: {complaint}", program.suite);
        }
        ensure!(!run.finished.is_empty(), "{}: no test ran", program.suite);
        Ok(run.finished)
    }

    /// Returns an error that names the packages, unless the program is installed.
    fn find(&self, program: &str, found: &str) -> anyhow::Result<()> {
        let packages = self.packages;
        let help = format!("{found}there is no {program}: apt-get install {packages}");
        require(command(&format!("{program} --version")), help)
    }
}
