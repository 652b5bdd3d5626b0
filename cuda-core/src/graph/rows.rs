//! Executable graphs whose copies and fills of rows are changed.

use cuda_sys::{
    CU_MEMORYTYPE_DEVICE, CUDA_ERROR_INVALID_VALUE, CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS,
    symbol as cu,
};

use super::{GraphExec, NodeId};
use crate::copy::fill::fill_node;
use crate::copy::pitched::{Pitched, PitchedMut};
use crate::copy::shape::same_extent;
use crate::copy::side::Side;
use crate::error::{Error, Result, asked};
use crate::memory::Memory;
use crate::memory::device::DeviceMemory;
use crate::timeline::recording::Node;
use crate::types::pod::Pod;
use crate::util::sync::lock;

const COPY: &str = "cuGraphExecMemcpyNodeSetParams";
const FILL: &str = "cuGraphExecMemsetNodeSetParams";
const SAME: &str = "the rows of a node stay as many and as long as they were when it was captured";

/// # Changing rows
impl GraphExec {
    /// [`set_copy`](Self::set_copy) for a copy of rows: to as many rows of the same length, at any
    /// places and distances: `cuGraphExecMemcpyNodeSetParams`.
    ///
    /// CUDA's documentation promises this for copies without rows alone. Where a driver refuses it,
    /// the executable is unchanged; [`update`](Self::update) is the way then.
    ///
    /// # Errors
    /// Those of [`set_copy`](Self::set_copy); [`Error::Invalid`] for ends of different extents, and for
    /// rows of another number or length than the node's.
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// # let stream = context.create_stream()?;
    /// use cuda_core::{Graph, Shape};
    ///
    /// let images = [stream.alloc_zeroed::<f32>(64 * 64)?, stream.alloc_zeroed::<f32>(64 * 64)?];
    /// let mut half = stream.alloc::<f32>(32 * 64)?;
    /// let (left, all) = (Shape::plane(32, 64).with_pitch(64 * 4), Shape::plane(32, 64));
    /// let graph = Graph::capture(&context, |stream| {
    ///     stream.copy_pitched(images[0].pitched(left)?, half.pitched_mut(all)?)
    /// })?;
    /// let (mut exec, copy) = (graph.instantiate()?, graph.nodes()?[0].id());
    /// exec.set_copy_pitched(copy, images[1].pitched(left)?, half.pitched_mut(all)?)?;
    /// exec.launch(&stream)?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuGraphExecMemcpyNodeSetParams", "cudaGraphExecMemcpyNodeSetParams"))]
    pub fn set_copy_pitched<T: Pod, A: Memory, B: Memory>(
        &mut self,
        node: NodeId,
        source: Pitched<'_, T, A>,
        mut destination: PitchedMut<'_, T, B>,
    ) -> Result<()> {
        let exec = self.node(node)?;
        let ((source, from), (destination, to)) = (source.into_parts(), destination.parts());
        same_extent(COPY, from.extent, to.extent)?;
        Error::unless(from.span > 0, COPY, "there is nothing to copy")?;
        let view = destination.as_view();
        let (start, end) = (Side::of(source.place()), Side::of(view.place()));
        for (side, owner) in [(start, source.owner()), (end, view.owner())] {
            if side.kind == CU_MEMORYTYPE_DEVICE {
                self.at_home(COPY, owner)?;
            }
        }
        let copy = CUDA_MEMCPY3D {
            srcMemoryType: start.kind,
            srcHost: start.host,
            srcDevice: start.device,
            srcPitch: from.pitch,
            srcHeight: from.slice_height,
            dstMemoryType: end.kind,
            dstHost: end.host,
            dstDevice: end.device,
            dstPitch: to.pitch,
            dstHeight: to.slice_height,
            WidthInBytes: to.row,
            Height: to.extent.height,
            Depth: to.extent.depth,
            ..Default::default()
        };
        let known = self.during(|| copied(node.raw));
        let same = known.is_none_or(|known| copy_size(&known) == copy_size(&copy));
        Error::unless(same, COPY, SAME)?;
        let (touches, context) = ([source.read(), destination.write()], self.context().as_raw());
        self.set(COPY, node.raw, &touches, None, || {
            // SAFETY: the executable is live and only this thread uses it, by the exclusive borrow; the
            // node is of the graph that it was made of, which it keeps and whose lock this thread
            // holds; both ends have these rows, by the invariant of the views, and are kept.
            unsafe { cu::cuGraphExecMemcpyNodeSetParams(exec, node.raw.0, &copy, context) }
        })
    }

