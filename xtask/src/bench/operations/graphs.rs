//! Graphs: captured, instantiated, updated, launched.

use std::cell::RefCell;
use std::ffi::c_void;
use std::ptr;

use cuda_core::{DeviceBuffer, Function, Graph, GraphExec, Stream};
use cuda_sys::{
    CU_STREAM_CAPTURE_MODE_RELAXED, CUDA_KERNEL_NODE_PARAMS, CUDA_SUCCESS, CUgraph, CUgraphExec,
    CUgraphExecUpdateResultInfo, CUresult, CUstream, cuEventRecord, cuGraphDestroy,
    cuGraphExecDestroy, cuGraphExecKernelNodeSetParams_v2, cuGraphExecUpdate_v2,
    cuGraphInstantiateWithFlags, cuGraphLaunch, cuLaunchKernel, cuStreamBeginCapture_v2,
    cuStreamEndCapture, cuStreamSynchronize, cuStreamWaitEvent,
};

use super::SMALL;
use super::launches::kernel;
use crate::bench::goal::Goal;
use crate::bench::measure::{Measured, pair};
use crate::bench::operation::{Fixture, Operation};
use crate::bench::raw::first_error;

/// Buffers of the larger one of two graphs that are compared.
const MANY: usize = 70;

/// How many nanoseconds longer a launch may take for each buffer that its graph uses more.
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
        Operation::new("64 kernels by data flow, as a chain", by_access)
            .without_goal("both are this library's"),
        Operation::new("graph launch, after another stream", launch_behind_once).calls(3),
        // Last: afterwards the driver launches graphs of many kernels a third more slowly.
        Operation::new("graph launch, kernel of another stream, in turn", launch_behind).calls(6),
    ]
}

/// Six buffers, of which kernels read three and write three.
fn buffers(stream: &Stream) -> cuda_core::Result<Vec<DeviceBuffer<u8>>> {
    (0..6).map(|_| stream.alloc_zeroed::<u8>(SMALL)).collect()
}

/// Launches a kernel that ignores its six parameters.
fn six(
    stream: &Stream,
    function: &Function,
    buffers: &mut [DeviceBuffer<u8>],
) -> cuda_core::Result<()> {
    let mut launch = stream.kernel(function).block(32);
    for (index, buffer) in buffers.iter_mut().enumerate() {
        launch = if index < 3 { launch.arg(&*buffer) } else { launch.arg(buffer) };
    }
    // SAFETY: six addresses, which the kernel ignores.
    unsafe { launch.launch() }
}

/// A graph of so many of these kernels.
fn graph_of(
    fixture: &Fixture,
    kernels: usize,
    function: &Function,
    buffers: &mut [DeviceBuffer<u8>],
) -> cuda_core::Result<Graph> {
    Graph::capture(&fixture.context, |stream| {
        (0..kernels).try_for_each(|_| six(stream, function, buffers))
    })
}

fn launch(fixture: &Fixture) -> anyhow::Result<Measured> {
    let function = kernel(fixture, "bench_six")?;
    let graph = graph_of(fixture, 20, &function, &mut buffers(&fixture.stream)?)?;
    let (mut exec, raw) = (graph.instantiate()?, graph.instantiate()?);
    let stream = fixture.raw_stream();
    fixture.pair(
        20,
        || exec.launch(&fixture.stream),
        // SAFETY: the executable and the stream are live; its kernels access nothing.
        || unsafe { cuGraphLaunch(raw.as_raw(), stream) },
    )
}

/// Two graphs of as many kernels, of which one uses more buffers: the driver's part is the same.
fn more_buffers(fixture: &Fixture) -> anyhow::Result<Measured> {
    let function = kernel(fixture, "bench_six")?;
    let graph_of = |count: usize| -> cuda_core::Result<Graph> {
        let mut buffers = Vec::new();
        for _ in 0..count {
            buffers.push(fixture.stream.alloc_zeroed::<u8>(SMALL)?);
        }
        Graph::capture(&fixture.context, |stream| {
            (0..20).try_for_each(|step| {
                let from = (step * 6 % count).min(count - 6);
                six(stream, &function, &mut buffers[from..from + 6])
            })
        })
    };
    let (mut many, mut few) = (graph_of(MANY)?.instantiate()?, graph_of(6)?.instantiate()?);
    let stream = &fixture.stream;
    fixture.pair(20, || many.launch(stream), || code_of(few.launch(stream)))
}

