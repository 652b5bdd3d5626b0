//! Copies of large slices, cut in pieces: several threads copy some pieces while others are in flight.
//!
//! Only the calling thread calls the driver; while it has no driver call to make, it copies, too. So
//! all per-thread state (current contexts, captures, the default stream) is the same as for a small
//! slice.

use std::collections::VecDeque;

use super::{fetch, send};
use crate::copy::borrowed::staging::options::{Staging, StagingOptions, is_more_than, staging};
use crate::copy::borrowed::staging::plan::{self, Piece, Sizes};
use crate::copy::borrowed::staging::ring::{DEPTH, Ring};
use crate::copy::borrowed::staging::share::Share;
use crate::copy::borrowed::staging::{CHUNK, Region};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::memory::{DeviceSlice, DeviceSliceMut};
use crate::process::{Help, Work, driver, with_help};
use crate::timeline::{Mark, Recorded, StreamCore};

/// Bytes up to which no thread helps, since it would come too late, and each part is one copy.
pub(super) const ALONE: usize = CHUNK / 2;

/// The number of chunks that may be in progress before the oldest of them must have been sent.
const AHEAD: usize = 3;

/// Bytes up to which a copy uses chunks of the size for small copies.
const SMALL: usize = 4 * CHUNK;

/// How to make a copy.
struct Plan {
    chunk: usize,
    helpers: usize,
    /// Whether parts are cut in pieces.
    is_large: bool,
}

impl Plan {
    /// Makes the plan. `readers` is the number of devices that read chunks of their own.
    fn of(bytes: usize, readers: usize) -> Result<Self> {
        let Staging { options, threads_for_parts } = staging()?;
        let threads = if readers > 1 { threads_for_parts } else { options.threads };
        let chunk = if bytes <= SMALL { CHUNK.min(options.chunk) } else { options.chunk };
        let is_large = is_more_than(bytes, ALONE);
        Ok(Self { chunk, helpers: if is_large { threads } else { 0 }, is_large })
    }

    fn pieces(&self, parts: &[usize], sizes: Sizes) -> Vec<Piece> {
        let whole = Sizes::whole(self.chunk);
        let sizes = if self.is_large { sizes } else { whole };
        plan::pieces(parts, self.chunk, sizes)
    }

    /// Copies the pieces, which are those of `share`. Begins no piece while `ahead` chunks or more have
    /// begun and are not finished.
    fn run(
        &self,
        cores: &[&StreamCore],
        ends: Ends<'_, '_>,
        blame: Blame,
        pieces: &[Piece],
        share: &Share<'_>,
        ahead: usize,
    ) -> Result<()> {
        let Some(ring) = Ring::new(cores, self.chunk) else { return Ok(()) };
        // No more helpers than there are quanta for.
        let helpers = self.helpers.min(share.quanta.saturating_sub(1));
        // `flow` owns the regions: it is dropped after `with_help` has made all helpers leave.
        let mut flow = Flow {
            ends,
            blame,
            pieces,
            share,
            ring,
            enough: helpers + 1,
            most: ahead * self.chunk,
            staged: VecDeque::new(),
            ahead: 0,
            begun: 0,
            opened: 0,
            done: 0,
        };
        with_help(share, helpers, |help| flow.run(help))
    }
}

/// Device memory that takes part in a large copy, and the stream that copies it.
pub(crate) struct DeviceEnd<'s, V> {
    pub(crate) core: &'s StreamCore,
    pub(crate) memory: V,
}

/// How the bytes of an upload are distributed to its ends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Split {
    /// Each end gets all bytes.
    Whole,
    /// Each end gets as many bytes as it has room for, one end after the other.
    Next,
}

/// Turns an error on a device into the caller's error.
pub(crate) type Blame = fn(Error, Device) -> Error;

