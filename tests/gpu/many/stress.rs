//! Sixteen threads on all devices for `CUDA_TESTS_STRESS` seconds (default 1). For a minute:
//! `CUDA_TESTS_STRESS=60 CUDA_TESTS_WATCHDOG=120`.

use std::env;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use cuda_core::{CachingPool, Device, DeviceGroup, PinnedBuffer, Result, Stream};
use support::{Driver, gpu_test, report};

use crate::flat;
use crate::forms::{same, varied};

const THREADS: u64 = 16;

/// The size of the largest buffer, in bytes.
const MOST: usize = 300_000;

/// Memory that a device or the host may have lost at the end. The driver keeps some for streams and events,
/// and the host's allocator keeps pages; a leak of one buffer in a hundred rounds is far larger.
const SLACK: usize = 64 << 20;

gpu_test! {
    needs 1, heavy;
    fn n10_sixteen_threads_on_all_devices() -> Result<()> {
        let seconds = env::var("CUDA_TESTS_STRESS").map_or(Ok(1.0), |text| text.parse());
        let all = Duration::from_secs_f64(seconds.expect("CUDA_TESTS_STRESS is a number of seconds"));
        let shared = DeviceGroup::all()?;
        let (early, late) = (all / 10, all);
        let met = Barrier::new(THREADS as usize + 1);
        let begun = Instant::now();
        let (before, rounds) = thread::scope(|scope| {
            let (shared, met) = (&shared, &met);
            let workers: Vec<_> = (0..THREADS)
                .map(|thread| {
                    scope.spawn(move || -> Result<u64> {
                        let mut rounds = Rounds::new(thread, shared)?;
                        let mut result = rounds.until(begun + early);
                        met.wait();
                        // No thread works while memory is counted.
                        met.wait();
                        if result.is_ok() {
                            result = rounds.until(begun + late);
                        }
                        result.map(|()| rounds.count)
                    })
                })
                .collect();
            met.wait();
            let before = in_use();
            met.wait();
            let mut rounds = 0;
            for worker in workers {
                rounds += worker.join().expect("no panic")?;
            }
            Ok::<_, cuda_core::Error>((before?, rounds))
        })?;
        drop(shared);
        let after = in_use()?;
        let mut summary = format!("{rounds} rounds of {THREADS} threads in {:?}", begun.elapsed());
        for (index, (before, after)) in before.into_iter().zip(after).enumerate() {
            let grown = after.saturating_sub(before);
            let place = if index == 0 { "the host".into() } else { format!("device {}", index - 1) };
            summary += &format!("; {place}: {before} bytes in use early on, {after} in the end");
            assert!(grown < SLACK, "{place} has {grown} bytes less");
        }
        report!("{summary}");
        Ok(())
    }
}

/// Returns the bytes in use on the host and on each device, after all caches were trimmed.
fn in_use() -> Result<Vec<usize>> {
    for device in Device::all()? {
        device.synchronize()?;
    }
    cuda_core::drops::flush();
    // At first, a pool's query may not report completed work.
    for _ in 0..4 {
        cuda_core::staging::trim()?;
        CachingPool::shared()?.trim(0)?;
        cuda_core::PinnedPool::shared().trim(0)?;
    }
    // Memory of simulated devices belongs to the process.
    let resident = if Driver::selected() == Driver::Loaded { flat::of_process().0 } else { 0 };
    let mut all = vec![resident];
    for device in Device::all()? {
        if let Some(pool) = device.memory_pool()? {
            pool.trim(0)?;
        }
        let memory = device.memory_info()?;
        all.push(memory.total - memory.free);
    }
    Ok(all)
}

/// The operations of one thread, repeated.
struct Rounds<'g> {
    shared: &'g DeviceGroup,
    devices: Vec<Device>,
    seed: u64,
    count: u64,
}

impl<'g> Rounds<'g> {
    fn new(thread: u64, shared: &'g DeviceGroup) -> Result<Self> {
        Ok(Self { shared, devices: Device::all()?.collect(), seed: thread << 32, count: 0 })
    }

