//! The memory that a capture uses, and the accesses of its operations.

use super::order::CaptureOrder;
use super::{Captured, GraphTraits, OpenRecording, UsedMemory};
use crate::timeline::ledger::{Access, Bytes, InGraphs, KeptMemory, Ledger, Touch, key};
use crate::util::InlineVec;

/// A use of the memory at an index of [`GraphUses::memory`](super::GraphUses::memory).
#[derive(Clone, PartialEq)]
pub(super) struct PlacedUse {
    pub(super) at: usize,
    pub(super) range: Bytes,
    pub(super) access: Access,
}

impl OpenRecording {
    /// Lists the memory, which is kept unless the operation is [refused](Self::settle), and returns the uses
    /// with its indices. Does not [enter](Self::enter) the uses.
    pub(super) fn place_all(&mut self, touches: &[Touch<'_>]) -> InlineVec<PlacedUse, 8> {
        let mut uses = InlineVec::new();
        touches.iter().for_each(|touch| uses.push(|| self.place_touch(touch)));
        uses
    }

    pub(super) fn place_touch(&mut self, touch: &Touch<'_>) -> PlacedUse {
        let ledger = touch.ledger.get();
        // Looked up first: most operations use memory that earlier ones have used.
        let known = ledger.shared().and_then(|shared| self.index.get(key(shared)).copied());
        let is_lent = touch.in_graphs == InGraphs::Lent;
        let at = known.unwrap_or_else(|| self.place(&ledger.keep(), is_lent));
        PlacedUse { at, range: touch.range.clone(), access: touch.access }
    }

    pub(super) fn place(&mut self, kept: &KeptMemory, lent: bool) -> usize {
        let next = self.uses.memory.len();
        let at = *self.index.get_or_insert_with(key(kept.ledger()), || next);
        if at == next {
            let kept = kept.clone();
            self.uses.memory.push(UsedMemory { kept, uses: Vec::new(), lent, count: 0 });
            if let CaptureOrder::Streams(ledgers) = &mut self.order {
                ledgers.push(Ledger::default());
            }
        }
        at
    }

    /// Enters the uses of an operation. If the driver refused the operation, releases memory that no other
    /// operation uses.
    pub(super) fn settle(&mut self, captured: &Captured, uses: &[PlacedUse], is_barrier: bool) {
        if captured.is_there {
            return self.enter(uses, is_barrier);
        }
        while let Some(unused) = self.uses.memory.last().filter(|memory| memory.count == 0) {
            self.index.remove(unused.key());
            // The caller also holds the memory, so nothing is freed under the lock.
            self.uses.memory.pop();
            if let CaptureOrder::Streams(ledgers) = &mut self.order {
                ledgers.pop();
            }
        }
    }

    /// Enters the uses of an operation of the graph.
    pub(super) fn enter(&mut self, uses: &[PlacedUse], is_barrier: bool) {
        if is_barrier {
            self.uses.traits.add(GraphTraits::BARRIER);
        }
        for PlacedUse { at, range, access } in uses {
            let memory = &mut self.uses.memory[*at];
            memory.add(range.clone(), *access);
            memory.count += 1;
            if memory.lent {
                memory.kept.ledger().enter_captured(range.clone(), *access, &self.open);
            }
        }
    }
}
