//! Pinned chunks through which borrowed slices travel to and from several devices.
//!
//! A chunk is written once and read by as many devices as want it. Its own ledger knows who they are,
//! so it is filled again only when all of them are done.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};
use std::thread;

use crate::context::Context;
use crate::driver;
use crate::error::Result;
use crate::group::threads::together;
use crate::group::views::{parts, parts_mut};
use crate::memory::device::{DeviceSlice, DeviceSliceMut};
use crate::memory::ledger::{Access, Fences};
use crate::memory::pinned::PinnedBuffer;
use crate::stream::Stream;
use crate::sync::lock;

/// Size of a chunk in bytes.
pub(super) const CHUNK: usize = 2 << 20;

/// Chunks that one thread has in flight, the one that it fills or empties included.
const DEPTH: usize = 2;

/// Threads that copy between a borrowed slice and chunks: one core alone is slower than one link, and
/// so many keep four H200s busy.
const WORKERS: usize = 8;

/// Chunks beyond which an old one is waited for before a new one is allocated.
const MOST: usize = DEPTH * WORKERS;

/// Chunks that nobody has on loan.
#[derive(Default)]
pub(super) struct Relay {
    /// Devices may still use them; the one given back first is the first.
    idle: Mutex<VecDeque<PinnedBuffer<u8>>>,
    allocated: AtomicUsize,
}

/// Bytes of a borrowed slice, at most a chunk of them, and where they go.
pub(super) struct Load<'g, 'a, 'b> {
    pub(super) bytes: &'a [u8],
    pub(super) to: Vec<(&'g Stream, DeviceSliceMut<'b, u8>)>,
}

/// Device memory, at most a chunk of it in all, and the bytes of a borrowed slice that it goes to.
pub(super) struct Unload<'g, 'a, 'b>(pub(super) Vec<(DeviceSlice<'a, u8>, Landing<'g, 'b>)>);

/// Where bytes of a chunk go once they have arrived, and who brings them.
pub(super) struct Landing<'g, 'b> {
    pub(super) stream: &'g Stream,
    pub(super) bytes: &'b mut [u8],
}

impl Relay {
    /// Copies all loads to their devices. Returns when their bytes are in chunks.
    pub(super) fn carry_up<'g, 'a, 'b>(
        &self,
        context: &Context,
        loads: impl ExactSizeIterator<Item = Load<'g, 'a, 'b>> + Send,
    ) -> Result<()> {
        share_out(loads, |next| {
            let mut loan = Loan::new(self, context);
            while let Some(load) = next() {
                load.send(loan.chunk()?)?;
            }
            Ok(())
        })
    }

    /// Copies all loads from their devices, and waits for them.
    pub(super) fn carry_down<'g, 'a, 'b>(
        &self,
        context: &Context,
        loads: impl ExactSizeIterator<Item = Unload<'g, 'a, 'b>> + Send,
    ) -> Result<()> {
        share_out(loads, |next| {
            let mut loan = Loan::new(self, context);
            // As the loan's chunks, the newest first.
            let mut in_flight: VecDeque<Vec<Landing<'_, '_>>> = VecDeque::with_capacity(DEPTH);
            while let Some(load) = next() {
                if in_flight.len() == DEPTH {
                    let oldest = in_flight.pop_back().zip(loan.chunks.back());
                    oldest.map_or(Ok(()), |(landings, chunk)| land(landings, chunk))?;
                }
                in_flight.push_front(load.fetch(loan.chunk()?)?);
            }
            let mut oldest_first = in_flight.into_iter().zip(&loan.chunks).rev();
            oldest_first.try_for_each(|(landings, chunk)| land(landings, chunk))
        })
    }

    /// A chunk that no device uses, or a new one, or after so many the one that was given back first.
    fn take(&self, context: &Context) -> Result<PinnedBuffer<u8>> {
        let oldest = lock(&self.idle).pop_front();
        let busy = match oldest {
            Some(chunk) if self.is_full() || is_done(&chunk) => return Ok(chunk),
            busy => busy,
        };
        match (PinnedBuffer::new(context, CHUNK), busy) {
            (Ok(new), busy) => {
                self.allocated.fetch_add(1, Ordering::Relaxed);
                if let Some(busy) = busy {
                    lock(&self.idle).push_front(busy);
                }
                Ok(new)
            }
            // Where there is no memory, waiting is slower and works.
            (Err(_), Some(busy)) => Ok(busy),
            (Err(error), None) => Err(error),
        }
    }

    fn is_full(&self) -> bool {
        self.allocated.load(Ordering::Relaxed) >= MOST
    }

    /// Takes chunks back; those that are too many are freed once their copies are done.
    fn give_back(&self, chunks: VecDeque<PinnedBuffer<u8>>) {
        let mut idle = lock(&self.idle);
        idle.extend(chunks.into_iter().rev());
        let most = idle.len().min(MOST);
        let surplus = idle.split_off(most);
        self.allocated.fetch_sub(surplus.len(), Ordering::Relaxed);
        drop(idle);
        drop(surplus);
    }
}

