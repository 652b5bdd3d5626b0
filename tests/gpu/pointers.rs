//! Pointer attributes, and memory allocated elsewhere.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cuda_core::{
    Access, Allocator, Device, DeviceBuffer, Error, Graph, MemoryType, PinnedBuffer,
    PointerAttributes, Result, is_pinned,
};
use cuda_sys::{
    CU_MEMHOSTALLOC_DEVICEMAP, CU_MEMHOSTALLOC_WRITECOMBINED, CUDA_SUCCESS, CUdeviceptr,
    cuMemHostGetFlags,
};
use support::{gpu_test, pattern, refusal};

use crate::forms::{contents, same};

gpu_test! {
    needs 1;
    fn e14_pointer_attributes() -> Result<()> {
        let device = Device::get(0)?;
        let context = device.context()?;
        let plain = context.alloc::<u8>(10_000)?;
        let inside = PointerAttributes::of_device(plain.as_raw() + 5000)?;
        assert_eq!(inside.memory_type, Some(MemoryType::Device));
        assert_eq!(inside.device, Some(device));
        assert_eq!(inside.context, context.as_raw());
        assert_eq!(inside.range_start, plain.as_raw());
        assert!(inside.range_size >= 10_000, "{inside:?}");
        assert!(!inside.is_managed && inside.pool.is_null());
        let start = PointerAttributes::of_device(plain.as_raw())?;
        assert_eq!(start.buffer_id, inside.buffer_id);
        assert!(start.host_pointer.is_null(), "the host cannot access it");

        // The device of the current context can access it.
        let _guard = device.enter()?;
        let pinned = PinnedBuffer::<u8>::zeroed(&context, 10_000)?;
        let middle = &raw const pinned.as_slice()?[5000];
        let inside = PointerAttributes::of_host(middle)?;
        assert_eq!(inside.memory_type, Some(MemoryType::Host));
        // The chunk's slab may have been pinned for another device.
        assert!(!inside.context.is_null());
        assert_ne!(inside.device_pointer, 0);
        let seen = PointerAttributes::of_device(inside.device_pointer)?.host_pointer;
        assert_eq!(seen.addr(), middle.addr());
        assert_ne!(inside.buffer_id, start.buffer_id);

        let vector = [0_u8; 100];
        let unknown = PointerAttributes::of_host(vector.as_ptr())?;
        assert_eq!(unknown.memory_type, None);
        assert_eq!((unknown.device, unknown.is_managed), (None, false));
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn e14_pool_memory_names_its_pool() -> Result<()> {
        let device = Device::get(0)?;
        let stream = device.create_stream()?;
        let buffer = stream.alloc_with::<u8>(&Allocator::driver_pool(), 1000)?;
        stream.synchronize()?;
        let attributes = PointerAttributes::of_device(buffer.as_raw() + 999)?;
        assert_eq!(attributes.pool, device.default_memory_pool()?.as_raw());
        assert_eq!(attributes.device, Some(device));
        assert!(attributes.range_start <= buffer.as_raw());
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn f02_is_pinned() -> Result<()> {
        let context = Device::get(0)?.context()?;
        let pinned = PinnedBuffer::<u8>::zeroed(&context, 1000)?;
        let bytes = pinned.as_slice()?;
        assert!(is_pinned(bytes.as_ptr())?);
        assert!(is_pinned(&raw const bytes[500])?);
        assert!(!is_pinned(vec![0_u8; 1000].as_ptr())?);
        let device = context.alloc::<u8>(1000)?;
        assert_eq!(PointerAttributes::of_device(device.as_raw())?.memory_type, Some(MemoryType::Device));
        Ok(())
    }
}

/// An owner that records its drop.
pub(crate) struct Owner {
    pub(crate) _memory: DeviceBuffer<u8>,
    pub(crate) dropped: Arc<AtomicBool>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.dropped.store(true, Ordering::Release);
    }
}

gpu_test! {
    needs 2;
    fn e07_foreign_device() -> Result<()> {
        let (here, there) = (Device::get(0)?, Device::get(1)?);
        let _guard = here.enter()?;
        let memory = there.context()?.alloc::<u8>(4096)?;
        let address = memory.as_raw();
        let dropped = Arc::new(AtomicBool::new(false));
        let owner = Owner { _memory: memory, dropped: dropped.clone() };
        // SAFETY: the memory belongs to the owner, and no other code uses it.
        let mut buffer =
            unsafe { DeviceBuffer::<u32>::from_raw(address, 1024, &there.context()?, owner) }?;
        assert_eq!(buffer.device(), there);
        assert_eq!((buffer.as_raw(), buffer.len()), (address, 1024));
        assert_eq!(PointerAttributes::of_device(buffer.as_raw())?.device, Some(there));
        let wrong = here.create_stream()?.fill(&mut buffer, 1).expect_err("another device's");
        assert!(matches!(wrong, Error::WrongDevice(_)), "{wrong:?}");
        let stream = there.create_stream()?;
        stream.fill(&mut buffer, 5)?;
        assert_eq!(contents(&stream, &buffer.cast::<u8>()?)?[..4], [5, 0, 0, 0]);
        assert!(dropped.load(Ordering::Acquire), "with the buffer");
        Ok(())
    }
}

gpu_test! {
    needs 1, asynchronous;
    fn e07_the_owner_outlives_the_work() -> Result<()> {
        let device = Device::get(0)?;
        let stream = device.create_stream()?;
        let memory = device.context()?.alloc::<u8>(4096)?;
        let address = memory.as_raw();
        let dropped = Arc::new(AtomicBool::new(false));
        let owner = Owner { _memory: memory, dropped: dropped.clone() };
        let context = device.context()?;
        // SAFETY: the memory belongs to the owner, and no other code uses it.
        let mut buffer =
            unsafe { DeviceBuffer::<u8>::from_raw(address, 4096, &context, owner) }?;
        stream.fill(&mut buffer, 1)?;
        stream.synchronize()?;
        let stall = support::stall(stream.as_raw());
        stream.fill(&mut buffer, 2)?;
        let closer = std::thread::spawn(move || buffer.close().map_err(Error::from));
        assert!(!dropped.load(Ordering::Acquire), "work is queued");
        stall.release();
        closer.join().expect("no panic")?;
        assert!(dropped.load(Ordering::Acquire));
        Ok(())
    }
}

struct FreesInOrder {
    address: CUdeviceptr,
    stream: usize,
    dropped: Arc<AtomicBool>,
}

impl Drop for FreesInOrder {
    fn drop(&mut self) {
        self.dropped.store(true, Ordering::Release);
        let free = || {
            let stream = std::ptr::without_provenance_mut(self.stream);
            // SAFETY: the memory is a pool's, and is freed once; the stream is live, and all work that uses
            // the memory comes before.
            unsafe { cuda_sys::cuMemFreeAsync(self.address, stream) }
        };
        // A sweep lets one call fail, and looks for leaks afterwards.
        let freed = free() == cuda_sys::CUDA_SUCCESS || free() == cuda_sys::CUDA_SUCCESS;
        assert!(freed || std::thread::panicking(), "the memory is not free");
    }
}

gpu_test! {
    needs 1, asynchronous;
    fn e07_an_owner_that_frees_in_order_waits_on_the_device() -> Result<()> {
        let device = Device::get(0)?;
        let (stream, other) = (device.create_stream()?, device.create_stream()?);
        let (mut address, raw) = (0, stream.as_raw());
        // SAFETY: the call writes one address, to a local that outlives it; the stream is live.
        let code = device.with(|_| Ok(unsafe { cuda_sys::cuMemAllocAsync(&mut address, 4096, raw) }))?;
        Error::check("cuMemAllocAsync", code)?;
        let dropped = Arc::new(AtomicBool::new(false));
        let owner =
            FreesInOrder { address, stream: stream.as_raw().addr(), dropped: dropped.clone() };
        // SAFETY: the memory belongs to the owner, which frees it in the order of the stream.
        let mut buffer = unsafe { DeviceBuffer::<u8>::from_raw_on(address, 4096, &stream, owner) }?;
        other.fill(&mut buffer, 1)?;
        assert_eq!(contents(&other, &buffer)?, [1; 4096]);
        let stall = support::stall(other.as_raw());
        other.fill(&mut buffer, 2)?;
        drop(buffer);
        assert!(dropped.load(Ordering::Acquire), "nothing was waited for");
        assert!(!stream.query()?, "the stream waits for the other, then frees");
        stall.release();
        stream.synchronize()
    }
}

gpu_test! {
    needs 1;
    fn e07_no_owner_frees_in_the_order_of_a_capture() -> Result<()> {
        let context = Device::get(0)?.context()?;
        let memory = context.alloc::<u8>(4096)?;
        let mut captured = None;
        let graph = Graph::capture(&context, |stream| {
            captured = Some(stream.clone());
            // SAFETY: the memory belongs to a buffer that outlives this one.
            let refused = unsafe { DeviceBuffer::<u8>::from_raw_on(memory.as_raw(), 4096, stream, ()) };
            assert!(refusal(refused).contains("capture"));
            Ok(())
        })?;
        drop(graph);
        let stream = captured.expect("it was captured");
        // SAFETY: as above.
        let refused = unsafe { DeviceBuffer::<u8>::from_raw_on(memory.as_raw(), 4096, &stream, ()) };
        assert!(refused.is_err());
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn e07_empty_and_misaligned() -> Result<()> {
        let context = Device::get(0)?.context()?;
        let dropped = Arc::new(AtomicBool::new(false));
        let owner = |len| -> Result<(u64, Box<Owner>)> {
            let memory = context.alloc::<u8>(len)?;
            Ok((memory.as_raw(), Box::new(Owner { _memory: memory, dropped: dropped.clone() })))
        };
        let (address, empty) = owner(16)?;
        // SAFETY: the memory belongs to the owner.
        let buffer = unsafe { DeviceBuffer::<u32>::from_raw(address, 0, &context, empty) }?;
        assert!(buffer.is_empty() && dropped.swap(false, Ordering::AcqRel));
        let stream = context.create_stream()?;
        let (address, empty) = owner(16)?;
        // SAFETY: as above.
        let buffer = unsafe { DeviceBuffer::<u32>::from_raw_on(address, 0, &stream, empty) }?;
        assert!(buffer.is_empty() && dropped.swap(false, Ordering::AcqRel));
        let (address, odd) = owner(16)?;
        // SAFETY: the memory belongs to the owner, and has 16 bytes from `address` on.
        let refused = unsafe { DeviceBuffer::<u32>::from_raw(address + 2, 1, &context, odd) };
        assert!(refusal(refused).ends_with("aligned to 4"));
        assert!(dropped.load(Ordering::Acquire));
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn f09_mapped() -> Result<()> {
        let device = Device::get(0)?;
        let context = device.context()?;
        let stream = device.create_stream()?;
        let mut host = PinnedBuffer::<u8>::write_combined(&context, 4096)?;
        host.as_mut_slice()?.copy_from_slice(&pattern(9, 4096));
        let address = host.device_ptr()?;
        // SAFETY: the address is that of the pinned memory, which is kept below.
        let mut mapped =
            unsafe { DeviceBuffer::<u8>::from_raw(address, 4096, &context, ()) }?;
        // The device reads and writes the memory in place, at its own address.
        let mut copy = stream.alloc::<u8>(4096)?;
        stream.copy(&mapped, &mut copy)?;
        same(&contents(&stream, &copy)?, &pattern(9, 4096), "read in place");
        // SAFETY: only the fill below uses it before the second call.
        unsafe { host.note_use(&stream, Access::Write) }?;
        stream.fill(&mut mapped, 3)?;
        // SAFETY: only the fill above has used it since the first call.
        unsafe { host.note_use(&stream, Access::Write) }?;
        assert_eq!(host.as_slice()?, [3; 4096], "written in place");
        drop(mapped);
        Ok(())
    }
}

/// The flags that the driver reports for the memory.
fn flags_of(host: &PinnedBuffer<u32>) -> Result<u32> {
    let (mut flags, address) = (0, host.as_slice()?.as_ptr().cast_mut());
    let _current = host.context().enter()?;
    // SAFETY: the call writes one number, to a local; the address is that of a live allocation.
    let code = unsafe { cuMemHostGetFlags(&mut flags, address.cast()) };
    assert_eq!(code, CUDA_SUCCESS);
    Ok(flags)
}

gpu_test! {
    needs 1;
    fn f09_flags() -> Result<()> {
        let context = Device::get(0)?.context()?;
        let mut host = PinnedBuffer::<u32>::write_combined(&context, 100)?;
        // Once the process has used NCCL, driver 580 does not report PORTABLE for newly allocated memory.
        let expected = CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
        let flags = flags_of(&host)?;
        assert_eq!(flags & expected, expected, "{flags:#x}");
        assert_eq!(host.context(), &context);
        host.as_mut_slice()?.fill(8);
        assert_eq!(host.as_slice()?, [8; 100]);
        assert!(PinnedBuffer::<u8>::write_combined(&context, 0)?.as_slice()?.is_empty());
        Ok(())
    }
}
