//! Graphs: work that is described once and launched many times, each time by one driver call.

use std::sync::{Arc, Mutex};

use cuda_sys::{CUgraph, symbol as cu};

use crate::context::{Context, Crossing, Moment, of_context};
use crate::error::{Rejected, Result};
use crate::process::{Failed, Handle, Owned, Release, driver, released};
use crate::timeline::Mark;
use crate::timeline::ledger::{LastLaunch, Touch};
use crate::timeline::recording::{GraphTraits, GraphUses, KeptUses, Node, UsedMemory};
use crate::types::Resource;
use crate::util::{debug_by, lock};

// Separated by blank lines, so that rustfmt keeps this order, in which rustdoc shows their `impl`s.
mod capture;

mod builder;

mod allocate;

mod condition;
mod contexts;

mod extend;

mod exec;
mod executables;

mod lent;

mod memory;

mod update;

mod transfers;

mod look;

mod node;
mod picture;

pub use builder::GraphBuilder;
pub use contexts::GraphContexts;
pub use exec::GraphExec;
pub use lent::LentLaunch;
pub use look::InnerGraph;
pub use node::{GraphNode, NodeId, NodeKind};

/// Work that is described once, and launched many times.
///
/// [`Graph::capture`] makes one from ordinary code, [`Graph::instantiate`] makes it executable, and
/// [`GraphExec::launch`] launches it: one driver call for any number of operations, which the
/// device then runs without the host.
///
/// # What a graph uses
/// A graph keeps alive what its operations use: device memory, arrays, textures, surfaces, modules,
/// host functions. The same buffers may be used between launches: the library orders each launch
/// after earlier uses of them, and later uses after the launch. A buffer that is dropped is freed
/// once all graphs that use it are gone. So a graph takes its input from a buffer that is written
/// before a launch, and leaves its result in a buffer that is read after it.
///
/// **Memory that the host can see** is lent at each launch: [`GraphExec::lend`] and
/// [`GraphExec::lend_mut`] take a borrow, which proves that no slice of a
/// [`PinnedBuffer`](crate::PinnedBuffer), of [`Registered`](crate::Registered) memory or of a
/// [`ManagedBuffer`](crate::managed::ManagedBuffer) is in use when the launch begins. After that,
/// the buffer's accessors wait for the launch as for any copy. Until the capture has ended, they
/// refuse what conflicts with it.
///
/// A launch needs no borrow of the memory that it uses. So if two threads use the same memory at
/// the same moment, and one of them launches a graph, neither use is ordered after the other, and
/// the memory may hold values of both.
///
/// ```no_run
/// use cuda_core::{Device, Graph};
///
/// # let function = cuda_core::Module::from_ptx(&Device::get(0)?.context()?, "")?.function("scale")?;
/// let context = Device::get(0)?.context()?;
/// let stream = context.create_stream()?;
/// let mut x = stream.alloc_zeroed::<f32>(256)?;
/// let mut y = stream.alloc::<f32>(256)?;
/// let graph = Graph::capture(&context, |stream| {
///     // SAFETY: scale(float *x) reads and writes an element of `x` for each of the 256 threads.
///     unsafe { stream.kernel(&function).block(256).arg(&mut x).launch() }?;
///     stream.copy(&x, &mut y)
/// })?;
/// let mut exec = graph.instantiate()?;
/// for step in 0..10 {
///     stream.upload(&[step as f32; 256], &mut x)?;
///     exec.launch(&stream)?; // after the upload
///     println!("{:?}", stream.download_vec(&y)?); // after the launch
/// }
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[doc(alias("CudaGraph", "CUgraph", "cudaGraph_t"))]
pub struct Graph {
    // Destroyed before what the graph uses is dropped. The driver's graph functions are "not
    // internally synchronized", so one thread at a time calls them.
    raw: SharedGraph,
    /// Unique among all graphs of the process.
    id: u64,
    context: Context,
    uses: KeptUses,
    /// Shared with the executables.
    executables: Arc<executables::Executables>,
}

impl KeptUses {
    /// Returns whether the graph has operations of NCCL, which wait for those of other ranks.
    fn has_collectives(&self) -> bool {
        self.traits.has(GraphTraits::RANKS)
    }

    /// Returns the known body graphs of a conditional node.
    fn bodies_of(&self, node: Node) -> impl Iterator<Item = Handle<CUgraph>> {
        self.bodies.iter().filter(move |body| body.node == node).map(|body| body.graph)
    }

