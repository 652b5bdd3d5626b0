//! Events and memory that other code owns, and those that the library hands over to other code.

use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use cuda_core::{
    Allocator, CachingPool, DeviceBuffer, Error, Event, EventFlags, MemoryPool, Rejected, Result,
};
use cuda_sys::{CUdeviceptr, CUevent, CUresult, cuEventDestroy_v2, cuMemFree_v2};
use support::{check, gpu_test, one_stream, refusal, stall, two_streams};

/// An event or memory that the library has handed over. Dropping this releases it, and counts that.
struct Taken {
    event: CUevent,
    memory: CUdeviceptr,
    released: Arc<AtomicU32>,
}

// SAFETY: any thread may use the handle.
unsafe impl Send for Taken {}
// SAFETY: a shared reference gives access to the handles alone, which threads may use concurrently.
unsafe impl Sync for Taken {}

impl Taken {
    fn event(event: CUevent, released: &Arc<AtomicU32>) -> Self {
        Self { event, memory: 0, released: released.clone() }
    }

    fn memory(memory: CUdeviceptr, released: &Arc<AtomicU32>) -> Self {
        Self { event: ptr::null_mut(), memory, released: released.clone() }
    }

    fn release(&self) -> CUresult {
        match self.memory {
            // SAFETY: the library has handed the event over, and no other code uses it.
            0 => unsafe { cuEventDestroy_v2(self.event) },
            // SAFETY: the library has handed the memory over, and no work uses it.
            memory => unsafe { cuMemFree_v2(memory) },
        }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.released.fetch_add(1, Ordering::SeqCst);
        let mut result = self.release();
        if result != cuda_sys::CUDA_SUCCESS {
            // A sweep lets one call fail, and looks for leaks afterwards.
            result = self.release();
        }
        if !thread::panicking() {
            check("release", result);
        }
    }
}

gpu_test! {
    needs 1, asynchronous;
    fn d_an_event_with_an_owner() -> Result<()> {
        let (context, stream, other) = two_streams()?;
        let released = Arc::new(AtomicU32::new(0));
        let start = stream.record_event(EventFlags::DEFAULT)?;
        let raw = Event::new(&context, EventFlags::DEFAULT)?.into_raw()?;
        let owner = Box::new(Taken::event(raw, &released));
        // SAFETY: the owner destroys the event.
        let event = unsafe { Event::from_raw(raw, EventFlags::DEFAULT, &context, owner) }?;
        assert_eq!((event.as_raw(), event.flags()), (raw, EventFlags::DEFAULT));
        assert_eq!(event.context(), &context);
        let stalled = stall(stream.as_raw());
        event.record(&stream)?;
        other.wait_event(&event)?;
        assert!(!event.query()? && !other.query()?);
        stalled.release();
        event.synchronize()?;
        other.synchronize()?;
        event.elapsed_since(&start)?;
        // The event belongs to its owner.
        let refused = event.into_raw().expect_err("the owner has it");
        assert!(refused.error.to_string().contains("owner"), "{refused}");
        let Rejected { value: event, .. } = refused;
        event.record(&stream)?;
        event.synchronize()?;
        assert_eq!(released.load(Ordering::SeqCst), 0);
        event.close()?;
        assert_eq!(released.load(Ordering::SeqCst), 1);
        // SAFETY: the null handle is refused.
        let null = unsafe {
            Event::from_raw(ptr::null_mut(), EventFlags::DEFAULT, &context, ())
        };
        assert!(refusal(null).contains("null"));
        Ok(())
    }
}

gpu_test! {
    needs 1, asynchronous;
    fn e_memory_is_handed_over_when_its_work_is_done() -> Result<()> {
        let (context, stream, other) = two_streams()?;
        let released = Arc::new(AtomicU32::new(0));
        let pool = MemoryPool::builder(stream.device()).build()?;
        let buffers = [
            context.alloc::<u32>(100)?,
            stream.alloc_with(&Allocator::plain(), 100)?,
            stream.alloc_with(&Allocator::driver_pool(), 100)?,
            stream.alloc_from(&pool, 100)?,
        ];
        for (mut buffer, round) in buffers.into_iter().zip(1u32..) {
            let address = buffer.as_raw();
            stream.fill(&mut buffer, 0)?;
            stream.synchronize()?;
            let stalled = stall(other.as_raw());
            other.fill(&mut buffer, round)?;
            stalled.release_after(Duration::from_millis(10));
            let handed_over = buffer.into_raw()?;
            let owner = Box::new(Taken::memory(handed_over.0, &released));
            assert!(other.query()?, "it waited");
            assert_eq!(handed_over, (address, 100));
            // SAFETY: the owner frees the memory, which nothing uses any more.
            let again = unsafe { DeviceBuffer::<u32>::from_raw(address, 100, &context, owner) }?;
            assert_eq!(stream.download_vec(&again)?, [round; 100]);
            again.close()?;
            assert_eq!(released.load(Ordering::SeqCst), round);
        }
        let empty = stream.alloc_with::<u32>(&Allocator::driver_pool(), 0)?;
        assert_eq!(empty.into_raw()?, (0, 0));
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn e_memory_that_is_no_allocation_stays() -> Result<()> {
        let (context, stream) = one_stream()?;
        let pool = CachingPool::new();
        let custom = Allocator::new(pool.allocator());
        let memory = context.alloc::<u8>(4096)?;
        let (address, owner) = (memory.as_raw(), Box::new(memory));
        let buffers = [
            (stream.alloc_with::<u8>(&pool.allocator(), 4096)?, "caching pool"),
            (stream.alloc_with::<u8>(&custom, 4096)?, "custom allocator"),
            // SAFETY: the memory belongs to the owner, and no other code uses it.
            (unsafe { DeviceBuffer::<u8>::from_raw(address, 4096, &context, owner) }?, "owner"),
        ];
        for (mut buffer, why) in buffers {
            stream.fill(&mut buffer, 7)?;
            let Rejected { error, value: buffer } = buffer.into_raw().expect_err(why);
            assert!(refusal::<()>(Err(error)).contains(why));
            assert_eq!(stream.download_vec(&buffer)?, [7; 4096], "{why}");
            buffer.close().map_err(Error::from)?;
        }
        Ok(())
    }
}
