//! Memory that is not stream-ordered.

use cuda_core::{
    DeviceBuffer, MemoryPool, PeerAccess, PinnedBuffer, PointerAttributes, Registered,
    interop::IpcMemoryHandle,
    managed::{Advice, ManagedBuffer, MemoryLocation},
    pinned::RegisterFlags,
    pools::PoolReuse,
};

use support::refusal;

use super::*;

const ATTRIBUTE: &str = "cuDeviceGetAttribute";

#[test]
fn plain_memory_costs_a_guard() {
    Counted::run(|driver| {
        let (context, stream, _) = two_streams()?;
        let alloc = entered([EXCHANGE, "cuMemAlloc_v2", EXCHANGE]);
        let mut a = driver.expect(alloc.clone(), || context.alloc::<u32>(16))?;
        // It is used like any other device memory.
        driver.expect(["cuMemsetD32Async"], || stream.fill(&mut a, 1))?;
        driver.expect(["cuMemsetD32Async"], || stream.fill(&mut a, 2))?;
        driver.expect(entered(["cuIpcGetMemHandle"]), || a.ipc_handle())?;
        a.synchronize()?;
        driver.expect(relaxed("cuMemFree_v2"), || a.close())?;
        let pitched = entered([EXCHANGE, "cuMemAllocPitch_v2", EXCHANGE]);
        let rows = driver.expect(pitched, || context.alloc_pitched::<u32>(16, 2))?;
        driver.expect(relaxed("cuMemFree_v2"), || rows.close())?;
        let none = context.alloc::<u32>(0)?;
        driver.expect([], || none.close())?;
        for (width, height) in [(0, 0), (0, 3), (3, 0)] {
            let none = driver.expect([], || context.alloc_pitched::<u32>(width, height))?;
            driver.expect([], || none.close())?;
        }
        driver.refused(|| context.alloc::<u64>(1 << 61));
        driver.refused(|| context.alloc_pitched::<u64>(1 << 61, 1));
        let ordered = stream.alloc::<u8>(1)?;
        driver.refused(|| ordered.ipc_handle());
        Ok(())
    });
}

#[test]
#[cfg(all(unix, not(miri)))]
fn memory_of_others_costs_a_guard() {
    use cuda_core::{
        interop::{ExternalMemory, ExternalMemoryKind, ShareableHandle},
        virtual_memory::PhysicalMemory,
    };

    Counted::run(|driver| {
        let (context, stream, _) = two_streams()?;
        let memory = PhysicalMemory::new(&context, 1, ShareableHandle::PosixFd)?;
        let (fd, kind) = (memory.export_fd()?, ExternalMemoryKind::Allocation);
        let import = entered([EXCHANGE, "cuImportExternalMemory", EXCHANGE]);
        let imported = driver.expect(import, || {
            // SAFETY: the descriptor is of this size, and no other code uses the memory.
            unsafe { ExternalMemory::import_fd(&context, fd, memory.size(), kind) }
        })?;
        let map = entered([EXCHANGE, "cuExternalMemoryGetMappedBuffer", EXCHANGE]);
        let mut buffer = driver.expect(map, || imported.into_buffer::<u32>(0, 16))?;
        driver.expect(["cuMemsetD32Async"], || stream.fill(&mut buffer, 1))?;
        buffer.synchronize()?;
        let mut free = relaxed("cuMemFree_v2").to_vec();
        free.extend(entered([EXCHANGE, "cuDestroyExternalMemory", EXCHANGE]));
        Ok(driver.expect(free, || buffer.close())?)
    });
}

#[test]
fn write_combined_memory_costs_no_more() {
    Counted::run(|driver| {
        let (context, _, _) = two_streams()?;
        let alloc = || entered([EXCHANGE, "cuMemHostAlloc", EXCHANGE]);
        let host = driver.expect(alloc(), || PinnedBuffer::<u8>::new(&context, 64))?;
        drop(host);
        let host = driver.expect(alloc(), || PinnedBuffer::<u8>::write_combined(&context, 64))?;
        driver.expect(entered(["cuMemHostGetDevicePointer_v2"]), || host.device_ptr())?;
        Ok(())
    });
}

