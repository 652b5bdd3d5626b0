//! Copies of large slices: cut in pieces, which several threads copy while others are in flight.
//!
//! The calling thread alone calls the driver, and copies when there is nothing to ask of it. So
//! whatever is particular to a thread, its contexts, its captures and its default stream, is as it
//! is for a small slice.

use std::collections::VecDeque;
use std::sync::Arc;

use cuda_sys::symbol as cu;

use super::stage_in;
use crate::error::Result;
use crate::event::RawEvent;
use crate::memory::device::{DeviceSlice, DeviceSliceMut};
use crate::memory::pod::Pod;
use crate::staging::options::{StagingOptions, staging_options};
use crate::staging::ring::{DEPTH, Ring};
use crate::staging::share::Share;
use crate::staging::{CHUNK, Region};
use crate::stream_core::{Bound, StreamCore};
use crate::submit::submit;
use crate::workers::{Help, Work, with_help};

/// Chunks that are being filled before the oldest of them must be on its way.
const AHEAD: usize = 3;

/// Bytes up to which a copy goes through the chunks of small ones.
const SMALL: usize = 4 * CHUNK;

/// The chunks that a copy of so many bytes goes through.
fn chunk(options: StagingOptions, bytes: usize) -> usize {
    if bytes <= SMALL {
        CHUNK.min(options.chunk)
    } else {
        options.chunk
    }
}

/// Threads that help: not more than there is something for.
fn helpers(options: StagingOptions, share: &Share<'_>) -> usize {
    options.threads.min(share.quanta().saturating_sub(1))
}

/// See [`Stream::upload_from`](crate::Stream::upload_from).
pub(super) fn upload<T: Pod>(
    core: &StreamCore,
    stream: &Bound<'_>,
    source: &[u8],
    destination: &mut DeviceSliceMut<'_, T>,
) -> Result<()> {
    let options = staging_options()?;
    let chunk = chunk(options, source.len());
    let share = Share::of(source, chunk);
    let helpers = helpers(options, &share);
    // It has the regions, and outlives everybody's part in them.
    let mut upload = Upload {
        core,
        stream,
        to: destination,
        share: &share,
        ring: Ring::new(core, chunk),
        // What keeps everybody busy.
        enough: helpers + 1,
        most: AHEAD * chunk,
        ahead: 0,
        regions: VecDeque::new(),
        opened: 0,
        sent: 0,
    };
    with_help(&share, helpers, |help| upload.run(help))
}

struct Upload<'a, 'b, T: Pod> {
    core: &'a StreamCore,
    stream: &'a Bound<'a>,
    to: &'a mut DeviceSliceMut<'b, T>,
    share: &'a Share<'a>,
    ring: Ring<'a>,
    /// Quanta to be copied that are enough.
    enough: usize,
    /// Bytes that may be open and not sent.
    most: usize,
    /// Bytes that are.
    ahead: usize,
    /// The regions of the pieces that are open and not sent.
    regions: VecDeque<Region>,
    /// Pieces that are open, or were.
    opened: usize,
    /// Pieces of which the copy is enqueued.
    sent: usize,
}

impl<T: Pod> Upload<'_, '_, T> {
    fn run(&mut self, help: &Help<'_>) -> Result<()> {
        let pieces = self.share.pieces();
        loop {
            while self.sent < self.opened && self.share.is_done(self.sent) {
                self.send()?;
            }
            if self.sent == pieces {
                return Ok(());
            }
            let opened = self.opened;
            while self.opened < pieces
                && self.share.waiting() < self.enough
                && self.ahead < self.most
                && self.open()?
            {}
            if self.opened > opened {
                help.call();
            }
            self.share.help_or_await(self.sent, help)?;
        }
    }

    /// Lets the next piece be filled, if there is room for it.
    fn open(&mut self) -> Result<bool> {
        let (_, len) = self.share.span_of(self.opened);
        let Some(region) = self.ring.region(len, !self.regions.is_empty())? else {
            return Ok(false);
        };
        // SAFETY: the next piece, and a region of its size, which `self` keeps until the piece is
        // done; should that not come, `self` is dropped after `with_help` has sent everybody away.
        unsafe { self.share.open(self.opened, &region) };
        self.regions.push_back(region);
        self.ahead += len;
        self.opened += 1;
        Ok(true)
    }

    /// Enqueues the copy of the oldest piece, which is filled.
    fn send(&mut self) -> Result<()> {
        let Some(region) = self.regions.pop_front() else {
            return Ok(());
        };
        let (start, len) = self.share.span_of(self.sent);
        let to = self.to.as_raw() + start as u64;
        let call = |stream| {
            let from = region.as_ptr().cast_const();
            // SAFETY: the region has the piece's bytes and is left alone until its mark has
            // completed; the destination stays allocated until its own mark has.
            unsafe { cu::cuMemcpyHtoDAsync_v2(to, from.cast(), len, stream) }
        };
        let touches = &mut [self.to.write()];
        let (seq, result) = submit(self.core, self.stream, "cuMemcpyHtoDAsync", touches, call);
        region.mark(seq);
        result?;
        if self.share.fills(self.sent) {
            // Lets the chunk be taken again as soon as it has been read.
            let timeline = self.core.timeline();
            timeline.checkpoint(false, self.stream.entered())?;
        }
        self.ahead -= len;
        self.sent += 1;
        Ok(())
    }
}

