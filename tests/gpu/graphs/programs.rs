//! Random programs, run in order, and as graphs of every kind.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use cuda_core::{
    Context, DeviceBuffer, Function, Graph, GraphNode, PinnedBuffer, Result, Shape, Stream,
};
use support::{gpu_test, kernels};

use super::{add_one, context};

const LEN: usize = 256;
/// Elements of a part of the pinned memory, each with a number that host functions change.
const PART: usize = 64;

/// The rows of copies and of fills. No other operation has as many bytes.
const ROWS: Shape = Shape::plane(37, 3).with_pitch(4 * 50);
const FILLED: Shape = Shape::plane(29, 3).with_pitch(4 * 40);

/// A small generator, so that a failure is repeated by its seed.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n
    }
}

/// What a program works on.
struct World {
    function: Function,
    buffers: Vec<DeviceBuffer<u32>>,
    host: PinnedBuffer<u32>,
    /// One for each part of `host`.
    numbers: Arc<[AtomicU32; LEN / PART]>,
    /// Adds one to a buffer.
    children: Vec<Graph>,
    /// The buffer of each fill of rows, in order.
    row_fills: Vec<usize>,
    /// What fills of rows write.
    filled: u32,
}

/// Two different elements of a slice.
fn two<T>(all: &mut [T], first: usize, second: usize) -> (&mut T, &mut T) {
    let (low, high) = all.split_at_mut(first.max(second));
    match first < second {
        true => (&mut low[first], &mut high[0]),
        false => (&mut high[0], &mut low[second]),
    }
}

impl World {
    fn new(context: &Context, stream: &Stream) -> Result<Self> {
        let function = kernels::get(context, "add_one")?;
        let buffers = (0..4).map(|_| stream.alloc_zeroed::<u32>(LEN));
        let mut buffers = buffers.collect::<Result<Vec<_>>>()?;
        let mut children = Vec::new();
        for buffer in &mut buffers {
            children.push(Graph::capture(context, |stream| add_one(stream, &function, buffer))?);
        }
        Ok(Self {
            function,
            buffers,
            host: PinnedBuffer::zeroed(context, LEN)?,
            numbers: Arc::default(),
            children,
            row_fills: Vec::new(),
            filled: 7,
        })
    }

    /// Enqueues a random program on the streams, the same for the same seed.
    fn program(&mut self, streams: [&Stream; 2], seed: u64) -> Result<()> {
        let mut random = Random(seed);
        self.row_fills.clear();
        for _ in 0..28 {
            let which = random.below(2);
            self.step(streams[which], streams[1 - which], &mut random)?;
        }
        Ok(())
    }

