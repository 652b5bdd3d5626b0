//! Options for creating communicators.

use std::ffi::c_int;
use std::num::NonZero;
use std::time::Duration;

use super::raw::{RawConfig, UNDEF_INT};
use crate::error::{Error, Result};
use crate::util::setting;

/// Options for creating a communicator.
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
    // [`None`]: depends on what the options are for.
    blocking: Option<bool>,
    // [`None`] here and below: NCCL chooses.
    min_ctas: Option<NonZero<u16>>,
    max_ctas: Option<NonZero<u16>>,
    cga_cluster_size: Option<u8>,
}

impl CommunicatorOptions {
    /// Ten minutes.
    const LIMIT: Duration = Duration::from_secs(600);

    /// Returns options with a time limit of ten minutes.
    pub const fn new() -> Self {
        let (limit, blocking) = (Self::LIMIT, None);
        Self { limit, blocking, min_ctas: None, max_ctas: None, cga_cluster_size: None }
    }

    /// Sets how long a call that does not [block](Self::blocking), or a
    /// [wait](super::Communicator::wait), may take, and how long pending work may continue after
    /// its [communicator](super::Communicator) was dropped.
    pub const fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Sets whether NCCL makes its calls on the calling thread, which continues when they have
    /// completed, or each call on a thread of its own. The latter takes some 40 to 70 µs more (on
    /// H200s, for a group of two ranks). A blocking call that waits for a lost rank has no limit,
    /// and [`abort`](super::Communicator::abort) waits for the call. Waits for *work* have their
    /// limit in both cases.
    ///
    /// By default the calls of [`Ranks`](super::Ranks) block, since this process makes the calls of
    /// all ranks at once. Calls of other communicators do not block, nor those of communicators
    /// made from the ranks of a `Ranks`.
    ///
    /// If the environment variable `NCCL_COMM_BLOCKING` is set, NCCL uses it instead.
    pub const fn blocking(mut self, blocking: bool) -> Self {
        self.blocking = Some(blocking);
        self
    }

    /// Returns these options, with calls that block unless the options say otherwise.
    pub(super) fn blocking_by_default(mut self) -> Self {
        self.blocking.get_or_insert(true);
        self
    }

    fn blocks(self) -> bool {
        self.blocking == Some(true)
    }

    /// Sets the fewest thread blocks (CTAs) of each operation: more blocks make small operations
    /// faster on some machines. By default, and for 0, NCCL chooses the number.
    ///
    /// If the environment variable `NCCL_MIN_CTAS` is set, NCCL uses it instead.
    #[doc(alias("minCTAs"))]
    pub const fn min_ctas(mut self, least: u16) -> Self {
        self.min_ctas = NonZero::new(least);
        self
    }

    /// Limits the thread blocks (CTAs) of each operation. While it runs, each thread block occupies
    /// a multiprocessor, which other kernels then lack. By default, and for 0, NCCL chooses the
    /// number.
    ///
    /// If the environment variable `NCCL_MAX_CTAS` is set, NCCL uses it instead.
    #[doc(alias("maxCTAs"))]
    pub const fn max_ctas(mut self, most: u16) -> Self {
        self.max_ctas = NonZero::new(most);
        self
    }

    /// Sets how many thread blocks (CTAs) a cluster of NCCL's kernels has: up to 8, or 0 for no
    /// clusters. It matters from compute capability 9.0 on. By default NCCL chooses.
    ///
    /// If the environment variable `NCCL_CGA_CLUSTER_SIZE` is set, NCCL uses it instead.
    #[doc(alias("cgaClusterSize"))]
    pub const fn cga_cluster_size(mut self, blocks: u8) -> Self {
        self.cga_cluster_size = Some(blocks);
        self
    }

    /// Returns these options as NCCL's configuration.
    ///
    /// # Errors
    /// [`Error::Invalid`] for options that NCCL would refuse.
    pub(super) fn config(self, op: &'static str) -> Result<RawConfig> {
        let Self { min_ctas: least, max_ctas: most, cga_cluster_size: cluster, .. } = self;
        if let Some((least, most)) = least.zip(most).filter(|(least, most)| least > most) {
            let why = format!("at least {least} thread blocks (CTAs) and at most {most}");
            return Err(Error::invalid(op, why));
        }
        if let Some(blocks @ 9..) = cluster {
            let why = format!("clusters of {blocks} thread blocks; NCCL has at most 8");
            return Err(Error::invalid(op, why));
        }
        let given = |blocks: Option<NonZero<u16>>| blocks.map_or(UNDEF_INT, |it| it.get().into());
        let mut config = RawConfig::DEFAULT;
        config.blocking = self.blocks().into();
        config.cga_cluster_size = cluster.map_or(UNDEF_INT, c_int::from);
        (config.min_ctas, config.max_ctas) = (given(least), given(most));
        Ok(config)
    }

