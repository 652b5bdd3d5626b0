//! Memory that the host owns or shares: registered memory, foreign memory.

use std::ffi::{c_int, c_void};
use std::mem;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use cuda_core::{
    Access, Allocator, DeviceAllocator, DeviceBuffer, Error, MemoryPool, Registered, Rejected,
    Result, Stream,
    adaptors::Statistics,
    pinned::{RegisterFlags, StableHost, StableHostMut},
};
use cuda_sim::{Fault, LeakKind, Mode};
use cuda_sys::{CUDA_ERROR_UNKNOWN, CUstream};
use support::{OnDrop, WatchedHost, one_stream};

use super::{clean, device, leaking, primary, within};

pub(super) fn registered<H: StableHost>(host: H) -> Result<Registered<H>> {
    Registered::new(&primary(), host, RegisterFlags::PORTABLE).map_err(Error::from)
}

/// The vector is not freed while registered: the registration is undone, or kept because it was requested.
#[test]
fn s10_memory_that_stays_registered_is_not_given_back() {
    clean(|session| {
        let stream = device().create_stream()?;
        let mut x = stream.alloc_zeroed::<u8>(100)?;
        for (then, is_undone) in [("cuPointerGetAttributes", true), ("cuMemHostUnregister", false)]
        {
            let fail = |code, function| Fault::new(code).function(function);
            let register = fail(cuda_sys::CUDA_ERROR_LAUNCH_FAILED, "cuMemHostRegister_v2");
            session.inject(register.takes_effect());
            session.inject(fail(cuda_sys::CUDA_ERROR_UNKNOWN, then));
            let (vector, flags) = (vec![1u8; 13], RegisterFlags::PORTABLE);
            let registered = Registered::new(&primary(), vector, flags);
            session.clear_faults();
            assert_eq!(registered.is_err(), is_undone, "{then}");
            if let Ok(registered) = &registered {
                stream.upload(registered, x.slice_mut(..13)?)?;
                assert_eq!(stream.download_vec(x.slice(..13)?)?, [1; 13]);
            }
            drop(registered);
            // This vector gets the same address if the allocator acts as usual.
            drop(stream.upload_owned(vec![2u8; 20], x.slice_mut(..20)?));
            stream.synchronize()?;
        }
        Ok(())
    });
}

/// A failed call beside a registration of the same elements leaves nothing behind.
#[test]
fn s42_a_registration_that_fails_does_not_end_another_one() {
    clean(|session| {
        let shared: Arc<[u8]> = vec![7; 64].into();
        let host = registered(shared.clone())?;
        let late = Fault::new(cuda_sys::CUDA_ERROR_LAUNCH_FAILED).function("cuMemHostRegister_v2");
        session.inject(late.takes_effect());
        let failed = registered(shared).map(drop);
        assert_eq!(failed.unwrap_err().code(), Some(cuda_sys::CUDA_ERROR_LAUNCH_FAILED));
        assert_eq!(session.calls("cuMemHostUnregister"), 0);
        let stream = device().create_stream()?;
        stream.upload(&host, &mut stream.alloc(64)?)
    });
}

