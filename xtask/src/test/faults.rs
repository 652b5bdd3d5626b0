//! The GPU suite on the simulated driver, again for each driver call of each test, which is made to
//! fail.

use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::{env, fs, process, thread};

use anyhow::Context;

use super::depth::Depth;
use super::plan::{self, Mode, Pass};
use super::report::Report;
use crate::suite::process::Run;
use crate::suite::{Invocation, Program, Verdict, queue};

const SUITE: &str = "cuda-tests::gpu";
const LABEL: &str = "a failure at every call";

/// The GPU suite among the programs built.
pub(super) fn suite(programs: &[Program]) -> anyhow::Result<&Program> {
    let found = programs.iter().find(|program| program.suite == SUITE);
    found.with_context(|| format!("{SUITE} is not among the tests built"))
}

/// Sweeps every test that the simulated driver can run, several at a time, each in a process of its
/// own.
pub(super) fn run(
    program: &Program,
    filter: Option<&str>,
    devices: u32,
    depth: Depth,
    report: &mut Report,
) -> anyhow::Result<()> {
    let record = Record::new();
    let mut pass = Pass {
        label: Some(LABEL.into()),
        mode: Mode::Apart,
        environment: vec![
            ("CUDA_TESTS_SIM".into(), devices.to_string()),
            ("CUDA_SIM_MODE".into(), "lazy".into()),
            ("CUDA_TESTS_FAULTS".into(), record.path.display().to_string()),
        ],
        ignored: true,
        devices,
        driver: None,
    };
    pass.environment.extend(depth.environment());
    let cases = program.list()?;
    let able = cases.iter().filter(|case| plan::obstacle(case, &pass).is_none());
    let names: Vec<&str> = able
        .map(|case| case.name.as_str())
        .filter(|name| filter.is_none_or(|filter| name.contains(filter)))
        .collect();
    if names.is_empty() {
        return Ok(());
    }
    println!("\n== {SUITE}, {LABEL}: {} tests", names.len());
    let mut run = sweep(program, &pass, &names)?;
    for test in &mut run.finished {
        if let Verdict::Failed(output) = &mut test.verdict {
            *output += &format!("\nto repeat it: {}", repeating(depth, &test.name));
        }
    }
    let swept = record.read()?;
    run.finished.retain(|test| {
        let reason = swept.reason(&test.name);
        if let Some(reason) = reason {
            report.not_run(&format!("{SUITE}, {LABEL}"), &test.name, reason);
        }
        reason.is_none()
    });
    report.note(swept.summary());
    report.note(slowest(&run));
    report.suite(format!("{SUITE}, {LABEL}"), run.finished, run.complaint);
    Ok(())
}

fn sweep(program: &Program, pass: &Pass, names: &[&str]) -> anyhow::Result<Run> {
    let invocation = Invocation {
        environment: pass.environment.clone(),
        ignored: true,
        serial: true,
        ..Invocation::default()
    };
    // Two per processor: a test that stalls a stream waits for a quarter of its time.
    let workers = 2 * thread::available_parallelism().map_or(1, NonZero::get);
    let runs = queue::each(workers, names.to_vec(), |name| {
        program.run(&invocation, &[name], &mut super::show_test)
    });
    let mut all = Run::default();
    for run in runs {
        all.absorb(run?);
    }
    Ok(all)
}

/// The command that sweeps a test as this run does: the same of its calls fail.
fn repeating(depth: Depth, test: &str) -> String {
    let sample = match depth {
        Depth::Full => String::new(),
        Depth::Sampled { rotation } => format!(" --rotation {rotation}"),
    };
    format!("cargo xtask test --faults{sample} --filter {test}")
}

/// The slowest tests: those to shrink if a run takes too long.
fn slowest(run: &Run) -> String {
    const NAMED: usize = 10;
    let mut times: Vec<_> = run.finished.iter().map(|test| (test.time, &test.name)).collect();
    times.sort_unstable();
    let mut text = format!("{LABEL}: the slowest tests:");
    for (time, name) in times.iter().rev().take(NAMED) {
        text += &format!("\n    {:6.1} s {name}", time.as_secs_f64());
    }
    text
}

