//! Keeps `cuMemHostUnregister` from running during an owned copy of the same page.
//!
//! Registering pins whole pages. So memory that a copy owns may be pinned by a registration that the
//! copy does not know of: that of another owner of the same elements, or of neighbouring memory on the
//! same page. The device runs such a copy asynchronously, and the registration must not end before the
//! copy.
//!
//! An unregistration waits for the copies in progress. New copies must not make it wait forever, so
//! each of them is delayed for the duration that the unregistration [imposes](Waiting). The duration
//! doubles when it was too short: as soon as it exceeds the time that the copies take, no copy is left.
//! It is a delay and not a lock, since a thread may have to enqueue another copy before the awaited
//! copy can end: the awaited copy may come after a signal that the thread has yet to set. For the same
//! reason, a copy does not wait for the unregistration itself, which may wait for all work of a device;
//! the bytes of the copy go through a [chunk](crate::copy::borrowed).

use std::mem::ManuallyDrop;
use std::ops::Range;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::process::{DeferForeignCode, Failed, driver};
use crate::timeline::Mark;
use crate::timeline::ledger::overlap;
use crate::util::{OnDrop, Turns, lock};

/// Pages of 64 KiB, the largest that systems use for ordinary memory. On systems with smaller
/// pages, an unregistration waits for more copies than necessary.
const PAGE: usize = 1 << 16;

type Pages = Range<usize>;

type Addresses = Range<usize>;

/// An owned copy, from before it is enqueued. If dropped without [`PageHold::copy_is_over`], it counts
/// as a copy that can never be proven complete.
#[must_use = "its pages stay pinned while this lives"]
pub(crate) struct PageHold(u64);

struct OwnedCopy {
    addresses: Addresses,
    copy: CopyState,
}

enum CopyState {
    /// The driver call of the copy is in progress.
    Beginning,
    Enqueued(Mark),
    /// The copy's owner gave up and leaked the memory, which stays pinned. Neighbouring memory on the
    /// same pages need not stay pinned, since its owner cannot know of this copy.
    Lost,
}

impl OwnedCopy {
    fn is_over(&self) -> bool {
        matches!(&self.copy, CopyState::Enqueued(mark) if mark.timeline.has_completed(mark.seq))
    }
}

#[derive(Default)]
struct PinState {
    tickets: u64,
    /// The copies by ticket.
    copies: Turns<OwnedCopy>,
    /// Pages that are being unregistered now.
    closed: Vec<Pages>,
    waiting: Vec<Waiting>,
}

/// An unregistration that waits for copies.
struct Waiting {
    pages: Pages,
    /// The delay of copies of these pages that begin now.
    patience: Duration,
}

/// Longer than the remaining time of most copies that are in progress when an unregistration begins.
const FIRST_PATIENCE: Duration = Duration::from_micros(100);

/// The longest delay of a copy.
const LAST_PATIENCE: Duration = Duration::from_secs(1);

static STATE: Mutex<PinState> = Mutex::new(PinState {
    tickets: 0,
    copies: Turns::new(),
    closed: Vec::new(),
    waiting: Vec::new(),
});

/// Notified when an enqueue, an unregistration, or an unregistration's wait has ended.
static CHANGED: Condvar = Condvar::new();

/// Makes a change that other threads may wait for. The value that `f` returns is dropped outside the
/// lock: a mark may hold the last reference to a timeline.
fn change<R>(f: impl FnOnce(&mut PinState) -> R) {
    let spent = f(&mut lock(&STATE));
    CHANGED.notify_all();
    drop(spent);
}

fn pages(addresses: &Addresses) -> Pages {
    addresses.start / PAGE..addresses.end.div_ceil(PAGE)
}

