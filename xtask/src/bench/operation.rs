//! Operations, and the way in which each is measured.

use cuda_core::sys::{CUresult, CUstream};
use cuda_core::{Context, Device, Event, EventFlags, Stream};

use super::measure::pair;
use super::run::Side;
use super::{Effort, Goal, Measured};

/// One operation to measure.
pub(crate) struct Operation {
    /// Unique: `--only`, the JSON file and the peers' script refer to the operation by it.
    pub(crate) name: String,
    pub(crate) goal: Goal,
    /// The number of devices that the operation needs.
    pub(crate) gpus: u32,
    pub(crate) way: Way,
}

/// How an operation is measured.
pub(crate) enum Way {
    /// In this process, with [`Fixture::context`] current.
    Here(Box<Run>),
    /// Once in each of several fresh processes; the median is used.
    Fresh(Box<Sample>),
}

/// Measures batches of both ways.
pub(crate) type Run = dyn Fn(&Fixture) -> anyhow::Result<Measured>;

/// Returns the nanoseconds of an operation that happens once in the life of a process, for one of the two
/// ways.
pub(crate) type Sample = dyn Fn(Device, Effort, Side) -> anyhow::Result<f64>;

impl Operation {
    /// An operation that `run` measures in this process, compared with one raw call by default.
    pub(crate) fn new(
        name: impl Into<String>,
        run: impl Fn(&Fixture) -> anyhow::Result<Measured> + 'static,
    ) -> Self {
        Self::of(name.into(), Way::Here(Box::new(run)))
    }

    /// An operation that is measured once in each of several fresh processes, with nothing
    /// initialised before.
    pub(crate) fn fresh(
        name: impl Into<String>,
        sample: impl Fn(Device, Effort, Side) -> anyhow::Result<f64> + 'static,
    ) -> Self {
        Self::of(name.into(), Way::Fresh(Box::new(sample)))
    }

    fn of(name: String, way: Way) -> Self {
        Self { name, goal: Goal::Beside { calls: 1 }, gpus: 1, way }
    }

    /// Compares with this many raw calls.
    pub(crate) fn calls(self, calls: u32) -> Self {
        self.goal(Goal::Beside { calls })
    }

    pub(crate) fn goal(mut self, goal: Goal) -> Self {
        self.goal = goal;
        self
    }

    /// Reports the operation without a goal, for a reason that completes the sentence "no goal: ".
    pub(crate) fn without_goal(self, why: &str) -> Self {
        self.goal(Goal::None(why.to_owned()))
    }

    /// Sets the number of devices: with fewer, the operation is reported as not run.
    pub(crate) fn gpus(mut self, gpus: u32) -> Self {
        self.gpus = gpus;
        self
    }
}

/// Objects that the operations of one process share.
pub(crate) struct Fixture {
    pub(crate) context: Context,
    pub(crate) stream: Stream,
    /// A stream for raw calls: the library checks a stream whose handle was handed out before each operation.
    pub(crate) raw: Stream,
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

    /// Times batches of enqueues, those of each way on a stream of its own.
    pub(crate) fn pair(
        &self,
        batch: usize,
        ours: impl FnMut() -> cuda_core::Result<()>,
        raw: impl FnMut() -> CUresult,
    ) -> anyhow::Result<Measured> {
        pair(self.effort, batch, ours, raw, || self.settle())
    }

    /// Times at most `batches` batches, including the wait: of what `ours` enqueues on [`Self::stream`], and
    /// of `raw`, which waits itself.
    pub(crate) fn waited(
        &self,
        batches: usize,
        batch: usize,
        mut ours: impl FnMut() -> cuda_core::Result<()>,
        raw: impl FnMut() -> CUresult,
    ) -> anyhow::Result<Measured> {
        let ours = || ours().and_then(|()| self.stream.synchronize());
        pair(self.effort.at_most(batches), batch, ours, raw, || Ok(()))
    }

    /// Waits for both streams, untimed, after a batch.
    pub(crate) fn settle(&self) -> cuda_core::Result<()> {
        self.raw.synchronize()?;
        self.stream.synchronize()
    }
}