/// Only the launch is timed; what it comes after is enqueued before.
fn launch_behind_once(fixture: &Fixture) -> anyhow::Result<Measured> {
    let function = kernel(fixture, "bench_six")?;
    let buffers = RefCell::new(buffers(&fixture.stream)?);
    let graph = graph_of(fixture, 20, &function, &mut buffers.borrow_mut())?;
    let (mut exec, raw) = (graph.instantiate()?, graph.instantiate()?);
    let other = fixture.context.create_stream()?;
    let (stream, raw_other) = (fixture.raw_stream(), fixture.context.create_stream()?);
    let enqueue = || {
        other.synchronize()?;
        raw_other.synchronize()?;
        fixture.settle()?;
        six(&other, &function, &mut buffers.borrow_mut())?;
        let mut addresses: Vec<u64> = buffers.borrow().iter().map(DeviceBuffer::as_raw).collect();
        match raw_six(&function, raw_other.as_raw(), &mut addresses) {
            CUDA_SUCCESS => Ok(()),
            _ => raw_other.synchronize(),
        }
    };
    enqueue()?;
    pair(
        fixture.effort,
        1,
        || exec.launch(&fixture.stream),
        || {
            let event = fixture.event.as_raw();
            // SAFETY: the event and the stream are live and of one context.
            let recorded = unsafe { cuEventRecord(event, raw_other.as_raw()) };
            // SAFETY: the stream and the event are live; flags must be zero.
            let waits = unsafe { cuStreamWaitEvent(stream, event, 0) };
            // SAFETY: the executable and the stream are live; its kernels access nothing.
            let graph = unsafe { cuGraphLaunch(raw.as_raw(), stream) };
            first_error([recorded, waits, graph])
        },
        enqueue,
    )
}

fn launch_behind(fixture: &Fixture) -> anyhow::Result<Measured> {
    let function = kernel(fixture, "bench_six")?;
    let mut buffers = buffers(&fixture.stream)?;
    let graph = graph_of(fixture, 20, &function, &mut buffers)?;
    let (mut exec, raw) = (graph.instantiate()?, graph.instantiate()?);
    let other = fixture.context.create_stream()?;
    let (stream, raw_other) = (fixture.raw_stream(), fixture.context.create_stream()?);
    let mut addresses: Vec<u64> = buffers.iter().map(DeviceBuffer::as_raw).collect();
    fixture.pair(
        20,
        || {
            six(&other, &function, &mut buffers)?;
            exec.launch(&fixture.stream)
        },
        || {
            let event = fixture.event.as_raw();
            // SAFETY: the event and the stream are live and of one context.
            let first = unsafe { cuEventRecord(event, stream) };
            // SAFETY: the stream and the event are live; flags must be zero.
            let then = unsafe { cuStreamWaitEvent(raw_other.as_raw(), event, 0) };
            let launched = raw_six(&function, raw_other.as_raw(), &mut addresses);
            // SAFETY: the event and the stream are live and of one context.
            let recorded = unsafe { cuEventRecord(event, raw_other.as_raw()) };
            // SAFETY: the stream and the event are live; flags must be zero.
            let waits = unsafe { cuStreamWaitEvent(stream, event, 0) };
            // SAFETY: the executable and the stream are live; its kernels access nothing.
            let graph = unsafe { cuGraphLaunch(raw.as_raw(), stream) };
            first_error([first, then, launched, recorded, waits, graph])
        },
    )
}

/// `cuLaunchKernel` of the kernel that ignores its six parameters.
fn raw_six(function: &Function, stream: CUstream, addresses: &mut [u64]) -> CUresult {
    let mut arguments = [ptr::null_mut::<c_void>(); 6];
    for (argument, address) in arguments.iter_mut().zip(addresses) {
        *argument = ptr::from_mut(address).cast();
    }
    let (arguments, extra) = (arguments.as_mut_ptr(), ptr::null_mut());
    // SAFETY: function and stream are live; there is one pointer per parameter; the kernel touches
    // nothing.
    unsafe { cuLaunchKernel(function.as_raw(), 1, 1, 1, 32, 1, 1, 0, stream, arguments, extra) }
}

