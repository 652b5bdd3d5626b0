//! Changing the copies and fills of executable graphs.

use cuda_sys::{CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS, symbol as cu};

use super::{GraphExec, NodeId};
use crate::context::{Context, Crossing};
use crate::copy::ends;
use crate::copy::fill::fill_node;
use crate::copy::pitched::PitchedMut;
use crate::copy::side::CopySide;
use crate::error::{Error, Result, WrongContext, asked};
use crate::memory::{DeviceMemory, DeviceSliceMut, IntoView, Memory, Slice, SliceMut};
use crate::timeline::recording::{CopiesBetween, Node, dependents};
use crate::types::{Extent, Pod};
use crate::util::lock;

pub(super) const COPY: &str = "cuGraphExecMemcpyNodeSetParams";
pub(super) const FILL: &str = "cuGraphExecMemsetNodeSetParams";
const SAME: &str = "the rows of a node stay as many and as long as they were when it was captured";

/// # Changing copies and fills
impl GraphExec {
    /// Replaces both ends of a copy without rows, in launches from now on, by memory of the same
    /// kinds, of any length: `cuGraphExecMemcpyNodeSetParams`. Pending launches are not affected.
    /// The graph's dependencies stay: an operation that uses the new memory is ordered with the
    /// copy only if it was before. New host memory must be [lent](Self::lend) to each launch, in
    /// place of memory that no operation uses any more. A copy between devices must stay between
    /// the same two.
    ///
    /// # Errors
    /// [`Error::Invalid`] for ends of different lengths, without bytes, or in memory that a graph
    /// [allocates](crate::Stream::alloc_in_graph), for a node of another kind or that may belong to
    /// [work of another library](Self::set_enabled), and for a node of another graph than this was
    /// [instantiated](crate::Graph::instantiate) from;
    /// [`Error::WrongDevice`] and [`Error::WrongContext`] for memory of another device or context
    /// than that of the stream that the operation was captured on; the driver's, such as
    /// `CUDA_ERROR_INVALID_VALUE` if memory of the driver's pools takes the place of other memory,
    /// or the other way round. The executable is then unchanged, unless earlier work may have
    /// caused the error: it then keeps what both forms of the operation use.
    ///
    /// For a copy between devices, also [`Error::Invalid`]
    /// * if access between them was revoked since the graph was instantiated;
    /// * for memory of the driver's pools, managed and virtual memory;
    /// * unless all copies of the graph from the source's context to other devices go to the
    ///   destination's context, and copy memory that is not refused here.
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// # let stream = context.create_stream()?;
    /// let frames = [stream.alloc_zeroed::<u8>(100)?, stream.alloc_zeroed::<u8>(100)?];
    /// let mut frame = stream.alloc::<u8>(100)?;
    /// let graph = cuda_core::Graph::capture(&context, |stream| stream.copy(&frames[0], &mut frame))?;
    /// let (mut exec, copy) = (graph.instantiate()?, graph.nodes()?[0].id());
    /// for from in &frames {
    ///     exec.set_copy(copy, from, &mut frame)?;
    ///     exec.launch(&stream)?;
    /// }
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuGraphExecMemcpyNodeSetParams", "cudaGraphExecMemcpyNodeSetParams"))]
    pub fn set_copy<'a, T: Pod, A: Memory, B: Memory>(
        &mut self,
        node: NodeId,
        source: impl IntoView<Slice<'a, T, A>>,
        destination: impl IntoView<SliceMut<'a, T, B>>,
    ) -> Result<()> {
        let (op, exec) = (COPY, self.own_node(node)?);
        let (source, mut destination) = (source.into(), destination.into());
        let to = destination.as_view();
        let bytes = source.byte_len();
        Error::unless(bytes == to.byte_len(), op, "the ends have different lengths")?;
        Error::unless(bytes > 0, op, "there is nothing to copy")?;
        let apart = source.on().zip(to.on()).is_some_and(|(from, to)| from != to);
        let crossing = match apart {
            true => Some(self.require_copied(&source, &to)?),
            false => {
                self.require_home(op, node, &source)?;
                self.require_home(op, node, &to)?;
                None
            }
        };
        let side = |place| {
            let mut side = CopySide::linear(place, bytes, 0);
            if apart {
                // Such copies are captured with this kind.
                side.kind = cuda_sys::CU_MEMORYTYPE_UNIFIED;
            }
            side
        };
        let row = Extent::new(bytes, 1, 1);
        let copy = side(source.place()).to::<u8>(side(to.place()), row);
        let (touches, context) = ([source.read(), destination.write()], self.home(node).as_raw());
        self.set(op, node.raw, &touches, None, move || {
            // Dropped with the call: code of the program may run later, when memory is let go of.
            let _crossing = crossing;
            // SAFETY: as in `set_fill_pitched`; both ends have as many bytes, and are kept.
            unsafe { cu::cuGraphExecMemcpyNodeSetParams(exec, node.raw.0, &copy, context) }
        })
    }

    /// Replaces the memory and the value of a fill without rows, in launches from now on, as
    /// [`set_copy`](Self::set_copy) does for a copy: `cuGraphExecMemsetNodeSetParams`. For a fill
    /// of rows use [`set_fill_pitched`](Self::set_fill_pitched).
    ///
    /// # Errors
    /// As [`set_copy`](Self::set_copy); also [`Error::Invalid`] for a value that
    /// [`Stream::fill`](crate::Stream::fill) makes several calls for.
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// # let stream = context.create_stream()?;
    /// let mut x = stream.alloc::<f32>(100)?;
    /// let graph = cuda_core::Graph::capture(&context, |stream| stream.fill(&mut x, 1.0))?;
    /// let (mut exec, fill) = (graph.instantiate()?, graph.nodes()?[0].id());
    /// exec.set_fill(fill, &mut x, 2.0)?;
    /// exec.launch(&stream)?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuGraphExecMemsetNodeSetParams", "cudaGraphExecMemsetNodeSetParams"))]
    pub fn set_fill<'a, T: Pod>(
        &mut self,
        node: NodeId,
        destination: impl IntoView<DeviceSliceMut<'a, T>>,
        value: T,
    ) -> Result<()> {
        let (op, exec) = (FILL, self.own_node(node)?);
        let mut destination = destination.into();
        let (to, bytes) = (destination.as_raw(), destination.byte_len());
        self.require_home(op, node, &destination.as_view())?;
        Error::unless(bytes > 0, op, "there is nothing to fill")?;
        let fill = fill_node(to, (bytes, 0, 1), value);
        let fill = fill.ok_or_else(|| Error::invalid(op, "the value takes several fills"))?;
        let (touches, context) = ([destination.write()], self.home(node).as_raw());
        self.set(op, node.raw, &touches, None, || {
            // SAFETY: as in `set_fill_pitched`; the memory has as many bytes, and is kept.
            unsafe { cu::cuGraphExecMemsetNodeSetParams(exec, node.raw.0, &fill, context) }
        })
    }

    /// Works as [`set_fill`](Self::set_fill), for a fill of rows, as many and as long as before:
    /// `cuGraphExecMemsetNodeSetParams`.
    ///
    /// # Errors
    /// As [`set_fill`](Self::set_fill); also [`Error::Invalid`] for rows of another number or
    /// length than the node's, and for slices with gaps between them, which take several fills.
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// # let stream = context.create_stream()?;
    /// use cuda_core::{Graph, Shape};
    ///
    /// let mut image = stream.alloc_zeroed::<f32>(64 * 64)?;
    /// let left = Shape::plane(32, 64).with_pitch(64 * 4);
    /// let graph = Graph::capture(&context, |stream| stream.fill_pitched(image.pitched_mut(left)?, 1.0))?;
    /// let (mut exec, fill) = (graph.instantiate()?, graph.nodes()?[0].id());
    /// let right = image.slice_mut(32..)?.pitched(left)?;
    /// exec.set_fill_pitched(fill, right, 2.0)?;
    /// exec.launch(&stream)?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuGraphExecMemsetNodeSetParams", "cudaGraphExecMemsetNodeSetParams"))]
    pub fn set_fill_pitched<T: Pod>(
        &mut self,
        node: NodeId,
        mut destination: PitchedMut<'_, T, DeviceMemory>,
        value: T,
    ) -> Result<()> {
        let exec = self.own_node(node)?;
        let (destination, geometry) = destination.parts();
        let to = destination.as_raw();
        self.require_home(FILL, node, &destination.as_view())?;
        Error::unless(geometry.span > 0, FILL, "there is nothing to fill")?;
        let mut planes = geometry.planes();
        let (Some((_, rows)), None) = (planes.next(), planes.next()) else {
            return Err(Error::invalid(FILL, "slices with gaps between them take several fills"));
        };
        let fill = fill_node(to, (geometry.row, geometry.pitch, rows), value);
        let fill = fill.ok_or_else(|| Error::invalid(FILL, "the value takes several fills"))?;
        let turn = lock(&self.graph);
        let known = filled(node.raw).ok();
        drop(turn);
        let same = known.is_none_or(|known| fill_size(&known) == fill_size(&fill));
        Error::unless(same, FILL, SAME)?;
        let (touches, context) = ([destination.write()], self.home(node).as_raw());
        self.set(FILL, node.raw, &touches, None, || {
            // SAFETY: the executable is live and only this thread uses it, by the exclusive borrow;
            // the node belongs to the graph that it was made from, which it keeps and whose lock
            // this thread holds; the memory has these rows, by the invariant of the view, and is
            // kept.
            unsafe { cu::cuGraphExecMemsetNodeSetParams(exec, node.raw.0, &fill, context) }
        })
    }
}

