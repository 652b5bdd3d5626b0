//! What the simulated machine has, and when its queued work runs.

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
    /// Between any two calls, as far as a schedule drawn from the seed allows; meanwhile, threads
    /// of the simulator read and write host memory, so that Miri and the thread sanitizer see
    /// races.
    Threaded {
        /// Selects the schedule. It repeats exactly as long as the program makes the same calls in
        /// the same order.
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

    /// What decides in which order the nodes of a graph run.
    pub(crate) fn draw(self) -> Draw {
        match self {
            Self::Lazy | Self::Eager => Draw::new(0),
            Self::Threaded { seed } => Draw::new(!seed),
        }
    }
}

/// In the syntax of the environment variable.
impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lazy => f.write_str("CUDA_SIM_MODE=lazy"),
            Self::Eager => f.write_str("CUDA_SIM_MODE=eager"),
            Self::Threaded { seed } => write!(f, "CUDA_SIM_MODE=threaded CUDA_SIM_SEED={seed}"),
        }
    }
}

/// The simulated machine. `Default` is four devices of 141 GiB that can all reach each other.
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
    /// Where objects are made is recorded from the beginning.
    pub(crate) origins: bool,
    /// Errors of the environment; with any, `cuInit` fails rather than simulate a machine that was
    /// not asked for.
    pub(crate) refused: Vec<String>,
    /// `CUDA_VISIBLE_DEVICES` names a device twice.
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
    /// Number of devices, at most 64.
    #[must_use]
    pub fn devices(mut self, devices: u32) -> Self {
        self.devices = devices.min(MOST_DEVICES);
        self
    }

    /// When queued work runs; [`Session::set_mode`](crate::Session::set_mode) changes it later.
    #[must_use]
    pub fn mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// Queued work runs on threads, by the schedule of this seed: [`Mode::Threaded`].
    #[must_use]
    pub fn threaded(self, seed: u64) -> Self {
        self.mode(Mode::Threaded { seed })
    }

    /// Bytes of memory per device, at most 512 GiB. The host's memory is used only for pages that
    /// are touched.
    #[must_use]
    pub fn memory(mut self, bytes: usize) -> Self {
        self.memory = bytes.min(MOST_MEMORY);
        self
    }

    /// Number of freed device blocks whose addresses are not reused; older ones are reused at once,
    /// newest first.
    #[must_use]
    pub fn quarantine(mut self, blocks: usize) -> Self {
        self.quarantine = blocks;
        self
    }

    /// How often in lazy mode a query answers "not ready" before it makes progress.
    #[must_use]
    pub fn polls(mut self, polls: u32) -> Self {
        self.polls = polls;
        self
    }

    /// Takes peer access from `device` to `peer` away (one direction).
    #[must_use]
    pub fn without_peer_access(mut self, device: u32, peer: u32) -> Self {
        self.unreachable.push((device, peer));
        self
    }

    /// Symbols that this driver lacks, like an older driver.
    #[must_use]
    pub fn missing(mut self, symbols: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.missing.extend(symbols.into_iter().map(Into::into));
        self
    }

    /// Devices without stream-ordered allocation.
    #[must_use]
    pub fn without_memory_pools(mut self) -> Self {
        self.memory_pools = false;
        self
    }

    /// Devices with streams that write and wait for values of 32 bits only, and know no
    /// `CU_STREAM_WAIT_VALUE_NOR`.
    #[must_use]
    pub fn without_wide_values(mut self) -> Self {
        self.wide_values = false;
        self
    }
}
