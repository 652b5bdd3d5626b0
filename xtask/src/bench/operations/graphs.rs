//! Graphs: captured, instantiated, updated, launched.

use std::ptr;

use cuda_core::{Graph, GraphExec, Stream};
use cuda_sys::{self as sys, CUresult};

use super::launches::{Kernel, function, on};
use crate::bench::measure::pair;
use crate::bench::raw::{code_of, first_error, order, wait};
use crate::bench::{Fixture, Goal, Measured, Operation};

/// The number of buffers of the larger one of two compared graphs.
const MANY: usize = 70;

/// The number of nanoseconds that a launch may take longer for each additional buffer of its graph.
const EACH_FURTHER: f64 = 8.0;

pub(super) fn operations() -> Vec<Operation> {
    vec![
        Operation::new("graph launch, 20 kernels, 6 buffers", launch).goal(Goal::More(60.0)),
        Operation::new("graph launch, 70 buffers, beside 6", more_buffers)
            .goal(Goal::More(EACH_FURTHER * (MANY - 6) as f64)),
        Operation::new("capture of 100 kernels with 2 buffers", capture).goal(Goal::Ratio(2.0)),
        Operation::new("instantiate 1000 kernels", instantiate).goal(Goal::Ratio(1.1)),
        Operation::new("update of 1000 kernels", update).goal(Goal::Ratio(1.1)),
        Operation::new("set a kernel's arguments in a graph", set_kernel).goal(Goal::More(100.0)),
        Operation::new("1000 kernels as a graph, by stream", beside_a_stream)
            .goal(Goal::Ratio(1.0 / 3.5)),
        Operation::new("64 kernels by access, as a chain", by_access)
            .without_goal("both are this library's"),
        Operation::new("graph launch, after another stream", launch_behind_once).calls(3),
        // Last, since the driver afterwards launches graphs of many kernels a third more slowly.
        Operation::new("graph launch, kernel of another stream, in turn", launch_behind).calls(6),
    ]
}

/// The kernel of the graphs, with six buffers: it reads three and writes three.
fn six(fixture: &Fixture) -> anyhow::Result<Kernel> {
    Kernel::new(fixture, "bench_six", 6)
}

/// A graph of `kernels` launches of this kernel.
fn graph_of(fixture: &Fixture, kernels: usize, kernel: &mut Kernel) -> cuda_core::Result<Graph> {
    Graph::capture(&fixture.context, |stream| (0..kernels).try_for_each(|_| kernel.launch(stream)))
}

fn raw_launch(exec: &GraphExec, stream: &Stream) -> CUresult {
    // SAFETY: the executable and the stream are live; its kernels access nothing.
    unsafe { sys::cuGraphLaunch(exec.as_raw(), stream.as_raw()) }
}

fn launch(fixture: &Fixture) -> anyhow::Result<Measured> {
    let graph = graph_of(fixture, 20, &mut six(fixture)?)?;
    let (mut exec, raw) = (graph.instantiate()?, graph.instantiate()?);
    fixture.pair(20, || exec.launch(&fixture.stream), || raw_launch(&raw, &fixture.raw))
}

/// Compares two graphs with the same number of kernels, one of which uses more buffers: the driver's part is
/// the same.
fn more_buffers(fixture: &Fixture) -> anyhow::Result<Measured> {
    let graph_of = |count: usize| -> anyhow::Result<GraphExec> {
        let Kernel { function, mut buffers } = Kernel::new(fixture, "bench_six", count)?;
        let graph = Graph::capture(&fixture.context, |stream| {
            (0..20).try_for_each(|step| {
                let from = (step * 6 % count).min(count - 6);
                // SAFETY: six addresses, which the kernel ignores.
                unsafe { on(stream, &function, &mut buffers[from..from + 6]).launch() }
            })
        })?;
        Ok(graph.instantiate()?)
    };
    let (mut many, mut few) = (graph_of(MANY)?, graph_of(6)?);
    let stream = &fixture.stream;
    fixture.pair(20, || many.launch(stream), || code_of(few.launch(stream)))
}

