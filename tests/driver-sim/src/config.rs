//! The simulated machine, and when its queued work runs.

use std::fmt;

use crate::engine::schedule::{Draw, Schedule};
use crate::fault::Fault;

/// The most devices for which the simulator has address ranges.
pub(crate) const MOST_DEVICES: u32 = 64;
pub(crate) const MOST_MEMORY: usize = 1 << 39;

/// When queued work runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// As late as CUDA permits: only what a synchronising call needs, dependencies included.
    #[default]
    Lazy,
    /// At enqueue, as soon as its dependencies allow.
    Eager,
    /// Between any two calls, as far as a schedule drawn from the seed allows. Threads of the simulator read
    /// and write host memory meanwhile, so that Miri and the thread sanitizer see races.
    Threaded {
        /// Selects the schedule. The schedule repeats exactly if the program makes the same calls in the same
        /// order.
        seed: u64,
    },
}

impl Mode {
    pub(crate) fn schedule(self) -> Option<Schedule> {
        match self {
            Self::Lazy | Self::Eager => None,
            Self::Threaded { seed } => Some(Schedule::new(seed)),
        }
    }

    /// Returns the source of decisions about the order in which a graph's nodes run.
    pub(crate) fn draw(self) -> Draw {
        match self {
            Self::Lazy | Self::Eager => Draw::new(0),
            Self::Threaded { seed } => Draw::new(!seed),
        }
    }
}

/// Prints the mode in the syntax of the environment variables.
impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lazy => f.write_str("CUDA_SIM_MODE=lazy"),
            Self::Eager => f.write_str("CUDA_SIM_MODE=eager"),
            Self::Threaded { seed } => write!(f, "CUDA_SIM_MODE=threaded CUDA_SIM_SEED={seed}"),
        }
    }
}

/// The simulated machine. `Default` is four devices of 141 GiB with access to each other.
#[derive(Debug, Clone)]
pub struct Config {
    pub(crate) devices: u32,
    pub(crate) mode: Mode,
    pub(crate) memory: usize,
    pub(crate) quarantine: usize,
    pub(crate) polls: u32,
    pub(crate) unreachable: Vec<(u32, u32)>,
    pub(crate) missing: Vec<String>,
    pub(crate) memory_pools: bool,
    pub(crate) wide_values: bool,
    pub(crate) concurrent_managed: bool,
    pub(crate) faults: Vec<Fault>,
    /// Whether origins of objects are recorded from the beginning.
    pub(crate) origins: bool,
    /// Errors in environment variables. If there are any, `cuInit` fails rather than simulate a machine that
    /// was not asked for.
    pub(crate) refused: Vec<String>,
    /// Whether `CUDA_VISIBLE_DEVICES` names a device twice.
    pub(crate) seen_twice: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            devices: 4,
            mode: Mode::Lazy,
            memory: 141 << 30,
            quarantine: 256,
            polls: 2,
            unreachable: Vec::new(),
            missing: Vec::new(),
            memory_pools: true,
            wide_values: true,
            concurrent_managed: true,
            faults: Vec::new(),
            origins: false,
            refused: Vec::new(),
            seen_twice: false,
        }
    }
}

impl Config {
    /// Sets the number of devices, at most 64.
    #[must_use]
    pub fn devices(mut self, devices: u32) -> Self {
        self.devices = devices.min(MOST_DEVICES);
        self
    }

    /// Sets when queued work runs; [`Session::set_mode`](crate::Session::set_mode) changes it later.
    #[must_use]
    pub fn mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// Runs queued work on threads, by the schedule of this seed: [`Mode::Threaded`].
    #[must_use]
    pub fn threaded(self, seed: u64) -> Self {
        self.mode(Mode::Threaded { seed })
    }

    /// Sets the bytes of memory per device, at most 512 GiB. The host's memory is used only for pages that
    /// are touched.
    #[must_use]
    pub fn memory(mut self, bytes: usize) -> Self {
        self.memory = bytes.min(MOST_MEMORY);
        self
    }

    /// Sets the number of freed device blocks whose addresses are not reused; the addresses of older ones are
    /// reused, newest first.
    #[must_use]
    pub fn quarantine(mut self, blocks: usize) -> Self {
        self.quarantine = blocks;
        self
    }

    /// Sets how often in lazy mode a query answers "not ready" before it makes progress.
    #[must_use]
    pub fn polls(mut self, polls: u32) -> Self {
        self.polls = polls;
        self
    }

    /// Removes peer access from `device` to `peer` (one direction).
    #[must_use]
    pub fn without_peer_access(mut self, device: u32, peer: u32) -> Self {
        self.unreachable.push((device, peer));
        self
    }

    /// Removes symbols from this driver, like an older driver.
    #[must_use]
    pub fn missing(mut self, symbols: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.missing.extend(symbols.into_iter().map(Into::into));
        self
    }

    /// Makes devices lack stream-ordered allocation.
    #[must_use]
    pub fn without_memory_pools(mut self) -> Self {
        self.memory_pools = false;
        self
    }

    /// Makes streams write and wait for 32-bit values only, without `CU_STREAM_WAIT_VALUE_NOR`.
    #[must_use]
    pub fn without_wide_values(mut self) -> Self {
        self.wide_values = false;
        self
    }
}
