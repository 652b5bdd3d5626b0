//! How communicators are created.

use std::time::Duration;

use super::raw::RawConfig;
use crate::util::setting;

/// How a communicator is created.
///
/// ```no_run
/// use std::time::Duration;
///
/// let options = cuda_core::nccl::CommunicatorOptions::new().limit(Duration::from_secs(30));
/// assert_eq!(options.get_limit(), Duration::from_secs(30));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[must_use]
pub struct CommunicatorOptions {
    pub(super) limit: Duration,
    pub(super) blocking: bool,
    /// 0: NCCL chooses.
    max_ctas: u16,
}

impl CommunicatorOptions {
    /// Ten minutes.
    const LIMIT: Duration = Duration::from_secs(600);

    /// A time limit of ten minutes.
    pub const fn new() -> Self {
        Self { limit: Self::LIMIT, blocking: false, max_ctas: 0 }
    }

    /// How long a call, or a [wait](super::Communicator::wait), may take, and for how long work goes on
    /// whose [communicator](super::Communicator) was dropped.
    pub const fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Lets NCCL make its calls on the calling thread, which returns when they are done. By default it
    /// makes each on a thread of its own, which takes some 40 to 70 µs more (on H200s, for a group of two
    /// ranks). The price: a call that waits for a rank that is lost has no limit, and
    /// [`abort`](super::Communicator::abort) waits for the call. Waits for *work* keep their limit.
    ///
    /// NCCL takes the environment variable `NCCL_COMM_BLOCKING` instead, where it is set.
    pub const fn blocking(mut self, blocking: bool) -> Self {
        self.blocking = blocking;
        self
    }

    /// Limits the thread blocks (CTAs) of each operation. As long as it runs, each of them keeps a
    /// multiprocessor that kernels beside it then lack. By default, and for 0, NCCL chooses how many.
    ///
    /// NCCL takes the environment variable `NCCL_MAX_CTAS` instead, where it is set.
    #[doc(alias("maxCTAs"))]
    pub const fn max_ctas(mut self, most: u16) -> Self {
        self.max_ctas = most;
        self
    }

    /// NCCL's configuration that says the same.
    pub(super) const fn config(self) -> RawConfig {
        RawConfig::new(self.blocking, self.max_ctas)
    }

    /// Whether NCCL will block. It puts what its configuration file says into the environment.
    pub(super) fn will_block(self) -> bool {
        self.will_block_if(setting("NCCL_COMM_BLOCKING").as_deref())
    }

    fn will_block_if(self, overridden: Option<&str>) -> bool {
        self.blocking && matches!(overridden, None | Some("" | "1"))
    }

    /// The [limit](Self::limit) of a call or a wait.
    pub const fn get_limit(&self) -> Duration {
        self.limit
    }

    /// Whether NCCL makes its calls on the [calling thread](Self::blocking).
    pub const fn is_blocking(&self) -> bool {
        self.blocking
    }

    /// How many [thread blocks](Self::max_ctas) an operation has at most; [`None`] if NCCL chooses.
    pub const fn get_max_ctas(&self) -> Option<u16> {
        match self.max_ctas {
            0 => None,
            most => Some(most),
        }
    }
}

impl Default for CommunicatorOptions {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::super::raw::UNDEF_INT;
    use super::CommunicatorOptions;

    #[test]
    fn nccl_chooses_how_many_blocks_unless_there_is_a_limit() {
        let of = |most| CommunicatorOptions::new().max_ctas(most);
        assert_eq!(
            [0, 1, u16::MAX].map(|most| of(most).get_max_ctas()),
            [None, Some(1), Some(u16::MAX)]
        );
        assert_eq!([0, 1, 65535].map(|most| of(most).config().max_ctas), [UNDEF_INT, 1, 65535]);
    }

    #[test]
    fn the_environment_comes_first() {
        let asked = [false, true].map(|blocking| CommunicatorOptions::new().blocking(blocking));
        let of = |text| asked.map(|options| options.will_block_if(text));
        assert_eq!([of(None), of(Some("")), of(Some("1"))], [[false, true]; 3]);
        // NCCL takes what is no number as 0.
        assert_eq!([of(Some("0")), of(Some("no"))], [[false, false]; 2]);
    }
}
