//! Random programs, run in order, and as graphs of every kind.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use cuda_core::{
    Allocator, Context, Device, DeviceBuffer, Function, Graph, GraphNode, PinnedBuffer, Result,
    Shape, Stream,
};
use support::{gpu_test, kernels, sample};

use super::{add_one, context};

const LEN: usize = 256;
const BUFFERS: usize = 4;
/// Number of elements of a part of the pinned memory. Each part has a number that host functions change.
const PART: usize = 64;

/// The shapes of copies and of fills of rows. No other operation has as many bytes.
const ROWS: Shape = Shape::plane(37, 3).with_pitch(4 * 50);
const FILLED: Shape = Shape::plane(29, 3).with_pitch(4 * 40);

/// A small random generator: a failure can be repeated by its seed.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n
    }
}

/// Number of steps of a program. A seed determines the steps.
const STEPS: usize = 28;

/// One or a few operations, with all their random choices.
struct Step {
    kind: usize,
    /// The stream that it is enqueued on.
    which: usize,
    /// The indices of source and destination among the buffers.
    from: usize,
    to: usize,
    start: usize,
    shift: usize,
    len: usize,
    value: u32,
    /// The part of the pinned memory.
    part: usize,
}

impl Step {
    /// Draws a step. If the streams are of two devices, the step's stream is of its destination's device.
    fn draw(random: &mut Random, devices: usize) -> Self {
        let (from, to) = (random.below(BUFFERS), random.below(BUFFERS));
        let (len, kind) = (1 + random.below(32), random.below(18));
        // Rows and memory of a graph are not copied between devices.
        let is_near = matches!(kind, 11 | 13);
        let from = match from == to || is_near && from % devices != to % devices {
            true => (to + devices) % BUFFERS,
            false => from,
        };
        Self {
            kind,
            which: if devices == 2 { to % 2 } else { random.below(2) },
            from,
            to,
            start: random.below(LEN / 2),
            shift: random.below(LEN - len),
            len,
            value: random.below(1000) as u32,
            part: random.below(LEN / PART),
        }
    }

    fn all(seed: u64, devices: usize) -> impl Iterator<Item = Self> {
        let mut random = Random(seed);
        (0..STEPS).map(move |_| Self::draw(&mut random, devices))
    }
}

/// The objects that a program uses.
struct World {
    /// The number of devices, one or two.
    devices: usize,
    /// One for the context of each stream.
    functions: [Function; 2],
    /// Buffers in the contexts of the streams, alternating.
    buffers: Vec<DeviceBuffer<u32>>,
    host: PinnedBuffer<u32>,
    /// One number for each part of `host`.
    numbers: Arc<[AtomicU32; LEN / PART]>,
    /// Graphs that add one to a buffer.
    children: Vec<Graph>,
    /// The buffer of each fill of rows, in order.
    row_fills: Vec<usize>,
    /// The value that fills of rows write.
    filled: u32,
}

/// Returns two different elements of a slice.
fn two<T>(all: &mut [T], first: usize, second: usize) -> (&mut T, &mut T) {
    let (low, high) = all.split_at_mut(first.max(second));
    match first < second {
        true => (&mut low[first], &mut high[0]),
        false => (&mut high[0], &mut low[second]),
    }
}

impl World {
    fn new(contexts: [&Context; 2], streams: &[Stream; 2]) -> Result<Self> {
        let functions =
            [kernels::get(contexts[0], "add_one")?, kernels::get(contexts[1], "add_one")?];
        let (mut buffers, mut children) = (Vec::new(), Vec::new());
        for at in 0..BUFFERS {
            // Copies of cached memory between devices need no access.
            let mut buffer = streams[at % 2].alloc_with::<u32>(&Allocator::cache(), LEN)?;
            streams[at % 2].fill(&mut buffer, 0)?;
            let child = Graph::capture(contexts[at % 2], |stream| {
                add_one(stream, &functions[at % 2], &mut buffer)
            })?;
            buffers.push(buffer);
            children.push(child);
        }
        Ok(Self {
            devices: if contexts[0] == contexts[1] { 1 } else { 2 },
            functions,
            buffers,
            host: PinnedBuffer::zeroed(contexts[0], LEN)?,
            numbers: Arc::default(),
            children,
            row_fills: Vec::new(),
            filled: 7,
        })
    }