    fn until(&mut self, end: Instant) -> Result<()> {
        // At least one operation of each kind.
        for kind in 0..Self::KINDS {
            self.round(kind)?;
        }
        while Instant::now() < end {
            let kind = self.random(Self::KINDS);
            self.round(kind)?;
        }
        Ok(())
    }

    /// SplitMix64.
    fn random(&mut self, below: usize) -> usize {
        self.seed = self.seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut x = self.seed;
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((x ^ (x >> 31)) % below as u64) as usize
    }

    fn device(&mut self) -> Device {
        let index = self.random(self.devices.len());
        self.devices[index]
    }

    fn stream(&mut self) -> Result<Stream> {
        self.device().create_stream()
    }

    const KINDS: usize = 6;

    fn round(&mut self, kind: usize) -> Result<()> {
        self.count += 1;
        let len = self.random(MOST) + 1;
        let bytes = varied(self.seed, len);
        let what = format!("kind {kind}, {len} bytes");
        let shared = self.shared;
        match kind {
            0 => {
                let (here, there) = (self.stream()?, self.stream()?);
                let mut source = here.alloc::<u8>(len)?;
                here.upload(&bytes, &mut source)?;
                let mut target = there.alloc::<u8>(len)?;
                there.copy(&source, &mut target)?;
                drop((source, here));
                let mut back = vec![0; len];
                there.download(&target, &mut back)?;
                same(&back, &bytes, &what);
            }
            1 => {
                let stream = self.stream()?;
                let mut host = PinnedBuffer::from_slice(stream.context(), &bytes)?;
                let mut buffer = stream.alloc::<u8>(len)?;
                stream.upload(&host, &mut buffer)?;
                host.as_mut_slice()?.fill(0);
                let other = buffer.device().create_stream()?;
                other.download(&buffer, &mut host)?;
                drop((buffer, stream, other));
                same(host.as_slice()?, &bytes, &what);
            }
            2 => {
                let mut copies = shared.alloc::<u8>(len)?;
                shared.upload_all(&bytes, &mut copies)?;
                let mut next = shared.alloc::<u8>(len)?;
                shared.rotate(&copies, &mut next, 1)?;
                let mut back = vec![0; len * shared.len()];
                shared.gather(&next, &mut back)?;
                back.chunks(len).for_each(|found| same(found, &bytes, &what));
            }
            3 => {
                // A random group, with some devices twice.
                let members: Vec<Device> = (0..self.random(3) + 1).map(|_| self.device()).collect();
                let group = DeviceGroup::new(members)?;
                let mut shares = group.alloc_shares::<u8>(len)?;
                group.scatter(&bytes, &mut shares)?;
                let home = self.stream()?;
                let mut whole = home.alloc::<u8>(len)?;
                group.gather(&shares, &mut whole)?;
                drop((shares, group));
                let mut back = vec![0; len];
                home.download(&whole, &mut back)?;
                same(&back, &bytes, &what);
            }
            4 => {
                let root = self.random(shared.len());
                let mut buffers = shared.alloc::<u8>(len)?;
                shared.streams()[root].upload(&bytes, &mut buffers[root])?;
                shared.broadcast_in_place(&mut buffers, root)?;
                let last = self.random(shared.len());
                let mut back = vec![0; len];
                shared.streams()[last].download(&buffers[last], &mut back)?;
                same(&back, &bytes, &what);
            }
            _ => {
                // The buffers are dropped while their work is in progress.
                let (here, there) = (self.stream()?, self.stream()?);
                let mut source = here.alloc_zeroed::<u8>(len)?;
                let mut target = there.alloc_zeroed::<u8>(len)?;
                for _ in 0..8 {
                    here.copy(&source, &mut target)?;
                    there.copy(&target, &mut source)?;
                }
            }
        }
        Ok(())
    }
}