    /// [`set_fill`](Self::set_fill) for a fill of rows, as many and as long as before:
    /// `cuGraphExecMemsetNodeSetParams`.
    ///
    /// # Errors
    /// Those of [`set_fill`](Self::set_fill); [`Error::Invalid`] for rows of another number or length
    /// than the node's, and for slices with gaps between them, which take several fills.
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
        let exec = self.node(node)?;
        let (destination, geometry) = destination.parts();
        let to = destination.as_raw();
        self.at_home(FILL, destination.as_view().owner())?;
        Error::unless(geometry.span > 0, FILL, "there is nothing to fill")?;
        let mut planes = geometry.planes();
        let (Some((_, rows)), None) = (planes.next(), planes.next()) else {
            return Err(Error::invalid(FILL, "slices with gaps between them take several fills"));
        };
        let fill = fill_node(to, (geometry.row, geometry.pitch, rows), value);
        let fill = fill.ok_or_else(|| Error::invalid(FILL, "the value takes several fills"))?;
        let known = self.during(|| filled(node.raw));
        let same = known.is_none_or(|known| fill_size(&known) == fill_size(&fill));
        Error::unless(same, FILL, SAME)?;
        let (touches, context) = ([destination.write()], self.context().as_raw());
        self.set(FILL, node.raw, &touches, None, || {
            // SAFETY: as in `set_copy_pitched`; the memory has these rows, and is kept.
            unsafe { cu::cuGraphExecMemsetNodeSetParams(exec, node.raw.0, &fill, context) }
        })
    }

    /// Asks the driver about a node of the graph, which no other thread uses meanwhile.
    fn during<R>(&self, ask: impl FnOnce() -> R) -> R {
        let _turn = lock(&self.graph);
        ask()
    }
}

/// What a node copied when it was captured; [`None`] for another kind. The caller holds the lock of
/// its graph.
fn copied(node: Node) -> Option<CUDA_MEMCPY3D> {
    // SAFETY: a node of a live graph; the call writes one structure, to an exclusive borrow.
    let call = |to: &mut _| unsafe { cu::cuGraphMemcpyNodeGetParams(node.0, to) };
    asked("cuGraphMemcpyNodeGetParams", CUDA_MEMCPY3D::default(), call).ok()
}

/// What a node filled when it was captured, as [`copied`].
fn filled(node: Node) -> Option<CUDA_MEMSET_NODE_PARAMS> {
    // SAFETY: a node of a live graph; the call writes one structure, to an exclusive borrow.
    let call = |to: &mut _| unsafe { cu::cuGraphMemsetNodeGetParams(node.0, to) };
    asked("cuGraphMemsetNodeGetParams", CUDA_MEMSET_NODE_PARAMS::default(), call).ok()
}

fn copy_size(copy: &CUDA_MEMCPY3D) -> [usize; 3] {
    [copy.WidthInBytes, copy.Height, copy.Depth]
}

fn fill_size(fill: &CUDA_MEMSET_NODE_PARAMS) -> [usize; 3] {
    [fill.elementSize as usize, fill.width, fill.height]
}

/// Says what to do if the driver has refused to make another operation of a node with rows. The caller
/// holds the lock of its graph.
#[cold]
pub(super) fn explain(op: &'static str, node: Node, error: Error) -> Error {
    if error.code() != Some(CUDA_ERROR_INVALID_VALUE) {
        return error;
    }
    let has_rows = match op {
        COPY => copied(node).is_some_and(|copy| copy.Height * copy.Depth > 1),
        FILL => filled(node).is_some_and(|fill| fill.height > 1),
        _ => false,
    };
    let reason = "the driver refuses the change of a node with rows: their number and length stay, by \
                  `set_copy_pitched` and `set_fill_pitched`, or `update` changes the whole graph";
    if has_rows { Error::invalid(op, reason) } else { error }
}
