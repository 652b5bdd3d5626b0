//! S30: an owner's `Drop` panics, and the library contains the panic.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, mpsc};

use cuda_core::{
    Allocator, Context, DeviceAllocator, DeviceBuffer, Error, Event, EventFlags, Registered,
    Rejected, Result, Stream, pinned::RegisterFlags,
};
use cuda_sys::CU_STREAM_PER_THREAD;
use support::{WatchedHost, gpu_test, one_stream, refusal};

use super::primary;

static DROPPED: AtomicU32 = AtomicU32::new(0);

struct Panics;

impl Drop for Panics {
    fn drop(&mut self) {
        DROPPED.fetch_add(1, Ordering::Relaxed);
        panic!("the owner's own drop");
    }
}

/// An allocator that panics when it is dropped.
struct Gone(Panics);

// SAFETY: it allocates from the driver's pool, and frees there.
unsafe impl DeviceAllocator for Gone {
    fn allocate(&self, stream: &Stream, bytes: usize) -> Result<u64> {
        Allocator::driver_pool().allocate(stream, bytes)
    }

    unsafe fn deallocate(&self, stream: &Stream, address: u64, bytes: usize) -> Result<()> {
        // SAFETY: the caller makes the same promise.
        unsafe { Allocator::driver_pool().deallocate(stream, address, bytes) }
    }
}

/// Asserts that `act` dropped the owner, whose panic did not leave `act`.
#[track_caller]
fn contained(what: &str, act: impl FnOnce() -> Result<()>) -> Result<()> {
    let before = DROPPED.load(Ordering::Relaxed);
    let done = catch_unwind(AssertUnwindSafe(act));
    assert!(done.is_ok(), "{what}: the panic came through");
    assert_eq!(DROPPED.load(Ordering::Relaxed), before + 1, "{what}");
    done.unwrap_or(Ok(()))
}

gpu_test! {
    needs 1;
    fn s30_owners_that_panic() -> Result<()> {
        let (context, stream) = one_stream()?;
        let mut memory = context.alloc::<u32>(16)?;
        let address = memory.as_raw();
        for len in [8, 0] {
            contained(&format!("memory of {len} elements"), || {
                // SAFETY: the bytes are allocated, and nothing else uses them meanwhile.
                drop(unsafe { DeviceBuffer::<u32>::from_raw(address, len, &context, Panics) });
                Ok(())
            })?;
        }
        contained("a stream that the library knows", || {
            // SAFETY: the stream outlives the value.
            drop(unsafe { Stream::from_raw(stream.as_raw(), &context, Panics) }?);
            Ok(())
        })?;
        contained("a context that the library knows", || {
            // SAFETY: the context outlives the value.
            drop(unsafe { Context::from_raw(context.as_raw(), Panics) }?);
            Ok(())
        })?;
        let event = stream.record_event(EventFlags::DEFAULT)?;
        contained("an event", || {
            let (flags, owner) = (EventFlags::DEFAULT, Box::new(Panics));
            // SAFETY: the event outlives the value.
            drop(unsafe { Event::from_raw(event.as_raw(), flags, &context, owner) });
            Ok(())
        })?;
        let host = || WatchedHost::new(vec![7_u32; 16], |_| drop(Panics));
        contained("registered memory", || {
            let registered = Registered::new(&context, host(), RegisterFlags::PORTABLE);
            registered.map(drop).map_err(Error::from)
        })?;
        for landed in [false, true] {
            contained("a copy in flight", || {
                let flight = stream.upload_owned(host(), &mut memory);
                let flight = flight?;
                if landed {
                    stream.synchronize()?;
                }
                drop(flight);
                cuda_core::drops::flush();
                Ok(())
            })?;
        }
        contained("an allocator", || {
            let allocator = Allocator::new(Gone(Panics));
            let buffer = stream.alloc_with::<u8>(&allocator, 100)?;
            drop(allocator);
            drop(buffer);
            Ok(())
        })?;
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn s30_owners_that_are_refused_come_back() -> Result<()> {
        let (context, stream) = one_stream()?;
        let owner = Arc::new(());
        for Rejected { error, value } in refused(&context, &stream, &owner) {
            assert!(Arc::ptr_eq(&value, &owner) && matches!(error, Error::Invalid(_)), "{error}");
        }
        let (send, refusals) = mpsc::channel();
        let (known, captured) = (stream.clone(), owner.clone());
        stream.launch_host_func(move || {
            let context = known.context();
            let mut all = refused(context, &known, &captured);
            // SAFETY: the context outlives the object.
            all.extend(unsafe { Context::from_raw(context.as_raw(), captured) }.err());
            send.send(all).expect("the test waits");
        })?;
        stream.synchronize()?;
        let all = refusals.recv().expect("the host function has run");
        assert_eq!(all.len(), 5);
        for Rejected { error, value } in all {
            assert!(Arc::ptr_eq(&value, &owner) && matches!(error, Error::InCallback), "{error}");
        }
        Ok(())
    }
}

/// Returns the errors of wrapping what cannot be wrapped.
fn refused(context: &Context, stream: &Stream, owner: &Arc<()>) -> Vec<Rejected<Arc<()>>> {
    let (given, flags) = (|| owner.clone(), EventFlags::DEFAULT);
    // SAFETY: nothing is wrapped.
    let memory = unsafe { DeviceBuffer::<u32>::from_raw(0, 8, context, given()) }.err();
    // SAFETY: as above.
    let ordered = unsafe { DeviceBuffer::<u32>::from_raw_on(1, 8, stream, given()) }.err();
    // SAFETY: as above.
    let event = unsafe { Event::from_raw(null_mut(), flags, context, given()) }.err();
    // SAFETY: as above.
    let per_thread = unsafe { Stream::from_raw(CU_STREAM_PER_THREAD, context, given()) }.err();
    [memory, ordered, event, per_thread].map(|it| it.expect("it is refused")).into()
}

gpu_test! {
    needs 1;
    fn memory_at_no_address_is_refused() -> Result<()> {
        let context = primary()?;
        let memory = context.alloc::<u32>(16)?;
        let wrap = |address, len| {
            // SAFETY: unless it is refused, the memory is allocated, and no other code uses it.
            unsafe { DeviceBuffer::<u32>::from_raw(address, len, &context, ()) }
        };
        assert!(refusal(wrap(0, 16)).contains("is zero"));
        assert!(refusal(wrap(memory.as_raw() + 2, 8)).contains("whole number"));
        assert_eq!((wrap(0, 0)?.len(), wrap(memory.as_raw(), 16)?.len()), (0, 16));
        Ok(())
    }
}
