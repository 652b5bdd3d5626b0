//! Graphs: a launch is one call, and a record and a wait for each stream that it must follow.

use cuda_core::{
    Allocator, ContextFlags, DeviceBuffer, Error, Event, EventFlags, Graph, PinnedBuffer,
};
use cuda_sim::Fault;
use cuda_sys::CUDA_ERROR_UNKNOWN;
use support::{kernels, stall};

use super::*;

const LAUNCH: &str = "cuGraphLaunch";
const FILL: &str = "cuMemsetD32Async";

/// Captures a graph that copies one buffer to the other.
fn copying(
    context: &Context,
    from: &DeviceBuffer<u32>,
    to: &mut DeviceBuffer<u32>,
) -> Result<Graph> {
    Graph::capture(context, |stream| stream.copy(from, to))
}

#[test]
fn l_a_launch_costs_1() {
    Counted::run(|driver| {
        let (context, stream, other) = two_streams()?;
        let (mut x, mut y) = (stream.alloc_zeroed::<u32>(16)?, stream.alloc_zeroed::<u32>(16)?);
        stream.synchronize()?;
        let mut exec = copying(&context, &x, &mut y)?.instantiate()?;
        driver.expect(["cuGraphUpload"], || exec.upload(&stream))?;
        for _ in 0..3 {
            driver.expect([LAUNCH], || exec.launch(&stream))?;
        }
        // The stream's own work on the memory is in order already.
        driver.expect([FILL], || stream.fill(&mut x, 1))?;
        driver.expect([LAUNCH], || exec.launch(&stream))?;
        // Streams reuse their events once these have completed.
        let idle = || stream.synchronize().and_then(|()| other.synchronize());
        idle()?;
        driver.expect([LAUNCH], || exec.launch(&stream))?;
        driver.expect([RECORD, WAIT, FILL], || other.fill(&mut x, 2))?;
        driver.expect([FILL], || other.fill(&mut y, 2))?;
        idle()?;
        // The other stream used both buffers.
        driver.expect([FILL], || other.fill(&mut x, 3))?;
        driver.expect([FILL], || other.fill(&mut y, 3))?;
        driver.expect([RECORD, WAIT, LAUNCH], || exec.launch(&stream))?;
        driver.expect([LAUNCH], || exec.launch(&stream))?;
        // CUDA orders the launches of one executable.
        driver.expect([LAUNCH], || exec.launch(&other))?;
        driver.expect([LAUNCH], || exec.launch(&other))
    });
}

/// A primary context's streams are kept for later captures, until they are trimmed; another context may be
/// destroyed.
#[test]
fn l_a_second_capture_creates_no_stream() {
    Counted::run(|driver| {
        let context = Device::get(0)?.context()?;
        let [create, destroy] = ["cuStreamCreateWithPriority", "cuStreamDestroy_v2"];
        let capture = |context| Graph::capture(context, |_| Ok(())).map(drop);
        let [begin, end, graph] =
            ["cuStreamBeginCapture_v2", "cuStreamEndCapture", "cuGraphDestroy"];
        let calls = [begin, end, ASK, graph];
        driver.expect([entered([create]), calls.to_vec()].concat(), || capture(&context))?;
        driver.expect(calls, || capture(&context))?;
        driver.session.inject(Fault::new(CUDA_ERROR_UNKNOWN).function(end));
        // The capture may not have ended.
        driver.expect([begin, end, ASK, destroy], || capture(&context)).unwrap_err();
        // Other code may have set the attributes of the first stream; the second has a name.
        let marks: [fn(&Stream); 2] = [|seen| _ = seen.as_raw(), |named| named.set_name("once")];
        for mark in marks {
            driver.expect([entered([create]), calls.to_vec()].concat(), || capture(&context))?;
            driver.expect([begin, end, destroy, graph], || {
                Graph::capture(&context, |stream| {
                    mark(stream);
                    Ok(())
                })
                .map(drop)
            })?;
        }
        drop(Graph::capture(vec![&context; 20], |_| Ok(()))?);
        driver.expect([destroy; 16], cuda_core::staging::trim)?;
        driver.expect([entered([create]), calls.to_vec()].concat(), || capture(&context))?;
        let made = Context::new(context.device(), ContextFlags::default())?;
        let calls = [entered([create]), vec![begin, end, destroy, graph]].concat();
        driver.expect(calls, || capture(&made))?;
        driver.expect([destroy], cuda_core::staging::trim)?;
        driver.expect([], cuda_core::staging::trim)?;
        made.close().map_err(Error::from)
    });
}

