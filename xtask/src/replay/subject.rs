//! The allocators that a log can be run against, and the memory that each takes from its devices.

use clap::ValueEnum;
use cuda_core::{Allocator, CachingPool, Device};

/// An allocator to run a log against.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Subject {
    /// The caching pool of the process.
    Cache,
    /// A caching pool of its own.
    Private,
    /// The driver's pool: cuMemAllocAsync.
    Driver,
    /// A driver call for each block: cuMemAlloc.
    Plain,
}

impl Subject {
    pub(crate) fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

/// An allocator, and the memory that it takes from its devices.
pub(crate) struct Meter {
    subject: Subject,
    /// Set if the allocator is a caching pool.
    pub(crate) pool: Option<CachingPool>,
    devices: Vec<Device>,
    /// The number of bytes that were free at the start.
    free: u64,
}

impl Meter {
    /// Begins to measure the memory taken from the devices.
    pub(crate) fn new(subject: Subject, devices: Vec<Device>) -> anyhow::Result<Self> {
        let pool = match subject {
            Subject::Cache => Some(CachingPool::shared()?),
            Subject::Private => Some(CachingPool::new()),
            Subject::Driver | Subject::Plain => None,
        };
        for device in devices.iter().filter(|_| subject == Subject::Driver) {
            let pool = device.default_memory_pool()?;
            pool.trim(0)?;
            pool.reset_peaks()?;
        }
        let free = free(&devices)?;
        Ok(Self { subject, pool, devices, free })
    }

    pub(crate) fn allocator(&self) -> Allocator {
        match (&self.pool, self.subject) {
            (Some(pool), _) => pool.allocator(),
            (None, Subject::Driver) => Allocator::driver_pool(),
            (None, _) => Allocator::plain(),
        }
    }

    /// Returns the bytes taken since the start, as the devices report them, for allocators without a counter.
    pub(crate) fn at_peak(&self) -> anyhow::Result<u64> {
        Ok(self.free.saturating_sub(free(&self.devices)?))
    }

    /// Returns the peak of reserved memory, from the allocator's own counter if it has one.
    pub(crate) fn reserved(&self, taken: u64) -> anyhow::Result<u64> {
        let peak = |device: &Device| match &self.pool {
            Some(pool) => Ok(pool.usage(*device).reserved_peak as u64),
            None => Ok(device.default_memory_pool()?.usage()?.reserved_peak as u64),
        };
        match self.subject {
            Subject::Plain => Ok(taken),
            _ => self.devices.iter().map(peak).sum(),
        }
    }
}

fn free(devices: &[Device]) -> anyhow::Result<u64> {
    let each = devices.iter().map(|device| Ok(device.context()?.memory_info()?.free as u64));
    each.sum()
}