/// Times only the launch; the work that it comes after is enqueued before.
fn launch_behind_once(fixture: &Fixture) -> anyhow::Result<Measured> {
    let mut kernel = six(fixture)?;
    let graph = graph_of(fixture, 20, &mut kernel)?;
    let (mut exec, raw) = (graph.instantiate()?, graph.instantiate()?);
    let (other, raw_other) = (fixture.context.create_stream()?, fixture.context.create_stream()?);
    let mut enqueue = || {
        other.synchronize()?;
        raw_other.synchronize()?;
        fixture.settle()?;
        kernel.launch(&other)?;
        match kernel.raw().launch(raw_other.as_raw()) {
            sys::CUDA_SUCCESS => Ok(()),
            _ => raw_other.synchronize(),
        }
    };
    enqueue()?;
    let raw = || {
        let ordered = order(&fixture.event, &raw_other, &fixture.raw);
        first_error([ordered, raw_launch(&raw, &fixture.raw)])
    };
    let measured = pair(fixture.effort, 1, || exec.launch(&fixture.stream), raw, enqueue)?;
    // Waited for here, since the library does not know of the kernel on this stream.
    raw_other.synchronize()?;
    Ok(measured)
}

fn launch_behind(fixture: &Fixture) -> anyhow::Result<Measured> {
    let mut kernel = six(fixture)?;
    let graph = graph_of(fixture, 20, &mut kernel)?;
    let (mut exec, raw) = (graph.instantiate()?, graph.instantiate()?);
    let (other, raw_other) = (fixture.context.create_stream()?, fixture.context.create_stream()?);
    let raw_kernel = kernel.raw();
    let ours = || kernel.launch(&other).and_then(|()| exec.launch(&fixture.stream));
    fixture.pair(20, ours, || {
        let first = order(&fixture.event, &fixture.raw, &raw_other);
        let launched = raw_kernel.launch(raw_other.as_raw());
        let then = order(&fixture.event, &raw_other, &fixture.raw);
        first_error([first, launched, then, raw_launch(&raw, &fixture.raw)])
    })
}

fn capture(fixture: &Fixture) -> anyhow::Result<Measured> {
    let mut kernel = Kernel::new(fixture, "bench_two", 2)?;
    let raw = kernel.raw();
    let ours = || graph_of(fixture, 100, &mut kernel).map(drop);
    fixture.pair(1, ours, || {
        let (stream, mut graph) = (fixture.raw_stream(), ptr::null_mut());
        let mode = sys::CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: the stream is live, and captures nothing.
        let begun = unsafe { sys::cuStreamBeginCapture_v2(stream, mode) };
        let launched = first_error((0..100).map(|_| raw.launch(stream)));
        // SAFETY: this thread began the capture; the call writes one handle.
        let ended = unsafe { sys::cuStreamEndCapture(stream, &mut graph) };
        // SAFETY: the graph was made by the call above, and no other code uses it.
        first_error([begun, launched, ended, unsafe { sys::cuGraphDestroy(graph) }])
    })
}

fn instantiate(fixture: &Fixture) -> anyhow::Result<Measured> {
    let graph = graph_of(fixture, 1000, &mut six(fixture)?)?;
    let ours = || graph.instantiate().map(drop);
    fixture.pair(1, ours, || {
        let (graph, mut exec) = (graph.as_raw(), ptr::null_mut());
        // SAFETY: the graph is live, and the fixture's context current; the call writes a handle.
        let made = unsafe { sys::cuGraphInstantiateWithFlags(&mut exec, graph, 0) };
        // SAFETY: made by the call above, and never launched.
        first_error([made, unsafe { sys::cuGraphExecDestroy(exec) }])
    })
}

