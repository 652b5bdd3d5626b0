//! Measures the operations one after the other.

use std::process::Command;
use std::time::Duration;

use anyhow::Context as _;
use cuda_core::Device;

use super::measure::beside;
use super::operation::{Run, Way};
use super::report::{Finding, Row};
use super::{Effort, Fixture, Measured, Operation};
use crate::process::{ask, own_program};
use crate::progress::Progress;
use crate::{Refusal, refuse};

/// The time limit of a process; one that takes longer is ended.
const PATIENCE: Duration = Duration::from_secs(300);

/// The machine, and the way in which it is measured.
pub(crate) struct Plan {
    pub(crate) device: Device,
    pub(crate) effort: Effort,
    /// Arguments, after the task's name, with which another process measures in the same way.
    pub(crate) words: Vec<String>,
}

impl Plan {
    /// Measures the operations one after another. Each comes with its group's name. A failed operation
    /// becomes a row, and the others follow.
    pub(crate) fn run(
        &self,
        operations: &[(&str, Operation)],
        progress: &Progress,
    ) -> anyhow::Result<Vec<Row>> {
        let devices = Device::count()?;
        // Created when an operation first needs it: operations in fresh processes run without it.
        let mut fixture = None;
        let mut here = |run: &Run| {
            let fixture = match &mut fixture {
                Some(fixture) => fixture,
                none => none.insert(Fixture::new(self.device, self.effort)?),
            };
            let _current = fixture.context.enter()?;
            run(fixture)
        };
        let mut rows = Vec::new();
        for (group, operation) in operations {
            progress.step(operation.name.clone());
            let needed = operation.gpus;
            let too_few = || refuse(format!("needs {needed} devices, here: {devices}"));
            let measured = match &operation.way {
                _ if devices < needed => Err(too_few()),
                Way::Here(run) => here(run),
                Way::Fresh(_) => self.fresh(&operation.name),
            };
            let finding = match measured.map_err(anyhow::Error::downcast::<Refusal>) {
                Ok(measured) => Finding::Measured(measured),
                Err(Ok(Refusal(reason))) => Finding::NotRun(reason),
                Err(Err(error)) => Finding::Failed(format!("{error:#}")),
            };
            rows.push(Row::new(group, &operation.name, &operation.goal, finding));
        }
        Ok(rows)
    }

    /// Measures one process per figure, alternating between both ways.
    fn fresh(&self, name: &str) -> anyhow::Result<Measured> {
        let sample = |side| {
            let mut words = vec!["--sample", side, "--only", name];
            words.extend(self.words.iter().map(String::as_str));
            sample_elsewhere(&words, PATIENCE)
        };
        let (mut ours, mut raw) = (Vec::new(), Vec::new());
        for _ in 0..self.effort.processes {
            ours.push(sample("ours")?);
            raw.push(sample("raw")?);
        }
        Ok(beside(&ours, &raw))
    }
}

/// Returns the number that a fresh process of this program measures, with these words after the task's name.
pub(super) fn sample_elsewhere(words: &[&str], patience: Duration) -> anyhow::Result<f64> {
    let mut command = Command::new(own_program()?);
    command.arg("bench").args(words);
    let mut answer = String::new();
    ask(command, patience, |line| answer.push_str(line)).context("in a fresh process")?;
    answer.trim().parse().with_context(|| format!("a fresh process answered {answer:?}"))
}

/// Which of the two ways a fresh process measures.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(crate) enum Side {
    Ours,
    Raw,
}