/// Holds the pages of a copy that owns its host memory; called before the copy is enqueued. [`None`]
/// while the pages are being unregistered: no device may then access the memory.
pub(crate) fn hold_pages(address: usize, bytes: usize) -> Option<PageHold> {
    let addresses = address..address + bytes;
    let pages = pages(&addresses);
    let mut state = lock(&STATE);
    let delays = state.waiting.iter().filter(|w| overlap(&w.pages, &pages));
    let delay = delays.map(|waiting| waiting.patience).max();
    if let Some(delay) = delay {
        let waits = |state: &mut PinState| state.waiting.iter().any(|w| overlap(&w.pages, &pages));
        let woken = CHANGED.wait_timeout_while(state, delay, waits);
        state = woken.unwrap_or_else(PoisonError::into_inner).0;
    }
    if state.closed.iter().any(|closed| overlap(closed, &pages)) {
        return None;
    }
    state.tickets += 1;
    let ticket = state.tickets;
    let entry = OwnedCopy { addresses, copy: CopyState::Beginning };
    // Dropping completed entries may call the driver, so it happens outside the lock.
    let spent = state.copies.enter(ticket, entry, OwnedCopy::is_over);
    drop(state);
    drop(spent);
    Some(PageHold(ticket))
}

impl PageHold {
    /// Notes that the copy was enqueued, or may have been.
    pub(crate) fn enqueued(&self, mark: Mark) {
        self.turn_into(CopyState::Enqueued(mark));
    }

    /// Ends the hold, since the copy has ended or was never enqueued.
    pub(crate) fn copy_is_over(self) {
        let ticket = ManuallyDrop::new(self).0;
        // In a forked child, threads that exist only in the parent may hold this crate's locks; once
        // the process exits, no thread waits for this any more.
        if !driver::is_gone() {
            change(|state| state.copies.remove(ticket));
        }
    }

    fn turn_into(&self, copy: CopyState) {
        // As in `copy_is_over`.
        if driver::is_gone() {
            return std::mem::forget(copy);
        }
        change(|state| {
            let entry = state.copies.get_mut(self.0);
            entry.map(|entry| std::mem::replace(&mut entry.copy, copy))
        });
    }
}

impl Drop for PageHold {
    fn drop(&mut self) {
        self.turn_into(CopyState::Lost);
    }
}

/// Runs `unregister`, which ends the pinning of these bytes, while no owned copy of the same pages is
/// in progress.
pub(crate) fn without_copies(
    address: usize,
    bytes: usize,
    unregister: impl FnOnce() -> Result<(), Failed>,
) -> Result<(), Failed> {
    let addresses = address..address + bytes;
    // Declared first, so that it is dropped last: a drop hook may copy to these very pages.
    let _quiet = DeferForeignCode::begin();
    let mut delay = Delay { pages: pages(&addresses), imposed: None };
    loop {
        let pending = close(&addresses, &mut delay)?;
        if pending.is_empty() {
            break;
        }
        // Outside the lock: the wait may be long, and other threads may copy in the meantime.
        for mark in pending {
            mark.timeline.wait_host(mark.seq)?;
        }
    }
    let open = |state: &mut PinState| {
        let at = state.closed.iter().position(|closed| *closed == delay.pages);
        at.map(|at| state.closed.swap_remove(at))
    };
    let _open = OnDrop::new(|| change(open));
    unregister()
}

/// Closes the pages to new copies. If there are copies on them, imposes a delay on new copies instead
/// and returns the marks of the present ones.
fn close(addresses: &Addresses, delay: &mut Delay) -> Result<Vec<Mark>> {
    // Dropped after unlocking: dropping the last reference to a stream's marks destroys its events.
    let mut earlier = Vec::new();
    let mut state = lock(&STATE);
    let pending = loop {
        let mut beginning = false;
        let mut pending = Vec::new();
        for entry in state.copies.values() {
            if !overlap(&pages(&entry.addresses), &delay.pages) || entry.is_over() {
                continue;
            }
            match &entry.copy {
                CopyState::Beginning => beginning = true,
                CopyState::Enqueued(mark) => pending.push(mark.clone()),
                CopyState::Lost if overlap(&entry.addresses, addresses) => {
                    return Err(Error::LostStream);
                }
                CopyState::Lost => {}
            }
        }
        if beginning || !pending.is_empty() {
            delay.impose(&mut state);
        }
        if !beginning {
            break pending;
        }
        earlier.append(&mut pending);
        // Waits until other threads have enqueued their copies, one driver call each.
        state = CHANGED.wait(state).unwrap_or_else(PoisonError::into_inner);
    };
    if pending.is_empty() {
        state.closed.push(delay.pages.clone());
    }
    Ok(pending)
}