fn update(fixture: &Fixture) -> anyhow::Result<Measured> {
    let graph = || -> anyhow::Result<Graph> { Ok(graph_of(fixture, 1000, &mut six(fixture)?)?) };
    let graphs = [graph()?, graph()?];
    let (mut exec, raw) = (graphs[0].instantiate()?, graphs[0].instantiate()?);
    let (mut ours, mut theirs) = (graphs.iter().cycle(), graphs.iter().cycle());
    let ours = || ours.next().map_or(Ok(()), |graph| exec.update(graph));
    fixture.pair(1, ours, || {
        let mut info = sys::CUgraphExecUpdateResultInfo::default();
        let graph = theirs.next().map_or(ptr::null_mut(), Graph::as_raw);
        // SAFETY: both are live; the call writes one structure, to a local that outlives it.
        unsafe { sys::cuGraphExecUpdate_v2(raw.as_raw(), graph, &mut info) }
    })
}

fn set_kernel(fixture: &Fixture) -> anyhow::Result<Measured> {
    let mut kernel = Kernel::new(fixture, "bench_two", 2)?;
    let graph = graph_of(fixture, 1, &mut kernel)?;
    let (node, raw_node) = (graph.nodes()?[0].id(), graph.nodes()?[0].as_raw());
    let (mut exec, raw) = (graph.instantiate()?, graph.instantiate()?);
    let raw_kernel = kernel.raw();
    // SAFETY: two addresses, which the kernel ignores.
    let ours = || unsafe { exec.set_kernel(node, &mut kernel.on(&fixture.stream)) };
    fixture.pair(100, ours, || {
        let mut arguments = raw_kernel.arguments();
        let params = sys::CUDA_KERNEL_NODE_PARAMS {
            func: raw_kernel.function,
            gridDimX: 1,
            gridDimY: 1,
            gridDimZ: 1,
            blockDimX: 32,
            blockDimY: 1,
            blockDimZ: 1,
            kernelParams: arguments.as_mut_ptr(),
            ..Default::default()
        };
        // SAFETY: the fixture's context is current; executable and node are live and belong to one graph;
        // there is a pointer for each parameter.
        unsafe { sys::cuGraphExecKernelNodeSetParams_v2(raw.as_raw(), raw_node, &params) }
    })
}

fn beside_a_stream(fixture: &Fixture) -> anyhow::Result<Measured> {
    let mut kernel = six(fixture)?;
    let mut exec = graph_of(fixture, 1000, &mut kernel)?.instantiate()?;
    let raw = kernel.raw();
    let launches = || first_error((0..1000).map(|_| raw.launch(fixture.raw_stream())));
    let ours = || exec.launch(&fixture.stream);
    fixture.waited(31, 1, ours, || wait(launches(), &fixture.raw))
}

/// Measures 64 independent kernels of some microseconds, which each write a number, and one that sums the
/// numbers.
fn by_access(fixture: &Fixture) -> anyhow::Result<Measured> {
    let (part, sum) = (function(fixture, "bench_part")?, function(fixture, "bench_sum")?);
    let stream = &fixture.stream;
    let (mut parts, mut total) = (stream.alloc_zeroed::<u32>(64)?, stream.alloc_zeroed::<u32>(1)?);
    let mut work = |stream: &Stream| {
        for at in 0..parts.len() {
            let mut launch = stream.kernel(&part).block(1).arg(parts.slice_mut(at..at + 1)?);
            // SAFETY: bench_part(u32 *to) writes one element.
            unsafe { launch.launch() }?;
        }
        let mut launch = stream.kernel(&sum).block(1);
        launch = launch.arg(&parts).arg(parts.len() as u32).arg(&mut total);
        // SAFETY: bench_sum(const u32 *from, u32 count, u32 *to) reads `count` elements and writes one.
        unsafe { launch.launch() }
    };
    let mut chain = Graph::capture(&fixture.context, &mut work)?.instantiate()?;
    let mut flow = Graph::capture_by_access(&fixture.context, &mut work)?.instantiate()?;
    let other = fixture.context.create_stream()?;
    let as_a_chain = || code_of(chain.launch(&other).and_then(|()| other.synchronize()));
    let measured = fixture.waited(31, 1, || flow.launch(stream), as_a_chain)?;
    stream.fill(&mut total, 0)?;
    flow.launch(stream)?;
    let expected = stream.download_vec(&parts)?.into_iter().fold(0, u32::wrapping_add);
    anyhow::ensure!(stream.download_vec(&total)? == [expected], "the sum by access is wrong");
    Ok(measured)
}
