//! The driver's executables, and how they end.

use std::mem;
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::sync::{Arc, Mutex};

use cuda_sys::{CUgraphExec, symbol as cu};

use super::SharedGraph;
use crate::context::Context;
use crate::error::Result;
use crate::process::{FailedRelease, Handle, Owned, Release, deferred, drop_hook, released};
use crate::timeline::Mark;
use crate::timeline::recording::{GraphOwners, KeptAlive};
use crate::types::Resource;
use crate::util::lock;
use crate::wait::when_reached;

pub(super) struct RawExec {
    pub(super) handle: Handle<CUgraphExec>,
    /// Set when the executable is dropped: what is dropped after the release, which may be deferred.
    pub(super) kept: Option<KeptByExec>,
    /// Shared with the graph.
    one_of: Arc<Executables>,
    /// Set when the executable is dropped under a launch: is disconnected by the release.
    _left: Option<Sender<()>>,
}

impl RawExec {
    pub(super) fn new(exec: CUgraphExec, one_of: Arc<Executables>) -> Self {
        Self { handle: Handle(exec), kept: None, one_of, _left: None }
    }

    /// Makes another owner, for an end behind a launch.
    fn pass_on(&mut self) -> Self {
        let (kept, one_of) = (self.kept.take(), self.one_of.clone());
        Self { handle: Handle(self.handle.0), kept, _left: Some(one_of.leave()), one_of }
    }
}

/// Destroys it behind the launch, on another thread.
///
/// If the graph has conditions, an H200 with driver 580 waits for launches when it destroys an executable,
/// with a lock that other calls need.
pub(super) fn destroy_behind(raw: &mut Owned<RawExec>, last: Mark) {
    let raw = raw.pass_on(RawExec::pass_on);
    let then = move |reached: Result<()>| match reached {
        Ok(()) => drop(raw),
        // The launch may be pending.
        Err(_) => deferred::run_elsewhere(move || {
            deferred::hand_over();
            drop(raw);
        }),
    };
    deferred::run_or_defer(move || when_reached(last, Box::new(then)));
}

/// Of a graph: each of its executables has a reference.
#[derive(Default)]
pub(super) struct Executables {
    /// The ends of those that were dropped under a launch, which are destroyed after it.
    leaving: Mutex<Vec<Receiver<()>>>,
}

impl Executables {
    /// Begins the end of one, which the sender's end is.
    fn leave(&self) -> Sender<()> {
        let (left, end) = mpsc::channel();
        let mut leaving = lock(&self.leaving);
        leaving.retain(|end| end.try_recv() == Err(TryRecvError::Empty));
        leaving.push(end);
        left
    }

    /// Waits for such ends; whether there were any.
    pub(super) fn have_left(&self) -> bool {
        let leaving = mem::take(&mut *lock(&self.leaving));
        for end in &leaving {
            // Disconnected.
            let _ = deferred::while_waiting(|| end.recv());
        }
        !leaving.is_empty()
    }
}

impl Release for RawExec {
    const RESOURCE: Resource = Resource::GraphExec;

    fn number(&self) -> u64 {
        self.handle.number()
    }

    fn release(&mut self) -> Result<(), FailedRelease> {
        // SAFETY: the executable is live and not used after this. Launches that are pending
        // complete: "executing graphs … will be deferred until its execution completes".
        released("cuGraphExecDestroy", unsafe { cu::cuGraphExecDestroy(self.handle.0) })
    }
}

impl Drop for RawExec {
    fn drop(&mut self) {
        if let Some(kept) = self.kept.take() {
            kept.end();
        }
    }
}

/// What an executable keeps alive besides memory.
pub(super) struct KeptByExec {
    /// The launch that may use it, if that is not known to have completed.
    pub(super) last: Option<Mark>,
    pub(super) _graphs: Vec<SharedGraph>,
    pub(super) owners: Arc<GraphOwners>,
    /// Of nodes that were changed.
    pub(super) code: Vec<Arc<dyn KeptAlive>>,
    pub(super) _origin: Arc<GraphOwners>,
    pub(super) _context: Context,
}

impl KeptByExec {
    /// Drops it once that launch has completed.
    pub(super) fn end(self) {
        let Some(last) = self.last.clone() else {
            return;
        };
        let mark = last.clone();
        let then = move |reached| {
            let Self { owners, code, .. } = &self;
            let_go(owners.0.iter().chain(code), &last, reached);
        };
        deferred::run_or_defer(move || when_reached(mark, Box::new(then)));
    }
}

/// Called before a graph lets go of what it keeps alive: if it cannot be proven that its last launch
/// has completed, what does not see to that itself is leaked, and reported.
fn let_go<'a>(
    owners: impl Iterator<Item = &'a Arc<dyn KeptAlive>>,
    last: &Mark,
    reached: Result<()>,
) {
    if let Err(error) = reached {
        let lost: Vec<_> = owners.filter(|owner| !owner.note_last_launch(last)).cloned().collect();
        if !lost.is_empty() {
            mem::forget(lost);
            drop_hook::report(Resource::UsedByWork, 0, 0, Some(error));
        }
    }
}