/// The delay that an unregistration imposes on copies of its pages, from its first wait on.
struct Delay {
    pages: Pages,
    /// The delay's length and start.
    imposed: Option<(Duration, Instant)>,
}

impl Delay {
    /// Imposes the delay; doubles it if it elapsed without effect.
    fn impose(&mut self, state: &mut PinState) {
        let patience = match self.imposed {
            None => FIRST_PATIENCE,
            Some((patience, since)) if since.elapsed() < patience => return,
            Some((patience, _)) => LAST_PATIENCE.min(patience * 2),
        };
        self.lift(state);
        let pages = self.pages.clone();
        state.waiting.push(Waiting { pages, patience });
        self.imposed = Some((patience, Instant::now()));
    }

    fn lift(&self, state: &mut PinState) {
        let Some((patience, _)) = self.imposed else { return };
        let same = |w: &Waiting| w.pages == self.pages && w.patience == patience;
        if let Some(at) = state.waiting.iter().position(same) {
            state.waiting.swap_remove(at);
        }
    }
}

impl Drop for Delay {
    fn drop(&mut self) {
        change(|state| self.lift(state));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_on_a_page_are_concerned_and_others_are_not() {
        let page = |start, end| pages(&(start..end));
        let here = page(0x10_0000, 0x10_0010);
        assert!(overlap(&here, &page(0x10_0000 + PAGE - 1, 0x10_0000 + PAGE)));
        assert!(overlap(&here, &page(0x10_0000 - 1, 0x10_0001)));
        assert!(!overlap(&here, &page(0x10_0000 - 1, 0x10_0000)));
        assert!(!overlap(&here, &page(0x10_0000 + PAGE, 0x10_0001 + PAGE)));
    }

    #[test]
    fn a_delay_that_elapses_doubles_up_to_a_second() {
        let (mut state, mut delay) =
            (PinState::default(), Delay { pages: pages(&(0..8)), imposed: None });
        let mut millis = Vec::new();
        for _ in 0..16 {
            delay.impose(&mut state);
            let Some((patience, since)) = &mut delay.imposed else { panic!("it is imposed") };
            *since -= *patience;
            millis.push(patience.as_secs_f64() * 1e3);
        }
        assert_eq!(
            (millis[0], millis[1], millis[13..].to_vec()),
            (0.1, 0.2, vec![819.2, 1e3, 1e3])
        );
        assert_eq!(state.waiting.len(), 1);
    }

    #[test]
    fn no_unregistration_waits_for_a_copy_that_was_never_enqueued() {
        let copy = || hold_pages(0x20_0000, 8).map(PageHold::copy_is_over);
        assert!(copy().is_some());
        let unregister = || {
            assert!(copy().is_none(), "not while it runs");
            Ok(())
        };
        assert!(without_copies(0x20_0000, 8, unregister).is_ok());
        assert!(copy().is_some(), "the pages are open again");
    }

    #[test]
    fn a_copy_that_was_given_up_keeps_its_pages_pinned() {
        drop(hold_pages(0x30_0000, 8));
        let refused = without_copies(0x30_0000, 8, || Ok(()));
        let kept = matches!(refused, Err(Failed::Refused(Error::LostStream)));
        assert!(kept, "{refused:?}");
        assert!(without_copies(0x30_0008, 8, || Ok(())).is_ok(), "a neighbour");
    }
}
