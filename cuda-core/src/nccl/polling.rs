//! What surrounds calls of NCCL, and asking for their results.

use std::thread;
use std::time::{Duration, Instant};

use crate::context::Context;
use crate::context::guard::Guard;
use crate::error::Result;
use crate::process::capture_mode::RelaxedCaptureMode;
use crate::process::foreign_code::DeferForeignCode;

/// A context made current around calls of NCCL, which switches contexts itself. Foreign code that the
/// calls cause, such as drop hooks, runs when this ends, so that no lock is held.
pub(super) struct NcclScope {
    // Dropped in this order.
    _relaxed: Option<RelaxedCaptureMode>,
    _guard: Guard,
    _quiet: DeferForeignCode,
}

impl NcclScope {
    #[inline]
    pub(super) fn enter(context: &Context) -> Result<Self> {
        let _quiet = DeferForeignCode::begin();
        Ok(Self { _relaxed: None, _guard: Guard::enter(context)?, _quiet })
    }

    /// For calls that allocate or free, which must end no capture.
    pub(super) fn relaxed(context: &Context) -> Result<Self> {
        let scope = Self::enter(context)?;
        Ok(Self { _relaxed: Some(RelaxedCaptureMode::enter()?), ..scope })
    }
}

/// Asking again and again, more and more rarely, until a limit.
pub(super) struct Polling {
    since: Instant,
    limit: Duration,
    pause: Duration,
}

impl Polling {
    /// How long it asks without pauses: most calls take less.
    const BUSY: Duration = Duration::from_micros(200);
    const SHORTEST: Duration = Duration::from_micros(10);
    const LONGEST: Duration = Duration::from_millis(1);

    pub(super) fn begin(limit: Duration) -> Self {
        Self { since: Instant::now(), limit, pause: Self::SHORTEST }
    }

    /// Waits before another question; returns whether there is time for one.
    pub(super) fn again(&mut self) -> bool {
        let spent = self.since.elapsed();
        if spent < Self::BUSY {
            thread::yield_now();
        } else {
            thread::sleep(self.pause);
            self.pause = (2 * self.pause).min(Self::LONGEST);
        }
        spent < self.limit
    }
}