/// Another thread keeps copies of the same page in flight: each copy begins before the previous one has
/// ended.
#[test]
fn s42_unregistering_ends_beside_copies_without_end() {
    /// More copies than may begin before unregistering has delayed one long enough.
    const COPIES: usize = 100;
    /// The time after which a copy that has not begun counts as delayed.
    const DELAYED: Duration = Duration::from_millis(5);
    clean(|_| {
        let shared: Arc<[u8]> = vec![7; 64].into();
        let host = registered(shared.clone())?;
        let streams = [device().create_stream()?, device().create_stream()?];
        let mut buffers = [streams[0].alloc::<u8>(64)?, streams[1].alloc::<u8>(64)?];
        let (end, ends) = mpsc::channel();
        let (begun, begins) = mpsc::channel();
        let begins = Arc::new(Mutex::new(begins));
        // Each copy ends when the next one has begun.
        let mut copy = |nth: usize| {
            let stream = &streams[nth % 2];
            let (end, begins) = (end.clone(), begins.clone());
            stream.launch_host_func(move || {
                let _ = end.send(());
                let _ = begins.lock().expect("no panic").recv_timeout(DELAYED);
            })?;
            let flight = stream.upload_owned(shared.clone(), &mut buffers[nth % 2]);
            flight.map_err(Error::from)
        };
        let mut flights = vec![copy(0)?];
        let unregistered = AtomicBool::new(false);
        thread::scope(|scope| {
            let other = scope.spawn(|| {
                drop(host);
                unregistered.store(true, Ordering::Release);
            });
            while !unregistered.load(Ordering::Acquire) && flights.len() < COPIES {
                if ends.recv_timeout(DELAYED).is_ok() {
                    flights.push(copy(flights.len())?);
                    let _ = begun.send(());
                }
            }
            let copies = flights.len();
            assert!(copies < COPIES, "still waiting after {copies} copies");
            other.join().expect("no panic");
            Ok(())
        })
    });
}

/// Returns host memory that is read when it is dropped.
fn witness(sevens: Arc<AtomicUsize>) -> impl StableHostMut<Element = u8> {
    WatchedHost::new(vec![0_u8; 64], move |bytes| {
        let seen = bytes.iter().filter(|byte| **byte == 7).count();
        sevens.fetch_add(seen, Ordering::Relaxed);
    })
}

#[test]
fn s42_the_owner_is_dropped_behind_the_copy() {
    clean(|session| {
        let (home, other) = (device().create_stream()?, device().create_stream()?);
        let sevens = Arc::new(AtomicUsize::new(0));
        let mut buffer = home.alloc::<u8>(64)?;
        home.fill(&mut buffer, 7)?;
        for _ in 0..2 {
            let mut host = registered(witness(sevens.clone()))?;
            other.download(&buffer, &mut host)?;
            drop(host);
        }
        assert_eq!(sevens.load(Ordering::Relaxed), 128, "{:?}", session.violations());
        Ok(())
    });
}

#[test]
fn s23_forgotten_registrations() {
    leaking(|session| {
        let stream = device().create_stream()?;
        let mut buffer = stream.alloc_zeroed::<u8>(64)?;
        let mut host = registered(vec![1_u8; 64])?;
        stream.upload(&host, &mut buffer)?;
        stream.download(&buffer, &mut host)?;
        mem::forget(host);
        drop((buffer, stream));
        session.settle();
        let kinds: Vec<_> = session.leaks().iter().map(|leak| leak.kind).collect();
        assert!(kinds.contains(&LeakKind::Pinned), "{kinds:?}");
        Ok(())
    });
}

#[test]
fn s31_registered_memory_dropped_in_a_host_function() {
    clean(|_| {
        let (one, two) = (device().create_stream()?, device().create_stream()?);
        let sevens = Arc::new(AtomicUsize::new(0));
        let mut host = registered(witness(sevens.clone()))?;
        let mut buffer = one.alloc::<u8>(64)?;
        one.fill(&mut buffer, 7)?;
        one.download(&buffer, &mut host)?;
        two.launch_host_func(move || drop(host))?;
        two.synchronize()?;
        cuda_core::drops::flush();
        assert_eq!(sevens.load(Ordering::Relaxed), 64);
        Ok(())
    });
}

#[test]
fn s23_shared_owners_are_read_by_both() {
    clean(|_| {
        let stream = device().create_stream()?;
        let shared: Arc<[u32]> = (0..64).collect();
        let host = registered(shared.clone())?;
        let mut buffer = stream.alloc::<u32>(64)?;
        stream.upload(&host, &mut buffer)?;
        // The slice is read while the copy is pending.
        assert_eq!(shared.iter().sum::<u32>(), 2016);
        drop(shared);
        drop(host);
        let mut back = [0; 64];
        stream.download(&buffer, &mut back)?;
        assert_eq!(back[63], 63);
        Ok(())
    });
}

