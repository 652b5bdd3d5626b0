//! Thousands of created and dropped objects leave nothing behind.

use std::sync::Arc;

use cuda_core::dlpack::{Consumer, ImportedTensor, Tensor};
use cuda_core::nccl::{CommunicatorOptions, Ranks, Reduction};
use cuda_core::virtual_memory::VirtualBuffer;
use cuda_core::{Context, Device, DeviceBuffer, Result, Stream};
use support::{Driver, gpu_test, two_streams};

/// Elements of the memory of one round, of four bytes each. A leak in one of ten rounds would exceed what the
/// driver of a device may keep.
const LEN: usize = 32 << 10;

/// Resources in use once no work is pending.
#[derive(Debug)]
pub(crate) struct InUse {
    /// Bytes of the devices.
    pub(crate) device: usize,
    /// Bytes of the process.
    pub(crate) host: usize,
    /// Open files of the process.
    pub(crate) files: usize,
}

impl InUse {
    fn now(contexts: &[Context]) -> Result<InUse> {
        // Twice: memory that is freed once other work has completed may be freed in stream order.
        for _ in 0..2 {
            cuda_core::synchronize_and_trim()?;
            cuda_core::drops::flush();
        }
        let device = contexts.iter().map(|context| {
            let device = context.device();
            if device.attributes().memory_pools_supported()? {
                // The pool keeps as much as was once in use.
                device.default_memory_pool()?.trim(0)?;
            }
            let memory = device.memory_info()?;
            Ok(memory.total - memory.free)
        });
        let (host, files) = of_process();
        Ok(InUse { device: device.sum::<Result<usize>>()?, host, files })
    }

    fn more_than(&self, before: &InUse) -> InUse {
        InUse {
            device: self.device.saturating_sub(before.device),
            host: self.host.saturating_sub(before.host),
            files: self.files.saturating_sub(before.files),
        }
    }

    fn is_within(&self, most: &InUse) -> bool {
        self.device <= most.device && self.host <= most.host && self.files <= most.files
    }
}

/// Returns the resident bytes of this process, and its open files; zero if the system does not report them.
pub(crate) fn of_process() -> (usize, usize) {
    if cfg!(any(miri, not(target_os = "linux"))) {
        return (0, 0);
    }
    let text = std::fs::read_to_string("/proc/self/statm").expect("Linux has it");
    let pages = text.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok());
    let files = std::fs::read_dir("/proc/self/fd").expect("Linux has it").count();
    (pages.expect("a number of pages") * 4096, files)
}

/// Runs `work` until it leaves no more than `most` in use, three times at most. A leak shows each time,
/// unlike memory that the process's allocator happens to take from the system. Returns how often it ran.
pub(crate) fn assert_flat(
    contexts: &[Context],
    most: &InUse,
    mut work: impl FnMut() -> Result<()>,
) -> Result<u32> {
    let mut left = Vec::new();
    while left.len() < 3 {
        let before = InUse::now(contexts)?;
        work()?;
        left.push(InUse::now(contexts)?.more_than(&before));
        if left.iter().any(|left| left.is_within(most)) {
            return Ok(left.len() as u32);
        }
    }
    panic!("more in use than {most:?} after each time: {left:?}");
}

/// Runs `round` a hundred times, then `count` times; the latter must leave no more in use.
fn repeat(
    contexts: &[Context],
    count: u32,
    mut round: impl FnMut(u32) -> Result<()>,
) -> Result<()> {
    // The driver of a device may keep some memory, and its pools keep what was once in use.
    let (device, files, count) = match Driver::selected() {
        // It lists each remaining object, so that fewer rounds show as much.
        Driver::Simulated { .. } => (64 << 10, 0, count.min(500)),
        Driver::Loaded => (64 << 20, 8, count),
    };
    (0..count.min(100)).try_for_each(&mut round)?;
    let most = InUse { device, host: usize::MAX, files };
    assert_flat(contexts, &most, || (0..count).try_for_each(&mut round))?;
    Ok(())
}

