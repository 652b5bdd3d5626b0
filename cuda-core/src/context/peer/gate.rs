//! Work between two devices, and the calls that revoke the access it needs.
//!
//! A revocation first waits for such work, which may take long, and then checks that no more was enqueued
//! meanwhile. Other threads may enqueue while it waits; they are blocked only during the two driver calls
//! that revoke the access.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex};

use crate::context::{Context, RawContext};
use crate::device::Device;
use crate::process::{DeferForeignCode, driver};
use crate::util::{lock, wait_while};

/// Held while work between two devices is being enqueued, from before its driver call to after it.
#[must_use = "the work is enqueued while this lives"]
pub(crate) struct Crossing {
    between: Between,
    ticket: u64,
    /// The number of the last revocation between the two devices, copied from their entry, where it does not
    /// change while this value lives.
    revoked: u64,
    /// Ends after the ticket is given back: a drop hook may wait for that.
    _quiet: DeferForeignCode,
}

/// Keeps new [`Crossing`]s of two devices out.
#[must_use = "no work is enqueued while this lives"]
pub(crate) struct ClosedGate {
    between: Between,
}

/// How many enqueues between two devices had begun at some moment.
#[derive(Clone, Copy)]
pub(super) struct Before(u64);

/// Two devices in the order of their ordinals.
type Between = [Device; 2];

/// The enqueues and revocations between two devices.
#[derive(Default)]
struct Crossings {
    /// The number of enqueues that have begun, which is the next ticket.
    begun: u64,
    /// Tickets of the enqueues that have not ended.
    under_way: Vec<u64>,
    closed: bool,
    /// Whether graphs do such work, too. They may be launched on a stream of any device.
    by_graphs: bool,
    /// The number of the last revocation of access between the devices; 0 if there was none.
    revoked: u64,
}

/// One entry for each pair of devices between which there ever was work.
static CROSSINGS: Mutex<Vec<(Between, Crossings)>> = Mutex::new(Vec::new());

/// Notified when an enqueue has ended, or a gate has opened.
static CHANGED: Condvar = Condvar::new();

/// The number of revocations of access so far, between any devices.
static REVOCATIONS: AtomicU64 = AtomicU64::new(0);

/// A point in the order of all revocations of access.
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct Moment(u64);

impl Moment {
    pub(crate) fn now() -> Self {
        Self(REVOCATIONS.load(Ordering::Acquire))
    }
}

/// Marks a context while this lives: work that this crate does not enqueue itself may use its memory from
/// other contexts, and theirs from it.
pub(crate) struct Exposed {
    // INVARIANT: one element of EXPOSED.
    space: RawContext,
}

/// The address spaces of all [`Exposed`] contexts. Grows under the lock of [`CROSSINGS`].
static EXPOSED: Mutex<Vec<RawContext>> = Mutex::new(Vec::new());

impl Exposed {
    /// Exposes the context, after waiting for revocations of access that are in progress on its device.
    pub(crate) fn new(context: &Context) -> Self {
        let (space, device) = (context.address_space(), context.device());
        let revoking = |all: &mut Vec<(Between, Crossings)>| {
            let mut closed = all.iter().filter(|(_, entry)| entry.closed);
            closed.any(|(pair, _)| pair.contains(&device))
        };
        let _gates = wait_while(&CHANGED, lock(&CROSSINGS), revoking);
        lock(&EXPOSED).push(space);
        Self { space }
    }
}

impl Drop for Exposed {
    fn drop(&mut self) {
        // In a fork's child, the lock may be held by a thread that does not exist there.
        if driver::is_gone() {
            return;
        }
        let mut all = lock(&EXPOSED);
        if let Some(at) = all.iter().position(|space| *space == self.space) {
            all.swap_remove(at);
        }
    }
}

/// Whether both contexts are [`Exposed`]. The answer cannot become true while the gate of their devices is
/// closed.
pub(super) fn are_exposed(one: &Context, other: &Context) -> bool {
    let all = lock(&EXPOSED);
    [one, other].iter().all(|context| all.contains(&context.address_space()))
}