    /// Enters in the memory's ledgers what launches of an executable will do. The last launch was
    /// at `before`.
    fn enter(&self, before: Option<Mark>) -> Arc<LastLaunch> {
        let last = LastLaunch::at(before);
        self.memory.iter().for_each(|memory| memory.enter(&last));
        last
    }

    /// Returns whether launches use the memory with that key, as `touch` says.
    fn covers(&self, key: usize, touch: &Touch<'_>) -> bool {
        let known = self.memory.iter().find(|known| known.key() == key);
        known.is_some_and(|known| known.covers(&touch.range, touch.access))
    }

    /// Refuses the call `op` if a communicator that the graph uses was aborted, or if access
    /// between devices that it needs was revoked. `made` is when the executable that `op` launches
    /// or updates was instantiated; [`None`] if `op` instantiates one. Access is not revoked while
    /// the result lives. A communicator may still be aborted, which has the effect of an abort
    /// after the call.
    #[inline]
    fn admit(&self, op: &'static str, made: Option<Moment>) -> Result<Vec<Crossing>> {
        if !self.traits.has(GraphTraits::MAY_BE_REFUSED) {
            return Ok(Vec::new());
        }
        let owners = self.owners.0.iter().filter_map(|owner| owner.admits(op).transpose());
        owners.chain(self.copies.iter().map(|copies| copies.admit(op, made))).collect()
    }

    /// Returns whether launches must be lent some of the memory.
    fn is_lent(&self) -> bool {
        self.memory.iter().any(UsedMemory::must_be_lent)
    }
}

/// The driver's graph, shared with the executables made from it, which refer to its nodes.
type SharedGraph = Arc<Mutex<Owned<RawGraph>>>;

/// The driver's graph.
struct RawGraph(Handle<CUgraph>);

impl Release for RawGraph {
    const RESOURCE: Resource = Resource::Graph;

    fn number(&self) -> u64 {
        self.0.number()
    }

    fn release(&mut self) -> Result<(), Failed> {
        // SAFETY: the graph is live and not used after this; executables made from it do not depend
        // on it.
        released("cuGraphDestroy", unsafe { cu::cuGraphDestroy(self.0.0) })
    }
}

/// # The graph itself
impl Graph {
    of_context! { "The context that it was captured in.": |it| &it.context }

    /// The driver's handle, valid while `self` lives; null for a graph that was
    /// [given up](crate::Error::GivenUp). One thread at a time may use it, and none while a method
    /// of `self` runs.
    pub fn as_raw(&self) -> CUgraph {
        if driver::is_gone() {
            return std::ptr::null_mut();
        }
        lock(&self.raw).get().map_or(std::ptr::null_mut(), |raw| raw.0.0)
    }

    fn own(raw: Owned<RawGraph>, id: u64, context: &Context, uses: GraphUses) -> Self {
        let (raw, context, uses) = (Arc::new(Mutex::new(raw)), context.clone(), uses.into());
        Self { raw, id, context, uses, executables: Arc::default() }
    }

    /// Makes driver calls about the graph, under its lock.
    fn with_raw<R>(&self, calls: impl FnOnce(CUgraph) -> Result<R>) -> Result<R> {
        driver::ensure()?;
        let raw = lock(&self.raw);
        calls(raw.live()?.0.0)
    }

    /// Destroys the graph, or, if it has executables, leaves that to the last of them:
    /// `cuGraphDestroy`. A drop does the same, and reports a failure to the hook of
    /// [`drops::set_hook`](crate::drops::set_hook).
    ///
    /// # Errors
    /// The driver's; the returned graph is [given up](crate::Error::GivenUp).
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// let graph = cuda_core::Graph::capture(&context, |_stream| Ok(()))?;
    /// let exec = graph.instantiate()?;
    /// graph.close()?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuGraphDestroy", "cudaGraphDestroy"))]
    pub fn close(self) -> Result<(), Rejected<Self>> {
        if Arc::strong_count(&self.raw) > 1 {
            return Ok(());
        }
        let closed = lock(&self.raw).release();
        closed.map_err(|error| Rejected::new(error, self))
    }
}

debug_by! { [] Graph: |it| "Graph" { raw: it.as_raw(), context: it.context; .. } }
