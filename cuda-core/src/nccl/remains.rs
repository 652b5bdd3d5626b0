//! How communicators are freed.

use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use std::{mem, ptr, thread};

use cuda_sys::CUdeviceptr;

use super::failure::{check, failed_work};
use super::library::Nccl;
use super::polling::NcclScope;
use super::raw::{IN_PROGRESS, RawCommunicator};
use crate::alloc::backing::MemoryOwner;
use crate::context::Context;
use crate::error::{Error, NcclError, Result};
use crate::process::{Handle, RelaxedCaptureMode, deferred, driver, drop_hook};
use crate::timeline::StreamCore;
use crate::timeline::ledger::{Fences, Touch};
use crate::timeline::recording::UsedMemory;
use crate::types::Resource;
use crate::util::lock;
use crate::wait::when_all_reached;

/// How long an abort waits for NCCL's call; the call may itself wait for graphs.
const PATIENCE: Duration = Duration::from_secs(1);

/// The operation that errors name when a dropped communicator is freed.
pub(super) const DROP: &str = "drop";

/// A communicator without an owner.
pub(super) struct Remains {
    pub(super) nccl: &'static Nccl,
    pub(super) context: Context,
    pub(super) rank: usize,
    pub(super) raw: Handle<RawCommunicator>,
    pub(super) finalized: bool,
}

impl Remains {
    /// Frees the communicator once its work on all of these streams has completed. If that cannot
    /// be proven, leaks the communicator, since freeing it would end the work. If the work has
    /// failed, or has not completed within the limit, a rank is assumed to be lost: aborts the
    /// communicator, and reports that to the drop hook.
    pub(super) fn end_behind(self, uses: &Fences, limit: Duration) {
        let failed = match uses.query() {
            // SAFETY: the communicator is live, and has no owner that could call it.
            Ok(false) => unsafe { failed_work(DROP, self.nccl, (self.raw.0, Some(self.rank))) },
            _ => None,
        };
        // A finalised communicator waits for no other rank.
        let limit = if self.finalized { Duration::MAX } else { limit };
        let patience = if failed.is_some() { Duration::ZERO } else { limit };
        let (rank, raw) = (self.rank, self.raw);
        let (reach, reached) = channel();
        let is_due = move || match deferred::while_waiting(|| reached.recv_timeout(patience)) {
            Ok(Err(error)) => {
                report(raw, &error);
                false
            }
            Err(RecvTimeoutError::Timeout) => {
                let late = NcclError::TimedOut { op: DROP, rank, after: limit };
                report(raw, &failed.unwrap_or(late.into()));
                true
            }
            known => known.is_ok(),
        };
        // The thread that frees it also waits with the limit: watchers sleep in the driver, and
        // keep no time.
        let Ok(ended) = self.end_when(&Arc::default(), is_due) else {
            return;
        };
        let then = move |done: Result<()>| {
            // Has no receiver if the limit has passed.
            let _ = reach.send(done);
            // Failures go to the drop hook.
            drop(wait_for_end(&ended));
        };
        when_all_reached(uses, Box::new(then));
    }

    /// Frees the communicator, then runs what `ending` has taken until then. Returns when that has
    /// completed, or after a second. Failures are also reported.
    pub(super) fn end(self, ending: &Arc<Ending>) -> Result<()> {
        *lock(&ending.0) = AbortProgress::UnderWay(Vec::new());
        wait_for_end(&self.end_when(ending, || true)?)
    }

    /// Frees the communicator, if `is_due`, on a thread of its own, since the call that frees the
    /// last rank in a process waits for graphs of all of them. The receiver gets the result. A
    /// process that exits waits for that call, for a second at most: NCCL's destructors free what
    /// the call uses.
    fn end_when(
        self,
        ending: &Arc<Ending>,
        is_due: impl FnOnce() -> bool + Send + 'static,
    ) -> Result<Receiver<Result<()>>> {
        let (over, awaited) = channel();
        let remains = Arc::new(self);
        let (own, behind) = (remains.clone(), ending.clone());
        let end = move || {
            deferred::run(|| {
                if is_due() {
                    let _ = over.send(own.note(&behind, own.end_here()));
                }
            });
        };
        static FREES: AtomicBool = AtomicBool::new(false);
        driver::watch_exit_first(&FREES);
        let thread = thread::Builder::new().name("cuda-core abort".to_owned()).spawn(end);
        let started = thread.map_err(|error| Error::NoThread(error.kind()));
        let noted = started.inspect_err(|error| drop(remains.note(ending, Err(error.clone()))));
        noted.map(|_| awaited)
    }

    fn note(&self, ending: &Ending, ended: Result<()>) -> Result<()> {
        ending.end(&ended);
        ended.inspect_err(|error| report(self.raw, error))
    }

