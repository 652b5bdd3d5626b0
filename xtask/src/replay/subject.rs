//! The allocators that a log can be run against, and what each takes from its devices.

use cuda_core::{Allocator, CacheSegment, CachingPool, Device};

/// An allocator to run a log against.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Subject {
    /// The caching pool.
    Cache,
    /// The driver's pool: cuMemAllocAsync.
    Driver,
    /// A call of the driver for each block: cuMemAlloc.
    Plain,
}

impl Subject {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Cache => "cache",
            Self::Driver => "driver",
            Self::Plain => "plain",
        }
    }

    pub(crate) fn make(self) -> anyhow::Result<Allocator> {
        Ok(match self {
            Self::Cache => CachingPool::shared()?.allocator(),
            Self::Driver => Allocator::driver_pool(),
            Self::Plain => Allocator::plain(),
        })
    }

    /// Begins to watch what is taken from the devices.
    pub(crate) fn meter(self, devices: Vec<Device>) -> anyhow::Result<Meter> {
        let mut free = 0;
        for device in &devices {
            if self == Self::Driver {
                let pool = device.default_memory_pool()?;
                pool.trim(0)?;
                pool.reset_peaks()?;
            }
            free += device.context()?.memory_info()?.free as u64;
        }
        Ok(Meter {
            subject: self,
            devices,
            free,
        })
    }
}

/// What an allocator takes from its devices.
pub(crate) struct Meter {
    subject: Subject,
    devices: Vec<Device>,
    /// Bytes free when it began.
    free: u64,
}

impl Meter {
    /// Bytes taken since the beginning, as the devices see it: for allocators that keep no count.
    pub(crate) fn at_peak(&self) -> anyhow::Result<u64> {
        let mut free = 0;
        for device in &self.devices {
            free += device.context()?.memory_info()?.free as u64;
        }
        Ok(self.free.saturating_sub(free))
    }

    /// The segments that the caching pool holds now; no other allocator has any to show.
    pub(crate) fn segments(&self) -> anyhow::Result<Vec<CacheSegment>> {
        if self.subject != Subject::Cache {
            return Ok(Vec::new());
        }
        let pool = CachingPool::shared()?;
        let segments = self
            .devices
            .iter()
            .flat_map(|device| pool.segments(*device));
        Ok(segments.collect())
    }

    /// The most that was reserved at once, by the allocator's own count where it keeps one.
    pub(crate) fn reserved(&self, taken: u64) -> anyhow::Result<u64> {
        let mut reserved = 0;
        for device in &self.devices {
            reserved += match self.subject {
                Subject::Cache => CachingPool::shared()?.usage(*device).reserved_peak as u64,
                Subject::Driver => device.default_memory_pool()?.usage()?.reserved_peak as u64,
                Subject::Plain => return Ok(taken),
            };
        }
        Ok(reserved)
    }
}
