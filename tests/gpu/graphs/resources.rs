//! What graphs cost and keep: priorities, memory of their own, nothing afterwards.

use std::ptr::null_mut;

use cuda_core::{Device, Graph, Result, sys};
use cuda_sys::{
    CU_STREAM_CAPTURE_MODE_RELAXED, cuGraphExecGetFlags, cuMemAllocAsync, cuMemFreeAsync,
    cuStreamBeginCapture_v2, cuStreamEndCapture,
};
use support::{Driver, check, gpu_test, kernels};

use super::{add_one, context};
use crate::guards::resident_pages;

gpu_test! {
    needs 1, cuda_12_0;
    fn l_priorities_of_kernels_are_kept() -> Result<()> {
        let flags = |graph: &Graph| {
            let (exec, mut flags) = (graph.instantiate()?, 0);
            // SAFETY: the executable is live; the call writes one number, to a local that outlives it.
            check("cuGraphExecGetFlags", unsafe { cuGraphExecGetFlags(exec.as_raw(), &mut flags) });
            Ok::<_, cuda_core::Error>(flags)
        };
        let context = context()?;
        let stream = context.create_stream()?;
        let function = kernels::get(&context, "add_one")?;
        let (_, greatest) = context.stream_priority_range()?;
        let mut x = stream.alloc_zeroed::<u32>(10)?;
        let plain = Graph::capture(&context, |stream| add_one(stream, &function, &mut x))?;
        let urgent = Graph::capture(&context, |stream| {
            let launch = stream.kernel(&function).block(10).priority(greatest);
            // SAFETY: `add_one(u32 *x, u32 n)` reads and writes `n` elements.
            unsafe { launch.arg(&mut x).arg(10u32).launch() }
        })?;
        let nested = Graph::capture(&context, |stream| urgent.include(stream))?;
        let by_node = match Driver::selected() {
            Driver::Simulated { .. } => sys::CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY.0.into(),
            // Driver 580 takes the flag, and does not report it.
            Driver::Loaded => 0,
        };
        assert_eq!((flags(&plain)?, flags(&urgent)?, flags(&nested)?), (0, by_node, by_node));
        urgent.instantiate()?.launch(&stream)?;
        assert_eq!(stream.download_vec(&x)?, [1; 10]);
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
        // SAFETY: a stream of this test's.
        check("cuStreamBeginCapture", unsafe { cuStreamBeginCapture_v2(raw, mode) });
        // SAFETY: as above; the call writes one address, to a local that outlives it.
        check("cuMemAllocAsync", unsafe { cuMemAllocAsync(&mut address, 1 << 20, raw) });
        // SAFETY: allocated above.
        check("cuMemFreeAsync", unsafe { cuMemFreeAsync(address, raw) });
        // SAFETY: the capture began on it; the call writes one handle, to a local that outlives it.
        check("cuStreamEndCapture", unsafe { cuStreamEndCapture(raw, &mut graph) });
        // SAFETY: ended above, not used elsewhere, and of this context; it uses memory of its own.
        let graph = unsafe { Graph::from_raw(graph, &context, ()) }?;
        let mut exec = graph.instantiate()?;
        exec.launch(&stream)?;
        stream.synchronize()?;
        let usage = device.graph_memory()?;
        // Driver 580 counts all that is reserved as used, as long as there is an executable.
        assert!(usage.used <= usage.reserved && usage.used_peak >= 1 << 20, "{usage:?}");
        assert!(usage.reserved >= 1 << 20, "{usage:?}");
        assert_eq!(usage.free, usage.reserved - usage.used);
        drop((exec, graph));
        device.trim_graph_memory()?;
        device.reset_graph_memory_peaks()?;
        let usage = device.graph_memory()?;
        assert_eq!((usage.used_peak, usage.reserved_peak), (usage.used, usage.reserved));
        Ok(())
    }
}

/// The driver of a device may keep some memory; the simulated one counts every byte.
fn tolerance() -> usize {
    match Driver::selected() {
        Driver::Simulated { .. } => 0,
        Driver::Loaded => 64 << 20,
    }
}

/// Elements of the memory of its own that each graph has. What one graph in ten leaked would exceed
/// the tolerance.
const SCRATCH: usize = 32 << 10;

/// What the process itself may take more, the log of the simulated driver included: 7.4 KiB for each of
/// the graphs.
const HOST_TOLERANCE: usize = 72 << 20;

gpu_test! {
    needs 1, heavy;
    fn l_ten_thousand_graphs_leave_memory_flat() -> Result<()> {
        let device = Device::get(0)?;
        let context = device.context()?;
        let (stream, other) = (context.create_stream()?, context.create_stream()?);
        let function = kernels::get(&context, "add_one")?;
        let mut x = stream.alloc_zeroed::<u32>(1000)?;
        let mut round = |launches: u32| -> Result<()> {
            let graph = Graph::capture(&context, |stream| {
                let mut scratch = stream.alloc::<u32>(SCRATCH)?;
                let mut part = scratch.slice_mut(..1000)?;
                stream.copy(&x, part.reborrow())?;
                let launch = stream.kernel(&function).elements(1000);
                // SAFETY: add_one(u32 *x, u32 n) reads and writes `n` elements.
                unsafe { launch.arg(part.reborrow()).arg(1000u32).launch() }?;
                stream.copy(scratch.slice(..1000)?, &mut x)
            })?;
            let mut exec = graph.instantiate()?;
            drop(graph);
            for launch in 0..launches {
                exec.launch(if launch % 2 == 0 { &stream } else { &other })?;
            }
            Ok(())
        };
        let free = || -> Result<usize> {
            context.synchronize()?;
            cuda_core::drops::flush();
            cuda_core::trim()?;
            Ok(device.memory_info()?.free)
        };
        (0..100).try_for_each(|_| round(1))?;
        let before = free()?;
        let resident = resident_pages();
        // Pools of the driver keep what a hundred of them used at once.
        for _ in 0..100 {
            (0..100).try_for_each(|_| round(1))?;
            context.synchronize()?;
            // Deferred drops run behind this thread: on a busy host they would hold many graphs' memory.
            cuda_core::drops::flush();
        }
        round(1000)?;
        let lost = before.saturating_sub(free()?);
        assert!(lost <= tolerance(), "{lost} bytes are gone");
        let grown = resident_pages().saturating_sub(resident) * 4096;
        assert!(grown <= HOST_TOLERANCE, "the process has {grown} bytes more");
        assert_eq!(stream.download_vec(&x)?, [100 + 10_000 + 1000; 1000]);
        Ok(())
    }
}
