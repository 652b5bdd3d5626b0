//! Measures the operations one after the other.

use std::env;
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};
use cuda_core::Device;

use super::measure::{Effort, Measured, beside};
use super::operation::{Fixture, NotHere, Operation, Sample, Way};
use super::report::{Finding, Row};
use crate::progress::Progress;

/// The operations to measure, and the machine.
pub(crate) struct Plan {
    pub(crate) device: Device,
    pub(crate) effort: Effort,
    /// Arguments that make another process measure in the same way, after the task's name.
    pub(crate) words: Vec<String>,
    /// Each with its group.
    pub(crate) operations: Vec<(&'static str, Operation)>,
}

impl Plan {
    /// Measures one after the other. A failed operation becomes a row, and the others follow.
    pub(crate) fn run(&self, progress: &Progress) -> anyhow::Result<Vec<Row>> {
        let devices = Device::count()?;
        let mut fixture = None;
        let mut rows = Vec::new();
        for (group, operation) in &self.operations {
            progress.step(operation.name.clone());
            let finding = if devices < operation.gpus {
                Finding::NotRun(format!("needs {} devices, here: {devices}", operation.gpus))
            } else {
                match self.measure(operation, &mut fixture) {
                    Ok(measured) => Finding::Measured(measured),
                    Err(error) => match error.downcast::<NotHere>() {
                        Ok(NotHere(reason)) => Finding::NotRun(reason),
                        Err(error) => Finding::Failed(format!("{error:#}")),
                    },
                }
            };
            rows.push(Row::new(group, &operation.name, &operation.goal, finding));
        }
        Ok(rows)
    }

    /// The fixture is made when an operation first needs it: operations in fresh processes run
    /// without it.
    fn measure(
        &self,
        operation: &Operation,
        fixture: &mut Option<Fixture>,
    ) -> anyhow::Result<Measured> {
        match &operation.way {
            Way::Here(run) => {
                let fixture = match fixture {
                    Some(fixture) => fixture,
                    None => fixture.insert(Fixture::new(self.device, self.effort)?),
                };
                let _current = fixture.context.enter()?;
                run(fixture)
            }
            Way::Fresh { raw, .. } => self.fresh(&operation.name, raw.is_some()),
        }
    }

    /// One process per figure, alternating between both ways.
    fn fresh(&self, name: &str, with_raw: bool) -> anyhow::Result<Measured> {
        let (mut ours, mut raw) = (Vec::new(), Vec::new());
        for _ in 0..self.effort.processes {
            ours.push(self.sample(name, "ours")?);
            if with_raw {
                raw.push(self.sample(name, "raw")?);
            }
        }
        let measured = beside(&ours, &raw);
        Ok(if with_raw { measured } else { Measured::new(measured.unit, measured.ours, None) })
    }

    fn sample(&self, name: &str, side: &str) -> anyhow::Result<f64> {
        let output = Command::new(env::current_exe()?)
            .args(["bench", "--sample", side, "--only", name])
            .args(&self.words)
            .stdin(Stdio::null())
            .output()
            .context("starting a fresh process")?;
        let said = String::from_utf8_lossy(&output.stderr);
        let said = said.trim().trim_start_matches("error: ");
        match output.status.code() {
            Some(0) => {}
            Some(2) => bail!(NotHere(said.to_owned())),
            _ => bail!("in a fresh process: {said}"),
        }
        let answer = String::from_utf8_lossy(&output.stdout);
        answer.trim().parse().with_context(|| format!("a fresh process answered {answer:?}"))
    }
}

/// Which of the two ways a fresh process measures.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(crate) enum Side {
    Ours,
    Raw,
}

/// The function that a fresh process runs.
pub(crate) fn sample_of(operation: &Operation, side: Side) -> Option<Sample> {
    match (&operation.way, side) {
        (Way::Fresh { ours, .. }, Side::Ours) => Some(*ours),
        (Way::Fresh { raw, .. }, Side::Raw) => *raw,
        (Way::Here(_), _) => None,
    }
}