/// Copies a slice to devices, and returns when the slice is staged. Each device's part is as long as
/// its memory.
pub(crate) fn upload<'s>(
    source: &[u8],
    ends: Vec<DeviceEnd<'s, DeviceSliceMut<'_, u8>>>,
    split: Split,
    blame: Blame,
) -> Result<()> {
    driver::ensure()?;
    let cores: Vec<_> = ends.iter().map(|end| end.core).collect();
    let parts: Vec<usize> = match split {
        Split::Whole => vec![source.len()],
        Split::Next => ends.iter().map(|end| end.memory.len()).collect(),
    };
    let plan = Plan::of(source.len(), parts.len())?;
    let pieces = plan.pieces(&parts, Sizes::up(source.len(), parts.len(), plan.chunk));
    let slices = pieces.iter().map(|piece| piece.of(source));
    let share = Share::of(slices, plan.chunk, plan.helpers + 1);
    plan.run(&cores, Ends::Up(ends, split), blame, &pieces, &share, AHEAD)
}

/// Copies device memory to a slice, end by end, and waits until the slice holds the bytes. The ends
/// together have as many bytes as the slice.
pub(crate) fn download<'s>(
    ends: Vec<DeviceEnd<'s, DeviceSlice<'_, u8>>>,
    destination: &mut [u8],
    blame: Blame,
) -> Result<()> {
    driver::ensure()?;
    let cores: Vec<_> = ends.iter().map(|end| end.core).collect();
    let plan = Plan::of(destination.len(), 0)?;
    let parts: Vec<usize> = ends.iter().map(|end| end.memory.len()).collect();
    let pieces = plan.pieces(&parts, Sizes::down(parts.len(), plan.chunk));
    let slices = plan::cut(destination, &pieces);
    let share = Share::of_mut(slices.into_iter(), plan.chunk);
    plan.run(&cores, Ends::Down(ends), blame, &pieces, &share, DEPTH - 1)
}

/// The devices' side of a copy.
enum Ends<'s, 'b> {
    /// The ends of an upload: pieces are filled, then sent.
    // INVARIANT: each piece is within the memory of the ends that it is for: all ends, each as long as
    // the slice, or the end from whose part it was cut.
    Up(Vec<DeviceEnd<'s, DeviceSliceMut<'b, u8>>>, Split),
    /// The ends of a download: pieces are fetched, then copied out.
    // INVARIANT: each piece is within the memory of the end from whose part it was cut.
    Down(Vec<DeviceEnd<'s, DeviceSlice<'b, u8>>>),
}

/// The point at which a piece is in its region, and the event that covers it. The event is held so that
/// the stream does not reuse it for a later piece, since more pieces are in flight than a stream keeps
/// events for.
type Arrival = (Mark, Option<Recorded>);

impl DeviceEnd<'_, DeviceSliceMut<'_, u8>> {
    fn send(&mut self, piece: &Piece, region: &Region) -> Result<()> {
        let stream = self.core.bind("cuMemcpyHtoDAsync")?;
        send(region, &stream, &mut self.memory, piece.start, piece.len)?;
        if piece.is_last {
            // Lets the chunk be reused as soon as the device has read it.
            self.core.timeline().checkpoint(false, stream.entered())?;
        }
        Ok(())
    }
}

impl DeviceEnd<'_, DeviceSlice<'_, u8>> {
    /// Enqueues the copy, and an event after it.
    fn fetch(&self, piece: &Piece, region: &Region) -> Result<Arrival> {
        let (stream, timeline) = (self.core.bind("cuMemcpyDtoHAsync")?, self.core.timeline());
        let seq = fetch(region, &stream, &self.memory, piece.start, piece.len)?;
        timeline.checkpoint(false, stream.entered())?;
        Ok((timeline.at(seq), timeline.recorded(seq)))
    }
}

/// A large copy. Each piece begins, is opened to the threads, and is finished; all three in order of
/// the pieces.
struct Flow<'a> {
    ends: Ends<'a, 'a>,
    blame: Blame,
    pieces: &'a [Piece],
    share: &'a Share<'a>,
    ring: Ring,
    /// The number of open quanta that keeps all threads busy.
    enough: usize,
    /// The most bytes of pieces that have begun and are not finished.
    most: usize,
    /// The pieces that have begun and are not finished.
    staged: VecDeque<(Region, Option<Arrival>)>,
    /// The bytes of `staged`.
    ahead: usize,
    /// The numbers of pieces that have begun, that have been opened, and that have been finished.
    begun: usize,
    opened: usize,
    done: usize,
}

