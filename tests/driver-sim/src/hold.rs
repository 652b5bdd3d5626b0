//! A call that is held, so that a test sees what others do meanwhile.

use std::marker::PhantomData;
use std::sync::PoisonError;

use crate::session::Session;
use crate::state;

/// Keeps one call from doing anything, until it is dropped: [`Session::hold`].
#[derive(Debug)]
#[must_use = "the call goes on when it is dropped"]
pub struct Hold<'s>(PhantomData<&'s Session>);

/// What is held.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) function: String,
    /// Whether the call is there.
    pub(crate) is_there: bool,
}

impl Session {
    /// Holds the next call of `function`, which has been counted and does nothing until the value is
    /// dropped; calls after it go on. One at a time: a second one takes the place of the first.
    pub fn hold(&self, function: &str) -> Hold<'_> {
        let function = function.to_owned();
        let is_there = false;
        state::lock().log.held = Some(Held { function, is_there });
        Hold(PhantomData)
    }
}

impl Hold<'_> {
    /// Waits until the call is there.
    pub fn await_call(&self) {
        let mut state = state::lock();
        while state.log.held.as_ref().is_some_and(|held| !held.is_there) {
            let waited = state::CHANGED.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        state::lock().log.held = None;
        state::CHANGED.notify_all();
    }
}
