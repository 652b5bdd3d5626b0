//! Programs whose threads run concurrently.
//!
//! Threads share streams, and memory that all of them read. Each has its own parts of one buffer, made by
//! `split_at_mut`, and the memory that it allocates, until another thread takes that over. In whatever order
//! the threads' steps and the device's work run, each thread knows the contents of its memory.

mod act;
mod bank;
mod program;

use std::sync::Barrier;
use std::thread;

use cuda_core::{Context, Device, DeviceBuffer, PinnedBuffer, Stream};
use cuda_sim::Mode;
use proptest::prelude::*;

use super::outcome::{Contents, same};
use super::{prove, run_alone};
use act::{Hands, Worker};
use program::Step;

/// Number of programs: some seconds' worth, and one under Miri.
const CASES: u32 = if cfg!(miri) { 1 } else { 300 };

/// Number of steps of the longest thread.
const LONGEST: usize = if cfg!(miri) { 6 } else { 40 };

const THREADS: usize = 3;

/// Number of elements of a thread's part, and of the memory that all threads read.
const LEN: usize = 16;

type Program = [Vec<Step>; THREADS];

in_each_mode!(check);

fn check(modes: impl Strategy<Value = Mode>) {
    let program = std::array::from_fn::<_, THREADS, _>(|_| program::steps(LONGEST));
    let print = |program: &Program| -> String {
        let steps = |steps: &Vec<Step>| -> String {
            steps.iter().map(|step| format!("    {step:?}\n")).collect()
        };
        program.iter().map(|thread| format!("  thread:\n{}", steps(thread))).collect()
    };
    let run = |mode, program| run_alone(mode, |_session| enact(program));
    prove(CASES, (modes, program), print, run);
}

/// Objects that all threads use.
struct Shared {
    contexts: [Context; 2],
    streams: Vec<Stream>,
    device: (DeviceBuffer<u8>, Contents),
    pinned: (PinnedBuffer<u8>, Contents),
    /// Memory that a thread has given away and no other has taken yet.
    hands: Hands,
}

impl Shared {
    fn new() -> cuda_core::Result<Self> {
        let contexts = [Device::get(0)?.context()?, Device::get(1)?.context()?];
        let bytes: [u8; LEN] = std::array::from_fn(|i| 100 + i as u8);
        let contents: Contents = bytes.into_iter().map(Some).collect();
        let streams = vec![
            contexts[0].create_stream()?,
            contexts[0].create_stream()?,
            contexts[0].stream_builder().blocking().build()?,
            contexts[1].create_stream()?,
        ];
        let mut device = streams[0].alloc(LEN)?;
        streams[0].upload(&bytes, &mut device)?;
        Ok(Self {
            pinned: (PinnedBuffer::from_slice(&contexts[0], &bytes)?, contents.clone()),
            device: (device, contents),
            streams,
            contexts,
            hands: Hands::default(),
        })
    }

    fn context(&self, index: u8) -> &Context {
        &self.contexts[usize::from(index) % self.contexts.len()]
    }
}

/// Runs a program. An error says which memory differs from what its thread expects.
fn enact(program: Program) -> Result<(), String> {
    let message = |error: cuda_core::Error| error.to_string();
    let shared = Shared::new().map_err(message)?;
    let home = &shared.streams[0];
    let mut device = home.alloc_zeroed::<u8>(LEN * THREADS).map_err(message)?;
    let mut pinned =
        PinnedBuffer::<u8>::zeroed(&shared.contexts[0], LEN * THREADS).map_err(message)?;

    let (mut device_rest, mut pinned_rest) = (device.as_view_mut(), pinned.as_view_mut());
    let mut workers = Vec::new();
    for _ in 0..THREADS {
        let (device_part, rest) = device_rest.split_at_mut(LEN).map_err(message)?;
        device_rest = rest;
        let (pinned_part, rest) = pinned_rest.split_at_mut(LEN).map_err(message)?;
        pinned_rest = rest;
        workers.push(Worker::new(&shared, device_part, pinned_part));
    }
    let together = Barrier::new(THREADS);
    let contents = thread::scope(|scope| {
        let work = program.into_iter().zip(workers).map(|(steps, worker)| {
            let together = &together;
            scope.spawn(move || {
                together.wait();
                worker.run(steps)
            })
        });
        let threads: Vec<_> = work.collect();
        // All threads are joined before their results are compared.
        let ends = threads.into_iter().map(|thread| {
            let end = thread.join();
            end.unwrap_or_else(|_| Err("a thread panicked".to_owned()))
        });
        ends.collect::<Vec<_>>()
    });
    for (number, contents) in contents.into_iter().enumerate() {
        let (of_device, of_pinned) = contents?;
        let range = number * LEN..(number + 1) * LEN;
        let mut bytes = [0; LEN];
        let part = device.slice(range.clone()).map_err(message)?;
        home.download(part, &mut bytes).map_err(message)?;
        same(&bytes, &of_device).map_err(|error| format!("device part {number}: {error}"))?;
        let part = pinned.slice(range).map_err(message)?;
        let bytes = part.as_slice().map_err(message)?;
        same(bytes, &of_pinned).map_err(|error| format!("pinned part {number}: {error}"))?;
    }
    Ok(())
}
