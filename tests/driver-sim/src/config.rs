//! What the simulated machine looks like, and when its queued work runs.

use cuda_sys::CUresult;

use crate::fault::Fault;

/// When queued work runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// As late as CUDA permits: only what a synchronising call needs, dependencies included.
    #[default]
    Lazy,
    /// At enqueue, as soon as its dependencies allow.
    Eager,
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
    pub(crate) faults: Vec<Fault>,
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
            faults: Vec::new(),
        }
    }
}

impl Config {
    /// Number of devices, at most 64.
    #[must_use]
    pub fn devices(mut self, devices: u32) -> Self {
        self.devices = devices.min(64);
        self
    }

    /// When queued work runs; [`Session::set_mode`](crate::Session::set_mode) changes it later.
    #[must_use]
    pub fn mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// Bytes of memory a device has. Host memory is used only for pages that are touched.
    #[must_use]
    pub fn memory(mut self, bytes: usize) -> Self {
        self.memory = bytes.min(1 << 39);
        self
    }

    /// Number of freed device blocks whose addresses stay unused; older ones are handed out again
    /// at once, newest first.
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

    /// Symbols that this driver lacks, as an older driver would.
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

    /// The configuration that the environment describes; what it does not name stays at the
    /// default. See the crate's documentation for the variables.
    #[must_use]
    pub fn from_env() -> Self {
        let mut config = Self::default();
        let read = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        if let Some(devices) = read("CUDA_SIM_DEVICES").and_then(|v| v.parse().ok()) {
            config = config.devices(devices);
        }
        match read("CUDA_SIM_MODE").as_deref() {
            Some("eager") => config.mode = Mode::Eager,
            Some("lazy") | None => {}
            Some(other) => eprintln!("cuda-driver-sim: CUDA_SIM_MODE={other}: not lazy or eager"),
        }
        if let Some(bytes) = read("CUDA_SIM_MEMORY").and_then(|v| parse_bytes(&v)) {
            config = config.memory(bytes);
        }
        if let Some(symbols) = read("CUDA_SIM_MISSING") {
            config = config.missing(symbols.split(','));
        }
        if let Some(list) = read("CUDA_SIM_FAULT") {
            for fault in list.split(',') {
                match parse_fault(fault) {
                    Some(fault) => config.faults.push(fault),
                    None => {
                        eprintln!("cuda-driver-sim: CUDA_SIM_FAULT={fault}: not FUNCTION:NTH:CODE")
                    }
                }
            }
        }
        if let Some(list) = read("CUDA_VISIBLE_DEVICES") {
            config.devices = visible(&list, config.devices);
        }
        config
    }
}

/// As CUDA counts: ordinals up to the first that is not a device.
fn visible(list: &str, devices: u32) -> u32 {
    let named = list
        .split(',')
        .map_while(|entry| entry.trim().parse::<u32>().ok().filter(|&n| n < devices));
    named.count() as u32
}

/// `123`, `64MiB`, `2GiB`.
fn parse_bytes(text: &str) -> Option<usize> {
    let digits = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let number: usize = text[..digits].parse().ok()?;
    let shift = match text[digits..].trim() {
        "" | "B" => 0,
        "K" | "KiB" => 10,
        "M" | "MiB" => 20,
        "G" | "GiB" => 30,
        _ => return None,
    };
    number.checked_mul(1 << shift)
}

/// `cuMemAllocAsync:3:2`: the third call returns code 2. `*` stands for any function, a `+` behind
/// the number for "from then on".
fn parse_fault(text: &str) -> Option<Fault> {
    let mut parts = text.split(':');
    let function = parts.next()?;
    let nth = parts.next()?;
    let code = CUresult(parts.next()?.parse().ok()?);
    let mut fault = Fault::new(code).nth(nth.trim_end_matches('+').parse().ok()?);
    if function != "*" {
        fault = fault.function(function);
    }
    if nth.ends_with('+') {
        fault = fault.from_then_on();
    }
    parts.next().is_none().then_some(fault)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(parse_bytes("12"), Some(12));
        assert_eq!(parse_bytes("3MiB"), Some(3 << 20));
        assert_eq!(parse_bytes("3 parsecs"), None);
    }

    #[test]
    fn faults() {
        assert!(parse_fault("cuMemAllocAsync:3:2").is_some());
        assert!(parse_fault("*:1+:700").is_some());
        assert!(parse_fault("cuMemAllocAsync:2").is_none());
    }

    #[test]
    fn visible_devices() {
        assert_eq!(visible("0,2", 4), 2);
        assert_eq!(visible("0,9,1", 4), 1);
        assert_eq!(visible("-1", 4), 0);
    }
}