#[test]
fn s02_plain_memory_dropped_under_its_work() {
    clean(|_| {
        let (one, two) = (device().create_stream()?, device().create_stream()?);
        let mut plain = primary().alloc::<u8>(64)?;
        let mut rows = primary().alloc_pitched::<u8>(64, 2)?;
        one.fill(&mut plain, 1)?;
        two.copy(&plain, rows.row_mut(1)?)?;
        drop((one, two));
        drop(plain);
        Ok(rows.close()?)
    });
}

#[test]
fn s17_foreign_memory_outlives_its_work() {
    clean(|_| {
        let stream = device().create_stream()?;
        let memory = primary().alloc::<u8>(64)?;
        let address = memory.as_raw();
        // SAFETY: the memory is its own owner, and no other code uses it.
        let mut buffer = unsafe { DeviceBuffer::<u8>::from_raw(address, 64, &primary(), memory) }?;
        stream.fill(&mut buffer, 1)?;
        drop(stream);
        drop(buffer);
        Ok(())
    });
}

#[test]
fn s17_memory_outlives_its_pool() {
    clean(|_| {
        let (home, other) = (device().create_stream()?, device().create_stream()?);
        let pool = MemoryPool::builder(device()).build()?;
        let mut buffer = home.alloc_from::<u8>(&pool, 64)?;
        drop(pool);
        other.fill(&mut buffer, 1)?;
        drop((home, other));
        drop(buffer);
        Ok(())
    });
}

/// The parameter of `free`, and what `free` found.
struct Freed {
    stream: CUstream,
    busy: AtomicUsize,
}

unsafe extern "C" fn allocate(_: *mut c_void, bytes: usize, _: c_int) -> *mut c_void {
    let guard = device().enter().expect("it has a primary context");
    let mut address = 0;
    // SAFETY: the call writes one address, to a local that outlives it.
    let allocated = unsafe { cuda_sys::symbol::cuMemAlloc_v2(&mut address, bytes) };
    drop(guard);
    support::check("cuMemAlloc", allocated);
    ptr::without_provenance_mut(address as usize)
}

unsafe extern "C" fn free(freed: *mut c_void, address: *mut c_void, _: c_int) {
    // SAFETY: the test passes a `Freed` that outlives the allocator.
    let freed = unsafe { &*freed.cast::<Freed>() };
    // SAFETY: the test keeps the stream alive.
    if unsafe { cuda_sys::cuStreamQuery(freed.stream) } != cuda_sys::CUDA_SUCCESS {
        freed.busy.fetch_add(1, Ordering::Relaxed);
    }
    // SAFETY: `allocate` allocated it, and it is freed once.
    let freed = unsafe { cuda_sys::symbol::cuMemFree_v2(address.addr() as u64) };
    support::check("cuMemFree", freed);
}

/// An allocator around another one may enqueue work of its own, which comes before later work of the stream.
#[test]
fn s02_c_functions_free_behind_uncounted_work() {
    clean(|_| {
        let stream = device().create_stream()?;
        let freed = Freed { stream: stream.as_raw(), busy: AtomicUsize::new(0) };
        let parameter = (&raw const freed).cast_mut().cast();
        // SAFETY: the functions fulfil the contract, on any thread; `freed` outlives all blocks.
        let inner = unsafe { Allocator::from_functions(allocate, free, parameter, ()) };
        let same = inner.clone();
        let wipes = move |stream: &Stream, address, bytes| {
            // SAFETY: the block belongs to this allocator again, and is kept until the stream's work is
            // complete.
            let wiped = unsafe { cuda_sys::cuMemsetD8Async(address, 0, bytes, stream.as_raw()) };
            support::check("cuMemsetD8Async", wiped);
            // SAFETY: the inner allocator allocated it, and all work on it is on the stream by now.
            unsafe { same.deallocate(stream, address, bytes) }
        };
        let allocates = move |stream: &Stream, bytes| inner.allocate(stream, bytes);
        // SAFETY: the inner allocator fulfils the contract.
        let outer = unsafe { Allocator::from_closures(allocates, wipes) };
        let mut buffer = stream.alloc_with::<u8>(&outer, 64)?;
        stream.fill(&mut buffer, 1)?;
        stream.synchronize()?;
        drop(buffer);
        assert_eq!(freed.busy.load(Ordering::Relaxed), 0, "freed before the wipe had run");
        Ok(())
    });
}

