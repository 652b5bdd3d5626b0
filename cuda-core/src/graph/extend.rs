//! Graphs that already exist: extending them, and taking over those of other code.

use std::any::Any;
use std::sync::Arc;

use cuda_sys::{CUDA_ERROR_LOSSY_QUERY, CUgraph, CUgraphNode};

use super::capture::{Capture, INCOMPLETE};
use super::{Graph, InnerGraph, RawGraph};
use crate::context::Context;
use crate::error::{Error, Result};
use crate::process::{Contained, Handle, Owned, driver};
use crate::stream::Stream;
use crate::timeline::recording::{GraphTraits, GraphUses, Order, Recording, dependents, next_id};
use crate::util::lock;

const OP: &str = "cuStreamBeginCaptureToGraph";

/// # Extending it
impl Graph {
    /// Adds what `work` enqueues on the given stream, as [`Graph::capture`] captures it, after all
    /// existing nodes: `cuStreamBeginCaptureToGraph`, from CUDA 12.3 on. No executable may exist
    /// that was instantiated from the graph or updated to it. If `work` fails or panics, what it
    /// enqueued before that is part of the graph.
    ///
    /// The graph is [given up](Error::GivenUp) in four cases: a body of a
    /// [`Condition`](crate::Condition) failed; the allocation or the free of its
    /// [memory](crate::Stream::alloc_in_graph) failed; no operation depends on a condition; the
    /// call that begins the extension returned an error that earlier work may have caused.
    ///
    /// # Errors
    /// [`Error::Invalid`] while such an executable exists, or while a launch of a dropped one is
    /// pending, which [`drops::flush`](crate::drops::flush) waits for; the errors of
    /// [`Graph::capture`].
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// # let stream = context.create_stream()?;
    /// let (mut x, mut y) = (stream.alloc::<u32>(100)?, stream.alloc::<u32>(100)?);
    /// let mut graph = cuda_core::Graph::capture(&context, |stream| stream.fill(&mut x, 1))?;
    /// graph.extend(|stream| stream.copy(&x, &mut y))?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuStreamBeginCaptureToGraph", "cudaStreamBeginCaptureToGraph"))]
    pub fn extend(&mut self, work: impl FnOnce(&Stream) -> Result<()>) -> Result<()> {
        driver::ensure()?;
        self.executables.destroy_reached();
        // Executables that were updated to it, and pending launches, also count.
        let unused = Arc::strong_count(&self.raw) == 1;
        Error::unless(
            unused,
            OP,
            "an executable uses the graph, or a launch of one that was dropped",
        )?;
        let after = self.leaves()?;
        let Self { raw, uses, context, .. } = self;
        let mut raw = lock(raw);
        let part = (raw.live()?.0.0, &*after);
        let recording = Recording::within(None, Order::Chain);
        let mut complete = Ok(());
        let note = |mut used: GraphUses| {
            // Removes entries for nodes of `after`: an operation without a node of its own would
            // stand for one of these.
            used.by_node.retain(|known| !after.contains(&known.node.0));
            complete = recording.require_used_conditions(OP);
            if complete.is_ok() {
                complete = Error::unless(!used.is_broken, OP, INCOMPLETE);
            }
            if complete.is_err() {
                // The graph's operations may use what is not kept.
                let _ = raw.release().or_else(|_| raw.disown().map(drop));
            }
            *uses = uses.with(&used.into());
        };
        // SAFETY: the graph is live and has these nodes; no other code uses it, since no executable
        // exists, and `self` is borrowed exclusively.
        let extended = unsafe { Capture::extend(context, recording.clone(), part, work, note) };
        extended.and(complete)
    }

    /// Returns the nodes on which no other node depends.
    fn leaves(&self) -> Result<Vec<CUgraphNode>> {
        let nodes = InnerGraph::whole(self).handles()?;
        self.with_raw(|_graph| {
            let mut leaves = Vec::new();
            for node in nodes {
                match dependents(node) {
                    Ok(later) if later.is_empty() => leaves.push(node.0),
                    Ok(_) => {}
                    // A programmatic launch depends on this node.
                    Err(error) if error.code() == Some(CUDA_ERROR_LOSSY_QUERY) => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(leaves)
        })
    }

    /// Takes over a graph of other code, and destroys it when dropped. Drops `owner` once the last
    /// launch of the graph's executables has completed.
    ///
    /// # Errors
    /// [`Error::NoDriver`]; [`Error::InCallback`] inside a host function. The graph then still
    /// belongs to the caller, and `owner` is dropped.
    ///
    /// # Safety
    /// The graph is live, its operations belong to the context, and no other code uses or destroys
    /// it from now on. Everything that the operations use lives as long as `owner`, and access between
    /// devices that they need is not [revoked](Context::disable_peer_access) before the last launch of
    /// each executable has completed. This crate does not know which memory they use: the caller
    /// orders uses of buffers by other means.
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// # fn other_library() -> cuda_core::sys::CUgraph { std::ptr::null_mut() }
    /// // SAFETY: the library gives the graph away, and it uses nothing.
    /// let graph = unsafe { cuda_core::Graph::from_raw(other_library(), &context, ()) }?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub unsafe fn from_raw(
        raw: CUgraph,
        context: &Context,
        owner: impl Any + Send + Sync,
    ) -> Result<Self> {
        driver::ensure()?;
        let mut uses = GraphUses { traits: GraphTraits::MAY_TAKE_LONG, ..GraphUses::default() };
        uses.traits.add(GraphTraits::BARRIER);
        uses.traits.add(GraphTraits::CONDITIONS);
        uses.traits.add(GraphTraits::FOREIGN);
        uses.owners.0.push(Arc::new(Contained::new(owner)));
        uses.owners.0.push(Arc::new(context.clone()));
        Ok(Self::own(Owned::new(RawGraph(Handle(raw))), next_id(), context, uses))
    }
}
