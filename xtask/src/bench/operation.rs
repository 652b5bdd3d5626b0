//! What can be measured, and how it goes about it.

use std::fmt;

use cuda_core::sys::CUstream;
use cuda_core::{Context, Device, Event, EventFlags, Stream};

use super::goal::Goal;
use super::measure::{Effort, Measured};

/// Operations that belong together in a table and in a plot.
pub(crate) struct Group {
    pub(crate) name: &'static str,
    pub(crate) operations: fn() -> Vec<Operation>,
    pub(crate) when: When,
}

/// When a group is measured.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum When {
    Always,
    /// When `--only` asks for it: a study of a choice, not of what users meet.
    Asked,
}

/// One thing to measure.
pub(crate) struct Operation {
    /// No two share one: `--only`, JSON and the peers' script go by it.
    pub(crate) name: String,
    pub(crate) goal: Goal,
    /// Devices that it takes.
    pub(crate) gpus: u32,
    pub(crate) way: Way,
}

/// How an operation is measured.
pub(crate) enum Way {
    /// In this process, with [`Fixture::context`] current.
    Here(Box<Run>),
    /// Once in each of several fresh processes; medians count.
    Fresh { ours: Sample, raw: Option<Sample> },
}

/// Measures batches of two ways.
pub(crate) type Run = dyn Fn(&Fixture) -> anyhow::Result<Measured>;

/// Nanoseconds of what happens once in the life of a process.
pub(crate) type Sample = fn(Device, Effort) -> anyhow::Result<f64>;

impl Operation {
    /// What `run` measures in this process. It is one raw call unless said otherwise.
    pub(crate) fn new(
        name: impl Into<String>,
        run: impl Fn(&Fixture) -> anyhow::Result<Measured> + 'static,
    ) -> Self {
        Self::of(name.into(), Way::Here(Box::new(run)))
    }

    /// What is measured once in each of several fresh processes, where nothing is initialised before.
    pub(crate) fn fresh(name: impl Into<String>, ours: Sample, raw: Option<Sample>) -> Self {
        Self::of(name.into(), Way::Fresh { ours, raw })
    }

    fn of(name: String, way: Way) -> Self {
        Self {
            name,
            goal: Goal::Beside { calls: 1 },
            gpus: 1,
            way,
        }
    }

    /// Several raw calls in a row.
    pub(crate) fn calls(self, calls: u32) -> Self {
        self.goal(Goal::Beside { calls })
    }

    pub(crate) fn goal(mut self, goal: Goal) -> Self {
        self.goal = goal;
        self
    }

    /// Told without a goal, for a reason that completes the sentence "no goal: ".
    pub(crate) fn without_goal(self, why: &str) -> Self {
        self.goal(Goal::None(why.to_owned()))
    }

    /// Where there are fewer devices it is reported as not run.
    pub(crate) fn gpus(mut self, gpus: u32) -> Self {
        self.gpus = gpus;
        self
    }
}

/// What operations of one process share.
pub(crate) struct Fixture {
    pub(crate) context: Context,
    pub(crate) stream: Stream,
    /// For raw calls: a stream whose handle was given away is asked about in each operation.
    raw: Stream,
    pub(crate) event: Event,
    pub(crate) effort: Effort,
}

impl Fixture {
    pub(crate) fn new(device: Device, effort: Effort) -> anyhow::Result<Self> {
        let context = device.context()?;
        Ok(Self {
            stream: context.create_stream()?,
            raw: context.create_stream()?,
            event: Event::new(&context, EventFlags::DISABLE_TIMING)?,
            context,
            effort,
        })
    }

    /// The stream for raw calls.
    pub(crate) fn raw_stream(&self) -> CUstream {
        self.raw.as_raw()
    }

    /// Waits for both streams: what follows an untimed batch.
    pub(crate) fn settle(&self) -> cuda_core::Result<()> {
        self.raw.synchronize()?;
        self.stream.synchronize()
    }
}

/// This machine cannot do it: an error that makes an operation one that did not run.
#[derive(Debug)]
pub(crate) struct NotHere(pub(crate) String);

impl fmt::Display for NotHere {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NotHere {}
