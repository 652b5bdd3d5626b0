//! Conditions: values that decide whether a part of a graph runs.

use std::sync::Arc;

use super::{CapturedAlone, Order, Recording};
use crate::context::Context;
use crate::error::{Error, Result};
use crate::process::Failed;
use crate::timeline::ledger::{Access, InGraphs, Ledger, Touch, WHOLE};
use crate::util::{debug_by, lock};

/// A number that decides, while a graph runs, which part of the graph runs, or how often. A kernel takes
/// `&condition` as an argument of eight bytes and sets the number by `cudaGraphSetConditional(handle,
/// value)`.
///
/// [`Condition::new`] creates a condition in a capture. One operation of the graph depends on it:
/// [`while_loop`](Self::while_loop), [`if_then`](Self::if_then), [`if_else`](Self::if_else) or
/// [`switch`](Self::switch), which comes after the earlier kernels that set the condition.
///
/// ```no_run
/// # let context = cuda_core::Device::get(0)?.context()?;
/// # let stream = context.create_stream()?;
/// # let function = cuda_core::Module::from_ptx(&context, "")?.function("halve")?;
/// use cuda_core::{Condition, Graph};
///
/// let mut x = stream.alloc_zeroed::<f32>(256)?;
/// let graph = Graph::capture(&context, |stream| {
///     let go_on = Condition::new(stream, 1)?;
///     go_on.while_loop(stream, |body| {
///         let mut launch = body.kernel(&function).block(256).arg(&mut x).arg(&go_on);
///         // SAFETY: halve(float *x, cudaGraphConditionalHandle go_on) halves 256 elements, and sets
///         // the condition to whether one is above 1.
///         unsafe { launch.launch() }
///     })
/// })?;
/// graph.instantiate()?.launch(&stream)?; // until all are small
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[doc(alias("cudaGraphSetConditional", "cudaGraphConditionalHandle"))]
pub struct Condition {
    // INVARIANT: a handle of a graph that a capture of this crate records, or has recorded.
    raw: u64,
    /// Unique among the conditions of the process.
    id: u64,
    /// The id of the capture in which it was created.
    capture: u64,
    context: Context,
    /// Orders the operations that set the condition and the one that depends on it.
    ledger: Ledger,
}

/// # Using it
impl Condition {
    /// Creates a condition; `create` adds it to the graph that `recording` records.
    pub(crate) fn create(
        recording: &Recording,
        context: &Context,
        op: &'static str,
        create: impl FnOnce() -> Result<u64>,
    ) -> Result<Self> {
        let raw = recording.during(op, |_order| create())?;
        let id = super::next_id();
        lock(&recording.outermost().conditions).push(id);
        let (capture, context) = (recording.id(), context.clone());
        Ok(Self { raw, id, capture, context, ledger: Ledger::default() })
    }

    /// The driver's handle. A graph that is captured by access does not know that a kernel sets the
    /// condition if the kernel's argument is this number.
    pub fn as_raw(&self) -> u64 {
        self.raw
    }

    /// The id of the capture in which it was created.
    pub(crate) fn made_in(&self) -> u64 {
        self.capture
    }

    /// The context of the kernels that may set the condition.
    pub(crate) fn context(&self) -> &Context {
        &self.context
    }

    /// The access of an operation that sets the condition or depends on it.
    pub(crate) fn touch(&self) -> Touch<'_> {
        Touch::shared(&self.ledger, WHOLE, Access::Write, InGraphs::Kept)
    }

    /// Begins the operation that depends on the condition; `begin` makes the driver's call. The capture
    /// yields no graph until [`Recording::finish`].
    pub(crate) fn begin<'r, R>(
        &self,
        recording: &'r Arc<Recording>,
        op: &'static str,
        begin: impl FnOnce() -> Result<R, Failed>,
    ) -> Result<(R, Order, CapturedAlone<'r>)> {
        let why = "the condition is of another graph, or of what runs on another condition";
        Error::unless(recording.is_within(self.capture), op, why)?;
        let mut unused = lock(&recording.outermost().conditions);
        let known = unused.iter().position(|id| *id == self.id);
        let why = "an operation depends on the condition already: make another condition";
        let known = known.ok_or_else(|| Error::invalid(op, why))?;
        let begun = recording.begin(op, begin)?;
        unused.swap_remove(known);
        Ok(begun)
    }
}

debug_by! { [] Condition: |it| "Condition" { raw: it.raw, context: it.context } }