fn capture(fixture: &Fixture) -> anyhow::Result<Measured> {
    let function = kernel(fixture, "bench_two")?;
    let stream = &fixture.stream;
    let (x, mut y) = (stream.alloc_zeroed::<u8>(SMALL)?, stream.alloc_zeroed::<u8>(SMALL)?);
    let mut addresses = [x.as_raw(), y.as_raw()];
    fixture.pair(
        1,
        || {
            Graph::capture(&fixture.context, |stream| {
                (0..100).try_for_each(|_| {
                    let mut launch = stream.kernel(&function).block(32).arg(&x).arg(&mut y);
                    // SAFETY: two addresses, which the kernel ignores.
                    unsafe { launch.launch() }
                })
            })
            .map(drop)
        },
        || {
            let stream = fixture.raw_stream();
            let mut graph: CUgraph = ptr::null_mut();
            // SAFETY: the stream is live, and captures nothing.
            let begun = unsafe { cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED) };
            let [first, second] = &mut addresses;
            let launched = first_error((0..100).map(|_| {
                let mut arguments = [ptr::from_mut(first).cast(), ptr::from_mut(second).cast()];
                let (arguments, extra) = (arguments.as_mut_ptr(), ptr::null_mut());
                let function = function.as_raw();
                // SAFETY: function and stream are live; there is one pointer per parameter; the
                // kernel touches nothing.
                unsafe { cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, arguments, extra) }
            }));
            // SAFETY: this thread began the capture; the call writes one handle.
            let ended = unsafe { cuStreamEndCapture(stream, &mut graph) };
            // SAFETY: the graph was made by the call above, and is used by no one else.
            first_error([begun, launched, ended, unsafe { cuGraphDestroy(graph) }])
        },
    )
}

fn instantiate(fixture: &Fixture) -> anyhow::Result<Measured> {
    let function = kernel(fixture, "bench_six")?;
    let graph = graph_of(fixture, 1000, &function, &mut buffers(&fixture.stream)?)?;
    fixture.pair(
        1,
        || graph.instantiate().map(drop),
        || {
            let mut exec: CUgraphExec = ptr::null_mut();
            // SAFETY: the graph is live, and the fixture's context current; the call writes a handle.
            let made = unsafe { cuGraphInstantiateWithFlags(&mut exec, graph.as_raw(), 0) };
            // SAFETY: made by the call above, and never launched.
            first_error([made, unsafe { cuGraphExecDestroy(exec) }])
        },
    )
}

fn update(fixture: &Fixture) -> anyhow::Result<Measured> {
    let function = kernel(fixture, "bench_six")?;
    let graphs = [
        graph_of(fixture, 1000, &function, &mut buffers(&fixture.stream)?)?,
        graph_of(fixture, 1000, &function, &mut buffers(&fixture.stream)?)?,
    ];
    let (mut exec, raw) = (graphs[0].instantiate()?, graphs[0].instantiate()?);
    let (mut ours, mut theirs) = (graphs.iter().cycle(), graphs.iter().cycle());
    fixture.pair(
        1,
        || ours.next().map_or(Ok(()), |graph| exec.update(graph)),
        || {
            let mut info = CUgraphExecUpdateResultInfo::default();
            let graph = theirs.next().map_or(ptr::null_mut(), Graph::as_raw);
            // SAFETY: both are live; the call writes one structure, to a local that outlives it.
            unsafe { cuGraphExecUpdate_v2(raw.as_raw(), graph, &mut info) }
        },
    )
}