fn between(one: Device, other: Device) -> Between {
    if one.ordinal() <= other.ordinal() { [one, other] } else { [other, one] }
}

/// Returns the entry of two devices, creating it if needed.
fn entry(all: &mut Vec<(Between, Crossings)>, between: Between) -> &mut Crossings {
    let found = all.iter().position(|(known, _)| *known == between);
    let index = found.unwrap_or_else(|| {
        all.push((between, Crossings::default()));
        all.len() - 1
    });
    &mut all[index].1
}

/// Changes the entry, and wakes the threads that wait for such a change.
fn change(between: Between, by: impl FnOnce(&mut Crossings)) {
    by(entry(&mut lock(&CROSSINGS), between));
    CHANGED.notify_all();
}

/// Waits until `ready` accepts the entry, then runs `then` on it under the lock.
fn when<R>(
    between: Between,
    ready: impl Fn(&Crossings) -> bool,
    then: impl FnOnce(&mut Crossings) -> R,
) -> R {
    let mut all = wait_while(&CHANGED, lock(&CROSSINGS), |all| !ready(entry(all, between)));
    then(entry(&mut all, between))
}

/// Waits until the gate is open, and begins an enqueue. The result is to be held over the driver call that
/// enqueues work which uses one device's memory from the other. Not for work on a single device.
pub(crate) fn crossing(one: Device, other: Device) -> Crossing {
    let _quiet = DeferForeignCode::begin();
    let between = between(one, other);
    let (ticket, revoked) = when(
        between,
        |entry| !entry.closed,
        |entry| {
            let ticket = entry.begun;
            entry.begun += 1;
            entry.under_way.push(ticket);
            (ticket, entry.revoked)
        },
    );
    Crossing { between, ticket, revoked, _quiet }
}

impl Crossing {
    /// Whether access between the two devices was revoked since `moment`. The answer holds while this lives.
    pub(crate) fn was_revoked_since(&self, moment: Moment) -> bool {
        self.revoked > moment.0
    }
}

impl Drop for Crossing {
    fn drop(&mut self) {
        change(self.between, |entry| entry.under_way.retain(|&ticket| ticket != self.ticket));
    }
}

/// Notes that a graph works between two devices, before its first launch.
pub(crate) fn crossed_by_graphs(one: Device, other: Device) {
    entry(&mut lock(&CROSSINGS), between(one, other)).by_graphs = true;
}

/// Whether a graph ever worked between the two devices.
pub(super) fn is_crossed_by_graphs(one: Device, other: Device) -> bool {
    entry(&mut lock(&CROSSINGS), between(one, other)).by_graphs
}

/// Waits until all enqueues that have begun have ended: a later wait for both devices' work covers what they
/// enqueued.
pub(super) fn enqueued(one: Device, other: Device) -> Before {
    let between = between(one, other);
    let begun = when(between, |_| true, |entry| entry.begun);
    let over = |entry: &Crossings| entry.under_way.iter().all(|&ticket| ticket >= begun);
    when(between, over, |_| Before(begun))
}

/// Closes the gate, if no enqueue has begun since.
pub(super) fn close(one: Device, other: Device, since: Before) -> Option<ClosedGate> {
    let between = between(one, other);
    when(
        between,
        |entry| !entry.closed,
        |entry| {
            // All enqueues counted in `since` have ended, so none is in progress.
            let quiet = entry.begun == since.0;
            entry.closed = quiet;
            quiet.then(|| ClosedGate { between })
        },
    )
}

impl ClosedGate {
    /// Notes that access between the two devices was revoked, or may have been.
    pub(crate) fn note_revocation(&self) {
        let revoked = REVOCATIONS.fetch_add(1, Ordering::AcqRel) + 1;
        entry(&mut lock(&CROSSINGS), self.between).revoked = revoked;
    }
}

impl Drop for ClosedGate {
    fn drop(&mut self) {
        change(self.between, |entry| entry.closed = false);
    }
}
