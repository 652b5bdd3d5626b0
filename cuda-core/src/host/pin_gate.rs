//! Pages of the host that owned copies are about, and whoever unregisters them.
//!
//! Registering pins whole pages. So memory that a copy owns may be pinned by a registration that it
//! knows nothing of: that of another owner of the same elements, or of a neighbour on the same page.
//! Such a copy runs beside the host, and the registration must not end under it.

use std::ops::Range;
use std::sync::{Condvar, Mutex, PoisonError};

use crate::error::{Error, Result};
use crate::process::driver;
use crate::process::foreign_code::DeferForeignCode;
use crate::process::release::Unreleased;
use crate::timeline::Mark;
use crate::util::sync::lock;
use crate::util::turns::Turns;

/// Pages of 64 KiB, the largest that systems use for ordinary memory. Where they are smaller, more
/// is waited for than need be.
const PAGE: usize = 1 << 16;

type Pages = Range<usize>;

type Addresses = Range<usize>;

/// An owned copy, from before it is enqueued. Dropped without [`Carried::landed`], it is taken for
/// one that can never be proven complete.
#[must_use = "its pages stay pinned while this lives"]
pub(crate) struct Carried(u64);

struct Entry {
    addresses: Addresses,
    copy: Copy,
}

enum Copy {
    /// Its driver call is under way.
    Beginning,
    Enqueued(Mark),
    /// Whoever owned it gave up, and leaked it: its own memory stays pinned, that of neighbours, who
    /// cannot know, need not.
    Lost,
}

impl Entry {
    fn is_over(&self) -> bool {
        matches!(&self.copy, Copy::Enqueued(mark) if mark.timeline.has_completed(mark.seq))
    }
}

#[derive(Default)]
struct State {
    tickets: u64,
    /// By their tickets.
    copies: Turns<Entry>,
    /// Pages that are being unregistered right now.
    closed: Vec<Pages>,
}

static STATE: Mutex<State> = Mutex::new(State {
    tickets: 0,
    copies: Turns::new(),
    closed: Vec::new(),
});

/// An enqueue has ended, or an unregistration.
static CHANGED: Condvar = Condvar::new();

pub(super) fn pages(addresses: &Addresses) -> Pages {
    addresses.start / PAGE..addresses.end.div_ceil(PAGE)
}

pub(super) fn overlap(a: &Range<usize>, b: &Range<usize>) -> bool {
    a.start < b.end && b.start < a.end
}

/// To be called before a copy of memory is enqueued that its caller owns.
pub(crate) fn carry(address: usize, bytes: usize) -> Carried {
    let addresses = address..address + bytes;
    let pages = pages(&addresses);
    let mut state = lock(&STATE);
    while state.closed.iter().any(|closed| overlap(closed, &pages)) {
        state = CHANGED.wait(state).unwrap_or_else(PoisonError::into_inner);
    }
    state.tickets += 1;
    let ticket = state.tickets;
    let entry = Entry {
        addresses,
        copy: Copy::Beginning,
    };
    // Dropping what is over may call the driver: not under the lock.
    let spent = state.copies.enter(ticket, entry, Entry::is_over);
    drop(state);
    drop(spent);
    Carried(ticket)
}

impl Carried {
    /// The copy was enqueued, or may have been.
    pub(crate) fn enqueued(&self, mark: Mark) {
        self.turn_into(Copy::Enqueued(mark));
    }

    /// The copy is over.
    pub(crate) fn landed(self) {
        // In a forked child our locks may be held by threads that no longer exist; once the process
        // exits, nobody waits for this any more.
        if driver::is_gone() {
            return std::mem::forget(self);
        }
        let mut state = lock(&STATE);
        let spent = state.copies.remove(self.0);
        drop(state);
        // Its mark may be the last of a stream.
        drop(spent);
        CHANGED.notify_all();
    }