/// The file in which the tests record their sweeps.
struct Record {
    path: PathBuf,
}

impl Record {
    fn new() -> Self {
        let name = format!("cuda-tests-faults-{}", process::id());
        Self { path: env::temp_dir().join(name) }
    }

    fn read(&self) -> anyhow::Result<Swept> {
        // No test has written to it.
        if !Path::new(&self.path).exists() {
            return Ok(Swept::default());
        }
        let text = fs::read_to_string(&self.path).context("what the swept tests wrote")?;
        Ok(Swept::parse(&text))
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        // A leftover in the system's directory of temporary files is harmless.
        let _ = fs::remove_file(&self.path);
    }
}

/// What the sweeps did.
#[derive(Debug, Default, PartialEq)]
struct Swept {
    scenarios: u64,
    runs: u64,
    calls: u64,
    /// Runs after which the current context was not checked.
    current_unknown: u64,
    /// Tests in which not every call failed: the stride, and the number of calls.
    sampled: Vec<(String, u64, u64)>,
    not_swept: Vec<(String, String)>,
}

impl Swept {
    fn parse(text: &str) -> Self {
        let mut swept = Self::default();
        for line in text.lines() {
            let fields: Vec<&str> = line.split('\t').collect();
            let number = |at: usize| fields[at].parse().unwrap_or(0);
            match fields[..] {
                [path, _, _, _, _] => {
                    let (runs, calls, stride) = (number(1), number(2), number(3));
                    swept.scenarios += 1;
                    swept.runs += runs;
                    swept.calls += calls;
                    swept.current_unknown += number(4);
                    if stride > 1 {
                        swept.sampled.push((path.into(), stride, calls));
                    }
                }
                [path, reason] => swept.not_swept.push((path.into(), reason.into())),
                _ => {}
            }
        }
        swept
    }

    /// Why a test was not swept, if so. The record has the module path of the test's function, with
    /// the suite's name in front; the test's name ends in that function's.
    fn reason(&self, test: &str) -> Option<&str> {
        let module = test.rsplit_once("::").map_or(test, |(module, _)| module);
        let found = self
            .not_swept
            .iter()
            .find(|(path, _)| path.split_once("::").is_some_and(|(_, path)| path == module));
        found.map(|(_, reason)| reason.as_str())
    }

    fn summary(&self) -> String {
        let mut text = format!(
            "{LABEL}: {} scenarios of {} driver calls, {} runs; {} not swept; in {} runs the test \
             itself had changed what is current, which was then not judged",
            self.scenarios,
            self.calls,
            self.runs,
            self.not_swept.len(),
            self.current_unknown,
        );
        if !self.sampled.is_empty() {
            text += "\n    more of the calls below: cargo xtask ci --full --step faults";
        }
        for (path, stride, calls) in &self.sampled {
            text += &format!("\n    long, so one in {stride} of {calls} calls: {path}");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sweep_is_repeated_with_its_sample() {
        let command = repeating(Depth::Sampled { rotation: 7 }, "a::b::needs_1");
        let words = "cargo xtask test --faults --rotation 7 --filter a::b::needs_1";
        assert_eq!(command, words);
        assert!(!repeating(Depth::Full, "a").contains("rotation"));
    }

    #[test]
    fn a_record_is_summed_up() {
        let swept = Swept::parse(
            "gpu::a::x\t30\t9\t1\t2\ngpu::a::y::heavy\t40\t90\t7\t0\ngpu::b\tmeasures time\n",
        );
        assert_eq!((swept.scenarios, swept.runs, swept.calls), (2, 70, 99));
        assert_eq!(swept.current_unknown, 2);
        assert_eq!(swept.sampled, [("gpu::a::y::heavy".into(), 7, 90)]);
        assert_eq!(swept.reason("b::needs_2"), Some("measures time"));
        assert_eq!(swept.reason("a::x::needs_2"), None);
    }
}
