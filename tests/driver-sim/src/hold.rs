//! Holds a driver call, so that a test sees what other threads do in the meantime.

use std::marker::PhantomData;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::session::Session;
use crate::state;

/// Keeps one call from taking effect until this is dropped: [`Session::hold`].
#[derive(Debug)]
#[must_use = "the call goes on when it is dropped"]
pub struct Hold<'s> {
    number: u64,
    _session: PhantomData<&'s Session>,
}

static NUMBER: AtomicU64 = AtomicU64::new(0);

/// The call that is held.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) function: String,
    /// Never reused.
    pub(crate) number: u64,
    /// Whether the call has arrived.
    pub(crate) is_there: bool,
}

impl Session {
    /// Holds the next call of `function`: the call is counted, and waits until the returned value is dropped.
    /// Calls after it continue. Only one call is held at a time: a second hold replaces the first, whose call
    /// continues.
    pub fn hold(&self, function: &str) -> Hold<'_> {
        let function = function.to_owned();
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        state::lock().log.held = Some(Held { function, number, is_there: false });
        state::CHANGED.notify_all();
        Hold { number, _session: PhantomData }
    }
}

impl Hold<'_> {
    /// Waits until the call has arrived.
    pub fn await_call(&self) {
        let mut state = state::lock();
        let awaited = |held: &Held| held.number == self.number && !held.is_there;
        while state.log.held.as_ref().is_some_and(awaited) {
            let waited = state::CHANGED.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        let number = self.number;
        let _gone = state::lock().log.held.take_if(|held| held.number == number);
        state::CHANGED.notify_all();
    }
}
