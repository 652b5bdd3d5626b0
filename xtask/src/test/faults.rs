//! Runs the GPU suite on the simulated driver again for each driver call of each test, which is made to fail.

use anyhow::Context;

use super::LONGEST;
use super::depth::Depth;
use crate::process::Record;
use crate::queue;
use crate::suite::{Invocation, Program, Report, Row, Run, Setting, Variant, Verdict, slowest};
use crate::target::Target;

pub(super) const SUITE: &str = "cuda-tests::gpu";
const LABEL: &str = "a failure at every call";

/// Of this many consecutive sampled runs, each sweeps another share of the tests.
const SHARES: usize = 2;
const NOT_IN_SAMPLE: &str = "not in this sample: cargo xtask ci --full --step faults";

/// Sweeps every test of the GPU suite that the simulated driver can run, several at a time, each in a
/// process of its own.
pub(super) fn run(
    programs: &[Program],
    filter: &str,
    target: &Target,
    depth: Depth,
    report: &mut Report,
) -> anyhow::Result<()> {
    let program = programs.iter().find(|program| program.suite == SUITE);
    let program = program.with_context(|| format!("{SUITE} is not among the tests built"))?;
    let record = Record::new("tests-faults");
    let mut row = Row::new(format!("{SUITE}, {LABEL}"));
    let mut cases = program.list(filter)?;
    cases.retain(|case| {
        if case.needs == 0 {
            row.leave_out(SUITE, &case.title, "uses no device, so that no call can fail");
        }
        case.needs > 0
    });
    if let Some(share) = depth.share(SHARES).filter(|_| filter.is_empty()) {
        let mut turns = (0..SHARES).cycle();
        cases.retain(|case| {
            let turn = turns.next() == Some(share);
            if !turn {
                row.leave_out(SUITE, &case.title, NOT_IN_SAMPLE);
            }
            turn
        });
    }
    let setting = Setting { devices: target.devices(), variant: Variant::Lazy };
    let (mut invocation, names) = setting.choose(&mut row, program, &cases, target)?;
    invocation.environment.push(("CUDA_TESTS_FAULTS", record.0.display().to_string()));
    // Each share of the tests has failures of all calls in turn.
    invocation.environment.extend(depth.every_second().environment());
    println!("\n== {}: {} tests", row.name, names.len());
    // Two tests per processor, since a test that stalls a stream waits for a quarter of its time.
    let one = |name| program.run(&invocation, &[name], &mut super::show);
    let mut run = Run::default();
    for of_test in queue::each(2 * queue::processors(), names, one) {
        run.absorb(of_test?);
    }
    for test in &mut run.finished {
        if let Verdict::Failed(output) = &mut test.verdict {
            *output += &format!("\nto repeat it: {}", repeating(depth, &test.name));
        }
    }
    let swept = Swept::parse(&record.read());
    let times = run.finished.iter().map(|test| (test.time, test.name.clone())).collect();
    run.finished.retain(|test| {
        let reason = swept.reason(&test.name);
        if let Some(reason) = reason {
            row.leave_out(SUITE, &test.name, reason);
        }
        reason.is_none()
    });
    if !run.finished.is_empty() {
        report.note(swept.summary());
        report.note(format!("{LABEL}: {}", slowest(times, 10)));
    }
    row.add(SUITE, run);
    report.rows.push(row);
    Ok(())
}

/// Runs the scenarios of the sim suite, with a failure at every call, although the environment may ask for
/// samples.
pub(super) fn run_scenarios(programs: &[Program]) -> anyhow::Result<Row> {
    let program = programs.iter().find(|program| program.suite == LONGEST);
    let program = program.with_context(|| format!("{LONGEST} is not among the tests built"))?;
    let cases = program.list("faults::")?;
    let names: Vec<_> = cases.iter().map(|case| case.name.as_str()).collect();
    let environment = vec![("CUDA_TESTS_ROTATION", String::new())];
    let mut row = Row::new(format!("{LONGEST}, {LABEL}"));
    println!("\n== {}: {} tests", row.name, names.len());
    let invocation = Invocation { environment, ..Invocation::default() };
    row.add(LONGEST, program.run(&invocation, &names, &mut super::show)?);
    Ok(row)
}

/// Returns the command that sweeps a test as this run does, with failures of the same calls.
fn repeating(depth: Depth, test: &str) -> String {
    let sample = match depth {
        Depth::Full => String::new(),
        Depth::Sampled { rotation } => format!(" --rotation {rotation}"),
    };
    format!("cargo xtask test --faults{sample} --filter {test}")
}

/// The totals of the sweeps.
#[derive(Debug, Default, PartialEq)]
struct Swept {
    scenarios: u64,
    runs: u64,
    calls: u64,
    /// The number of runs after which the current context was not checked.
    current_unknown: u64,
    /// Tests of which only a sample of calls failed, with the stride and the number of calls.
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

    /// Returns the reason why a test was not swept, if it was not. The record has the module path of the
    /// test's function, with the suite's name in front; the test's name ends in that function's name.
    fn reason(&self, test: &str) -> Option<&str> {
        let module = test.rsplit_once("::").map_or(test, |(module, _)| module);
        let of_suite = |path: &str| path.split_once("::").is_some_and(|(_, path)| path == module);
        let found = self.not_swept.iter().find(|(path, _)| of_suite(path));
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
