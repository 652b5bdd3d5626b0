//! The state of a large copy, for both directions.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::copy::borrowed::staging::Region;
use crate::copy::borrowed::staging::plan::Piece;
use crate::copy::borrowed::staging::ring::Ring;
use crate::copy::borrowed::staging::share::Share;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::process::workers::Help;
use crate::timeline::Timeline;
use crate::timeline::event::RawEvent;

/// The driver calls for each piece, before or after threads copy it.
pub(super) trait CopyDirection {
    /// Whether to begin further pieces even if threads have enough to copy.
    const EAGER: bool;

    /// Begins a piece, which has this region. Returns what to wait for before threads may copy it.
    fn begin(&self, piece: &Piece, region: &Region) -> Result<Option<Arrival>, Failure>;

    /// Called after threads have copied the piece.
    fn finish(&mut self, piece: &Piece, region: &Region) -> Result<(), Failure>;
}

/// The point at which a piece is in its region.
pub(super) struct Arrival {
    pub(super) device: Device,
    pub(super) timeline: Arc<Timeline>,
    pub(super) seq: u64,
    /// Held so that the stream does not reuse the event for a later piece: more pieces are in
    /// flight than a stream keeps events for.
    pub(super) _event: Option<Arc<RawEvent>>,
}

/// An error, and the device it is about.
pub(super) struct Failure {
    pub(super) device: Device,
    pub(super) error: Error,
}

/// Turns an error on a device into the caller's error.
pub(crate) type Blame = fn(Error, Device) -> Error;

/// How far a copy gets ahead of its threads and of the device.
pub(super) struct FlowLimits {
    /// Open quanta that keep all threads busy.
    enough: usize,
    /// Bytes of pieces that have begun and are not finished.
    most: usize,
}

impl FlowLimits {
    pub(super) fn new(helpers: usize, most: usize) -> Self {
        Self { enough: helpers + 1, most }
    }
}

/// A large copy. Each piece begins, is opened to the threads, and is finished; all in order.
pub(super) struct Flow<'a, W> {
    direction: W,
    pieces: &'a [Piece],
    share: &'a Share<'a>,
    ring: Ring,
    limits: FlowLimits,
    blame: Blame,
    /// The pieces that have begun and are not finished.
    staged: VecDeque<Staged>,
    /// Their bytes.
    ahead: usize,
    /// Numbers of pieces that have begun, that have been opened, and that have been finished.
    begun: usize,
    opened: usize,
    done: usize,
}

struct Staged {
    region: Region,
    arrival: Option<Arrival>,
}

impl<'a, W: CopyDirection> Flow<'a, W> {
    /// A copy of the pieces, which must be those of `share`.
    pub(super) fn new(
        direction: W,
        pieces: &'a [Piece],
        share: &'a Share<'a>,
        ring: Ring,
        limits: FlowLimits,
        blame: Blame,
    ) -> Self {
        Self {
            direction,
            pieces,
            share,
            ring,
            limits,
            blame,
            staged: VecDeque::new(),
            ahead: 0,
            begun: 0,
            opened: 0,
            done: 0,
        }
    }

    /// Makes the copy, with the helpers there are.
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
            if self.opened < self.begun && self.share.waiting() < self.limits.enough {
                self.open()?;
                help.call();
            } else {
                self.share.help_or_await(self.done, help)?;
            }
        }
    }

    fn may_begin(&self) -> bool {
        self.begun < self.pieces.len()
            && self.ahead < self.limits.most
            && (W::EAGER || self.share.waiting() < self.limits.enough)
    }

    /// Begins the next piece, if there is room for it.
    fn begin(&mut self) -> Result<bool> {
        let piece = &self.pieces[self.begun];
        let Some(region) = self.ring.region(piece.len, !self.staged.is_empty())? else {
            return Ok(false);
        };
        let begun = self.direction.begin(piece, &region);
        let arrival = begun.map_err(|failure| self.blamed(failure))?;
        let is_here = arrival.is_none();
        self.staged.push_back(Staged { region, arrival });
        self.ahead += piece.len;
        self.begun += 1;
        if is_here {
            self.open()?;
        }
        Ok(true)
    }

    /// Opens the next piece to the threads, after waiting until it is in its region.
    fn open(&mut self) -> Result<()> {
        let Some(next) = self.staged.get(self.opened - self.done) else {
            return Ok(());
        };
        if let Some(arrival) = &next.arrival {
            let arrived = arrival.timeline.wait_host(arrival.seq);
            arrived.map_err(|error| (self.blame)(error, arrival.device))?;
        }
        // SAFETY: the next piece, and a region of its size, which a device has filled if bytes come
        // out of it, and which `self` keeps until the piece is done; if it is never done, `self` is
        // dropped only after `with_help` has made all helpers leave.
        unsafe { self.share.open(self.opened, &next.region) };
        self.opened += 1;
        Ok(())
    }

    /// Finishes the oldest piece, which has been copied.
    fn finish(&mut self) -> Result<()> {
        let piece = &self.pieces[self.done];
        if let Some(Staged { region, .. }) = self.staged.pop_front() {
            let finished = self.direction.finish(piece, &region);
            finished.map_err(|failure| self.blamed(failure))?;
        }
        self.ahead -= piece.len;
        self.done += 1;
        Ok(())
    }

    fn blamed(&self, Failure { device, error }: Failure) -> Error {
        (self.blame)(error, device)
    }
}
