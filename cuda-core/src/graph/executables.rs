//! The driver's executables, and how they are destroyed.

use std::mem;
use std::sync::{Arc, Mutex};

use cuda_sys::{CUgraphExec, symbol as cu};

use super::SharedGraph;
use crate::context::Context;
use crate::error::Result;
use crate::process::{
    DeferForeignCode, Failed, Handle, Owned, Release, deferred, drop_hook, released,
};
use crate::timeline::Mark;
use crate::timeline::ledger::Fences;
use crate::timeline::recording::{GraphOwners, KeptAlive, next_id};
use crate::types::Resource;
use crate::util::lock;
use crate::wait::{when_all_reached, when_reached};

pub(super) struct RawExec {
    pub(super) handle: Handle<CUgraphExec>,
    /// Set when the executable is dropped: what to drop after the release, which may be deferred.
    pub(super) kept: Option<KeptByExec>,
    /// Shared with the graph.
    siblings: Arc<Executables>,
    _one_of: Arc<()>,
}

/// What a graph knows of its executables.
#[derive(Default)]
pub(super) struct Executables {
    /// Each executable has a reference.
    count: Arc<()>,
    /// Executables that were dropped before they could be destroyed.
    leaving: Mutex<Vec<Leaving>>,
}

/// An executable, with its pending launches and uploads.
struct Leaving {
    /// Unlike a handle, never reused.
    id: u64,
    raw: Owned<RawExec>,
    pending: Fences,
}

impl RawExec {
    pub(super) fn new(handle: Handle<CUgraphExec>, siblings: Arc<Executables>) -> Self {
        let _one_of = siblings.count.clone();
        Self { handle, kept: None, siblings, _one_of }
    }
}

/// Destroys an executable after its launches and uploads.
pub(super) fn destroy_behind(raw: &mut Owned<RawExec>, pending: Fences) {
    let (id, all) = (next_id(), raw.siblings.clone());
    let passed_on = raw.pass_on(|raw| {
        let mut passed_on = RawExec::new(raw.handle, raw.siblings.clone());
        passed_on.kept = raw.kept.take();
        passed_on
    });
    let Some(raw) = passed_on else {
        return;
    };
    lock(&all.leaving).push(Leaving { id, raw, pending: pending.clone() });
    let then = move |reached: Result<()>| match reached {
        Ok(()) => all.destroy(|one| one.id == id),
        // Launches may be pending; the driver waits for them when it destroys the executable.
        Err(_) => deferred::run_elsewhere(move || {
            deferred::hand_over();
            drop(all.take(id));
        }),
    };
    deferred::run_or_defer(move || when_all_reached(&pending, Box::new(then)));
}

impl Executables {
    /// Returns whether the graph has no executable.
    pub(super) fn is_empty(&self) -> bool {
        Arc::strong_count(&self.count) == 1
    }

    /// Destroys some of the executables that are leaving, under the lock: a thread that finds the
    /// list empty knows that none is left.
    fn destroy(&self, which: impl Fn(&Leaving) -> bool) {
        // Foreign code that a failure is reported to, or that is dropped, may use the graph, so it
        // runs after the lock.
        let mut kept = Vec::new();
        let quiet = DeferForeignCode::begin();
        let mut leaving = lock(&self.leaving);
        leaving.retain_mut(|one| {
            let goes = which(one);
            if goes {
                kept.extend(one.raw.kept.take());
            }
            !goes
        });
        // The launches have completed. `Graph::extend` counts the references to its graph, so these
        // are dropped under the lock; a graph without any other is dropped below.
        let graphs = kept.iter_mut().flat_map(|kept| kept.graphs.drain(..));
        let unused: Vec<_> = graphs.filter_map(Arc::into_inner).collect();
        drop(leaving);
        drop((quiet, unused));
        kept.into_iter().for_each(KeptByExec::end);
    }

    fn take(&self, id: u64) -> Option<Leaving> {
        let mut leaving = lock(&self.leaving);
        let at = leaving.iter().position(|one| one.id == id)?;
        Some(leaving.swap_remove(at))
    }

    /// Destroys the executables whose launches and uploads have completed.
    pub(super) fn destroy_reached(&self) {
        self.destroy(|one| matches!(one.pending.query(), Ok(true)));
    }

    /// Waits until all executables that are leaving are destroyed. Returns whether there were any.
    pub(super) fn wait(&self) -> Result<bool> {
        let mut any = false;
        loop {
            let Some(pending) = lock(&self.leaving).first().map(|one| one.pending.clone()) else {
                return Ok(any);
            };
            pending.wait_host()?;
            any = true;
            self.destroy_reached();
        }
    }
}

impl Release for RawExec {
    const RESOURCE: Resource = Resource::GraphExec;

    fn number(&self) -> u64 {
        self.handle.number()
    }

    /// For a graph with conditions, driver 580 waits in this call for launches and uploads, while
    /// it holds a lock that other calls need. So such an executable is [destroyed
    /// after](destroy_behind) them.
    fn release(&mut self) -> Result<(), Failed> {
        // SAFETY: the executable is live and not used after this. Pending launches complete:
        // "executing graphs … will be deferred until its execution completes".
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
    /// The launch that may still use what is kept; [`None`] if it is known to have completed.
    pub(super) last: Option<Mark>,
    pub(super) graphs: Vec<SharedGraph>,
    pub(super) owners: Arc<GraphOwners>,
    /// The code of changed nodes.
    pub(super) code: Vec<Arc<dyn KeptAlive>>,
    pub(super) _origin: Arc<GraphOwners>,
    pub(super) _context: Context,
}

impl KeptByExec {
    /// Drops what is kept once that launch has completed.
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

/// Called before a graph drops what it keeps alive. If its last launch cannot be proven to have
/// completed, leaks and reports the owners whose own release does not wait for that launch.
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
