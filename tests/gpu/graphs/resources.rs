//! What graphs cost and keep: priorities, memory of their own, and nothing after they are dropped.

use std::ptr::null_mut;

use cuda_core::{Device, Graph, GraphExec, Result, drops, sys};
use cuda_sys::{
    CU_LAUNCH_ATTRIBUTE_PRIORITY, CU_STREAM_CAPTURE_MODE_RELAXED, CUkernelNodeAttrValue,
    cuGraphExecGetFlags, cuGraphKernelNodeGetAttribute, cuMemAllocAsync, cuMemFreeAsync,
    cuStreamBeginCapture_v2, cuStreamEndCapture,
};
use support::{Driver, check, gpu_test, kernels, one_stream};

use super::{add_one, context};
use crate::flat::{InUse, assert_flat};
use crate::forms::scaled;

gpu_test! {
    needs 1, cuda_12_0;
    fn l_priorities_of_kernels_are_kept() -> Result<()> {
        let flags = |graph: &Graph| {
            let (exec, mut flags) = (graph.instantiate()?, 0);
            // SAFETY: the executable is live; the call writes one number, to a local that outlives it.
            check("cuGraphExecGetFlags", unsafe { cuGraphExecGetFlags(exec.as_raw(), &mut flags) });
            Ok::<_, cuda_core::Error>(flags)
        };
        let (context, stream) = one_stream()?;
        let function = kernels::get(&context, "add_one")?;
        let (least, greatest) = context.stream_priority_range()?;
        let mut x = stream.alloc_zeroed::<u32>(10)?;
        let plain = Graph::capture(&context, |stream| add_one(stream, &function, &mut x))?;
        let urgent = Graph::capture(&context, |stream| {
            [greatest, least].into_iter().try_for_each(|priority| {
                let launch = stream.kernel(&function).block(10).priority(priority);
                // SAFETY: `add_one(u32 *x, u32 n)` reads and writes `n` elements.
                unsafe { launch.arg(&mut x).arg(10u32).launch() }
            })
        })?;
        for (node, priority) in urgent.nodes()?.iter().zip([greatest, least]) {
            let (raw, mut found) = (node.as_raw(), CUkernelNodeAttrValue::default());
            let which = CU_LAUNCH_ATTRIBUTE_PRIORITY;
            // SAFETY: a node of a live graph; the call writes one value, to a local that outlives it.
            let got = unsafe { cuGraphKernelNodeGetAttribute(raw, which, &mut found) };
            check("cuGraphKernelNodeGetAttribute", got);
            // SAFETY: the value is a priority, the attribute that was asked for.
            assert_eq!(unsafe { found.priority }, priority);
        }
        let nested = Graph::capture(&context, |stream| urgent.include(stream))?;
        let by_node = match Driver::selected() {
            Driver::Simulated { .. } => sys::CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY.0.into(),
            // Driver 580 accepts the flag, and does not report it.
            Driver::Loaded => 0,
        };
        assert_eq!((flags(&plain)?, flags(&urgent)?, flags(&nested)?), (0, by_node, by_node));
        urgent.instantiate()?.launch(&stream)?;
        assert_eq!(stream.download_vec(&x)?, [2; 10]);
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn l_memory_of_graphs_is_counted_and_trimmed() -> Result<()> {
        let context = context()?;
        let (device, stream) = (context.device(), context.create_stream()?);
        let captured = context.create_stream()?;
        let (raw, mut graph, mut address) = (captured.as_raw(), null_mut(), 0);
        let mode = CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: the stream belongs to this test.
        check("cuStreamBeginCapture", unsafe { cuStreamBeginCapture_v2(raw, mode) });
        // SAFETY: as above; the call writes one address, to a local that outlives it.
        check("cuMemAllocAsync", unsafe { cuMemAllocAsync(&mut address, 1 << 20, raw) });
        // SAFETY: allocated above.
        check("cuMemFreeAsync", unsafe { cuMemFreeAsync(address, raw) });
        // SAFETY: the capture began on it; the call writes one handle, to a local that outlives it.
        check("cuStreamEndCapture", unsafe { cuStreamEndCapture(raw, &mut graph) });
        // SAFETY: ended above, not used elsewhere, and of this context; it uses only memory of its own.
        let graph = unsafe { Graph::from_raw(graph, &context, ()) }?;
        let mut exec = graph.instantiate()?;
        exec.launch(&stream)?;
        stream.synchronize()?;
        let usage = device.graph_memory()?;
        // While an executable exists, driver 580 counts all that is reserved as used.
        assert!(usage.used <= usage.reserved && usage.used_peak >= 1 << 20, "{usage:?}");
        assert!(usage.reserved >= 1 << 20, "{usage:?}");
        assert_eq!(usage.free, usage.reserved - usage.used);
        drop((exec, graph));
        drops::flush();
        device.trim_graph_memory()?;
        device.reset_graph_memory_peaks()?;
        // No other test runs at the same time.
        let trimmed = device.graph_memory()?;
        assert!(trimmed.reserved < usage.reserved, "{trimmed:?}, before: {usage:?}");
        assert_eq!((trimmed.used_peak, trimmed.reserved_peak), (trimmed.used, trimmed.reserved));
        Ok(())
    }
}

/// Elements of the memory that each graph allocates for itself. A leak in one graph of ten would exceed what
/// the driver of a device may keep.
const SCRATCH: usize = 32 << 10;

gpu_test! {
    needs 1, heavy;
    fn l_ten_thousand_graphs_leave_memory_flat() -> Result<()> {
        let device = Device::get(0)?;
        let context = device.context()?;
        let (stream, other) = (context.create_stream()?, context.create_stream()?);
        let function = kernels::get(&context, "add_one")?;
        let mut x = stream.alloc_zeroed::<u32>(1000)?;
        let mut executable = || -> Result<GraphExec> {
            let graph = Graph::capture(&context, |stream| {
                let mut scratch = stream.alloc::<u32>(SCRATCH)?;
                let mut part = scratch.slice_mut(..1000)?;
                stream.copy(&x, part.reborrow())?;
                let launch = stream.kernel(&function).elements(1000);
                // SAFETY: add_one(u32 *x, u32 n) reads and writes `n` elements.
                unsafe { launch.arg(part.reborrow()).arg(1000u32).launch() }?;
                stream.copy(scratch.slice(..1000)?, &mut x)
            })?;
            graph.instantiate()
        };
        (0..100).try_for_each(|_| executable()?.launch(&stream))?;
        let contexts = std::slice::from_ref(&context);
        let hundreds = scaled(100, 20, 1);
        let most = InUse {
            // A real driver may keep some memory; the simulated one counts every byte, and logs the calls.
            device: scaled(64 << 20, 0, 0),
            host: hundreds * (720 << 10) + (4 << 20),
            files: 8,
        };
        let rounds_of_graphs = assert_flat(contexts, &most, || {
            (0..hundreds).try_for_each(|_| {
                (0..100).try_for_each(|_| executable()?.launch(&stream))?;
                context.synchronize()?;
                // Deferred drops run on another thread: on a busy host they would hold many graphs' memory.
                drops::flush();
                Ok(())
            })
        })?;
        let mut exec = executable()?;
        let mut thousands = |count: usize| {
            (0..count).try_for_each(|_| {
                (0..1000).try_for_each(|at| exec.launch([&stream, &other][at % 2]))?;
                context.synchronize()
            })
        };
        thousands(1)?; // what as many at once need is kept
        let most = InUse { device: 4 << 20, host: 4 << 20, files: 8 };
        let rounds_of_launches = assert_flat(contexts, &most, || thousands(5))?;
        drop(exec);
        let graphs = 100 + rounds_of_graphs * 100 * hundreds as u32;
        let launches = 1000 + rounds_of_launches * 5000;
        assert_eq!(stream.download_vec(&x)?, [graphs + launches; 1000]);
        Ok(())
    }
}
