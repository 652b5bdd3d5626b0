//! The context around calls of NCCL, and polling for their results.

use std::mem;
use std::thread;
use std::time::{Duration, Instant};

use crate::context::{Context, Guard, current};
use crate::error::Result;
use crate::process::{DeferForeignCode, RelaxedCaptureMode, driver};

/// Makes a context current around calls of NCCL, which switches contexts itself. Foreign code that
/// the calls cause, such as drop hooks, runs when this is dropped, so that no lock is held.
pub(super) struct NcclScope<'a> {
    // Dropped in this order.
    _relaxed: Option<RelaxedCaptureMode>,
    /// [`None`] if the context is primary and was already current: then [`Drop`] does what a guard
    /// would, in a third of the instructions.
    guard: Option<Guard>,
    _quiet: DeferForeignCode,
    context: &'a Context,
    /// Set if NCCL's calls have succeeded. Before they return, they make the runtime's current
    /// device current again, which is this context's if it was current before.
    is_restored: bool,
}

impl<'a> NcclScope<'a> {
    #[inline]
    pub(super) fn enter(context: &'a Context) -> Result<Self> {
        let raw = context.live()?;
        let _quiet = DeferForeignCode::begin();
        let saved = current::get()?;
        let guard = match saved == raw && context.is_primary() {
            true => None,
            false => Some(Guard::enter_over(saved, context)?),
        };
        Ok(Self { _relaxed: None, guard, _quiet, context, is_restored: false })
    }

    /// Notes that all calls have succeeded, so that the drop need not ask the driver for the
    /// current context.
    #[inline]
    pub(super) fn calls_succeeded(&mut self) {
        self.is_restored = true;
    }

    /// Enters for calls that allocate or free: these must not end a capture.
    pub(super) fn relaxed(context: &'a Context) -> Result<Self> {
        let mut scope = Self::enter(context)?;
        scope._relaxed = Some(RelaxedCaptureMode::enter()?);
        Ok(scope)
    }
}

impl Drop for NcclScope<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.is_restored || self.guard.is_some() || driver::is_gone() {
            return;
        }
        let now = current::get_again();
        if now.as_ref().ok() != Some(&self.context.raw()) {
            drop(Guard::of_present(self.context));
        }
    }
}

/// Polls at growing intervals until a limit, and once more after it: a thread that did not run for
/// a while would otherwise miss the answer.
pub(super) struct Polling {
    since: Instant,
    limit: Duration,
    is_last: bool,
}

impl Polling {
    /// How long it polls without pauses: most calls take less.
    const BUSY: Duration = Duration::from_micros(200);
    const LONGEST: Duration = Duration::from_millis(1);

    /// Returns the pause before the next poll: a part of the time spent so far, so that an answer
    /// is noticed at most about a sixteenth late.
    fn pause(spent: Duration) -> Duration {
        (spent / 16).min(Self::LONGEST)
    }

    pub(super) fn begin(limit: Duration) -> Self {
        Self { since: Instant::now(), limit, is_last: false }
    }

    /// Waits before the next poll. Returns whether there is one.
    pub(super) fn again(&mut self) -> bool {
        let spent = self.since.elapsed();
        if mem::replace(&mut self.is_last, spent >= self.limit) {
            return false;
        }
        if spent < Self::BUSY {
            thread::yield_now();
        } else {
            thread::sleep(Self::pause(spent));
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_question_after_the_limit() {
        let mut polling = Polling::begin(Duration::ZERO);
        assert!(polling.again() && !polling.again());
    }

    #[test]
    fn an_answer_is_noticed_soon() {
        let at = |micros| Polling::pause(Duration::from_micros(micros)).as_nanos();
        assert_eq!(
            [at(200), at(1900), at(16_000), at(10_000_000)],
            [12_500, 118_750, 1_000_000, 1_000_000]
        );
    }
}