/// A failed wait for a block's work differs from a failed free, whatever allocators are around the one that
/// waits.
#[test]
fn i07_a_block_whose_work_could_not_be_waited_for_is_returned() {
    clean(|session| {
        let stream = device().create_stream()?;
        let freed = Freed { stream: stream.as_raw(), busy: AtomicUsize::new(0) };
        let parameter = (&raw const freed).cast_mut().cast();
        // SAFETY: the functions fulfil the contract, on any thread; `freed` outlives all blocks.
        let functions = unsafe { Allocator::from_functions(allocate, free, parameter, ()) };
        let adapted = |inner| Allocator::new(Statistics::new(inner));
        let [plain, pool] = [Allocator::plain(), Allocator::driver_pool()];
        let waits = ["cuEventSynchronize", "cuThreadExchangeStreamCaptureMode"];
        for (allocator, fails) in [
            (plain.clone(), waits[0]),
            (adapted(plain.clone()), waits[0]),
            (functions.clone(), waits[0]),
            (adapted(functions), waits[0]),
            (adapted(plain), waits[1]),
            (adapted(pool), waits[1]),
        ] {
            let mut buffer = stream.alloc_with::<u8>(&allocator, 64)?;
            stream.fill(&mut buffer, 7)?;
            session.inject(Fault::new(CUDA_ERROR_UNKNOWN).function(fails));
            let Err(Rejected { error, value: buffer }) = buffer.close() else {
                panic!("{fails} fails")
            };
            assert_eq!(error, Error::Driver { op: fails, code: CUDA_ERROR_UNKNOWN });
            assert_eq!(stream.download_vec(&buffer)?, [7; 64], "{allocator:?}, {fails}");
            buffer.close()?;
        }
        Ok(())
    });
}

/// An owner may free all memory of its pool, when no block of it is used.
#[test]
fn s31_the_owner_of_c_functions_stays_with_a_block_that_is_not_freed() {
    let session = support::simulator_in(Mode::Lazy);
    within(|| {
        let run = || -> Result<()> {
            let (home, far) = (device().create_stream()?, device().create_stream()?);
            let freed = Freed { stream: home.as_raw(), busy: AtomicUsize::new(0) };
            let parameter = (&raw const freed).cast_mut().cast();
            let dropped = Arc::new(AtomicBool::new(false));
            let seen = dropped.clone();
            let owner = OnDrop(move || dropped.store(true, Ordering::Relaxed));
            // SAFETY: the functions fulfil the contract, on any thread; `freed` outlives all blocks that are
            // freed.
            let allocator = unsafe { Allocator::from_functions(allocate, free, parameter, owner) };
            drop(home.alloc_with::<u8>(&allocator, 64)?);
            let mut buffer = home.alloc_with::<u8>(&allocator, 64)?;
            drop(allocator);
            far.fill(&mut buffer, 7)?;
            for call in ["cuEventSynchronize", "cuStreamWaitEvent"] {
                session.inject(Fault::new(CUDA_ERROR_UNKNOWN).function(call).from_then_on());
            }
            drop(buffer);
            session.clear_faults();
            assert!(!seen.load(Ordering::Relaxed), "dropped under the fill");
            far.synchronize()
        };
        run().expect("no operation of the test fails");
    });
    assert_eq!(session.violations(), []);
    let leaks = session.leaks();
    assert!(matches!(leaks[..], [ref one] if one.kind == LeakKind::Device), "{leaks:?}");
}