/// The driver is asked which node an operation has. By access, it is also passed the operation's
/// dependencies.
#[test]
fn l_a_captured_operation_costs_1_or_2_more() {
    Counted::run(|driver| {
        let (context, stream, _other) = two_streams()?;
        let mut x = stream.alloc::<u32>(16)?;
        let node = "cuStreamGetCaptureInfo_v2";
        Graph::capture(&context, |stream| driver.expect([FILL, node], || stream.fill(&mut x, 1)))?;
        let calls = ["cuStreamUpdateCaptureDependencies", FILL, node];
        let by_access = |stream: &Stream| driver.expect(calls, || stream.fill(&mut x, 1));
        Graph::capture_by_access(&context, by_access).map(drop)
    });
}

#[test]
fn l_a_lent_launch_costs_as_many() {
    Counted::run(|driver| {
        let (context, stream, other) = two_streams()?;
        let mut x = stream.alloc_zeroed::<u32>(16)?;
        let input = PinnedBuffer::from_slice(&context, &[1u32; 16])?;
        let mut output = PinnedBuffer::<u32>::zeroed(&context, 16)?;
        stream.synchronize()?;
        let graph = Graph::capture(&context, |stream| {
            stream.upload(&input, &mut x)?;
            stream.download(&x, &mut output)
        })?;
        let mut exec = graph.instantiate()?;
        for _ in 0..3 {
            let lent = driver.expect([], || exec.lend(&input).lend_mut(&mut output));
            driver.expect([LAUNCH], || lent.launch(&stream))?;
        }
        driver.expect([RECORD, WAIT, FILL], || other.fill(&mut x, 2))?;
        let lent = exec.lend(&input).lend_mut(&mut output);
        driver.expect([RECORD, WAIT, LAUNCH], || lent.launch(&stream))?;
        driver.refused(|| exec.launch(&stream));
        Ok(())
    });
}

/// An operation that cannot be captured is refused before the driver is asked, which would end the capture.
#[test]
fn l08_a_refusal_in_a_capture_costs_none() {
    Counted::run(|driver| {
        let (context, stream, _) = two_streams()?;
        let mut x = stream.alloc_zeroed::<u32>(16)?;
        let event = || Event::new(&context, EventFlags::DISABLE_TIMING);
        let (outside, inside) = (event()?, event()?);
        outside.record(&stream)?;
        Graph::capture(&context, |captured| {
            inside.record(captured)?;
            driver.refused(|| captured.synchronize());
            driver.refused(|| captured.query());
            driver.refused(|| captured.checkpoint());
            driver.refused(|| captured.upload(&[1; 16], &mut x));
            driver.refused(|| captured.upload_owned(vec![1; 16], &mut x));
            driver.refused(|| captured.download_vec(&x));
            driver.refused(|| captured.launch_host_func(|| ()));
            driver.refused(|| captured.wait_event(&outside));
            driver.refused(|| captured.wait_stream(&stream));
            driver.refused(|| inside.synchronize());
            driver.refused(|| inside.query());
            driver.refused(|| stream.wait_event(&inside));
            driver.refused(|| stream.wait_stream(captured));
            Ok(())
        })
        .map(drop)
    });
}

