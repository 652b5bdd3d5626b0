//! Copies of large slices: cut in pieces, which several threads copy while others are in flight.
//!
//! Only the calling thread calls the driver; it copies, too, while there is nothing to ask of the
//! driver. So all per-thread state (current contexts, captures, the default stream) is the same as
//! for a small slice.

use super::device_end::{DeviceEnd, Down, Split, Up};
use super::flow::{Blame, Flow, FlowLimits};
use crate::copy::borrowed::staging::options::{StagingOptions, is_more_than, staging_options};
use crate::copy::borrowed::staging::plan::{self, Piece, Sizes};
use crate::copy::borrowed::staging::ring::{DEPTH, Ring};
use crate::copy::borrowed::staging::share::Share;
use crate::copy::borrowed::staging::{CHUNK, Region};
use crate::error::Result;
use crate::memory::device::{DeviceSlice, DeviceSliceMut};
use crate::process::driver;
use crate::process::workers::{Work, with_help};

/// Bytes up to which no thread helps, and each part is one copy: helpers would come too late.
pub(super) const ALONE: usize = CHUNK / 2;

/// Chunks that are being filled before the oldest of them must have been sent.
const AHEAD: usize = 3;

/// Bytes up to which a copy uses the chunks of small copies.
const SMALL: usize = 4 * CHUNK;

/// How a copy is made.
struct Plan {
    chunk: usize,
    helpers: usize,
    /// Whether parts are cut in pieces.
    is_large: bool,
}

impl Plan {
    fn of(bytes: usize) -> Result<Self> {
        let StagingOptions { threads, chunk } = staging_options()?;
        let chunk = if bytes <= SMALL { CHUNK.min(chunk) } else { chunk };
        let is_large = is_more_than(bytes, ALONE);
        Ok(Self { chunk, helpers: if is_large { threads } else { 0 }, is_large })
    }

    fn pieces(&self, parts: &[usize], sizes: Sizes) -> Vec<Piece> {
        let whole = Sizes::whole(self.chunk);
        let sizes = if self.is_large { sizes } else { whole };
        plan::pieces(parts, self.chunk, sizes)
    }

    /// Helpers to use: no more than there are quanta for.
    fn helpers(&self, share: &Share<'_>) -> usize {
        self.helpers.min(share.quanta().saturating_sub(1))
    }
}

/// Copies a slice to devices, and returns when it is staged. Each device's part is as long as its
/// memory.
pub(crate) fn upload<'s>(
    source: &[u8],
    ends: Vec<DeviceEnd<'s, DeviceSliceMut<'_, u8>>>,
    split: Split,
    blame: Blame,
) -> Result<()> {
    driver::ensure()?;
    let Some(first) = ends.first().map(|end| end.core) else {
        return Ok(());
    };
    let plan = Plan::of(source.len())?;
    let chunk = plan.chunk;
    let parts: Vec<usize> = match split {
        Split::Whole => vec![source.len()],
        Split::Next => ends.iter().map(|end| end.memory.len()).collect(),
    };
    let sizes = Sizes::up(source.len(), parts.len(), chunk);
    let pieces = plan.pieces(&parts, sizes);
    let share = Share::of(pieces.iter().map(|piece| piece.of(source)), chunk, plan.helpers + 1);
    let ring = Ring::new(first, ends.iter().map(|end| end.core), chunk);
    let helpers = plan.helpers(&share);
    let limits = FlowLimits::new(helpers, AHEAD * chunk);
    // `flow` owns the regions: it is dropped after `with_help` has made all helpers leave.
    let mut flow = Flow::new(Up { ends, split }, &pieces, &share, ring, limits, blame);
    with_help(&share, helpers, |help| flow.run(help))
}

/// Copies device memory to a slice, end by end, and waits until the bytes are there. The ends
/// together have as many bytes as the slice.
pub(crate) fn download<'s>(
    ends: Vec<DeviceEnd<'s, DeviceSlice<'_, u8>>>,
    destination: &mut [u8],
    blame: Blame,
) -> Result<()> {
    driver::ensure()?;
    let Some(first) = ends.first().map(|end| end.core) else {
        return Ok(());
    };
    let plan = Plan::of(destination.len())?;
    let chunk = plan.chunk;
    let parts: Vec<usize> = ends.iter().map(|end| end.memory.len()).collect();
    let pieces = plan.pieces(&parts, Sizes::down(parts.len(), chunk));
    let slices = plan::cut(destination, &pieces);
    let share = Share::of_mut(slices.into_iter(), chunk);
    let ring = Ring::new(first, ends.iter().map(|end| end.core), chunk);
    let helpers = plan.helpers(&share);
    let limits = FlowLimits::new(helpers, (DEPTH - 1) * chunk);
    // `flow` owns the regions: it is dropped after `with_help` has made all helpers leave.
    let mut flow = Flow::new(Down { ends }, &pieces, &share, ring, limits, blame);
    with_help(&share, helpers, |help| flow.run(help))
}

/// Copies regions, which the device has filled, to their slices.
pub(super) fn copy_out(staged: Vec<(Region, &mut [u8])>) -> Result<()> {
    let (regions, slices): (Vec<Region>, Vec<&mut [u8]>) = staged.into_iter().unzip();
    let StagingOptions { threads, chunk } = staging_options()?;
    let share = Share::of_mut(slices.into_iter(), chunk);
    let helpers = threads.min(share.quanta().saturating_sub(1));
    with_help(&share, helpers, |help| {
        for (piece, region) in regions.iter().enumerate() {
            // SAFETY: the next piece, and its region, which is kept until no thread accesses it.
            unsafe { share.open(piece, region) };
        }
        help.call();
        while share.step() {}
        (0..share.pieces()).try_for_each(|piece| {
            while !share.is_done(piece) {
                share.help_or_await(piece, help)?;
            }
            Ok(())
        })
    })
}
