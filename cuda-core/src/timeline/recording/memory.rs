//! Memory that a graph allocates and frees.

use cuda_sys::{CUdeviceptr, CUresult, CUstream, symbol as cu};

use super::{GraphTraits, OpenRecording, PlacedUse, Recording};
use crate::error::{Error, Result};
use crate::process::RelaxedCaptureMode;
use crate::timeline::core::Bound;
use crate::timeline::ledger::{Access, InGraphs, Ledger, Touch, key};

const ALLOC: &str = "cuMemAllocAsync";
const FREE: &str = "cuMemFreeAsync";

/// Memory that the graph allocates and has not freed.
pub(super) struct Allocated {
    address: CUdeviceptr,
    bytes: usize,
    /// The index in `uses.memory`.
    at: usize,
}

impl Recording {
    /// Captures the allocation of `bytes` bytes. Returns the address, and the ledger of the memory, which
    /// only operations of this capture may use.
    pub(crate) fn allocate(
        &self,
        bound: &Bound<'_>,
        bytes: usize,
    ) -> Result<(CUdeviceptr, Ledger)> {
        let ledger = Ledger::within(self.outermost().id());
        let touch = [Touch::shared(&ledger, 0..bytes, Access::Write, InGraphs::Kept)];
        let mut guard = self.lock();
        let recorded = self.open_for(ALLOC, &touch, &mut guard.recorded)?;
        self.require_can_hold(ALLOC, GraphTraits::MEMORY)?;
        let mut address = 0;
        let used = recorded.place_touch(&touch[0]);
        let at = used.at;
        recorded.change_memory(bound, ALLOC, used, |stream| {
            // SAFETY: the call writes one address, to a local that outlives it; the stream is live
            // while it is bound, and captured, which the lock keeps so.
            unsafe { cu::cuMemAllocAsync(&mut address, bytes, stream) }
        })?;
        recorded.allocated.push(Allocated { address, bytes, at });
        drop(guard);
        Ok((address, ledger))
    }

    /// Captures the free of memory that the graph allocates, ordered after all its uses.
    pub(crate) fn free(&self, bound: &Bound<'_>, ledger: &Ledger) -> Result<()> {
        let mut guard = self.lock();
        let recorded = self.open(FREE, &mut guard.recorded)?;
        let key = ledger.shared().map(key);
        let is_it = |one: &Allocated| Some(recorded.uses.memory[one.at].key()) == key;
        let known = recorded.allocated.iter().position(is_it);
        let why = "the memory is not allocated by the graph that is being captured";
        let known = known.ok_or_else(|| Error::invalid(FREE, why))?;
        recorded.free(bound, known)
    }

    /// Captures the free of all memory that the graph allocates and has not freed so far.
    pub(crate) fn free_all(&self, bound: &Bound<'_>) -> Result<()> {
        let mut guard = self.lock();
        let recorded = self.open(FREE, &mut guard.recorded)?;
        while !recorded.allocated.is_empty() {
            recorded.free(bound, 0)?;
        }
        Ok(())
    }
}

impl OpenRecording {
    fn free(&mut self, bound: &Bound<'_>, which: usize) -> Result<()> {
        let Allocated { address, bytes, at } = self.allocated.remove(which);
        let kept = self.uses.memory[at].kept.clone();
        kept.ledger().freed_by_graph();
        self.index.remove(self.uses.memory[at].key());
        let used = PlacedUse { at, range: 0..bytes, access: Access::Write };
        self.change_memory(bound, FREE, used, |stream| {
            // SAFETY: allocated by an operation of this capture, and freed once; the operation comes after
            // all that use the memory, and no operation that uses it is captured later.
            unsafe { cu::cuMemFreeAsync(address, stream) }
        })
    }

    /// Captures an allocation or a free. If that fails, the capture yields no graph: the operation's
    /// effect at each launch is unknown.
    fn change_memory(
        &mut self,
        bound: &Bound<'_>,
        op: &'static str,
        used: PlacedUse,
        call: impl FnOnce(CUstream) -> CUresult,
    ) -> Result<()> {
        let relaxed = RelaxedCaptureMode::enter();
        let relaxed = relaxed.inspect_err(|_| self.uses.is_broken = true)?;
        let used = [used];
        self.enter(&used, false);
        let made = self.record(bound, &used, false, || bound.enqueue(op, call)).node;
        drop(relaxed);
        self.uses.traits.add(GraphTraits::MEMORY);
        match made {
            Ok(node) => self.note_node(bound, node, &used),
            Err(_) => self.uses.is_broken = true,
        }
        made.map(drop)
    }
}