/// The first change of a node, or disabling it, asks for the number of its dependencies and for these, to
/// know what it has used so far.
#[test]
fn l_a_change_costs_1() {
    const DEPENDENCIES: &str = "cuGraphNodeGetDependencies";
    Counted::run(|driver| {
        let (context, stream, _) = two_streams()?;
        let function = kernels::get(&context, "add_one")?;
        let (x, mut y) = (stream.alloc_zeroed::<u32>(16)?, stream.alloc_zeroed::<u32>(16)?);
        let mut z = stream.alloc_zeroed::<u32>(16)?;
        let graph = Graph::capture(&context, |stream| {
            stream.fill(&mut y, 1)?;
            stream.copy(&x, &mut y)?;
            // SAFETY: 16 elements.
            unsafe { stream.kernel(&function).elements(16).arg(&mut y).arg(16u32).launch() }
        })?;
        let [fill, copy, kernel] = [0, 1, 2].map(|at| graph.nodes().map(|nodes| nodes[at].id()));
        let (fill, copy, kernel) = (fill?, copy?, kernel?);
        let mut exec = graph.instantiate()?;

        let set = "cuGraphExecMemsetNodeSetParams";
        driver.expect([set, DEPENDENCIES], || exec.set_fill(fill, &mut z, 2))?;
        driver.expect([set], || exec.set_fill(fill, &mut z, 3))?;
        driver.expect([set], || exec.set_fill(fill, &mut y, 3))?;

        let set = "cuGraphExecMemcpyNodeSetParams";
        let first = [set, DEPENDENCIES, DEPENDENCIES];
        driver.expect(first, || exec.set_copy(copy, &x, &mut z))?;
        driver.expect([set], || exec.set_copy(copy, &x, &mut z))?;
        driver.expect([set], || exec.set_copy(copy, &x, &mut y))?;

        // The current context is queried; if it is not the kernel's context, the latter is entered.
        let set = "cuGraphExecKernelNodeSetParams_v2";
        let mut launch = stream.kernel(&function).elements(16).arg(&mut z).arg(16u32);
        // SAFETY: 16 elements.
        let mut change = || unsafe { exec.set_kernel(kernel, &mut launch) };
        let first = entered([set, DEPENDENCIES, DEPENDENCIES]);
        driver.expect([vec![GET], first].concat(), &mut change)?;
        driver.expect([vec![GET], entered([set])].concat(), &mut change)?;
        let current = context.enter()?;
        driver.expect([GET, set], &mut change)?;
        drop(current);

        let enable = "cuGraphNodeSetEnabled";
        driver.expect([enable], || exec.set_enabled(fill, false))?;
        let mut unchanged = graph.instantiate()?;
        let first = [enable, DEPENDENCIES, DEPENDENCIES];
        driver.expect(first, || unchanged.set_enabled(copy, false))?;
        driver.expect([enable], || unchanged.set_enabled(copy, true))?;
        driver.expect(["cuGraphNodeGetEnabled"], || exec.is_enabled(fill))?;
        driver.expect([LAUNCH], || exec.launch(&stream))?;
        stream.synchronize()
    });
}

/// A block that another stream uses is dropped during a capture: the driver is not asked about that work
/// before the capture has ended. Then the block can be reused.
#[test]
fn l22_a_block_dropped_in_a_capture_is_not_asked_about() {
    Counted::run(|driver| {
        let (context, stream, other) = two_streams()?;
        let mut x = stream.alloc_zeroed::<u32>(16)?;
        // The graph uses one of the blocks and not the other.
        let alloc = || stream.alloc_with::<u32>(&Allocator::cache(), 1 << 12);
        let (mut used, mut unused) = (alloc()?, alloc()?);
        let addresses = [used.as_raw(), unused.as_raw()];
        let stalled = stall(other.as_raw());
        other.fill(&mut used, 7)?;
        other.fill(&mut unused, 7)?;
        let graph = Graph::capture(&context, |captured| {
            captured.copy(used.slice(..16)?, &mut x)?;
            // Makes no query of an event, and no wait.
            driver.expect([], || drop(unused));
            driver.expect([], || drop(used));
            driver.expect([FILL, "cuStreamGetCaptureInfo_v2"], || captured.fill(&mut x, 1))
        })?;
        // The other stream still writes both blocks.
        let meanwhile = [alloc()?, alloc()?];
        let taken = meanwhile.each_ref().map(DeviceBuffer::as_raw);
        assert!(taken.iter().all(|address| !addresses.contains(address)), "given away too early");
        stalled.release();
        other.synchronize()?;
        drop(graph);
        drop(meanwhile);
        cuda_core::drops::flush();
        let again = [alloc()?, alloc()?, alloc()?, alloc()?];
        let taken = again.each_ref().map(DeviceBuffer::as_raw);
        assert!(
            addresses.iter().all(|address| taken.contains(address)),
            "{addresses:?}, {taken:?}"
        );
        drop((again, x, stream, other));
        cuda_core::synchronize_and_trim().map(drop)
    });
}