    /// Returns whether NCCL will block. NCCL copies the settings of its configuration file into the
    /// environment.
    pub(super) fn will_block(self) -> bool {
        self.will_block_if(setting("NCCL_COMM_BLOCKING").as_deref())
    }

    fn will_block_if(self, overridden: Option<&str>) -> bool {
        match overridden.and_then(number) {
            Some(1) => true,
            Some(0) => false,
            // NCCL ignores other numbers.
            _ => self.blocks(),
        }
    }

    /// The [limit](Self::limit) of a call or a wait.
    pub const fn get_limit(&self) -> Duration {
        self.limit
    }

    /// Whether NCCL makes its calls on the [calling thread](Self::blocking); [`None`] if that
    /// depends on what the options are for.
    pub const fn get_blocking(&self) -> Option<bool> {
        self.blocking
    }

    /// The fewest [thread blocks](Self::min_ctas) of an operation; [`None`] if NCCL chooses.
    pub const fn get_min_ctas(&self) -> Option<NonZero<u16>> {
        self.min_ctas
    }

    /// The most [thread blocks](Self::max_ctas) of an operation; [`None`] if NCCL chooses.
    pub const fn get_max_ctas(&self) -> Option<NonZero<u16>> {
        self.max_ctas
    }

    /// How many thread blocks a [cluster](Self::cga_cluster_size) has; [`None`] if NCCL chooses.
    pub const fn get_cga_cluster_size(&self) -> Option<u8> {
        self.cga_cluster_size
    }
}

/// Reads the number at the begin of a text as NCCL does, by `strtoll` with base 0: 0 if there is none; [`None`] if it
/// is too large.
fn number(text: &str) -> Option<i64> {
    let text = text.trim_ascii_start();
    let (sign, text) = match text.strip_prefix('-') {
        Some(text) => (-1, text),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let hexadecimal = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    let (base, text) = match hexadecimal {
        Some(text) => (16, text),
        None if text.starts_with('0') => (8, text),
        None => (10, text),
    };
    let end = text.find(|it: char| !it.is_digit(base)).unwrap_or(text.len());
    match &text[..end] {
        "" => Some(0),
        digits => i64::from_str_radix(digits, base).ok().map(|number| sign * number),
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
    fn nccl_chooses_how_many_blocks_unless_the_options_do() {
        let of = |least, most| CommunicatorOptions::new().min_ctas(least).max_ctas(most);
        let numbers = |options: CommunicatorOptions| {
            let config = options.config("test").ok()?;
            Some([config.min_ctas, config.max_ctas, config.cga_cluster_size])
        };
        assert_eq!(numbers(of(0, 0)), Some([UNDEF_INT; 3]));
        assert_eq!(numbers(of(1, 0)), Some([1, UNDEF_INT, UNDEF_INT]));
        assert_eq!(numbers(of(65535, 65535)), Some([65535, 65535, UNDEF_INT]));
        assert_eq!(numbers(of(3, 2)), None);
        let clusters = [0, 8, 9].map(|blocks| numbers(of(0, 1).cga_cluster_size(blocks)));
        assert_eq!(clusters, [Some([UNDEF_INT, 1, 0]), Some([UNDEF_INT, 1, 8]), None]);
    }

    #[test]
    fn the_environment_comes_first() {
        let asked = [false, true].map(|blocking| CommunicatorOptions::new().blocking(blocking));
        let of = |text| asked.map(|options| options.will_block_if(text));
        assert_eq!(of(None), [false, true]);
        for blocks in ["1", " +1", "01", "0x1", "1 please"] {
            assert_eq!(of(Some(blocks)), [true; 2], "{blocks}");
        }
        for returns in ["0", "-0", "no", "0x", "08"] {
            assert_eq!(of(Some(returns)), [false; 2], "{returns}");
        }
        for ignored in ["2", "-1", "12", "99999999999999999999"] {
            assert_eq!(of(Some(ignored)), [false, true], "{ignored}");
        }
    }
}
