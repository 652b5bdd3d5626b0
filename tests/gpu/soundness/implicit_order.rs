//! The legacy stream and blocking streams, which CUDA orders implicitly: S52.

use cuda_core::adaptors::Statistics;
use cuda_core::{
    Allocator, CachingPool, Context, ContextFlags, DeviceBuffer, Event, EventFlags, PinnedBuffer,
    Result, Signal, Stream, WaitValue,
};
use support::{blocks, gpu_test, one_stream};

use super::{LEN, device, pinned};

/// Creates a context in which no stream was stalled before: a stalled stream makes others record checkpoints,
/// which would hide a missing checkpoint.
fn fresh() -> Result<Context> {
    Context::new(device()?, ContextFlags::default())
}

/// Creates the legacy stream, and two blocking ones.
fn set(context: &Context) -> Result<[Stream; 3]> {
    let blocking = || context.stream_builder().blocking().build();
    Ok([context.default_stream()?, blocking()?, blocking()?])
}

/// Memory of both ends of a copy, without pending work.
struct Copy {
    host: PinnedBuffer<u32>,
    device: DeviceBuffer<u32>,
}

impl Copy {
    fn new(stream: &Stream) -> Result<Self> {
        let device = stream.alloc_zeroed(LEN)?;
        stream.synchronize()?;
        let host = pinned(7, LEN)?;
        Ok(Self { host, device })
    }

    fn enqueue(&mut self, stream: &Stream) -> Result<()> {
        stream.upload(&self.host, &mut self.device)
    }

    /// Waits only for the copy; a wait for more would never end.
    fn wait(&mut self) -> Result<()> {
        self.host.as_mut_slice()?.fill(9);
        Ok(())
    }
}

gpu_test! {
    needs 1, asynchronous;
    fn s52_a_copy_does_not_wait_for_a_host_function_of_the_set() -> Result<()> {
        for (copies, held) in [(0, 1), (1, 0), (2, 1)] {
            let set = set(&fresh()?)?;
            let (copies, held) = (&set[copies], &set[held]);
            let mut copy = Copy::new(copies)?;
            copy.enqueue(copies)?;
            let release = blocks(held)?;
            copy.wait()?;
            drop(release);
            held.synchronize()?;
        }
        Ok(())
    }
}

gpu_test! {
    needs 1, asynchronous;
    fn s52_a_copy_does_not_wait_for_a_host_function_of_a_per_thread_stream() -> Result<()> {
        let context = device()?.context()?;
        let [legacy, blocking, _] = set(&context)?;
        let per_thread = context.per_thread_stream()?;
        let (mut early, mut late) = (Copy::new(&legacy)?, Copy::new(&blocking)?);
        let mut fills = legacy.alloc::<u32>(LEN)?;
        early.enqueue(&legacy)?;
        let release = blocks(&per_thread)?;
        late.enqueue(&blocking)?;
        legacy.fill(&mut fills, 1)?;
        early.wait()?;
        late.wait()?;
        drop(release);
        per_thread.synchronize()
    }
}

gpu_test! {
    needs 1, asynchronous;
    fn s52_a_copy_does_not_wait_for_a_wait_for_a_signal() -> Result<()> {
        for (copies, held) in [(0, 1), (1, 0)] {
            let set = set(&fresh()?)?;
            let (copies, held) = (&set[copies], &set[held]);
            let signal = Signal::new(&device()?.context()?, 0u32)?;
            let mut copy = Copy::new(copies)?;
            copy.enqueue(copies)?;
            held.wait_signal(&signal, WaitValue::Geq(1))?;
            copy.wait()?;
            signal.set(1);
            held.synchronize()?;
        }
        Ok(())
    }
}

gpu_test! {
    needs 1, asynchronous;
    fn s52_a_copy_does_not_wait_for_what_a_stream_of_the_set_waits_for() -> Result<()> {
        for (copies, held) in [(0, 1), (1, 0), (2, 1)] {
            let context = fresh()?;
            let (set, outside) = (set(&context)?, context.create_stream()?);
            let (copies, held) = (&set[copies], &set[held]);
            let (mut copy, mut late) = (Copy::new(copies)?, Copy::new(&outside)?);
            let release = blocks(&outside)?;
            late.enqueue(&outside)?;
            copy.enqueue(copies)?;
            held.wait_stream(&outside)?;
            copy.wait()?;
            drop(release);
            late.wait()?;
            held.synchronize()?;
        }
        Ok(())
    }
}