fn set_kernel(fixture: &Fixture) -> anyhow::Result<Measured> {
    let function = kernel(fixture, "bench_two")?;
    let stream = &fixture.stream;
    let (x, mut y) = (stream.alloc_zeroed::<u8>(SMALL)?, stream.alloc_zeroed::<u8>(SMALL)?);
    let mut addresses = [x.as_raw(), y.as_raw()];
    let graph = Graph::capture(&fixture.context, |stream| {
        let mut launch = stream.kernel(&function).block(32).arg(&x).arg(&mut y);
        // SAFETY: two addresses, which the kernel ignores.
        unsafe { launch.launch() }
    })?;
    let node = graph.nodes()?[0].id();
    let raw_node = graph.nodes()?[0].as_raw();
    let (mut exec, raw) = (graph.instantiate()?, graph.instantiate()?);
    fixture.pair(
        100,
        || {
            let mut launch = stream.kernel(&function).block(32).arg(&x).arg(&mut y);
            // SAFETY: two addresses, which the kernel ignores.
            unsafe { exec.set_kernel(node, &mut launch) }
        },
        || {
            let [first, second] = &mut addresses;
            let mut arguments = [ptr::from_mut(first).cast(), ptr::from_mut(second).cast()];
            let params = CUDA_KERNEL_NODE_PARAMS {
                func: function.as_raw(),
                gridDimX: 1,
                gridDimY: 1,
                gridDimZ: 1,
                blockDimX: 32,
                blockDimY: 1,
                blockDimZ: 1,
                kernelParams: arguments.as_mut_ptr(),
                ..Default::default()
            };
            // SAFETY: the fixture's context is current; executable and node are live, and of one
            // graph; there is one pointer per parameter.
            unsafe { cuGraphExecKernelNodeSetParams_v2(raw.as_raw(), raw_node, &params) }
        },
    )
}

fn beside_a_stream(fixture: &Fixture) -> anyhow::Result<Measured> {
    let function = kernel(fixture, "bench_six")?;
    let mut buffers = buffers(&fixture.stream)?;
    let mut exec = graph_of(fixture, 1000, &function, &mut buffers)?.instantiate()?;
    let mut addresses: Vec<u64> = buffers.iter().map(DeviceBuffer::as_raw).collect();
    let stream = fixture.raw_stream();
    fixture.waited(
        31,
        1,
        || exec.launch(&fixture.stream),
        || {
            let launches = (0..1000).map(|_| raw_six(&function, stream, &mut addresses));
            let launched = first_error(launches);
            // SAFETY: the stream is live.
            first_error([launched, unsafe { cuStreamSynchronize(stream) }])
        },
    )
}

/// 64 independent kernels that take some time each, then one that reads what they wrote.
fn by_access(fixture: &Fixture) -> anyhow::Result<Measured> {
    let function = kernel(fixture, "bench_slow")?;
    let stream = &fixture.stream;
    let parts: cuda_core::Result<Vec<_>> =
        (0..64).map(|_| stream.alloc_zeroed::<u32>(SMALL)).collect();
    let mut parts: Vec<DeviceBuffer<u32>> = parts?;
    let mut sum = stream.alloc_zeroed::<u32>(SMALL)?;
    let mut work = |stream: &Stream| {
        for part in &mut parts {
            // SAFETY: the kernel writes one element.
            unsafe { stream.kernel(&function).block(1).arg(part).launch() }?;
        }
        let mut last = stream.kernel(&function).block(1).arg(&mut sum);
        for part in &parts {
            last = last.uses(part);
        }
        // SAFETY: as above; it is noted as a user of all parts.
        unsafe { last.launch() }
    };
    let mut chain: GraphExec = Graph::capture(&fixture.context, &mut work)?.instantiate()?;
    let mut flow = Graph::capture_by_access(&fixture.context, &mut work)?.instantiate()?;
    let other = fixture.context.create_stream()?;
    fixture.waited(
        31,
        1,
        || flow.launch(&fixture.stream),
        || code_of(chain.launch(&other).and_then(|()| other.synchronize())),
    )
}

/// The driver's code, of work of this library that stands in for raw calls.
fn code_of(done: cuda_core::Result<()>) -> CUresult {
    match done {
        Ok(()) => CUDA_SUCCESS,
        Err(error) => error.code().unwrap_or(cuda_sys::CUDA_ERROR_UNKNOWN),
    }
}
