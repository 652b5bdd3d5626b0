//! S35: a process that forks after the driver was initialised.

use std::future::Future as _;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context as Task, Poll, Waker};
use std::time::Duration;

use cuda_core::nccl::{Communicator, Ranks, Reduction, UniqueId, group};
use cuda_core::virtual_memory::VirtualBuffer;
use cuda_core::{
    Access, Context, ContextFlags, Device, DeviceBuffer, Error, Event, EventFlags, PinnedBuffer,
    Result, Stream, staging::StagingOptions,
};
use support::{gpu_test, in_a_fork, one_stream, pattern};

/// Ends the parent's other threads, even if a child failed.
pub(crate) struct Stop<'a>(pub(crate) &'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Objects that a program holds when it forks.
struct Alive {
    context: Context,
    created: Context,
    stream: Stream,
    event: Event,
    buffer: DeviceBuffer<u8>,
    pinned: PinnedBuffer<u8>,
}

impl Alive {
    fn new() -> Result<Self> {
        let (context, stream) = one_stream()?;
        let pinned = PinnedBuffer::from_slice(&context, &pattern(35, 4096))?;
        let mut buffer = stream.alloc::<u8>(4096)?;
        stream.upload(&pinned, &mut buffer)?;
        let event = Event::new(&context, EventFlags::DEFAULT)?;
        event.record(&stream)?;
        Ok(Self {
            created: Context::new(Device::get(0)?, ContextFlags::default())?,
            context,
            stream,
            event,
            buffer,
            pinned,
        })
    }

    /// Notes a use of the buffer.
    fn noted(&self) -> Result<()> {
        // SAFETY: nothing is enqueued, and no other thread uses this stream.
        unsafe { self.buffer.note_use(&self.stream, Access::Read) }
    }

    /// Polls a future for the buffer, once.
    fn ready(&self) -> Result<()> {
        match pin!(self.buffer.ready()).poll(&mut Task::from_waker(Waker::noop())) {
            Poll::Ready(result) => result,
            Poll::Pending => Ok(()),
        }
    }

    /// The number of the first operation that is not refused as it should be; 0 if there is none.
    fn refused(&mut self) -> u8 {
        let device = self.context.device();
        let answers = [
            Device::get(0).err(),
            Device::count().err(),
            device.name().err(),
            device.uuid().err(),
            device.total_memory().err(),
            device.pci_bus_id().err(),
            device.compute_capability().err(),
            device.context().err(),
            device.enter().err(),
            cuda_core::driver_version().err(),
            Context::current().err(),
            Context::pop().err(),
            self.created.enter().err(),
            self.created.push().err(),
            self.context.synchronize().err(),
            self.context.memory_info().err(),
            self.context.create_stream().err(),
            self.context.default_stream().err(),
            self.context.per_thread_stream().err(),
            self.stream.synchronize().err(),
            self.stream.query().err(),
            self.stream.checkpoint().err(),
            self.stream.alloc::<u8>(1).err(),
            self.stream.upload(&self.pinned, &mut self.buffer).err(),
            self.stream.download(&self.buffer, &mut self.pinned).err(),
            self.stream.upload(&[0; 4096], &mut self.buffer).err(),
            self.stream.download(&self.buffer, &mut [0; 4096]).err(),
            self.stream.fill(&mut self.buffer, 1).err(),
            self.stream.launch_host_func(|| ()).err(),
            self.event.record(&self.stream).err(),
            self.event.query().err(),
            self.event.synchronize().err(),
            self.buffer.synchronize().err(),
            self.noted().err(),
            self.ready().err(),
            device.allocator().err(),
            self.pinned.as_slice().err(),
            self.pinned.as_mut_slice().err(),
            self.pinned.device_ptr().err(),
            PinnedBuffer::<u8>::new(&self.context, 1).err(),
            cuda_core::staging::trim().err(),
            cuda_core::staging::options().err(),
            cuda_core::staging::set_options(StagingOptions::new(0, 4096)).err(),
        ];
        let forked = |answer: &Option<Error>| matches!(answer, Some(Error::Forked));
        let wrong = answers.iter().position(|answer| !forked(answer));
        wrong.map_or(0, |index| index as u8 + 1)
    }

    /// Closes or drops everything; whether every `close` was refused.
    fn close(self) -> bool {
        let refused = |error: Option<Error>| matches!(error, Some(Error::Forked));
        let answers = [
            refused(self.buffer.close().err().map(Error::from)),
            refused(self.pinned.close().err().map(Error::from)),
            refused(self.event.close().err().map(Error::from)),
            refused(self.stream.close().err().map(Error::from)),
        ];
        drop((self.created, self.context));
        answers == [true; 4]
    }
}

gpu_test! {
    needs 1;
    fn s35_fork_is_refused() -> Result<()> {
        let mut alive = Alive::new()?;
        in_a_fork(|| alive.refused());
        // The parent is not affected.
        alive.stream.synchronize()?;
        let mut back = [0; 4096];
        alive.stream.download(&alive.buffer, &mut back)?;
        assert_eq!(back[..], pattern(35, 4096));
        Ok(())
    }
}