gpu_test! {
    needs 1, asynchronous;
    fn s52_a_copy_does_not_wait_for_stalled_work_of_the_legacy_stream() -> Result<()> {
        let context = device()?.context()?;
        let [legacy, held, copies] = set(&context)?;
        let mut fills = legacy.alloc::<u32>(LEN)?;
        let event = Event::new(&context, EventFlags::DISABLE_TIMING)?;
        legacy.synchronize()?;
        for by_event in [false, true] {
            let (mut copy, mut second) = (Copy::new(&copies)?, Copy::new(&copies)?);
            let release = blocks(&held)?;
            // The copy runs beside the host function, and before the legacy stream's later work.
            copy.enqueue(&copies)?;
            if by_event {
                event.record(&legacy)?;
            } else {
                legacy.fill(&mut fills, 1)?;
            }
            copy.wait()?;
            drop(release);
            held.synchronize()?;
            // The implicit order has no further effect.
            second.enqueue(&copies)?;
            legacy.fill(&mut fills, 2)?;
            second.wait()?;
        }
        legacy.synchronize()
    }
}

gpu_test! {
    needs 1, asynchronous;
    fn s52_a_stream_outside_the_set_sees_that_the_set_is_held_up() -> Result<()> {
        let context = device()?.context()?;
        let [legacy, held, idle] = set(&context)?;
        let outside = context.create_stream()?;
        let event = Event::new(&context, EventFlags::DISABLE_TIMING)?;
        let mut shared = legacy.alloc::<u32>(LEN)?;
        for round in 0..3 {
            let mut copy = Copy::new(&outside)?;
            copy.enqueue(&outside)?;
            let release = blocks(&held)?;
            match round {
                // The program did not request this wait: it comes from the ledger.
                0 => {
                    legacy.fill(&mut shared, 1)?;
                    outside.fill(&mut shared, 2)?;
                }
                1 => {
                    legacy.fill(&mut shared, 1)?;
                    event.record(&idle)?;
                    outside.wait_event(&event)?;
                }
                _ => {
                    event.record(&legacy)?;
                    outside.wait_event(&event)?;
                }
            }
            copy.wait()?;
            drop(release);
            outside.synchronize()?;
        }
        context.synchronize()
    }
}

gpu_test! {
    needs 1, asynchronous;
    fn s52_a_point_of_the_legacy_stream_without_work_is_held_up() -> Result<()> {
        for is_adapted in [true, false] {
            let context = fresh()?;
            let [legacy, held, _] = set(&context)?;
            let outside = context.create_stream()?;
            let mut copy = Copy::new(&outside)?;
            copy.enqueue(&outside)?;
            let release = blocks(&held)?;
            // Memory that was free at a point which is counted, but at which nothing is enqueued.
            let mut memory = match is_adapted {
                true => {
                    let pool = Allocator::new(Statistics::new(CachingPool::new()));
                    legacy.alloc_with::<u32>(&pool, LEN)?
                }
                false => {
                    let cache = Allocator::cache();
                    let before = legacy.alloc_with::<u32>(&cache, LEN)?;
                    drop(legacy.ready());
                    drop(before);
                    legacy.alloc_with(&cache, LEN)?
                }
            };
            outside.fill(&mut memory, 2)?;
            copy.wait()?;
            drop(release);
            context.synchronize()?;
        }
        Ok(())
    }
}

gpu_test! {
    needs 1, asynchronous;
    fn s52_a_host_function_of_a_handle_that_is_gone_is_not_forgotten() -> Result<()> {
        let (context, outside) = one_stream()?;
        for made_later in [false, true] {
            let mut copy = Copy::new(&outside)?;
            copy.enqueue(&outside)?;
            let release = blocks(&context.default_stream()?)?;
            if made_later {
                let blocking = context.stream_builder().blocking().build()?;
                let event = Event::new(&context, EventFlags::DISABLE_TIMING)?;
                event.record(&blocking)?;
                outside.wait_event(&event)?;
            } else {
                outside.wait_stream(&context.default_stream()?)?;
            }
            copy.wait()?;
            drop(release);
            outside.synchronize()?;
        }
        context.synchronize()
    }
}
