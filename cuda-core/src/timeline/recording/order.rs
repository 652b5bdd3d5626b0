//! The order of a capture's operations among each other.

use super::by_access::{ByAccess, PrecededByAccess};
use super::dependencies::{last_node, state};
use super::{Node, Order, PlacedUse};
use crate::error::Result;
use crate::timeline::core::Bound;
use crate::timeline::ledger::{Fences, Ledger, Use};

#[derive(Default)]
pub(super) enum CaptureOrder {
    /// One stream: its operations come one after the other.
    #[default]
    Chain,
    /// One ledger for each of [`GraphUses::memory`](super::GraphUses::memory).
    Streams(Vec<Ledger>),
    Access(ByAccess),
}

/// What the next operation comes after.
pub(super) enum Preceded {
    Chain,
    Streams(Fences),
    Access(PrecededByAccess),
}

impl Preceded {
    /// Whether the stream certainly depends on what it did after [`CaptureOrder::precede`]: the driver has
    /// captured nothing on it. `last` is the node of the last operation on it, as far as is known.
    #[cold]
    pub(super) fn is_unchanged(
        &self,
        bound: &Bound<'_>,
        last: impl FnOnce() -> Option<Node>,
    ) -> bool {
        let before = match self {
            Self::Access(preceded) => preceded.before.clone(),
            // After a wait for another stream it depends on more than that, so the answer is no.
            Self::Chain | Self::Streams(_) => last().into_iter().collect(),
        };
        state(bound.raw()).is_ok_and(|(_, now)| now == before)
    }
}

impl CaptureOrder {
    pub(super) fn kind(&self) -> Order {
        match self {
            Self::Chain => Order::Chain,
            Self::Streams(_) => Order::Streams,
            Self::Access(_) => Order::Access,
        }
    }

    /// Makes the next operation come after what it conflicts with.
    pub(super) fn precede(
        &mut self,
        bound: &Bound<'_>,
        uses: &[PlacedUse],
        is_barrier: bool,
    ) -> Result<Preceded> {
        match self {
            Self::Chain => Ok(Preceded::Chain),
            Self::Access(by_access) => {
                by_access.precede(bound, uses, is_barrier).map(Preceded::Access)
            }
            Self::Streams(ledgers) => {
                let (timeline, mut fences) = (bound.timeline(), Fences::none());
                for PlacedUse { at, range, access } in uses {
                    ledgers[*at].add_conflicts(range, *access, Some(timeline), &mut fences);
                }
                fences.wait_on(bound)?;
                Ok(Preceded::Streams(fences))
            }
        }
    }

    /// Notes the operation that was captured since, or that failed to be. Returns its last node, if the
    /// driver says which one that is. After an error, the order of later operations is unknown.
    pub(super) fn captured(
        &mut self,
        bound: &Bound<'_>,
        uses: &[PlacedUse],
        preceded: Preceded,
        seq: u64,
    ) -> Result<Option<Node>> {
        match (self, preceded) {
            (Self::Access(by_access), Preceded::Access(preceded)) => {
                by_access.captured(bound, uses, preceded)
            }
            (Self::Streams(ledgers), Preceded::Streams(fences)) => {
                for PlacedUse { at, range, access } in uses {
                    let (access, stream, fences) = (*access, bound.timeline(), &fences);
                    ledgers[*at].mark(Use { range, access, stream, seq, fences });
                }
                Ok(last_node(bound.raw()))
            }
            // A chain; the two are of the same kind always.
            _ => Ok(last_node(bound.raw())),
        }
    }
}
