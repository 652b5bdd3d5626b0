//! Runs a log against an allocator.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use cuda_core::{Allocator, Device, DeviceBuffer, Stream, with_allocator};

use super::log::{Log, Step};
use crate::refuse;

/// A log, with streams of this process in place of the recorded ones.
pub(crate) struct Player<'a> {
    log: &'a Log,
    streams: Vec<Stream>,
    /// Each block's buffer while it is allocated.
    buffers: Vec<Option<DeviceBuffer<u8>>>,
}

impl<'a> Player<'a> {
    /// Creates a stream for each of the log's, on the same device.
    pub(crate) fn new(log: &'a Log) -> anyhow::Result<Self> {
        let count = Device::count()?;
        let streams = log.streams.iter().map(|stream| {
            let device = stream.device;
            ensure!(device < count, refuse(format!("the log needs device {device}")));
            Ok(Device::get(device)?.create_stream()?)
        });
        Ok(Self {
            log,
            streams: streams.collect::<anyhow::Result<_>>()?,
            buffers: log.blocks.iter().map(|_| None).collect(),
        })
    }

    /// The devices that the log uses, without repeats.
    pub(crate) fn devices(&self) -> Vec<Device> {
        let mut devices: Vec<_> = self.streams.iter().map(Stream::device).collect();
        devices.sort_unstable_by_key(|device| device.ordinal());
        devices.dedup();
        devices
    }

    /// Waits for all work.
    pub(crate) fn wait(&self) -> anyhow::Result<()> {
        self.streams.iter().try_for_each(|stream| Ok(stream.synchronize()?))
    }

    /// Runs the log once and frees what it leaves allocated. Returns the duration. Calls `after` after each
    /// step, with the step's index.
    pub(crate) fn pass(
        &mut self,
        allocator: &Allocator,
        mut after: impl FnMut(usize),
    ) -> anyhow::Result<Duration> {
        let began = Instant::now();
        let played = with_allocator(allocator, || self.play(&mut after));
        let freed = (0..self.buffers.len()).try_for_each(|block| self.free(block));
        let took = began.elapsed();
        played.and(freed).map(|()| took)
    }

    fn play(&mut self, after: &mut impl FnMut(usize)) -> anyhow::Result<()> {
        for (index, step) in self.log.steps.iter().enumerate() {
            match *step {
                Step::Allocate(block) => self.allocate(block),
                Step::Free(block) => self.free(block),
            }
            .with_context(|| format!("operation {index}"))?;
            after(index);
        }
        Ok(())
    }

    fn allocate(&mut self, index: usize) -> anyhow::Result<()> {
        let block = &self.log.blocks[index];
        self.buffers[index] = Some(self.streams[block.stream].alloc(block.bytes)?);
        Ok(())
    }

    fn free(&mut self, index: usize) -> anyhow::Result<()> {
        self.buffers[index].take().map_or(Ok(()), |buffer| Ok(buffer.close()?))
    }
}

#[cfg(test)]
mod tests {
    use std::io::{self, Write};
    use std::sync::{Arc, Mutex};
    use std::thread;

    use cuda_core::CachingPool;
    use cuda_core::adaptors::{Logging, Statistics};

    use super::*;
    use crate::replay::snapshot;
    use crate::svg::Svg;
    use crate::target;

    #[derive(Clone, Default)]
    struct Shared(Arc<Mutex<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("no panic").extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Records streams of two devices, each used by two threads, and addresses that are reused at once.
    fn record(logged: &Allocator) -> anyhow::Result<()> {
        let streams = [Device::get(0)?.create_stream()?, Device::get(1)?.create_stream()?];
        let work = |stream: &Stream, seed: usize| -> cuda_core::Result<()> {
            for round in 0..50 {
                let bytes = |index: usize| 1 + (seed * 37 + round * 11 + index * 101) % 1000;
                let alloc = |index| stream.alloc::<u8>(bytes(index));
                let (first, second) = with_allocator(logged, || (alloc(0), alloc(1)));
                drop((second?, first?));
            }
            Ok(())
        };
        thread::scope(|scope| {
            let (streams, work) = (&streams, &work);
            let threads = (0..4).map(|index| scope.spawn(move || work(&streams[index % 2], index)));
            let threads: Vec<_> = threads.collect();
            threads.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
        })?;
        // This block stays allocated.
        std::mem::forget(with_allocator(logged, || streams[0].alloc::<u8>(5000))?);
        Ok(())
    }

    #[test]
    fn what_threads_log_is_read_and_replayed() -> anyhow::Result<()> {
        let _session = target::tests::simulated();
        let text = Shared::default();
        let logging = Logging::new(Allocator::driver_pool(), text.clone())?;
        record(&Allocator::new(logging))?;
        let text = String::from_utf8(text.0.lock().expect("no panic").clone())?;

        let log = Log::parse(&text)?;
        assert_eq!((log.blocks.len(), log.steps.len()), (401, 801));
        assert_eq!((log.streams.len(), log.orphans), (2, 0));
        let statistics = Arc::new(Statistics::new(Allocator::driver_pool()));
        let allocator = Allocator::new(Arc::clone(&statistics));
        let mut player = Player::new(&log)?;
        let mut steps = 0;
        player.pass(&allocator, |_| steps += 1)?;
        let counters = statistics.counters();
        assert_eq!((steps, counters.blocks.total, counters.blocks.value), (801, 401, 0));
        assert_eq!(counters.bytes.peak as u64, log.peak().1);
        assert_eq!(player.devices().len(), 2);

        // A picture shows which parts of a segment are in use.
        let pool = CachingPool::new();
        // The stream's device depends on which thread ran first.
        let stream = &player.streams[0];
        let held = stream.alloc_with::<u8>(&pool.allocator(), 1 << 20)?;
        let mut svg = Svg::default();
        let segments = snapshot::segments(&pool)?;
        snapshot::draw(&mut svg, "segments", &segments, 0.0);
        let svg = svg.page(900.0, 900.0, "a test");
        drop(held);
        for part in ["segments: 1, 2 MiB", "1 MiB of 2 MiB, in use", "1 MiB of 2 MiB, free"] {
            assert!(svg.contains(part), "{part}: {svg}");
        }
        Ok(())
    }
}