#[test]
fn registering_costs_a_guard() {
    Counted::run(|driver| {
        let (context, stream, _) = two_streams()?;
        let new = |host: Vec<u32>| Registered::new(&context, host, RegisterFlags::PORTABLE);
        // The library queries whether other code has registered the memory: if so, a failed call must not
        // unregister it.
        let look = "cuPointerGetAttributes";
        let register = entered([EXCHANGE, look, "cuMemHostRegister_v2", EXCHANGE]);
        let host = driver.expect(register.clone(), || new(vec![1; 16]))?;
        let mut buffer = stream.alloc::<u32>(16)?;
        driver.expect([UPLOAD], || stream.upload(&host, &mut buffer))?;
        stream.synchronize()?;
        let unregister = entered([EXCHANGE, "cuMemHostUnregister", EXCHANGE]);
        driver.expect(unregister.clone(), || host.into_inner())?;
        let read_only = [&[ATTRIBUTE][..], &register].concat();
        let host = driver.expect(read_only, || {
            Registered::read_only(&context, vec![1_u32; 16], RegisterFlags::NONE)
        })?;
        driver.expect(unregister, || drop(host));
        let none = driver.expect([], || new(Vec::new()))?;
        driver.expect([], || none.into_inner())?;
        driver.refused(|| Registered::new(&context, vec![1_u32], RegisterFlags::from_bits(16)));
        Ok(())
    });
}

#[test]
fn managed_memory_costs_what_device_memory_does() {
    Counted::run(|driver| {
        let (context, stream, _) = two_streams()?;
        let alloc = [
            // Queries whether the device has managed memory, and whether each of the four devices accesses it
            // concurrently with the host.
            &[ATTRIBUTE; 5][..],
            &entered([EXCHANGE, "cuMemAllocManaged", EXCHANGE]),
        ];
        let mut values =
            driver.expect(alloc.concat(), || ManagedBuffer::<u32>::new(&context, 16))?;
        driver.expect([], || values.as_mut_slice().map(|values| values.fill(1)))?;
        driver.expect(["cuMemsetD32Async"], || stream.fill(&mut values, 1))?;
        let here = MemoryLocation::Device(context.device());
        driver.expect(["cuMemPrefetchAsync"], || values.prefetch(&stream, .., here))?;
        driver.expect([], || values.prefetch(&stream, 3..3, here))?;
        let advise = entered(["cuMemAdvise"]);
        driver.expect(advise, || values.advise(.., Advice::SetReadMostly))?;
        driver.expect(entered(["cuMemRangeGetAttribute"; 4]), || values.attributes(..))?;
        driver.refused(|| values.advise(17.., Advice::SetReadMostly));
        stream.synchronize()?;
        driver.expect([], || values.as_slice().map(|_| ()))?;
        Ok(driver.expect(relaxed("cuMemFree_v2"), || values.close())?)
    });
}

