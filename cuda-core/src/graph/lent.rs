//! Launches of graphs that use host-visible memory.

use std::sync::Arc;

use super::GraphExec;
use crate::error::{Error, Result};
use crate::memory::{IntoView, Memory, Slice, SliceMut};
use crate::process::driver;
use crate::stream::{Stream, StreamKind};
use crate::timeline::ledger::{Access, Bytes, SharedLedger, within};
use crate::timeline::recording::UsedMemory;
use crate::types::Pod;
use crate::util::debug_by;

/// A launch of a graph, with the host-visible memory that is lent to it; made by
/// [`GraphExec::lend`] and [`GraphExec::lend_mut`].
///
/// Lending proves that the host has no slice of the memory when the launch begins. It lasts until
/// [`launch`](LentLaunch::launch) returns. After that, the accessors of the memory wait for the
/// launch, as they do for any copy.
///
/// ```no_run
/// # let context = cuda_core::Device::get(0)?.context()?;
/// # let stream = context.create_stream()?;
/// use cuda_core::{Graph, PinnedBuffer};
///
/// let mut input = PinnedBuffer::from_slice(&context, &[1.0f32; 256])?;
/// let mut output = PinnedBuffer::<f32>::new(&context, 256)?;
/// let mut x = stream.alloc(256)?;
/// let graph = Graph::capture(&context, |stream| {
///     stream.upload(&input, &mut x)?;
///     stream.download(&x, &mut output)
/// })?;
/// let mut exec = graph.instantiate()?;
/// for step in 0..10 {
///     input.as_mut_slice()?.fill(step as f32); // waits for the launch before
///     exec.lend(&input).lend_mut(&mut output).launch(&stream)?;
///     println!("{:?}", output.as_slice()?); // waits for this one
/// }
/// # Ok::<(), cuda_core::Error>(())
/// ```
#[must_use = "nothing is launched until `launch` is called"]
pub struct LentLaunch<'a> {
    exec: &'a mut GraphExec,
    lent: Vec<Lent>,
}

/// Bytes of an allocation, borrowed until the launch is made.
pub(super) struct Lent {
    ledger: Arc<SharedLedger>,
    range: Bytes,
    access: Access,
}

/// # Lending memory that the host can see
impl GraphExec {
    /// Begins a launch that reads pinned, registered or managed memory. Memory that only devices
    /// can access need not be lent.
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// # let stream = context.create_stream()?;
    /// let input = cuda_core::PinnedBuffer::from_slice(&context, &[1u32; 256])?;
    /// let mut x = stream.alloc(256)?;
    /// let graph = cuda_core::Graph::capture(&context, |stream| stream.upload(&input, &mut x))?;
    /// graph.instantiate()?.lend(&input).launch(&stream)?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn lend<'a, T: Pod, M: Memory>(
        &'a mut self,
        memory: impl IntoView<Slice<'a, T, M>>,
    ) -> LentLaunch<'a> {
        LentLaunch { exec: self, lent: Vec::new() }.lend(memory)
    }

    /// Begins a launch that writes pinned, registered or managed memory, and may read it.
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// # let stream = context.create_stream()?;
    /// let mut output = cuda_core::PinnedBuffer::<u32>::new(&context, 256)?;
    /// let x = stream.alloc_zeroed(256)?;
    /// let graph = cuda_core::Graph::capture(&context, |stream| stream.download(&x, &mut output))?;
    /// graph.instantiate()?.lend_mut(&mut output).launch(&stream)?;
    /// assert_eq!(output.as_slice()?, [0; 256]); // waits for the launch
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn lend_mut<'a, T: Pod, M: Memory>(
        &'a mut self,
        memory: impl IntoView<SliceMut<'a, T, M>>,
    ) -> LentLaunch<'a> {
        LentLaunch { exec: self, lent: Vec::new() }.lend_mut(memory)
    }
}