    fn turn_into(&self, copy: Copy) {
        // As in `landed`.
        if driver::is_gone() {
            return std::mem::forget(copy);
        }
        let mut state = lock(&STATE);
        let entry = state.copies.get_mut(self.0);
        let spent = entry.map(|entry| std::mem::replace(&mut entry.copy, copy));
        drop(state);
        drop(spent);
        CHANGED.notify_all();
    }
}

impl Drop for Carried {
    fn drop(&mut self) {
        self.turn_into(Copy::Lost);
    }
}

/// Runs `unregister`, which takes the pinning of these bytes away, while no owned copy of the same
/// pages is under way.
pub(crate) fn without_copies(
    address: usize,
    bytes: usize,
    unregister: impl FnOnce() -> Result<(), Unreleased>,
) -> Result<(), Unreleased> {
    let addresses = address..address + bytes;
    // Begun first, so that it ends last: a drop hook may copy to these very pages.
    let _quiet = DeferForeignCode::begin();
    let _closed = loop {
        match close(&addresses)? {
            Ok(closed) => break closed,
            // Not under the lock: it may take long, and others may copy meanwhile.
            Err(pending) => {
                for mark in pending {
                    mark.timeline.wait_host(mark.seq)?;
                }
            }
        }
    };
    unregister()
}

/// Keeps copies of the pages from being enqueued; or, if there are any, says which.
fn close(addresses: &Addresses) -> Result<Result<Closed, Vec<Mark>>> {
    let concerned = pages(addresses);
    let mut state = lock(&STATE);
    let pending = loop {
        let mut beginning = false;
        let mut pending = Vec::new();
        for entry in state.copies.values() {
            if !overlap(&pages(&entry.addresses), &concerned) || entry.is_over() {
                continue;
            }
            match &entry.copy {
                Copy::Beginning => beginning = true,
                Copy::Enqueued(mark) => pending.push(mark.clone()),
                Copy::Lost if overlap(&entry.addresses, addresses) => {
                    return Err(Error::LostStream);
                }
                Copy::Lost => {}
            }
        }
        if !beginning {
            break pending;
        }
        // One driver call each, which is waited for.
        state = CHANGED.wait(state).unwrap_or_else(PoisonError::into_inner);
    };
    if !pending.is_empty() {
        return Ok(Err(pending));
    }
    state.closed.push(concerned.clone());
    Ok(Ok(Closed(concerned)))
}

struct Closed(Pages);

impl Drop for Closed {
    fn drop(&mut self) {
        let mut state = lock(&STATE);
        if let Some(at) = state.closed.iter().position(|closed| *closed == self.0) {
            state.closed.swap_remove(at);
        }
        drop(state);
        CHANGED.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_on_a_page_are_concerned_and_others_are_not() {
        let page = |start, end| pages(&(start..end));
        let here = page(0x10_0000, 0x10_0010);
        assert!(overlap(
            &here,
            &page(0x10_0000 + PAGE - 1, 0x10_0000 + PAGE)
        ));
        assert!(overlap(&here, &page(0x10_0000 - 1, 0x10_0001)));
        assert!(!overlap(&here, &page(0x10_0000 - 1, 0x10_0000)));
        assert!(!overlap(&here, &page(0x10_0000 + PAGE, 0x10_0001 + PAGE)));
    }

    #[test]
    fn a_copy_that_was_never_enqueued_is_waited_for_by_nobody() {
        carry(0x20_0000, 8).landed();
        assert!(without_copies(0x20_0000, 8, || Ok(())).is_ok());
        // The pages are open again.
        carry(0x20_0000, 8).landed();
    }

    #[test]
    fn a_copy_that_was_given_up_keeps_its_pages_pinned() {
        drop(carry(0x30_0000, 8));
        let refused = without_copies(0x30_0000, 8, || Ok(()));
        let kept = matches!(refused, Err(Unreleased::Kept(Error::LostStream)));
        assert!(kept, "{refused:?}");
        assert!(
            without_copies(0x30_0008, 8, || Ok(())).is_ok(),
            "a neighbour"
        );
    }
}