/// See [`Stream::download_to`](crate::Stream::download_to).
pub(super) fn download<T: Pod>(
    core: &StreamCore,
    stream: &Bound<'_>,
    source: &DeviceSlice<'_, T>,
    destination: &mut [u8],
) -> Result<()> {
    let options = staging_options()?;
    let chunk = chunk(options, destination.len());
    let share = Share::of_mut(destination, chunk);
    let helpers = helpers(options, &share);
    // It has the regions, and outlives everybody's part in them.
    let mut download = Download {
        core,
        stream,
        from: source,
        share: &share,
        ring: Ring::new(core, chunk),
        enough: helpers + 1,
        most: (DEPTH - 1) * chunk,
        in_flight: 0,
        expected: VecDeque::new(),
        asked: 0,
        landed: 0,
        done: 0,
    };
    with_help(&share, helpers, |help| download.run(help))
}

struct Download<'a, 'b, T: Pod> {
    core: &'a StreamCore,
    stream: &'a Bound<'a>,
    from: &'a DeviceSlice<'b, T>,
    share: &'a Share<'a>,
    ring: Ring<'a>,
    /// Quanta to be copied that are enough.
    enough: usize,
    /// Bytes that may be asked for and not copied out.
    most: usize,
    /// Bytes that are.
    in_flight: usize,
    /// What was asked for and is not copied out.
    expected: VecDeque<Expected>,
    /// Pieces of which the copy is enqueued.
    asked: usize,
    /// Pieces that are open, or were.
    landed: usize,
    /// Pieces that are copied out.
    done: usize,
}

/// A piece on its way to its region.
struct Expected {
    region: Region,
    /// The point at which it has landed.
    seq: u64,
    /// Held so that it goes on telling of this piece and of no later one: there are more of them
    /// under way than a stream keeps events for.
    _event: Option<Arc<RawEvent>>,
}

impl<T: Pod> Download<'_, '_, T> {
    fn run(&mut self, help: &Help<'_>) -> Result<()> {
        let pieces = self.share.pieces();
        loop {
            while self.done < self.landed && self.share.is_done(self.done) {
                // Its chunk may be used again.
                self.expected.pop_front();
                self.in_flight -= self.share.span_of(self.done).1;
                self.done += 1;
            }
            if self.done == pieces {
                return Ok(());
            }
            let asked = self.asked;
            while self.asked < pieces && self.in_flight < self.most && self.ask()? {}
            if asked == 0 {
                // They wake while the first piece is under way.
                help.call();
            }
            if self.landed < self.asked && self.share.waiting() < self.enough {
                self.land()?;
                help.call();
            } else {
                self.share.help_or_await(self.done, help)?;
            }
        }
    }

    /// Enqueues the copy of the next piece, if there is room for it, and an event behind it.
    fn ask(&mut self) -> Result<bool> {
        let (start, len) = self.share.span_of(self.asked);
        let Some(region) = self.ring.region(len, !self.expected.is_empty())? else {
            return Ok(false);
        };
        let seq = stage_in(&region, self.core, self.stream, self.from, start, len)?;
        let timeline = self.core.timeline();
        timeline.checkpoint(false, self.stream.entered())?;
        self.expected.push_back(Expected {
            region,
            seq,
            _event: timeline.hold(seq),
        });
        self.in_flight += len;
        self.asked += 1;
        Ok(true)
    }

    /// Waits for the oldest piece that has not landed, and lets it be copied out.
    fn land(&mut self) -> Result<()> {
        let Some(next) = self.expected.get(self.landed - self.done) else {
            return Ok(());
        };
        self.core.timeline().wait_host(next.seq)?;
        // SAFETY: the next piece, and a region of its size, which the device has filled, and which
        // `self` keeps until the piece is done; should that not come, `self` is dropped after
        // `with_help` has sent everybody away.
        unsafe { self.share.open(self.landed, &next.region) };
        self.landed += 1;
        Ok(())
    }
}

/// Copies regions, which the device has filled, to the slices that they are for.
pub(super) fn copy_out(staged: Vec<(Region, &mut [u8])>) -> Result<()> {
    let options = staging_options()?;
    let (regions, slices): (Vec<Region>, Vec<&mut [u8]>) = staged.into_iter().unzip();
    let share = Share::out_of(slices.into_iter(), options.chunk);
    let helpers = helpers(options, &share);
    with_help(&share, helpers, |help| {
        for (piece, region) in regions.iter().enumerate() {
            // SAFETY: the next piece, and its region, which is kept until nobody is at it.
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