impl Flow<'_> {
    /// Makes the copy, with the available helpers.
    pub(super) fn run(&mut self, help: &Help<'_>) -> Result<()> {
        loop {
            while self.done < self.opened && self.share.is_done(self.done) {
                self.finish()?;
            }
            if self.done == self.pieces.len() {
                return Ok(());
            }
            let (begun, opened) = (self.begun, self.opened);
            while self.may_begin() && self.begin()? {}
            if self.opened > opened || begun == 0 {
                // The helpers wake up while the first piece is in flight.
                help.call();
            }
            if self.opened < self.begun && self.share.waiting() < self.enough {
                self.open()?;
                help.call();
            } else {
                self.share.help_or_await(self.done, help)?;
            }
        }
    }

    /// Whether to begin the next piece. A download enqueues as much as allowed, to keep the device
    /// busy; an upload waits while threads have enough to copy.
    fn may_begin(&self) -> bool {
        self.begun < self.pieces.len()
            && self.ahead < self.most
            && (self.share.is_download || self.share.waiting() < self.enough)
    }

    /// Begins the next piece, if the ring has room for it.
    fn begin(&mut self) -> Result<bool> {
        let piece = &self.pieces[self.begun];
        let Some(region) = self.ring.region(piece.len, !self.staged.is_empty())? else {
            return Ok(false);
        };
        let arrival = match &self.ends {
            Ends::Up(..) => None,
            Ends::Down(ends) => {
                let (end, blame) = (&ends[piece.part], self.blame);
                let arrival = end.fetch(piece, &region);
                Some(arrival.map_err(|error| blame(error, end.core.device()))?)
            }
        };
        let is_here = arrival.is_none();
        self.staged.push_back((region, arrival));
        self.ahead += piece.len;
        self.begun += 1;
        if is_here {
            self.open()?;
        }
        Ok(true)
    }

    /// Opens the next piece to the threads, after waiting until it is in its region.
    fn open(&mut self) -> Result<()> {
        let Some((region, arrival)) = self.staged.get(self.opened - self.done) else {
            return Ok(());
        };
        if let Some((mark, _event)) = arrival {
            let blame = |error| (self.blame)(error, mark.timeline.context().device());
            mark.timeline.wait_host(mark.seq).map_err(blame)?;
        }
        // SAFETY: this is the next piece with a region of its size. For a download the device has
        // filled the region. `self` keeps the region until the piece is done; if the piece is never
        // done, `self` is dropped only after `with_help` has made all helpers leave.
        unsafe { self.share.open(self.opened, region) };
        self.opened += 1;
        Ok(())
    }

    /// Finishes the oldest piece, which has been copied.
    fn finish(&mut self) -> Result<()> {
        let piece = &self.pieces[self.done];
        if let Some((region, _)) = self.staged.pop_front() {
            let ends = match &mut self.ends {
                Ends::Up(ends, Split::Whole) => &mut ends[..],
                Ends::Up(ends, Split::Next) => &mut ends[piece.part..=piece.part],
                Ends::Down(_) => &mut [],
            };
            for end in ends {
                let sent = end.send(piece, &region);
                sent.map_err(|error| (self.blame)(error, end.core.device()))?;
            }
        }
        self.ahead -= piece.len;
        self.done += 1;
        Ok(())
    }
}

/// Copies regions, which the device has filled, to their slices.
pub(super) fn copy_out(staged: Vec<(Region, &mut [u8])>) -> Result<()> {
    let (regions, slices): (Vec<Region>, Vec<&mut [u8]>) = staged.into_iter().unzip();
    let StagingOptions { threads, chunk } = staging()?.options;
    let share = Share::of_mut(slices.into_iter(), chunk);
    let helpers = threads.min(share.quanta.saturating_sub(1));
    with_help(&share, helpers, |help| {
        for (piece, region) in regions.iter().enumerate() {
            // SAFETY: this is the next piece, with its region, which is kept until no thread accesses
            // it.
            unsafe { share.open(piece, region) };
        }
        help.call();
        while share.step() {}
        (0..regions.len()).try_for_each(|piece| {
            while !share.is_done(piece) {
                share.help_or_await(piece, help)?;
            }
            Ok(())
        })
    })
}