gpu_test! {
    needs 1, heavy;
    fn e_ten_thousand_tensors_leave_memory_flat() -> Result<()> {
        let (context, stream, other) = two_streams()?;
        let kept = Arc::new(stream.alloc_zeroed::<f32>(1000)?);
        let ones = vec![1.0f32; LEN];
        repeat(&[context], 10_000, |round| {
            let consumer = match round % 3 {
                0 => Consumer::Stream(stream.clone()),
                1 => Consumer::PerThread,
                _ => Consumer::Synchronized,
            };
            let shared = Tensor::shared(&kept, &[10, 100], None)?.into_raw(&consumer)?;
            // SAFETY: the tensor is live.
            let deleter = unsafe { (*shared.as_ptr()).deleter }.expect("a deleter");
            // SAFETY: called once, and the tensor is not used after.
            unsafe { deleter(shared.as_ptr()) };
            let buffer = stream.upload_new(&ones)?;
            let owned = Tensor::new(buffer, &[LEN], None)?.into_raw(&Consumer::Stream(other.clone()))?;
            // SAFETY: the tensor is live, and is ordered after its work on this stream.
            let taken = unsafe { ImportedTensor::from_raw(owned.as_ptr(), &other) }?;
            let mut back = taken.into_buffer::<f32>()?;
            other.fill(&mut back, 2.0)
        })?;
        assert_eq!(Arc::strong_count(&kept), 1, "each deleter was called");
        Ok(())
    }
}

fn buffers(streams: &[Stream], len: usize) -> Result<Vec<DeviceBuffer<u32>>> {
    streams.iter().map(|stream| stream.alloc_zeroed(len)).collect()
}

fn pair() -> Result<(Vec<Context>, Vec<Stream>)> {
    let contexts = Device::contexts([Device::get(0)?, Device::get(1)?])?;
    let streams = contexts.iter().map(Context::create_stream).collect::<Result<_>>()?;
    Ok((contexts, streams))
}

gpu_test! {
    needs 2, nccl, heavy;
    fn k_nccl_ten_thousand_operations_leave_memory_flat() -> Result<()> {
        let (contexts, streams) = pair()?;
        let ranks = Ranks::init_all(&contexts)?;
        let mut sums = buffers(&streams, LEN)?;
        repeat(&contexts, 10_000, |round| {
            // Memory that is dropped while it is in use.
            let sources = buffers(&streams, LEN)?;
            ranks.on(&streams)?.all_reduce(&sources, &mut sums, Reduction::Sum)?;
            let scaled = Reduction::ScaledSum(2);
            ranks.on(&streams)?.all_reduce_in_place(&mut sums, scaled)?;
            match round % 100 {
                0 => ranks.wait(&streams),
                _ => Ok(()),
            }
        })?;
        ranks.finalize()
    }
}

gpu_test! {
    needs 2, nccl, heavy;
    fn k_nccl_many_communicators_and_registrations_leave_memory_flat() -> Result<()> {
        let (contexts, streams) = pair()?;
        let (rounds, len) = match Driver::selected() {
            Driver::Simulated { .. } => (30, 1 << 19),
            // Each communicator joins and connects in a third of a second; a leak of one would show.
            Driver::Loaded => (20, 20 << 20),
        };
        repeat(&contexts, rounds, |round| {
            let options = CommunicatorOptions::new().blocking(round % 2 == 0);
            let ranks = Ranks::init_all_with(&contexts, &options)?;
            let mut sums = Vec::new();
            for context in &contexts {
                let mut memory = VirtualBuffer::<u32>::new(context, len)?;
                memory.grow_to(len)?;
                sums.push(ranks.register(memory)?);
            }
            for (stream, sum) in streams.iter().zip(&mut sums) {
                stream.fill(sum, 1)?;
            }
            ranks.on(&streams)?.all_reduce_in_place(&mut sums, Reduction::Sum)?;
            match round % 3 {
                0 => ranks.finalize(),
                1 => ranks.abort(),
                // The ranks are dropped while their work runs.
                _ => Ok(()),
            }
        })
    }
}
