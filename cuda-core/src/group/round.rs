//! Copies that are enqueued one after another and run at the same time.

use crate::error::Result;
use crate::memory::{Memory, Slice, SliceMut};
use crate::process::driver;
use crate::stream::Stream;
use crate::timeline::ledger::{Fences, Touch};
use crate::timeline::{Flavor, Mark};
use crate::types::Pod;

/// The waits that must come before copies on several streams.
///
/// An event that orders two streams is recorded when one of them has to wait, and covers everything
/// enqueued on the other by then. If each copy waited just before it is enqueued, it would also
/// wait for its neighbours' copies enqueued before it, and a ring of copies would run one after
/// another. So all events are recorded before the first copy is enqueued.
pub(super) struct Round<'a> {
    waits: Vec<(&'a Stream, Fences)>,
}

impl<'a> Round<'a> {
    /// Begins a round without copies.
    pub(super) fn new() -> Result<Self> {
        // Checked before the locks of ledgers, and because events are recorded without a bound
        // stream.
        driver::ensure()?;
        Ok(Self { waits: Vec::new() })
    }

    /// Notes that a copy on `stream` will access this. Makes no driver call.
    pub(super) fn will_touch(&mut self, stream: &'a Stream, touch: Touch<'_>) {
        let timeline = stream.core().timeline();
        // A capture orders its operations itself.
        if timeline.recording().is_some() || touch.is_quiet(timeline) {
            return;
        }
        let mut fences = Fences::none();
        touch.add_conflicts(timeline, &mut fences);
        if !fences.is_empty() {
            self.waits.push((stream, fences));
        }
    }

    /// Makes each stream wait for what its copies conflict with, and for nothing that comes later.
    pub(super) fn begin(self) -> Result<()> {
        for (stream, fences) in &self.waits {
            let timeline = stream.core().timeline();
            let new = |mark: &&Mark| !timeline.has_waited(mark);
            fences.marks().iter().filter(new).try_for_each(cover)?;
        }
        for (stream, fences) in &self.waits {
            let bound = stream.core().bind("cuStreamWaitEvent");
            let waited = bound.and_then(|bound| fences.wait_on(&bound));
            waited.map_err(|error| error.on(stream.device()))?;
        }
        Ok(())
    }
}

/// Records an event after the point, unless the point is already covered.
fn cover(mark: &Mark) -> Result<()> {
    let timeline = &mark.timeline;
    let covered = timeline.has_completed(mark.seq) || timeline.recorded(mark.seq).is_some();
    // A per-thread default stream records by itself: only its own thread can record on it.
    if covered || timeline.flavor() == Flavor::PerThread {
        return Ok(());
    }
    let recorded = timeline.checkpoint(false, None);
    recorded.map_err(|error| error.on(timeline.context().device()))
}

/// Enqueues each copy on its stream with `enqueue`; no copy reads or writes what another writes.
/// After one fails, the rest are not enqueued.
pub(super) fn run<'s, 'a, 'b, T: Pod, A: Memory, B: Memory>(
    copies: impl IntoIterator<Item = ((&'s Stream, Slice<'a, T, A>), SliceMut<'b, T, B>)>,
    enqueue: impl Fn(&'s Stream, Slice<'a, T, A>, SliceMut<'b, T, B>) -> Result<()>,
) -> Result<()> {
    let mut copies: Vec<_> = copies.into_iter().collect();
    let mut round = Round::new()?;
    for ((stream, source), destination) in &mut copies {
        round.will_touch(stream, source.read());
        round.will_touch(stream, destination.write());
    }
    round.begin()?;
    copies.into_iter().try_for_each(|((stream, source), destination)| {
        enqueue(stream, source, destination).map_err(|error| error.on(stream.device()))
    })
}
