//! How communicators are created.

use std::time::Duration;

/// How a communicator is created.
///
/// ```no_run
/// use std::time::Duration;
///
/// let options = cuda_core::nccl::CommunicatorOptions::new().limit(Duration::from_secs(30));
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct CommunicatorOptions {
    pub(super) limit: Duration,
}

impl CommunicatorOptions {
    /// Ten minutes.
    const LIMIT: Duration = Duration::from_secs(600);

    /// A time limit of ten minutes.
    pub const fn new() -> Self {
        Self { limit: Self::LIMIT }
    }

    /// How long a call, or a [wait](super::Communicator::wait), may take.
    pub const fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }
}

impl Default for CommunicatorOptions {
    fn default() -> Self {
        Self::new()
    }
}