/// Whether no device uses the chunk any more, as far as that can be told at once.
fn is_done(chunk: &PinnedBuffer<u8>) -> bool {
    let block = chunk.storage.block();
    let mut fences = Fences::none();
    let whole = block.whole();
    block
        .ledger
        .conflicts(&whole, Access::Write, None, &mut fences);
    let mut marks = fences.marks().iter();
    marks.all(|mark| mark.timeline.peek(mark.seq))
}

/// The chunks of one thread.
struct Loan<'r> {
    relay: &'r Relay,
    context: &'r Context,
    /// The one used last is the first.
    chunks: VecDeque<PinnedBuffer<u8>>,
}

impl<'r> Loan<'r> {
    fn new(relay: &'r Relay, context: &'r Context) -> Self {
        Self {
            relay,
            context,
            chunks: VecDeque::with_capacity(DEPTH),
        }
    }

    /// Another chunk, or the one whose last use is longest ago.
    fn chunk(&mut self) -> Result<&mut PinnedBuffer<u8>> {
        if self.chunks.len() < DEPTH {
            self.chunks.push_front(self.relay.take(self.context)?);
        } else {
            self.chunks.rotate_right(1);
        }
        Ok(&mut self.chunks[0])
    }
}

impl Drop for Loan<'_> {
    fn drop(&mut self) {
        self.relay.give_back(std::mem::take(&mut self.chunks));
    }
}

impl Load<'_, '_, '_> {
    /// Fills the chunk, once its earlier copies are done, and enqueues the new ones.
    fn send(self, chunk: &mut PinnedBuffer<u8>) -> Result<()> {
        let len = self.bytes.len();
        let mut part = chunk.slice_mut(..len)?;
        part.as_mut_slice()?.copy_from_slice(self.bytes);
        for (stream, to) in self.to {
            // The checkpoint lets the chunk be filled again as soon as it has been read.
            let sent = stream.upload(&part, to).and_then(|()| stream.checkpoint());
            sent.map_err(|error| error.on(stream.device()))?;
        }
        Ok(())
    }
}

impl<'g, 'b> Unload<'g, '_, 'b> {
    /// Enqueues the copies to the chunk, one behind the other.
    fn fetch(self, chunk: &mut PinnedBuffer<u8>) -> Result<Vec<Landing<'g, 'b>>> {
        let lens = self.0.iter().map(|(from, _)| from.len());
        let places = parts_mut(chunk.as_view_mut(), lens.collect::<Vec<_>>())?;
        let mut landings = Vec::with_capacity(places.len());
        for ((from, landing), place) in self.0.into_iter().zip(places) {
            let stream = landing.stream;
            // The checkpoint lets these bytes be read as soon as they are there.
            let sent = stream.download(from, place);
            let sent = sent.and_then(|()| stream.checkpoint());
            sent.map_err(|error| error.on(stream.device()))?;
            landings.push(landing);
        }
        Ok(landings)
    }
}

/// Waits for the chunk's copies and passes their bytes on.
fn land(landings: Vec<Landing<'_, '_>>, chunk: &PinnedBuffer<u8>) -> Result<()> {
    let lens = landings.iter().map(|landing| landing.bytes.len());
    let places = parts(chunk.as_view(), lens.collect::<Vec<_>>())?;
    landings
        .into_iter()
        .zip(places)
        .try_for_each(|(to, place)| {
            let arrived = place.as_slice();
            let arrived = arrived.map_err(|error| error.on(to.stream.device()))?;
            to.bytes.copy_from_slice(arrived);
            Ok(())
        })
}

/// Hands `loads` out to as many threads as they are worth. After an error there are no more of them.
fn share_out<L>(
    loads: impl ExactSizeIterator<Item = L> + Send,
    work: impl Fn(&dyn Fn() -> Option<L>) -> Result<()> + Sync,
) -> Result<()> {
    // On this thread: the others do not know whether it runs a host function, which they would
    // wait for.
    driver::ensure()?;
    let threads = workers(loads.len());
    let loads = Mutex::new(Some(loads));
    together(threads, || {
        let done = work(&|| lock(&loads).as_mut()?.next());
        if done.is_err() {
            *lock(&loads) = None;
        }
        done
    })
}

/// How many threads so many loads are worth: starting one takes half as long as filling a chunk.
fn workers(loads: usize) -> usize {
    static CORES: OnceLock<usize> = OnceLock::new();
    let cores = || thread::available_parallelism().map_or(1, usize::from);
    (loads / 2).clamp(1, WORKERS).min(*CORES.get_or_init(cores))
}