    /// Frees the communicator: by `ncclCommDestroy` if it was finalised, else by `ncclCommAbort`.
    fn end_here(&self) -> Result<()> {
        RelaxedCaptureMode::for_life();
        let _scope = NcclScope::enter(&self.context)?;
        let (op, function) = match self.finalized {
            true => ("ncclCommDestroy", self.nccl.destroy),
            false => ("ncclCommAbort", self.nccl.abort),
        };
        // SAFETY: the communicator is live; no other thread calls it, and this one does not call it
        // again. The function ends calls in progress, and lets pending kernels end before it frees
        // what they use.
        match unsafe { function(self.raw.0) } {
            // NCCL continues by itself: the handle must not be used to query it.
            IN_PROGRESS => Ok(()),
            code => check(op, self.nccl, code, (ptr::null_mut(), Some(self.rank))),
        }
    }
}

/// Waits until a communicator is freed, for a second at most. While a deferred drop waits here, a
/// graph's drop may be queued behind it.
fn wait_for_end(awaited: &Receiver<Result<()>>) -> Result<()> {
    deferred::while_waiting(|| awaited.recv_timeout(PATIENCE)).unwrap_or(Ok(()))
}

/// The progress of freeing an aborted communicator.
#[derive(Default)]
pub(super) struct Ending(Mutex<AbortProgress>);

/// Called with the result of freeing the communicator: frees something that NCCL used until then,
/// or leaks and reports it.
pub(super) type AtEnd = Box<dyn FnOnce(&Result<()>) + Send>;

#[derive(Default)]
enum AbortProgress {
    /// NCCL no longer uses anything of the communicator.
    #[default]
    Over,
    /// NCCL still knows the memory that is registered with the communicator, and may continue the
    /// call that was in progress.
    UnderWay(Vec<AtEnd>),
    /// The communicator may be leaked, and know and use its memory forever.
    Failed(Error),
}

impl Ending {
    /// Notes the result of freeing the communicator, and lets go of what waited for that.
    fn end(&self, ended: &Result<()>) {
        let progress = ended.clone().err().map_or(AbortProgress::Over, AbortProgress::Failed);
        let before = mem::replace(&mut *lock(&self.0), progress);
        if let AbortProgress::UnderWay(waiting) = before {
            waiting.into_iter().for_each(|at_end| at_end(ended));
        }
    }

    /// Keeps what a failed call uses, unless NCCL has ended the call. Leaks and reports it if
    /// freeing the communicator fails.
    #[cold]
    pub(super) fn keep(&self, touches: &[Touch<'_>], stream: &Arc<StreamCore>) {
        if let AbortProgress::Over = *lock(&self.0) {
            return;
        }
        // Done without the lock: what this drops may call the driver. `open` refuses the host's
        // accesses, which cannot wait for work that NCCL has yet to enqueue.
        let open = Arc::default();
        let memory: Vec<_> = touches.iter().map(UsedMemory::keep).collect();
        for (used, touch) in memory.iter().zip(touches).filter(|(used, _)| used.lent) {
            used.kept.ledger().enter_captured(touch.range.clone(), touch.access, &open);
        }
        let used = (memory, open, stream.clone());
        let at_end: AtEnd = Box::new(move |ended| {
            if let Err(error) = ended {
                mem::forget(used);
                drop_hook::report(Resource::UsedByWork, 0, 0, Some(error.clone()));
            }
        });
        let failed = match &mut *lock(&self.0) {
            AbortProgress::Over => return,
            AbortProgress::UnderWay(waiting) => return waiting.push(at_end),
            AbortProgress::Failed(error) => error.clone(),
        };
        at_end(&Err(failed));
    }

    /// If the communicator is being freed, takes what is to be called afterwards. Returns whether
    /// it did.
    ///
    /// # Errors
    /// [`NcclError::Aborted`] if freeing the communicator has failed.
    pub(super) fn takes(&self, rank: usize, at_end: impl FnOnce() -> AtEnd) -> Result<bool> {
        match &mut *lock(&self.0) {
            AbortProgress::Over => return Ok(false),
            AbortProgress::UnderWay(waiting) => waiting.push(at_end()),
            AbortProgress::Failed(_) => {
                return Err(NcclError::Aborted { op: "ncclCommDeregister", rank }.into());
            }
        }
        Ok(true)
    }
}

/// Frees memory that is registered with the communicator. Leaks and reports the memory if that
/// fails, or if the communicator could not be freed.
pub(super) fn free_after(
    mut owner: Box<dyn MemoryOwner>,
    address: CUdeviceptr,
    bytes: usize,
) -> AtEnd {
    Box::new(move |ended| {
        let released = ended.clone().and_then(|()| owner.release(address).map_err(Error::from));
        if let Err(error) = released {
            mem::forget(owner);
            drop_hook::report(Resource::DeviceMemory, address, bytes, Some(error));
        }
    })
}

pub(super) fn report(raw: Handle<RawCommunicator>, error: &Error) {
    drop_hook::report(Resource::Communicator, raw.number(), 0, Some(error.clone()));
}
