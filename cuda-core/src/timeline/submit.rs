//! One operation on a stream: ordered after what conflicts with it, and marked in the ledgers of
//! the memory it uses.

use cuda_sys::{CUresult, CUstream};

use crate::error::{Error, Result};
use crate::process::driver;
use crate::timeline::core::{Bound, StreamCore};
use crate::timeline::ledger::{Access, Bytes, Fences, InGraphs, Ledger, NO_FENCES, Touch, Use};
use crate::timeline::recording::{CapturedAlone, Notes};

impl Bound<'_> {
    /// Enqueues one operation: makes the stream wait for what conflicts with it, calls the driver,
    /// and marks the memory used, even if the call failed. `notes` is called only for a capture.
    ///
    /// The marks are made under the borrows that the caller holds, so no conflicting access can
    /// come in between. No ledger is locked during the driver call.
    #[inline]
    pub(crate) fn submit(
        &self,
        op: &'static str,
        touches: &mut [Touch<'_>],
        notes: impl FnOnce() -> Notes,
        call: impl FnOnce(CUstream) -> CUresult,
    ) -> (u64, Result<()>) {
        self.order(op, touches, notes, || self.enqueue(op, call))
    }

    /// [`Bound::submit`] for operations that may run twice with the same result; see [`Bound::enqueue_copy`].
    #[inline]
    pub(crate) fn submit_copy(
        &self,
        op: &'static str,
        touches: &mut [Touch<'_>],
        notes: impl FnOnce() -> Notes,
        call: impl FnMut(CUstream) -> CUresult,
    ) -> (u64, Result<()>) {
        self.order(op, touches, notes, || self.enqueue_copy(op, call))
    }

    /// [`Bound::submit`] by `enqueue`, which returns the point of the enqueued work.
    #[inline]
    pub(crate) fn order(
        &self,
        op: &'static str,
        touches: &mut [Touch<'_>],
        notes: impl FnOnce() -> Notes,
        enqueue: impl FnOnce() -> (u64, Result<()>),
    ) -> (u64, Result<()>) {
        let timeline = self.timeline();
        if let Some(recording) = timeline.recording() {
            return recording.record(op, self, touches, notes(), enqueue);
        }
        let waited_for;
        let mut fences = &NO_FENCES;
        if touches.iter().any(|touch| !touch.is_quiet(timeline)) {
            waited_for = match self.wait_behind(touches) {
                Ok(fences) => fences,
                Err(error) => return (0, Err(error)),
            };
            fences = &waited_for;
        }
        let (seq, result) = enqueue();
        for touch in touches {
            touch.mark(timeline, seq, fences);
        }
        (seq, result)
    }

    #[cold]
    pub(crate) fn wait_behind(&self, touches: &[Touch<'_>]) -> Result<Fences> {
        let mut fences = Fences::none();
        touches.iter().for_each(|touch| touch.add_conflicts(self.timeline(), &mut fences));
        fences.wait_on(self)?;
        Ok(fences)
    }
}

/// Makes the stream wait for what conflicts with an access that other code enqueues, and marks the access,
/// even if the wait failed: other code may have enqueued it already.
///
/// The callers are `unsafe`, and not only because of that access. A write that is noted through a shared
/// borrow supersedes, in the ledger, the marks of its own stream's earlier reads. If another thread enqueues
/// a read on that stream between the counting and the marking here, that read has a later point, yet this
/// write removes its mark, and the memory could be freed under the read.
pub(crate) fn note_use(
    core: &StreamCore,
    ledger: &Ledger,
    range: &Bytes,
    access: Access,
    in_graphs: InGraphs,
) -> Result<()> {
    let timeline = core.timeline();
    if let Some(recording) = timeline.recording() {
        let touch = Touch::shared(ledger, range.clone(), access, in_graphs);
        return recording.note("note_use", &core.bind_work("note_use")?, &[touch]);
    }
    let mut fences = Fences::none();
    let mut count = || {
        let bound = core.bind("note_use")?;
        fences = ledger.conflicts(range, access, Some(timeline));
        fences.wait_on(&bound)?;
        bound.prepare()?;
        Ok(bound.count())
    };
    let (seq, noted) = match count() {
        Ok(seq) => (seq, Ok(())),
        Err(error @ Error::GivenUp { .. }) => return Err(error),
        // In a fork's child a thread that does not exist there may hold the ledger's lock.
        Err(error) if driver::is_gone() => return Err(error),
        Err(error) => (timeline.issue(), Err(error)),
    };
    // After a failed or partial wait, the new mark must not remove the marks it might not have
    // waited for.
    let fences = if noted.is_ok() { &fences } else { &NO_FENCES };
    ledger.mark(Use { range, access, stream: timeline, seq, fences });
    noted
}

/// The memory that another library's work uses, from before the work is enqueued until after. Marked when
/// this is dropped, since some of the work may be enqueued by then.
pub(crate) struct LibraryUse<'a, 'b> {
    core: &'a StreamCore,
    touches: &'a mut [Touch<'b>],
    fences: Fences,
    /// Only in a capture. While this exists, the capture does not end and captures no other operation.
    captured: Option<CapturedAlone<'a>>,
}

const LIBRARY_WORK: &str = "enqueue";

impl<'a, 'b> LibraryUse<'a, 'b> {
    /// Makes the stream wait for what conflicts with the work. Leaves no context of this crate current, so
    /// that the library may change the current context.
    #[inline]
    pub(crate) fn begin(core: &'a StreamCore, touches: &'a mut [Touch<'b>]) -> Result<Self> {
        if let Some(recording) = core.timeline().recording() {
            let bound = core.bind_work(LIBRARY_WORK)?;
            let captured = Some(recording.begin_library(LIBRARY_WORK, &bound, touches)?);
            return Ok(Self { core, touches, fences: Fences::none(), captured });
        }
        let bound = core.bind(LIBRARY_WORK)?;
        let fences = bound.wait_behind(touches)?;
        bound.prepare()?;
        drop(bound);
        Ok(Self { core, touches, fences, captured: None })
    }

    /// Notes that the work is enqueued.
    #[inline]
    pub(crate) fn end(&mut self) -> Result<()> {
        let (Some(_alone), Some(recording)) =
            (self.captured.take(), self.core.timeline().recording())
        else {
            return Ok(());
        };
        recording.end_library(self.core.bind_work(LIBRARY_WORK), self.touches)
    }
}

impl Drop for LibraryUse<'_, '_> {
    #[inline]
    fn drop(&mut self) {
        let timeline = self.core.timeline();
        // In a fork's child a thread that does not exist there may hold a ledger's lock.
        if driver::is_gone() {
            return;
        }
        if timeline.recording().is_some() {
            // `captured` is still set only after a panic; a failed note breaks the graph.
            let _ = self.end();
            return;
        }
        let seq = self.core.reach().map_or_else(|_| timeline.issue(), |bound| bound.count());
        self.touches.iter_mut().for_each(|touch| touch.mark(timeline, seq, &self.fences));
    }
}
