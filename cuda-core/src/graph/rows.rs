//! Executable graphs whose fills of rows are changed.

use cuda_sys::{CUDA_ERROR_INVALID_VALUE, CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS, symbol as cu};

use super::{GraphExec, NodeId};
use crate::copy::fill::fill_node;
use crate::copy::pitched::PitchedMut;
use crate::error::{Error, Result, asked};
use crate::memory::device::DeviceMemory;
use crate::timeline::recording::Node;
use crate::types::pod::Pod;
use crate::util::sync::lock;

const COPY: &str = "cuGraphExecMemcpyNodeSetParams";
const FILL: &str = "cuGraphExecMemsetNodeSetParams";
const SAME: &str = "the rows of a node stay as many and as long as they were when it was captured";

/// # Changing rows
impl GraphExec {
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
            // SAFETY: the executable is live and only this thread uses it, by the exclusive borrow; the
            // node is of the graph that it was made of, which it keeps and whose lock this thread
            // holds; the memory has these rows, by the invariant of the view, and is kept.
            unsafe { cu::cuGraphExecMemsetNodeSetParams(exec, node.raw.0, &fill, context) }
        })
    }
}

/// What a node copied when it was captured; an error for another kind. The caller holds the lock of
/// its graph.
pub(super) fn copied(node: Node) -> Result<CUDA_MEMCPY3D> {
    // SAFETY: a node of a live graph; the call writes one structure, to an exclusive borrow.
    let call = |to: &mut _| unsafe { cu::cuGraphMemcpyNodeGetParams(node.0, to) };
    asked("cuGraphMemcpyNodeGetParams", CUDA_MEMCPY3D::default(), call)
}

/// What a node filled when it was captured, as [`copied`].
pub(super) fn filled(node: Node) -> Result<CUDA_MEMSET_NODE_PARAMS> {
    // SAFETY: a node of a live graph; the call writes one structure, to an exclusive borrow.
    let call = |to: &mut _| unsafe { cu::cuGraphMemsetNodeGetParams(node.0, to) };
    asked("cuGraphMemsetNodeGetParams", CUDA_MEMSET_NODE_PARAMS::default(), call)
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
        COPY => copied(node).is_ok_and(|copy| copy.Height * copy.Depth > 1),
        FILL => filled(node).is_ok_and(|fill| fill.height > 1),
        _ => false,
    };
    let reason = "the driver changes neither copies of rows nor how many rows a fill has, and how long: \
                  `set_fill_pitched` changes the rest of a fill, `update` the whole graph";
    if has_rows { Error::invalid(op, reason) } else { error }
}