impl<'a> LentLaunch<'a> {
    /// Lends memory that the graph reads.
    pub fn lend<T: Pod, M: Memory>(mut self, memory: impl IntoView<Slice<'a, T, M>>) -> Self {
        self.add(memory.into(), Access::Read);
        self
    }

    /// Lends memory that the graph writes, and may read.
    pub fn lend_mut<T: Pod, M: Memory>(
        mut self,
        memory: impl IntoView<SliceMut<'a, T, M>>,
    ) -> Self {
        // Still exclusive: the value is consumed, but its borrow continues.
        self.add(memory.into().into_view(), Access::Write);
        self
    }

    /// Notes the memory, if a graph uses it.
    fn add<T: Pod, M: Memory>(&mut self, memory: Slice<'a, T, M>, access: Access) {
        let range = memory.range();
        let ledger = memory.ledger().shared().cloned();
        self.lent.extend(ledger.map(|ledger| Lent { ledger, range, access }));
    }

    /// Launches the graph, as [`GraphExec::launch`].
    ///
    /// # Errors
    /// [`Error::Invalid`] if the graph uses pinned, registered or managed memory that was not lent,
    /// or writes memory that was lent by [`lend`](Self::lend); the errors of [`GraphExec::launch`].
    ///
    /// ```no_run
    /// # let context = cuda_core::Device::get(0)?.context()?;
    /// # let stream = context.create_stream()?;
    /// use cuda_core::{Graph, PinnedBuffer};
    ///
    /// let mut host = PinnedBuffer::from_slice(&context, &[1u32; 256])?;
    /// let mut x = stream.alloc(256)?;
    /// let mut exec = Graph::capture(&context, |stream| stream.upload(&host, &mut x))?.instantiate()?;
    /// exec.lend(&host).launch(&stream)?;
    /// host.as_mut_slice()?.fill(2); // waits for the launch
    /// exec.lend(&host).launch(&stream)?;
    /// assert_eq!(stream.download_vec(&x)?, [2; 256]);
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    #[doc(alias("cuGraphLaunch", "cudaGraphLaunch"))]
    pub fn launch<K: StreamKind>(self, stream: &Stream<K>) -> Result<()> {
        check(self.exec, &self.lent)?;
        self.exec.launch_lent(stream)
    }
}

/// Refuses a launch to which some required memory was not lent.
pub(super) fn check(exec: &GraphExec, lent: &[Lent]) -> Result<()> {
    for used in exec.used().filter(|used| used.must_be_lent()) {
        for (range, access) in &used.uses {
            let enough = |lent: &Lent| {
                let same = Arc::ptr_eq(&lent.ledger, used.kept.ledger());
                same && within(range, &lent.range) && *access <= lent.access
            };
            if !lent.iter().any(enough) {
                require_lendable([used].into_iter(), "cuGraphLaunch")?;
                return Err(not_lent(range, *access));
            }
        }
    }
    Ok(())
}

/// Refuses memory that can never be lent again, since it was dropped.
pub(super) fn require_lendable<'a>(
    mut used: impl Iterator<Item = &'a UsedMemory>,
    op: &'static str,
) -> Result<()> {
    driver::ensure()?;
    let lost = used.any(|used| used.must_be_lent() && used.kept.ledger().is_left());
    let why =
        "memory of the host that the graph uses was dropped: keep it, and lend it at each launch";
    Error::unless(!lost, op, why)
}

#[cold]
fn not_lent(range: &Bytes, access: Access) -> Error {
    let (does, method) = match access {
        Access::Read => ("reads", "lend"),
        Access::Write => ("writes", "lend_mut"),
    };
    let why = format!(
        "the graph {does} bytes {range:?} of memory of the host that the launch was not lent: pass the \
         buffer to `{method}`"
    );
    Error::invalid("cuGraphLaunch", why)
}

debug_by! {
    [] LentLaunch<'_>: |it| "LentLaunch" { exec: it.exec, lent: it.lent.len() }
}
