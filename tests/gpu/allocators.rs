//! I: the choice of allocators.

use std::ffi::{c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use cuda_core::{
    Allocator, AllocatorError, CachingPool, Context, ContextFlags, Device, DeviceAllocator, Error,
    Graph, Rejected, Result, Stream, default_allocator, set_default_allocator, with_allocator,
};
use cuda_sys::symbol as cu;
use support::{check, gpu_test};

use crate::forms::{contents, same};
use crate::graphs::not_captured;

/// An allocator that records its calls and forwards them.
struct Noting {
    inner: Allocator,
    name: &'static str,
    log: Arc<Mutex<Vec<(&'static str, usize)>>>,
}

// SAFETY: the inner allocator fulfils the contract.
unsafe impl DeviceAllocator for Noting {
    fn allocate(&self, stream: &Stream, bytes: usize) -> Result<u64> {
        self.log.lock().expect("no panic").push((self.name, bytes));
        self.inner.allocate(stream, bytes)
    }

    unsafe fn deallocate(&self, stream: &Stream, address: u64, bytes: usize) -> Result<()> {
        // SAFETY: the inner allocator allocated it, and the caller no longer uses it.
        unsafe { self.inner.deallocate(stream, address, bytes) }
    }

    fn name(&self) -> &str {
        self.name
    }
}

type Log = Arc<Mutex<Vec<(&'static str, usize)>>>;

fn noting(name: &'static str, log: &Log) -> Allocator {
    let (inner, log) = (Allocator::driver_pool(), log.clone());
    Allocator::new(Noting { inner, name, log })
}

fn taken(log: &Log) -> Vec<(&'static str, usize)> {
    std::mem::take(&mut log.lock().expect("no panic"))
}

gpu_test! {
    needs 1;
    fn i01_every_allocator_serves() -> Result<()> {
        let stream = Device::get(0)?.create_stream()?;
        let log = Log::default();
        let pool = Allocator::driver_pool();
        let same_pool = pool.clone();
        let allocate = move |stream: &Stream, bytes| pool.allocate(stream, bytes);
        let deallocate = move |stream: &Stream, address, bytes| {
            // SAFETY: the same pool allocated it, and the caller no longer uses it.
            unsafe { same_pool.deallocate(stream, address, bytes) }
        };
        // SAFETY: the driver's pool fulfils the contract.
        let closures = unsafe { Allocator::from_closures(allocate, deallocate) };
        for allocator in [
            Allocator::cache(),
            Allocator::driver_pool(),
            Allocator::plain(),
            CachingPool::new().allocator(),
            noting("one", &log),
            closures,
        ] {
            let before = set_default_allocator(&allocator)?;
            let filled = (|| {
                let mut buffer = stream.alloc_zeroed::<u8>(3000)?;
                assert_eq!(buffer.as_raw() % 256, 0);
                stream.fill(buffer.slice_mut(1..2)?, 5)?;
                contents(&stream, &buffer)
            })();
            set_default_allocator(&before)?;
            let mut expected = vec![0; 3000];
            expected[1] = 5;
            same(&filled?, &expected, allocator.name());
        }
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn i02_scope() -> Result<()> {
        let stream = Device::get(0)?.create_stream()?;
        let log = Log::default();
        let (a, b) = (noting("a", &log), noting("b", &log));
        with_allocator(&a, || {
            with_allocator(&b, || stream.alloc::<u8>(1).map(drop))?;
            let panicked = catch_unwind(AssertUnwindSafe(|| {
                with_allocator(&b, || panic!("of the test's"));
            }));
            assert!(panicked.is_err());
            stream.alloc::<u8>(2).map(drop)
        })?;
        stream.alloc::<u8>(3).map(drop)?;
        assert_eq!(taken(&log), [("b", 1), ("a", 2)]);
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn i03_set_inside_scope() -> Result<()> {
        let device = Device::get(0)?;
        let stream = device.create_stream()?;
        let log = Log::default();
        let (a, b) = (noting("a", &log), noting("b", &log));
        with_allocator(&a, || {
            let refused = set_default_allocator(&b).expect_err("inside a scope");
            assert!(matches!(refused, Error::Invalid(ref it) if it.reason.contains("with_allocator")), "{refused:?}");
            let refused = device.set_allocator(Some(&b)).expect_err("inside a scope");
            assert!(matches!(refused, Error::Invalid(ref it) if it.reason.contains("with_allocator")), "{refused:?}");
            stream.alloc::<u8>(1).map(drop)
        })?;
        stream.alloc::<u8>(2).map(drop)?;
        assert_eq!(taken(&log), [("a", 1)], "nothing changed");
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn i04_scope_thread_local() -> Result<()> {
        let stream = Device::get(0)?.create_stream()?;
        let log = Log::default();
        let (all, one) = (noting("all", &log), noting("one", &log));
        let initial = default_allocator()?;
        let before = set_default_allocator(&all)?;
        assert_eq!(before.name(), initial.name());
        let result = with_allocator(&one, || {
            assert_eq!(default_allocator()?.name(), "all", "whatever the scope has");
            thread::scope(|scope| scope.spawn(|| stream.alloc::<u8>(4).map(drop)).join())
                .expect("no panic")
        });
        set_default_allocator(&before)?;
        result?;
        assert_eq!(taken(&log), [("all", 4)]);
        Ok(())
    }
}

gpu_test! {
    needs 2;
    fn i04_a_devices_own() -> Result<()> {
        let [one, two] = [Device::get(0)?, Device::get(1)?];
        let log = Log::default();
        let own = noting("own", &log);
        assert!(one.set_allocator(Some(&own))?.is_none());
        let result = (|| {
            drop(one.create_stream()?.alloc::<u8>(1)?);
            drop(two.create_stream()?.alloc::<u8>(2)?);
            Ok(())
        })();
        assert!(one.set_allocator(None)?.is_some());
        drop(one.create_stream()?.alloc::<u8>(3)?);
        assert_eq!(taken(&log), [("own", 1)]);
        result
    }
}

gpu_test! {
    needs 1;
    fn i04_freed_by_the_allocator_that_allocated() -> Result<()> {
        let stream = Device::get(0)?.create_stream()?;
        for allocator in [Allocator::cache(), Allocator::plain(), Allocator::driver_pool()] {
            let buffer = with_allocator(&Allocator::driver_pool(), || stream.alloc::<u8>(100))?;
            with_allocator(&allocator, || drop(buffer));
            let buffer = with_allocator(&allocator, || stream.alloc::<u8>(100))?;
            with_allocator(&Allocator::plain(), || drop(buffer));
        }
        stream.synchronize()
    }
}

/// The arguments that the C functions below received.
#[derive(Default)]
struct Seen {
    allocated: Mutex<Vec<(usize, usize, c_int)>>,
    freed: Mutex<Vec<(usize, usize, c_int)>>,
}

unsafe extern "C" fn c_allocate(
    parameter: *mut c_void,
    bytes: usize,
    device: c_int,
) -> *mut c_void {
    // SAFETY: the test passes a `Seen` that outlives the allocator.
    let seen = unsafe { &*parameter.cast::<Seen>() };
    seen.allocated.lock().expect("no panic").push((parameter.addr(), bytes, device));
    let mut address = 0;
    // SAFETY: the pointer is valid for a write; the test has made a context current.
    check("cuMemAlloc", unsafe { cu::cuMemAlloc_v2(&mut address, bytes) });
    std::ptr::without_provenance_mut(address as usize)
}

unsafe extern "C" fn c_free(parameter: *mut c_void, address: *mut c_void, device: c_int) {
    // SAFETY: the test passes a `Seen` that outlives the allocator.
    let seen = unsafe { &*parameter.cast::<Seen>() };
    seen.freed.lock().expect("no panic").push((parameter.addr(), address.addr(), device));
    // SAFETY: `c_allocate` allocated it, and it is freed once.
    check("cuMemFree", unsafe { cu::cuMemFree_v2(address.addr() as u64) });
}

/// Counts its drops.
struct Owner {
    dropped: Arc<AtomicUsize>,
    _seen: Arc<Seen>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }
}

gpu_test! {
    needs 1;
    fn i05_c_allocator_args() -> Result<()> {
        let device = Device::get(0)?;
        let stream = device.create_stream()?;
        let _guard = device.enter()?;
        let (seen, dropped) = (Arc::new(Seen::default()), Arc::new(AtomicUsize::new(0)));
        let parameter = Arc::as_ptr(&seen).cast_mut().cast::<c_void>();
        let owner = Owner {
            dropped: dropped.clone(),
            _seen: seen.clone(),
        };
        // SAFETY: the functions allocate and free with the driver, and the owner keeps their
        // parameter alive.
        let allocator = unsafe {
            Allocator::from_functions(c_allocate, c_free, parameter, Box::new(owner))
        };
        let mut buffer = stream.alloc_with::<u8>(&allocator, 5000)?;
        stream.fill(&mut buffer, 5)?;
        same(&contents(&stream, &buffer)?, &[5; 5000], "from C");
        drop(stream.alloc_with::<u8>(&allocator, 0)?);
        // The functions' memory belongs to the primary context: another context could not access it.
        let created = Context::new(device, ContextFlags::default())?;
        let elsewhere = created.create_stream()?.alloc_with::<u8>(&allocator, 100);
        assert!(matches!(elsewhere, Err(Error::WrongContext(_))), "{elsewhere:?}");
        let address = buffer.as_raw() as usize;
        drop(allocator);
        assert_eq!(dropped.load(Ordering::Relaxed), 0, "a block keeps its allocator");
        assert!(seen.freed.lock().expect("no panic").is_empty());
        drop(buffer);
        assert_eq!(dropped.load(Ordering::Relaxed), 1);
        assert_eq!(*seen.allocated.lock().expect("no panic"), [(parameter.addr(), 5000, 0)]);
        assert_eq!(*seen.freed.lock().expect("no panic"), [(parameter.addr(), address, 0)]);
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn i07_allocator_fails() -> Result<()> {
        /// A way in which an allocator fails.
        type Failing = fn() -> Result<u64>;
        let device = Device::get(0)?;
        let stream = device.create_stream()?;
        let usage = CachingPool::shared()?.usage(device);
        let cases: [(Failing, &str); 4] = [
            (|| Ok(0), "null"),
            (|| panic!("of the test's"), "of the test's"),
            (|| Err(Error::ContextInUse), "still in use"),
            (|| Ok(1), "aligned"),
        ];
        for (fails, says) in cases {
            // SAFETY: the returned address is not memory; the library must detect that.
            let allocator = unsafe { Allocator::from_closures(move |_, _| fails(), |_, _, _| Ok(())) };
            let before = set_default_allocator(&allocator)?;
            let failed = stream.alloc::<u8>(100);
            set_default_allocator(&before)?;
            let error = failed.expect_err("it has no memory");
            assert!(error.to_string().contains(says), "{error}");
            let passed_on = match &error {
                Error::Allocator(why) => !matches!(**why, AllocatorError::LimitExceeded { .. }),
                other => *other == Error::ContextInUse,
            };
            assert!(passed_on, "{error:?}");
        }
        // The restored default allocator works.
        drop(stream.alloc::<u8>(100)?);
        assert!(CachingPool::shared()?.usage(device).used == usage.used);
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn i07_a_free_that_fails() -> Result<()> {
        let stream = Device::get(0)?.create_stream()?;
        let pool = Allocator::driver_pool();
        let freed = Arc::new(AtomicUsize::new(0));
        let (same_pool, tries) = (pool.clone(), freed.clone());
        let allocate = move |stream: &Stream, bytes| pool.allocate(stream, bytes);
        let deallocate = move |stream: &Stream, address, bytes| {
            if tries.fetch_add(1, Ordering::Relaxed) == 0 {
                return Err(Error::LostStream);
            }
            // SAFETY: the same pool allocated it, and the caller no longer uses it.
            unsafe { same_pool.deallocate(stream, address, bytes) }
        };
        // SAFETY: the driver's pool fulfils the contract; a free that failed had no effect.
        let allocator = unsafe { Allocator::from_closures(allocate, deallocate) };
        let buffer = stream.alloc_with::<u8>(&allocator, 100)?;
        let Err(Rejected { error, value: buffer }) = buffer.close() else {
            panic!("the first free fails");
        };
        assert!(matches!(error, Error::LostStream), "{error:?}");
        buffer.close()?;
        assert_eq!(freed.load(Ordering::Relaxed), 2);
        stream.synchronize()
    }
}

// Another stream of the pool would make it query events of the capture, which ends the capture.
gpu_test! {
    needs 1;
    fn l22_pools_do_not_serve_captured_streams_themselves() -> Result<()> {
        const BYTES: usize = 4 << 20;
        let context = Device::get(0)?.context()?;
        let (device, other) = (context.device(), context.create_stream()?);
        let pool = CachingPool::new();
        Graph::capture(&context, |captured| {
            not_captured(pool.allocate(captured, BYTES), "CachingPool::allocate");
            not_captured(Allocator::cache().allocate(captured, BYTES), "CachingPool::allocate");
            not_captured(Allocator::driver_pool().allocate(captured, BYTES), "cuMemAllocAsync");
            let address = pool.allocate(&other, BYTES)?;
            // SAFETY: the free is refused, so the block stays allocated.
            not_captured(unsafe { pool.deallocate(captured, address, BYTES) }, "CachingPool::deallocate");
            assert_eq!(pool.usage(device).used, BYTES);
            // SAFETY: allocated for this stream, and not used.
            unsafe { pool.deallocate(&other, address, BYTES) }?;
            // The pool can still allocate memory for the capture's operations.
            let mut scratch = captured.alloc_with::<u8>(&pool.allocator(), BYTES)?;
            captured.fill(&mut scratch, 1)?;
            drop(other.alloc_with::<u8>(&pool.allocator(), BYTES)?);
            Ok(())
        })?;
        other.synchronize()?;
        assert_eq!(pool.usage(device).used, 0);
        pool.trim(0)?;
        assert_eq!(pool.usage(device).reserved, 0, "no block was lost");
        Ok(())
    }
}