    fn step(&mut self, stream: &Stream, other: &Stream, random: &mut Random) -> Result<()> {
        let count = self.buffers.len();
        let (from, to) = (random.below(count), random.below(count));
        let to = if from == to { (to + 1) % count } else { to };
        let (start, len) = (random.below(LEN / 2), 1 + random.below(32));
        let (shift, value) = (random.below(LEN - len), random.below(1000) as u32);
        let part = random.below(LEN / PART);
        let range = part * PART..(part + 1) * PART;
        let Self { buffers, host, numbers, function, .. } = self;
        let (source, destination) = two(buffers, from, to);
        match random.below(18) {
            0 | 1 => stream.fill(destination.slice_mut(start..start + len)?, value),
            2 => add_one(stream, function, destination),
            3 | 4 => {
                let source = source.slice(start..start + len)?;
                stream.copy(source, destination.slice_mut(shift..shift + len)?)
            }
            5 => stream.copy_within(destination, 0..8, 16 + random.below(40)),
            6 => stream.upload(host.slice(range.clone())?, destination.slice_mut(range)?),
            7 => stream.download(source.slice(range.clone())?, host.slice_mut(range)?),
            8 | 14..=16 => {
                let to = host.slice_mut(range)?;
                let numbers = numbers.clone();
                stream
                    .host_work()
                    .read(&*source)
                    .write(to)
                    .launch_each(move || change(&numbers[part], value))
            }
            // Behind all that is on the streams, and before what comes next.
            9 => {
                stream.wait_stream(other)?;
                let numbers = numbers.clone();
                stream.launch_host_func_each(move || {
                    numbers.iter().for_each(|number| change(number, 5));
                })?;
                other.wait_stream(stream)
            }
            10 => {
                let mut scratch = stream.alloc::<u32>(LEN)?;
                stream.copy(&*source, &mut scratch)?;
                add_one(other, function, &mut scratch)?;
                stream.copy(&scratch, destination)
            }
            11 => {
                // Memory of the graph, if there is one, allocated on one stream and freed on the other.
                let mut scratch = match stream.is_capturing()? {
                    true => stream.alloc_in_graph::<u32>(LEN)?,
                    false => stream.alloc::<u32>(LEN)?,
                };
                stream.copy(&*source, &mut scratch)?;
                other.fill(scratch.slice_mut(..len)?, value)?;
                other.copy(&scratch, destination)?;
                match stream.is_capturing()? && value % 2 == 0 {
                    true => other.free_in_graph(scratch),
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

    /// Changes the fills of rows in an executable of the program, which then write another value.
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

    /// All that the program has changed.
    fn contents(&self, stream: &Stream) -> Result<Vec<Vec<u32>>> {
        let all = self.buffers.iter().map(|buffer| stream.download_vec(buffer));
        let mut all = all.collect::<Result<Vec<_>>>()?;
        stream.synchronize()?;
        let numbers = self.numbers.iter().map(|number| number.load(Ordering::SeqCst));
        all.extend([self.host.as_slice()?.to_vec(), numbers.collect()]);
        Ok(all)
    }
}

/// Changes a number in a way that shows in what order it was changed. Not one atomic operation: a function
/// that runs beside another one loses its value.
fn change(number: &AtomicU32, by: u32) {
    let before = number.load(Ordering::SeqCst);
    number.store(before.wrapping_mul(31).wrapping_add(by + 1), Ordering::SeqCst);
}

/// Captures a program, launches it twice, and compares what it has done.
fn same_as_a_graph(
    context: &Context,
    seed: u64,
    how: &str,
    capture: impl FnOnce(&mut World) -> Result<Graph>,
) -> Result<()> {
    let streams = [context.create_stream()?, context.create_stream()?];
    let stream = &streams[0];
    let mut plain = World::new(context, stream)?;
    let mut captured = World::new(context, stream)?;
    context.synchronize()?;
    let graph = capture(&mut captured)?;
    let mut exec = graph.instantiate()?;
    for _ in 0..2 {
        plain.program(streams.each_ref(), seed)?;
        exec.lend_mut(&mut captured.host).launch(stream)?;
    }
    context.synchronize()?;
    assert_eq!(captured.contents(stream)?, plain.contents(stream)?, "{how}, seed {seed}");
    // The order of a chain is right for whatever its operations use.
    if how == "as a chain" {
        captured.change_rows(&graph, &mut exec)?;
        plain.filled = captured.filled;
        plain.program(streams.each_ref(), seed)?;
        exec.lend_mut(&mut captured.host).launch(stream)?;
        context.synchronize()?;
        assert_eq!(captured.contents(stream)?, plain.contents(stream)?, "changed, seed {seed}");
    }
    Ok(())
}

fn same_all_ways(context: &Context, seed: u64) -> Result<()> {
    same_as_a_graph(context, seed, "as a chain", |world| {
        Graph::capture(context, |stream| world.program([stream, stream], seed))
    })?;
    same_as_a_graph(context, seed, "on two streams", |world| {
        Graph::capture_on([context, context], |streams| world.program(streams, seed))
    })?;
    same_as_a_graph(context, seed, "by data flow", |world| {
        Graph::capture_by_access(context, |stream| world.program([stream, stream], seed))
    })?;
    same_as_a_graph(context, seed, "by data flow on two streams", |world| {
        Graph::capture_by_access_on([context, context], |streams| world.program(streams, seed))
    })?;
    same_as_a_graph(context, seed, "step by step", |world| {
        Graph::build(context, |builder| {
            let mut random = Random(seed);
            for _ in 0..28 {
                let _of_the_streams = random.below(2);
                builder.add(|stream| world.step(stream, stream, &mut random))?;
            }
            Ok(())
        })
    })
}

gpu_test! {
    needs 1;
    fn l_random_programs_give_the_same_result_all_ways() -> Result<()> {
        let context = context()?;
        (0..12).try_for_each(|seed| same_all_ways(&context, seed))
    }
}