#[test]
fn pools_cost_one_call_each() {
    Counted::run(|driver| {
        let (context, stream, _) = two_streams()?;
        let device = context.device();
        let set = "cuMemPoolSetAttribute";
        let create = [ATTRIBUTE, EXCHANGE, "cuMemPoolCreate", set, EXCHANGE];
        let pool = driver.expect(create, || MemoryPool::builder(device).build())?;
        let buffer = driver
            .expect(relaxed("cuMemAllocFromPoolAsync"), || stream.alloc_from::<u8>(&pool, 64))?;
        driver.expect(relaxed(FREE), || drop(buffer));
        driver.expect([], || stream.alloc_from::<u8>(&pool, 0))?;
        let get = "cuMemPoolGetAttribute";
        let usage = [EXCHANGE, get, get, get, get, EXCHANGE];
        driver.expect(usage, || pool.usage())?;
        driver.expect([EXCHANGE, set, set, EXCHANGE], || pool.reset_peaks())?;
        driver.expect(relaxed(get), || pool.reuse(PoolReuse::Opportunistic))?;
        let trim = [EXCHANGE, get, "cuMemPoolTrimTo", get, EXCHANGE];
        driver.expect(trim, || pool.trim(0))?;
        driver.expect(relaxed("cuMemPoolGetAccess"), || pool.access(device))?;
        driver.expect([], || device.default_memory_pool())?;
        driver.expect(["cuDeviceGetMemPool"], || device.memory_pool())?;
        driver.expect(relaxed("cuMemPoolDestroy"), || pool.close())?;
        let far = Device::get(1)?.create_stream()?;
        let (peer, pool) = (far.device(), MemoryPool::builder(device).build()?);
        driver.expect(relaxed("cuMemPoolSetAccess"), || {
            pool.set_access(peer, PeerAccess::ReadWrite)
        })?;
        // S42: the work of both devices completes first. No stream may be captured: a query of the legacy
        // stream covers all blocking ones.
        let wait = entered([ASK, ASK, EXCHANGE, "cuCtxSynchronize", EXCHANGE]);
        let [ask, set] = ["cuMemPoolGetAccess", "cuMemPoolSetAccess"].map(relaxed);
        let revoke = [&wait[..], &wait, &ask, &set].concat();
        driver.expect(revoke, || pool.set_access(peer, PeerAccess::None))?;
        driver.expect([], || pool.set_access(device, PeerAccess::ReadWrite))?;
        driver.refused(|| pool.set_access(device, PeerAccess::None));
        let pool = MemoryPool::builder(device).build()?;
        driver.refused(|| far.alloc_from::<u8>(&pool, 64));
        Ok(())
    });
}

#[test]
fn looking_costs_one_call() {
    Counted::run(|driver| {
        let (context, _, _) = two_streams()?;
        let buffer = context.alloc::<u8>(64)?;
        let attributes = ["cuPointerGetAttributes"];
        driver.expect(attributes, || PointerAttributes::of_device(buffer.as_raw()))?;
        driver.expect(attributes, || PointerAttributes::of_host(&0))?;
        Ok(())
    });
}

#[test]
fn moving_costs_three_calls() {
    Counted::run(|driver| {
        let (_, stream, _) = two_streams()?;
        let mut buffer = stream.alloc_zeroed::<u32>(16)?;
        let moved = [EXCHANGE, ALLOC, EXCHANGE, COPY, EXCHANGE, FREE, EXCHANGE];
        driver.expect(moved, || buffer.resize(&stream, 32))?;
        driver.expect([], || buffer.resize(&stream, 8))?;
        driver.expect([], || buffer.reserve(&stream, 24))?;
        driver.expect(moved, || buffer.shrink_to_fit(&stream))?;
        driver.expect([], || buffer.shrink_to_fit(&stream))
    });
}

#[test]
fn memory_of_others_costs_nothing_to_take_in() {
    Counted::run(|driver| {
        let (context, stream, _) = two_streams()?;
        let memory = context.alloc::<u8>(64)?;
        let address = memory.as_raw();
        let mut buffer = driver.expect([], || {
            // SAFETY: the memory is its own owner, and no other code uses it.
            unsafe { DeviceBuffer::<u8>::from_raw(address, 64, &context, memory) }
        })?;
        driver.expect(["cuMemsetD8Async"], || stream.fill(&mut buffer, 1))?;
        stream.synchronize()?;
        driver.expect(relaxed("cuMemFree_v2"), || buffer.close())?;
        let handle = IpcMemoryHandle::from_bytes(cuda_sim::foreign_memory(64));
        let range = "cuMemGetAddressRange_v2";
        let open = entered([EXCHANGE, "cuIpcOpenMemHandle_v2", EXCHANGE, range]);
        let buffer = driver.expect(open, || {
            // SAFETY: no other process exists that could use the memory.
            unsafe { DeviceBuffer::<u8>::open_ipc(&context, handle, 64) }
        })?;
        // SAFETY: no other process exists that could use the memory.
        let too_long = unsafe { DeviceBuffer::<[u8; 48]>::open_ipc(&context, handle, 2) };
        let why = refusal(too_long);
        assert!(why.ends_with("2 elements were asked for, and the memory has 1 element"), "{why}");
        let close = entered([EXCHANGE, "cuIpcCloseMemHandle", EXCHANGE]);
        Ok(driver.expect(close, || buffer.close())?)
    });
}