    /// Enqueues a random program on the streams.
    fn program(&mut self, streams: [&Stream; 2], seed: u64) -> Result<()> {
        self.row_fills.clear();
        Step::all(seed, self.devices)
            .try_for_each(|step| self.run(&step, streams[step.which], streams[1 - step.which]))
    }

    fn run(&mut self, step: &Step, stream: &Stream, other: &Stream) -> Result<()> {
        let Step { kind, which, from, to, start, shift, len, value, part } = *step;
        let range = part * PART..(part + 1) * PART;
        let Self { buffers, host, numbers, functions, .. } = self;
        let (function, (source, destination)) = (&functions[which], two(buffers, from, to));
        // `beside` is the other stream, if it can do the same work.
        let beside = if self.devices == 2 { stream } else { other };
        match kind {
            0 | 1 => stream.fill(destination.slice_mut(start..start + len)?, value),
            2 => add_one(stream, function, destination),
            3 | 4 => {
                let source = source.slice(start..start + len)?;
                stream.copy(source, destination.slice_mut(shift..shift + len)?)
            }
            5 => stream.copy_within(destination, 0..8, 16 + start % 40),
            6 => stream.upload(host.slice(range.clone())?, destination.slice_mut(range)?),
            7 => stream.download(destination.slice(range.clone())?, host.slice_mut(range)?),
            8 | 14..=16 => {
                let to = host.slice_mut(range)?;
                let numbers = numbers.clone();
                stream
                    .work()
                    .read(&*destination)
                    .write(to)
                    .launch_host_func_each(move || change(&numbers[part], value))
            }
            // Behind all work on the streams, and before all later work.
            9 => {
                stream.wait_stream(other)?;
                let numbers = numbers.clone();
                stream.launch_host_func_each(move || {
                    numbers.iter().for_each(|number| change(number, 5));
                })?;
                other.wait_stream(stream)
            }
            10 => {
                let mut scratch = stream.alloc_with::<u32>(&Allocator::cache(), LEN)?;
                stream.copy(&*source, &mut scratch)?;
                add_one(beside, function, &mut scratch)?;
                stream.copy(&scratch, destination)
            }
            11 => {
                // Memory of the graph, if there is one, allocated on one stream and freed on the other.
                let mut scratch = match stream.is_capturing()? {
                    true => stream.alloc_in_graph::<u32>(LEN)?,
                    false => stream.alloc::<u32>(LEN)?,
                };
                stream.copy(&*source, &mut scratch)?;
                beside.fill(scratch.slice_mut(..len)?, value)?;
                beside.copy(&scratch, destination)?;
                match stream.is_capturing()? && value % 2 == 0 {
                    true => beside.free_in_graph(scratch),
                    false => Ok(()),
                }
            }
            12 => match stream.is_capturing()? {
                true => self.children[to].include(stream),
                false => self.children[to].instantiate()?.launch(stream),
            },
            13 => stream.copy_pitched(source.pitched(ROWS)?, destination.pitched_mut(ROWS)?),
            _ => {
                self.row_fills.push(to);
                stream.fill_pitched(destination.pitched_mut(FILLED)?, self.filled)
            }
        }
    }

    /// Changes the fills of rows in an executable of the program, so that they write another value.
    fn change_rows(&mut self, graph: &Graph, exec: &mut cuda_core::GraphExec) -> Result<()> {
        let nodes = graph.nodes()?;
        let fills = nodes.iter().filter(|node| node.to_string() == "fill of 348 bytes");
        let fills: Vec<_> = fills.map(GraphNode::id).collect();
        assert_eq!(fills.len(), self.row_fills.len());
        self.filled = 9;
        for (node, to) in fills.into_iter().zip(&self.row_fills) {
            exec.set_fill_pitched(node, self.buffers[*to].pitched_mut(FILLED)?, self.filled)?;
        }
        Ok(())
    }

