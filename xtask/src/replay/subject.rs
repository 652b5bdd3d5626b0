//! The allocators that a log can be run against, and the memory that each takes from its devices.

use cuda_core::{Allocator, CacheSegment, CachingPool, Device};
use serde::Serialize;

/// An allocator to run a log against.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
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
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Cache => "cache",
            Self::Private => "private",
            Self::Driver => "driver",
            Self::Plain => "plain",
        }
    }

    /// Whether it is one of cuda-core's caching pools, which have goals.
    pub(crate) fn caches(self) -> bool {
        matches!(self, Self::Cache | Self::Private)
    }

    /// Begins to measure the memory taken from the devices.
    pub(crate) fn meter(self, devices: Vec<Device>) -> anyhow::Result<Meter> {
        let source = match self {
            Self::Cache => Source::Pool(CachingPool::shared()?),
            Self::Private => Source::Pool(CachingPool::new()),
            Self::Driver => Source::Driver,
            Self::Plain => Source::Plain,
        };
        let mut free = 0;
        for device in &devices {
            if self == Self::Driver {
                let pool = device.default_memory_pool()?;
                pool.trim(0)?;
                pool.reset_peaks()?;
            }
            free += device.context()?.memory_info()?.free as u64;
        }
        Ok(Meter { source, devices, free })
    }
}

/// The source of the memory.
enum Source {
    Pool(CachingPool),
    Driver,
    Plain,
}

/// An allocator, and the memory that it takes from its devices.
pub(crate) struct Meter {
    source: Source,
    devices: Vec<Device>,
    /// Bytes that were free at the start.
    free: u64,
}

impl Meter {
    pub(crate) fn allocator(&self) -> Allocator {
        match &self.source {
            Source::Pool(pool) => pool.allocator(),
            Source::Driver => Allocator::driver_pool(),
            Source::Plain => Allocator::plain(),
        }
    }

    /// Bytes taken since the start, as the devices report them: for allocators without a counter.
    pub(crate) fn at_peak(&self) -> anyhow::Result<u64> {
        let mut free = 0;
        for device in &self.devices {
            free += device.context()?.memory_info()?.free as u64;
        }
        Ok(self.free.saturating_sub(free))
    }

    /// The segments that a caching pool holds now; other allocators have none.
    pub(crate) fn segments(&self) -> Vec<CacheSegment> {
        let Source::Pool(pool) = &self.source else {
            return Vec::new();
        };
        let segments = self.devices.iter().flat_map(|device| pool.segments(*device));
        segments.collect()
    }

    /// The peak of reserved memory, by the allocator's own counter if it has one.
    pub(crate) fn reserved(&self, taken: u64) -> anyhow::Result<u64> {
        let mut reserved = 0;
        for device in &self.devices {
            reserved += match &self.source {
                Source::Pool(pool) => pool.usage(*device).reserved_peak as u64,
                Source::Driver => device.default_memory_pool()?.usage()?.reserved_peak as u64,
                Source::Plain => return Ok(taken),
            };
        }
        Ok(reserved)
    }
}
