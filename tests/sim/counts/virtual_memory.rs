//! Growing makes only the calls for the new part.

use cuda_core::Error;
use cuda_core::interop::ShareableHandle;
use cuda_core::virtual_memory::{Granularity, PhysicalMemory, VirtualBuffer};
use cuda_sys::{CUDA_SUCCESS, CUmemAllocationProp, cuMemGetAllocationPropertiesFromHandle};

use super::*;

const ATTRIBUTE: &str = "cuDeviceGetAttribute";
const GRANULARITY: &str = "cuMemGetAllocationGranularity";

/// The calls of operations that need a context, each under its own guard.
fn guarded<const N: usize>(calls: [&'static str; N]) -> Vec<&'static str> {
    let relaxed = [&[EXCHANGE], &calls[..], &[EXCHANGE]].concat();
    [&[GET, SET], &relaxed[..], &[SET]].concat()
}

#[test]
fn growing_costs_3_and_shrinking_2() {
    Counted::run(|driver| {
        let (context, stream, _) = two_streams()?;
        let step = context.device().virtual_memory_granularity(Granularity::Minimum)?;
        let reserving = [&[ATTRIBUTE, GRANULARITY], &guarded(["cuMemAddressReserve"])[..]];
        let mut buffer =
            driver.expect(reserving.concat(), || VirtualBuffer::<u8>::new(&context, 4 * step))?;
        let growing = [guarded(["cuMemCreate"]), guarded(["cuMemMap", "cuMemSetAccess"])].concat();
        driver.expect(growing.clone(), || buffer.grow_to(10))?;
        driver.expect([], || buffer.grow_to(step))?;
        driver.expect(growing, || buffer.grow_to(2 * step))?;
        // Mapped memory is used like any other.
        driver.expect(["cuMemsetD8Async"], || stream.fill(&mut buffer, 1))?;
        stream.synchronize()?;
        driver.expect([], || buffer.shrink_to(step + 1))?;
        let [get, set, exchange, exchange_back, set_back] = [GET, SET, EXCHANGE, EXCHANGE, SET];
        // The release finds the context current and the capture mode relaxed.
        let shrinking =
            [get, set, exchange, "cuMemUnmap", GET, "cuMemRelease", exchange_back, set_back];
        driver.expect(shrinking, || buffer.shrink_to(step))?;
        drop(buffer);
        Ok(())
    });
}

#[test]
fn nothing_costs_nothing() {
    Counted::run(|driver| {
        let (context, stream, _) = two_streams()?;
        let mut buffer = driver.expect([], || VirtualBuffer::<u8>::new(&context, 0))?;
        driver.expect([], || buffer.grow_to(0))?;
        driver.expect([], || buffer.shrink_to(0))?;
        driver.expect([], || stream.fill(&mut buffer, 1))?;
        driver.refused(|| buffer.grow_to(1));
        driver.refused(|| VirtualBuffer::<u16>::new(&context, usize::MAX));
        Ok(driver.expect([], || buffer.close())?)
    });
}

#[test]
fn memory_for_rdma_is_marked_and_refused_where_the_device_has_none() {
    Counted::run(|driver| {
        let contexts = Device::contexts([Device::get(0)?, Device::get(1)?])?;
        let asked = [&[ATTRIBUTE, ATTRIBUTE, GRANULARITY], &guarded(["cuMemCreate"])[..]];
        let memory = driver.expect(asked.concat(), || {
            PhysicalMemory::for_rdma(&contexts[0], 1, ShareableHandle::None)
        })?;
        let other = PhysicalMemory::new(&contexts[0], 1, ShareableHandle::None)?;
        for (memory, flag) in [(&memory, 1), (&other, 0)] {
            let mut properties = CUmemAllocationProp::default();
            // SAFETY: the memory is live, and the properties are valid for a write.
            let code =
                unsafe { cuMemGetAllocationPropertiesFromHandle(&mut properties, memory.as_raw()) };
            assert_eq!((code, properties.allocFlags.gpuDirectRDMACapable), (CUDA_SUCCESS, flag));
        }
        let refused = driver.expect([ATTRIBUTE], || {
            PhysicalMemory::for_rdma(&contexts[1], 1, ShareableHandle::None)
        });
        assert!(matches!(refused, Err(Error::Unsupported { .. })), "{refused:?}");
        Ok(())
    });
}