    /// Returns all that the program has changed.
    fn contents(&self, streams: &[Stream; 2]) -> Result<Vec<Vec<u32>>> {
        let all = self.buffers.iter().zip(streams.iter().cycle());
        let all = all.map(|(buffer, stream)| stream.download_vec(buffer));
        let mut all = all.collect::<Result<Vec<_>>>()?;
        streams.iter().try_for_each(Stream::synchronize)?;
        let numbers = self.numbers.iter().map(|number| number.load(Ordering::SeqCst));
        all.extend([self.host.as_slice()?.to_vec(), numbers.collect()]);
        Ok(all)
    }
}

/// Changes a number so that the result shows the order of changes. This is not one atomic operation: a
/// function that runs concurrently with another loses its value.
fn change(number: &AtomicU32, by: u32) {
    let before = number.load(Ordering::SeqCst);
    number.store(before.wrapping_mul(31).wrapping_add(by + 1), Ordering::SeqCst);
}

/// Captures a program, launches it twice, and compares the results with a plain run.
fn same_as_a_graph(
    contexts: [&Context; 2],
    seed: u64,
    how: &str,
    capture: impl FnOnce(&mut World) -> Result<Graph>,
) -> Result<()> {
    let streams = [contexts[0].create_stream()?, contexts[1].create_stream()?];
    let synchronize = || streams.iter().try_for_each(Stream::synchronize);
    let mut plain = World::new(contexts, &streams)?;
    let mut captured = World::new(contexts, &streams)?;
    synchronize()?;
    let graph = capture(&mut captured)?;
    let mut exec = graph.instantiate()?;
    for launched in &streams {
        plain.program(streams.each_ref(), seed)?;
        exec.lend_mut(&mut captured.host).launch(launched)?;
    }
    synchronize()?;
    assert_eq!(captured.contents(&streams)?, plain.contents(&streams)?, "{how}, seed {seed}");
    // The order of a chain is right whatever its operations use.
    if how == "as a chain" {
        captured.change_rows(&graph, &mut exec)?;
        plain.filled = captured.filled;
        plain.program(streams.each_ref(), seed)?;
        exec.lend_mut(&mut captured.host).launch(&streams[0])?;
        synchronize()?;
        assert_eq!(captured.contents(&streams)?, plain.contents(&streams)?, "changed, seed {seed}");
    }
    Ok(())
}

fn same_on_two_streams(contexts: [&Context; 2], seed: u64) -> Result<()> {
    same_as_a_graph(contexts, seed, "on two streams", |world| {
        Graph::capture(contexts, |streams| world.program(streams, seed))
    })?;
    same_as_a_graph(contexts, seed, "by access on two streams", |world| {
        Graph::capture_by_access(contexts, |streams| world.program(streams, seed))
    })?;
    same_as_a_graph(contexts, seed, "step by step", |world| {
        Graph::build(contexts, |builders| {
            Step::all(seed, world.devices).try_for_each(|step| {
                let builder = builders[step.which];
                builder.add(|stream| world.run(&step, stream, stream)).map(drop)
            })
        })
    })
}

gpu_test! {
    needs 1;
    fn l_random_programs_give_the_same_result_all_ways() -> Result<()> {
        let context = &context()?;
        for seed in sample::seeds(12) {
            same_as_a_graph([context; 2], seed, "as a chain", |world| {
                Graph::capture(context, |stream| world.program([stream, stream], seed))
            })?;
            same_as_a_graph([context; 2], seed, "by access", |world| {
                Graph::capture_by_access(context, |stream| world.program([stream, stream], seed))
            })?;
            same_on_two_streams([context; 2], seed)?;
        }
        Ok(())
    }
}

gpu_test! {
    needs 2;
    fn l_random_programs_of_two_devices_give_the_same_result() -> Result<()> {
        let contexts = [Device::get(0)?.context()?, Device::get(1)?.context()?];
        sample::seeds(12).try_for_each(|seed| same_on_two_streams(contexts.each_ref(), seed))
    }
}