gpu_test! {
    needs 1, nccl;
    fn s35_fork_with_a_communicator() -> Result<()> {
        let (context, id) = (Device::get(0)?.context()?, UniqueId::new()?);
        // SAFETY: the only rank.
        let rank = unsafe { Communicator::init_rank(&context, id, 0, 1) }?;
        let stream = context.create_stream()?;
        let mut memory = VirtualBuffer::<u32>::new(&context, 1 << 19)?;
        memory.grow_to(1 << 19)?;
        let mut sum = rank.register(memory)?;
        stream.fill(&mut sum, 7)?;
        let mut held = Some((rank, sum));
        in_a_fork(|| {
            let Some((rank, mut sum)) = held.take() else {
                return 100;
            };
            let on = |sum| rank.on(&stream)?.all_reduce_in_place(sum, Reduction::Sum);
            // SAFETY: nothing is joined.
            let joined = unsafe { Communicator::init_rank(&context, id, 0, 1) };
            let answers = [
                on(sum.as_view_mut()),
                group(|group| group.on(&rank, &stream)?.send(&sum, 0)),
                Ranks::init_all([&context]).map(drop),
                joined.map(drop),
                UniqueId::new().map(drop),
                rank.split(Some(0), 0).map(drop),
                rank.wait(&stream),
                rank.async_error(),
                rank.finalize(),
                rank.abort(),
                sum.close().map_err(Error::from),
            ];
            let wrong = answers.iter().position(|it| !matches!(it, Err(Error::Forked)));
            drop(rank);
            match cuda_core::drops::failures() {
                0 => wrong.map_or(0, |index| index as u8 + 1),
                _ => 101,
            }
        });
        // The parent is not affected.
        let (rank, mut sum) = held.expect("the child took its own");
        rank.on(&stream)?.all_reduce_in_place(&mut sum, Reduction::Sum)?;
        let mut seen = vec![0; 1 << 19];
        stream.download(&sum, &mut seen)?;
        assert_eq!(seen[0], 7);
        rank.wait(&stream)
    }
}

gpu_test! {
    needs 1;
    fn s35_fork_drops_quietly() -> Result<()> {
        // One that the child closes and one that it drops, and a guard.
        let (closed, dropped) = (Alive::new()?, Alive::new()?);
        let guard = closed.created.enter()?;
        let (mut closed, mut dropped, mut guard) = (Some(closed), Some(dropped), Some(guard));
        in_a_fork(|| {
            let closes = closed.take().is_some_and(Alive::close);
            drop((dropped.take(), guard.take()));
            cuda_core::drops::flush();
            match (closes, cuda_core::drops::failures()) {
                (true, 0) => 0,
                (false, _) => 1,
                (true, _) => 2,
            }
        });
        assert!(closed.is_some() && dropped.is_some(), "the parent still has them");
        drop(guard);
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn s35_fork_beside_busy_threads() -> Result<()> {
        // A lock that another thread of the parent held at the fork stays locked in the child.
        let stop = AtomicBool::new(false);
        let work = || {
            while !stop.load(Ordering::Relaxed) {
                let mut alive = Alive::new()?;
                let large = vec![1; 3 << 20];
                let mut buffer = alive.stream.alloc(large.len())?;
                alive.stream.upload(&large, &mut buffer)?;
                alive.stream.upload(&[2; 4096], &mut alive.buffer)?;
                drop(alive.created.enter()?);
                cuda_core::staging::trim()?;
            }
            Ok::<(), Error>(())
        };
        std::thread::scope(|scope| {
            let threads = [scope.spawn(work), scope.spawn(work)];
            let stopped = Stop(&stop);
            let started = std::time::Instant::now();
            while started.elapsed() < Duration::from_secs(2) {
                let mut alive = Some(Alive::new()?);
                in_a_fork(|| {
                    let answer = alive.as_mut().map_or(1, Alive::refused);
                    drop(alive.take());
                    answer
                });
            }
            drop(stopped);
            threads.map(|thread| thread.join().expect("no panic")).into_iter().collect()
        })
    }
}

gpu_test! {
    needs 1;
    fn s35_fork_beside_threads_that_note_uses_of_one_buffer() -> Result<()> {
        const FORKS: u32 = 200;
        let alive = Alive::new()?;
        let stop = AtomicBool::new(false);
        let note = || {
            let stream = alive.context.create_stream()?;
            while !stop.load(Ordering::Relaxed) {
                // SAFETY: nothing is enqueued, and no other thread uses this stream.
                unsafe { alive.buffer.note_use(&stream, Access::Read) }?;
            }
            stream.synchronize()
        };
        std::thread::scope(|scope| {
            let threads = [scope.spawn(note), scope.spawn(note)];
            let stopped = Stop(&stop);
            for _ in 0..FORKS {
                in_a_fork(|| match (alive.noted(), alive.ready()) {
                    (Err(Error::Forked), Err(Error::Forked)) => 0,
                    _ => 1,
                });
            }
            drop(stopped);
            threads.map(|thread| thread.join().expect("no panic")).into_iter().collect()
        })
    }
}