/// An allocator may enqueue work of its own on what it allocates.
#[test]
fn s02_other_streams_wait_for_what_an_allocator_has_enqueued() {
    clean(|_| {
        let [one, two] = [device().create_stream()?, device().create_stream()?];
        // The inner allocator counts no work on the stream.
        let inner = Allocator::plain();
        let same = inner.clone();
        let poisons = move |stream: &Stream, bytes| {
            let address = inner.allocate(stream, bytes)?;
            // SAFETY: the block has as many bytes, and nothing else uses it so far.
            let filled =
                unsafe { cuda_sys::cuMemsetD8Async(address, 0xAB, bytes, stream.as_raw()) };
            support::check("cuMemsetD8Async", filled);
            Ok(address)
        };
        let frees = move |stream: &Stream, address, bytes| {
            // SAFETY: the inner allocator allocated it; all work on it is on the stream by now.
            unsafe { same.deallocate(stream, address, bytes) }
        };
        // SAFETY: the inner allocator fulfils the contract; the fill is work of the stream.
        let outer = unsafe { Allocator::from_closures(poisons, frees) };
        let mut buffer = one.alloc_with::<u8>(&outer, 64)?;
        two.fill(&mut buffer, 7)?;
        assert_eq!(two.download_vec(&buffer)?, [7; 64]);
        one.synchronize()?;
        assert_eq!(two.download_vec(&buffer)?, [7; 64]);
        Ok(())
    });
}

/// The first step of noting a use on a stream whose handle was handed out can fail although the work is
/// already enqueued.
#[test]
fn s02_a_use_that_could_not_be_noted_is_waited_for() {
    clean(|session| {
        let (context, stream) = one_stream()?;
        let buffer = context.alloc::<u8>(64)?;
        let raw = stream.as_raw();
        // SAFETY: only the test uses the buffer, and the use is noted below.
        let filled = unsafe { cuda_sys::cuMemsetD8Async(buffer.as_raw(), 1, 64, raw) };
        assert_eq!(filled, cuda_sys::CUDA_SUCCESS);
        session
            .inject(Fault::new(cuda_sys::CUDA_ERROR_LAUNCH_FAILED).function("cuStreamIsCapturing"));
        // SAFETY: the fill only writes the buffer, which nothing else uses.
        let noted = unsafe { buffer.note_use(&stream, Access::Write) };
        assert!(noted.is_err(), "{noted:?}");
        drop(buffer);
        stream.synchronize()
    });
}

/// Only uses of the same part are waited for: one half is noted, and the other is not affected.
#[test]
fn s37_a_part_is_noted_by_hand() {
    clean(|session| {
        let [one, two] = [device().create_stream()?, device().create_stream()?];
        let buffer = one.alloc_zeroed::<u32>(64)?;
        one.checkpoint()?;
        one.synchronize()?;
        let (head, tail) = buffer.as_view().split_at(32)?;
        // SAFETY: no other code enqueues work, and nothing else uses the head.
        unsafe { head.note_use(&two, Access::Write) }?;
        let waits = || session.calls("cuStreamWaitEvent");
        let before = waits();
        let mut copy = one.alloc::<u32>(32)?;
        one.copy(tail, &mut copy)?;
        assert_eq!(waits(), before, "the tail is not noted");
        one.copy(head, &mut copy)?;
        assert_eq!(waits(), before + 1, "the head is");
        let image = one.context().alloc_pitched::<u32>(4, 4)?;
        // SAFETY: as above.
        unsafe { image.note_use(&two, Access::Write) }?;
        one.copy(image.row(3)?, copy.slice_mut(..4)?)?;
        assert_eq!(waits(), before + 2, "all rows are");
        Ok(())
    });
}