impl GraphExec {
    /// Returns the context that the operation was captured in. Only the operation's last node has a
    /// known context; its other nodes come before that one.
    pub(super) fn home(&self, node: NodeId) -> &Context {
        let mut node = node.raw;
        loop {
            if let Some(known) = self.nodes.get(&node) {
                return &known.context;
            }
            let _turn = lock(&self.graph);
            match dependents(node).unwrap_or_default().first() {
                Some(later) => node = *later,
                None => return self.context(),
            }
        }
    }

    /// Refuses memory of another device or context than the operation's: memory "must be allocated
    /// from the same contexts as the original" (`cuGraphExecMemcpyNodeSetParams`).
    pub(super) fn require_home<T: Pod, M: Memory>(
        &self,
        op: &'static str,
        node: NodeId,
        memory: &Slice<'_, T, M>,
    ) -> Result<()> {
        let home = self.home(node);
        home.device().require_same(op, memory.on().unwrap_or(home.device()))?;
        let at_home = memory.confined().is_none_or(|memory| memory.is_at_home_in(home));
        let what = "the memory".into();
        if at_home { Ok(()) } else { Err(WrongContext { op, what }.into()) }
    }

    /// Refuses a copy between devices that the executable was not made for. Access is not revoked
    /// while the result lives.
    fn require_copied<T: Pod, A: Memory, B: Memory>(
        &self,
        source: &Slice<'_, T, A>,
        destination: &Slice<'_, T, B>,
    ) -> Result<Crossing> {
        let why = "between devices this takes only memory of `cuMemAlloc`, as that of the caching pools: \
                   `update` takes any";
        let ends = ends((source, source.owner()), (destination, destination.owner()));
        let copies = ends.and_then(CopiesBetween::of_contexts);
        let copies = copies.ok_or_else(|| Error::invalid(COPY, why))?;
        copies.require_as_made(COPY, &self.uses.copies)?;
        copies.admit(COPY, Some(self.made))
    }
}

/// Returns what a node copied when it was captured; an error for another kind of node. The caller
/// holds the graph's lock.
pub(super) fn copied(node: Node) -> Result<CUDA_MEMCPY3D> {
    // SAFETY: the node belongs to a live graph; the call writes one structure, to an exclusive
    // borrow.
    let call = |to: &mut _| unsafe { cu::cuGraphMemcpyNodeGetParams(node.0, to) };
    asked("cuGraphMemcpyNodeGetParams", CUDA_MEMCPY3D::default(), call)
}

/// Returns what a node filled when it was captured, as [`copied`].
pub(super) fn filled(node: Node) -> Result<CUDA_MEMSET_NODE_PARAMS> {
    // SAFETY: the node belongs to a live graph; the call writes one structure, to an exclusive
    // borrow.
    let call = |to: &mut _| unsafe { cu::cuGraphMemsetNodeGetParams(node.0, to) };
    asked("cuGraphMemsetNodeGetParams", CUDA_MEMSET_NODE_PARAMS::default(), call)
}

fn fill_size(fill: &CUDA_MEMSET_NODE_PARAMS) -> [usize; 3] {
    [fill.elementSize as usize, fill.width, fill.height]
}
