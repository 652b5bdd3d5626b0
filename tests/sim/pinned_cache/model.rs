//! Random programs against a model of each buffer's address and bytes.

use cuda_core::{Context, DeviceBuffer, PinnedBuffer, PinnedPool, Result, Stream};
use cuda_sim::Mode;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::{cached, context, finish};

const STREAMS: usize = 3;

/// The size of the largest buffer that a program allocates; the device buffers have the same size.
const LARGEST: usize = 20_000;

#[derive(Debug, Clone)]
enum Step {
    /// Allocates a buffer of that many bytes, all of this value.
    Alloc(usize, u8),
    /// Drops a live buffer, selected by a number that wraps around.
    Drop(usize),
    /// Uploads a live buffer to the device buffer of a stream.
    Upload(usize, usize),
    /// Downloads the device buffer of a stream to a live buffer.
    Download(usize, usize),
    Synchronize(usize),
    Look(usize),
    Trim,
}

fn step() -> impl Strategy<Value = Step> {
    let len = prop_oneof![1..300_usize, 1..LARGEST, Just(256), Just(4096)];
    let stream = 0..STREAMS;
    prop_oneof![
        5 => (len, any::<u8>()).prop_map(|(len, value)| Step::Alloc(len, value)),
        4 => any::<usize>().prop_map(Step::Drop),
        3 => (any::<usize>(), stream.clone()).prop_map(|(at, on)| Step::Upload(at, on)),
        3 => (any::<usize>(), stream.clone()).prop_map(|(at, on)| Step::Download(at, on)),
        1 => stream.prop_map(Step::Synchronize),
        2 => any::<usize>().prop_map(Step::Look),
        1 => Just(Step::Trim),
    ]
}

/// A buffer, its address, and its expected bytes.
struct Held {
    buffer: PinnedBuffer<u8>,
    start: usize,
    bytes: Vec<u8>,
}

struct Lane {
    stream: Stream,
    buffer: DeviceBuffer<u8>,
    bytes: Vec<u8>,
}

struct World {
    context: Context,
    held: Vec<Held>,
    lanes: Vec<Lane>,
}

impl World {
    fn new() -> Result<Self> {
        let context = context()?;
        let lane = |_| {
            let stream = context.create_stream()?;
            let buffer = stream.alloc_zeroed(LARGEST)?;
            let bytes = vec![0; LARGEST];
            Ok(Lane { stream, buffer, bytes })
        };
        Ok(Self {
            lanes: (0..STREAMS).map(lane).collect::<Result<_>>()?,
            held: Vec::new(),
            context,
        })
    }

    fn step(&mut self, step: Step) -> Result<()> {
        let count = self.held.len().max(1);
        match step {
            Step::Alloc(len, value) => {
                let buffer = PinnedBuffer::from_slice(&self.context, &vec![value; len])?;
                let start = buffer.as_slice()?.as_ptr().addr();
                let apart = |held: &Held| {
                    start + len <= held.start || held.start + held.bytes.len() <= start
                };
                assert!(self.held.iter().all(apart), "two buffers have the same bytes");
                let bytes = vec![value; len];
                self.held.push(Held { buffer, start, bytes });
            }
            Step::Drop(at) => {
                if !self.held.is_empty() {
                    self.held.swap_remove(at % count);
                }
            }
            Step::Upload(at, on) => {
                if let Some(held) = self.held.get(at % count) {
                    let lane = &mut self.lanes[on];
                    let len = held.bytes.len();
                    lane.stream.upload(&held.buffer, lane.buffer.slice_mut(..len)?)?;
                    lane.bytes[..len].copy_from_slice(&held.bytes);
                }
            }
            Step::Download(at, on) => {
                if let Some(held) = self.held.get_mut(at % count) {
                    let lane = &self.lanes[on];
                    let len = held.bytes.len();
                    lane.stream.download(lane.buffer.slice(..len)?, &mut held.buffer)?;
                    held.bytes.copy_from_slice(&lane.bytes[..len]);
                }
            }
            Step::Synchronize(on) => self.lanes[on].stream.synchronize()?,
            Step::Look(at) => {
                if let Some(held) = self.held.get(at % count) {
                    assert_eq!(held.buffer.as_slice()?, held.bytes);
                }
            }
            Step::Trim => drop(PinnedPool::shared().trim(0)?),
        }
        self.count()
    }

    fn count(&self) -> Result<()> {
        let usage = PinnedPool::shared().usage()?;
        let used: usize = self.held.iter().map(|held| size(held.bytes.len())).sum();
        assert_eq!(usage.used, used);
        assert_eq!(usage.reserved, usage.used + usage.free + usage.pending, "{usage:?}");
        assert!(usage.used_peak >= usage.used && usage.reserved_peak >= usage.reserved);
        Ok(())
    }

    fn end(self) -> Result<()> {
        for lane in &self.lanes {
            let mut back = vec![0; LARGEST];
            lane.stream.download(&lane.buffer, &mut back)?;
            assert!(back == lane.bytes, "a copy took bytes of another buffer");
        }
        for held in &self.held {
            assert_eq!(held.buffer.as_slice()?, held.bytes);
        }
        Ok(())
    }
}

/// Returns the smallest sufficient multiple of an eighth of the power of two below.
fn size(len: usize) -> usize {
    let mut step = 256;
    while len > 16 * step {
        step *= 2;
    }
    len.next_multiple_of(step)
}

#[test]
#[cfg_attr(miri, ignore = "moves too many bytes")]
fn f03_agrees_with_a_model() {
    let modes = prop_oneof![
        Just(Mode::Lazy),
        Just(Mode::Eager),
        any::<u64>().prop_map(|seed| Mode::Threaded { seed }),
    ];
    let config = crate::property::config(96);
    let programs = (modes, vec(step(), 1..60));
    let outcome = TestRunner::new(config).run(&programs, |(mode, steps)| {
        let session = cached();
        session.set_mode(mode);
        let ran = (|| {
            let mut world = World::new()?;
            steps.into_iter().try_for_each(|step| world.step(step))?;
            world.end()
        })();
        ran.and_then(|()| finish(&session)).map_err(|error| TestCaseError::fail(error.to_string()))
    });
    outcome.unwrap_or_else(|wrong| panic!("{wrong}"));
}
