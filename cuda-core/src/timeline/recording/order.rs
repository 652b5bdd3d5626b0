//! The order of a capture's operations among each other.

use super::by_access::{ByAccess, PrecededByAccess};
use super::dependencies::{last_node, state};
use super::{Node, Order, PlacedUse};
use crate::error::Result;
use crate::timeline::core::Bound;
use crate::timeline::ledger::{Fences, Ledger, Use};

#[derive(Default)]
pub(super) enum CaptureOrder {
    /// One stream: its operations run one after the other.
    #[default]
    Chain,
    /// One ledger for each of [`GraphUses::memory`](super::GraphUses::memory).
    Streams(Vec<Ledger>),
    Access(ByAccess),
}

/// The operations that the next one comes after.
pub(super) enum Preceded {
    Chain,
    Streams(Fences),
    Access(PrecededByAccess),
}

impl Preceded {
    /// Whether the stream's dependencies are certainly those from [`CaptureOrder::precede`]: the driver has
    /// captured nothing on it since. `last` returns the node of the last operation on the stream, if known.
    #[cold]
    pub(super) fn is_unchanged(
        &self,
        bound: &Bound<'_>,
        last: impl FnOnce() -> Option<Node>,
    ) -> bool {
        let before = match self {
            Self::Access(preceded) => preceded.before.clone(),
            // After a wait for another stream it depends on more nodes, so this returns false.
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

    /// Orders the next operation after those that it conflicts with.
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

    /// Notes the operation that was captured after [`CaptureOrder::precede`], or whose capture failed.
    /// Returns its last node, if the driver says which one that is. After an error, the order of later
    /// operations is unknown.
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
            // A chain; `self` and `preceded` are always of the same kind.
            _ => Ok(last_node(bound.raw())),
        }
    }
}
