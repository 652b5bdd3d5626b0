//! N: threads.

use std::cell::RefCell;
use std::thread;

use cuda_core::{
    Allocator, CachingPool, Context, Device, DeviceBuffer, DeviceSlice, DeviceSliceMut, Error,
    Event, Guard, PerThreadStream, PinnedBuffer, PinnedSlice, PinnedSliceMut, Result, Stream,
    StreamGuard,
};
use support::{freed_behind_a_stall, gpu_test, pattern, stall};

use crate::flat::{InUse, assert_flat};
use crate::forms::{contents, every_form, same, scaled, varied};

/// Runs `work` on that many threads at once and returns the first failure.
fn on_threads(count: usize, work: impl Fn(usize) -> Result<()> + Sync) -> Result<()> {
    thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = (0..count).map(|index| scope.spawn(move || work(index))).collect();
        threads.into_iter().try_for_each(|thread| match thread.join() {
            Ok(result) => result,
            Err(payload) => std::panic::resume_unwind(payload),
        })
    })
}

gpu_test! {
    needs 1;
    fn n03_pool_contention() -> Result<()> {
        let device = Device::get(0)?;
        let rounds = scaled(2_000, 200, 3);
        on_threads(8, |index| {
            let stream = device.create_stream()?;
            for round in 0..rounds {
                let len = 1 + (index * 7919 + round * 104_729) % 8192;
                let mut buffer = stream.alloc::<u8>(len)?;
                let value = (index * 31 + round) as u8;
                stream.fill(&mut buffer, value)?;
                if round % 16 == 0 {
                    same(&contents(&stream, &buffer)?, &vec![value; len], "own bytes");
                }
            }
            for pair in 0..scaled(125_000, 0, 0) {
                drop(stream.alloc::<u8>(1 + pair * 7919 % 8192)?);
            }
            Ok(())
        })
    }
}

gpu_test! {
    needs 1;
    fn n03_every_form_at_once() -> Result<()> {
        let device = Device::get(0)?;
        on_threads(4, |index| {
            let stream = device.create_stream()?;
            let per_thread = stream.context().per_thread_stream()?;
            for len in [1, 4097, scaled(1_048_577, 1_048_577, 5000)] {
                every_form(&stream, &stream, len + index)?;
                every_form(&per_thread, &stream, len + index)?;
                every_form(&stream.context().default_stream()?, &stream, len + index)?;
            }
            Ok(())
        })
    }
}

gpu_test! {
    needs 2;
    fn n03_every_device_at_once() -> Result<()> {
        on_threads(4, |index| {
            let device = Device::get(index as u32 % 2)?;
            let _current = device.enter()?;
            let stream = device.create_stream()?;
            for len in [3, 5000] {
                every_form(&stream, &stream, len)?;
            }
            Ok(())
        })
    }
}

gpu_test! {
    needs 1;
    fn n03_shared_source() -> Result<()> {
        // Many readers of one buffer and one host buffer, on as many streams.
        let device = Device::get(0)?;
        let home = device.create_stream()?;
        let len = 50_021;
        let host = PinnedBuffer::from_slice(home.context(), &varied(3, len))?;
        let mut shared = home.alloc::<u8>(len)?;
        home.upload(&host, &mut shared)?;
        let (shared, host) = (&shared, &host);
        on_threads(8, |index| {
            let stream = device.create_stream()?;
            for _ in 0..scaled(50, 10, 1) {
                same(&contents(&stream, shared)?, &varied(3, len), "the shared buffer");
                let mut own = stream.alloc::<u8>(len)?;
                stream.copy(shared, &mut own)?;
                stream.upload(host.slice(index..)?, own.slice_mut(index..)?)?;
                same(&contents(&stream, &own)?, &varied(3, len), "a copy of it");
            }
            Ok(())
        })?;
        // The fill and its free wait for all of the reads.
        home.fill(&mut home.alloc::<u8>(1)?, 0)
    }
}

gpu_test! {
    needs 1;
    fn n03_halves() -> Result<()> {
        let device = Device::get(0)?;
        let home = device.create_stream()?;
        let len = 1 << 16;
        let mut buffer = home.alloc::<u8>(len)?;
        for round in 0..scaled(50, 20, 2) {
            let (head, tail) = buffer.split_at_mut(len / 2)?;
            thread::scope(|scope| {
                let halves = [(head, 1), (tail, 2)].map(|(mut half, seed)| {
                    scope.spawn(move || {
                        let stream = device.create_stream()?;
                        stream.fill(&mut half, 0)?;
                        stream.upload(&varied(seed + round as u64, len / 2), &mut half)
                    })
                });
                let results = halves.map(|half| half.join().expect("no panic"));
                results.into_iter().try_for_each(|result| result)
            })?;
            // Reads on a third stream, which waits for both.
            let back = contents(&home, &buffer)?;
            same(&back[..len / 2], &varied(1 + round as u64, len / 2), "the first half");
            same(&back[len / 2..], &varied(2 + round as u64, len / 2), "the second half");
        }
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn n08_shared_stream() -> Result<()> {
        let stream = Device::get(0)?.create_stream()?;
        let rounds = scaled(1_250, 100, 5);
        on_threads(8, |index| {
            let mut buffer = stream.alloc::<u32>(64)?;
            for round in 0..rounds {
                let value = (index * rounds + round) as u32;
                stream.upload(&[value; 64], &mut buffer)?;
                if round % 50 == 0 {
                    let mut back = [0; 64];
                    stream.clone().download(&buffer, &mut back)?;
                    assert_eq!(back, [value; 64]);
                }
            }
            let mut back = [0; 64];
            stream.scope(|scope| scope.download(&buffer, &mut back))?;
            assert_eq!(back, [(index * rounds + rounds - 1) as u32; 64]);
            Ok(())
        })
    }
}

/// Calls in which a thread waits while other threads continue.
const WAITS: [(&str, Wait); 7] = [
    ("synchronize", |all| all.stream.synchronize()),
    ("wait of the context", |all| all.stream.context().synchronize()),
    ("wait of a buffer", |all| all.written.synchronize()),
    ("as_slice", |all| all.pinned.as_slice().map(|_| ())),
    ("download", |all| all.stream.download(&all.written, &mut [0; 100])),
    ("scope", |all| {
        let mut back = [0; 100];
        all.stream.scope(|scope| scope.download(&all.written, &mut back))
    }),
    ("large download", |all| all.stream.download(&all.large, &mut vec![0; 3 << 20])),
];

type Wait = fn(&Waited) -> Result<()>;

/// Pending work on a stalled stream.
struct Waited {
    stream: Stream,
    written: DeviceBuffer<u8>,
    large: DeviceBuffer<u8>,
    pinned: PinnedBuffer<u8>,
}

/// Other threads' work during the wait, on the stalled stream and on another.
fn beside(
    all: &Waited,
    device: Device,
    other: &Stream,
    scratch: &mut DeviceBuffer<u8>,
) -> Result<()> {
    for round in 0..20 {
        let mut own = freed_behind_a_stall(|| all.stream.alloc::<u8>(64))?;
        all.stream.fill(&mut own, 1)?;
        all.stream.upload(&[2; 64], &mut own)?;
        drop(own);
        drop(device.enter()?);
        other.upload(&varied(round, 4096), &mut *scratch)?;
        same(&contents(other, scratch)?, &varied(round, 4096), "on the other stream");
    }
    Ok(())
}

gpu_test! {
    needs 1, asynchronous;
    fn n03_no_lock_over_a_wait() -> Result<()> {
        let device = Device::get(0)?;
        let stream = device.create_stream()?;
        let mut all = Waited {
            written: stream.alloc_zeroed(100)?,
            large: stream.alloc_zeroed(3 << 20)?,
            pinned: PinnedBuffer::zeroed(stream.context(), 100)?,
            stream,
        };
        let other = device.create_stream()?;
        let mut scratch = other.alloc::<u8>(4096)?;
        // Warm-up.
        beside(&all, device, &other, &mut scratch)?;
        for (_, wait) in WAITS {
            wait(&all)?;
        }
        for (what, wait) in WAITS {
            let held = stall(all.stream.as_raw());
            all.stream.fill(&mut all.written, 5)?;
            all.stream.download(&all.written, &mut all.pinned)?;
            let shared = &all;
            thread::scope(|scope| {
                let waiter = scope.spawn(move || wait(shared));
                let result = beside(shared, device, &other, &mut scratch);
                let returned = waiter.is_finished();
                held.release();
                waiter.join().expect("no panic")?;
                assert!(!returned, "{what} returned before the stall ended");
                result
            })?;
        }
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn n03_dropped_on_another_thread() -> Result<()> {
        let device = Device::get(0)?;
        for _ in 0..scaled(50, 20, 2) {
            let stream = device.create_stream()?;
            let pinned = PinnedBuffer::from_slice(stream.context(), &pattern(1, 999))?;
            let mut back = PinnedBuffer::<u8>::new(stream.context(), 999)?;
            let mut buffer = stream.alloc::<u8>(999)?;
            stream.upload(&pinned, &mut buffer)?;
            stream.download(&buffer, &mut back)?;
            let event = Event::new(stream.context(), Default::default())?;
            event.record(&stream)?;
            // The copy is in flight, and the other thread has no current context.
            let back = thread::spawn(move || {
                drop((stream, event, pinned, buffer));
                back
            });
            let back = back.join().expect("no panic");
            same(back.as_slice()?, &pattern(1, 999), "all of it was done");
        }
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn n06_thread_exit() -> Result<()> {
        let device = Device::get(0)?;
        let context = device.context()?;
        let home = device.create_stream()?;
        let threads = scaled(1_000, 400, 5);
        let rounds = |count: usize| -> Result<()> {
            for index in 0..count {
                let (context, allocator) = (context.clone(), home.clone());
                let worker = thread::spawn(move || {
                    // Not cached: on the simulated driver, work runs only when a call waits for it.
                    let mut buffer = allocator.alloc_with::<u8>(&Allocator::driver_pool(), 1 << 16)?;
                    let stream = context.per_thread_stream()?;
                    stream.fill(&mut buffer, index as u8)?;
                    let mut back = [0; 16];
                    stream.download(buffer.slice(..16)?, &mut back)?;
                    assert_eq!(back, [index as u8; 16]);
                    // Work of the stream is pending when its thread ends, and the context stays current.
                    stream.fill(&mut buffer, 0xAB)?;
                    context.set_current()?;
                    Ok::<_, Error>(buffer)
                });
                let buffer = worker.join().expect("no panic in the thread or its destructors")?;
                if index % 100 == 0 {
                    same(&contents(&home, &buffer)?, &vec![0xAB; 1 << 16], "after its thread");
                }
            }
            Ok(())
        };
        rounds(threads / 10)?;
        assert_flat(&[device.context()?], &hardly_more(), || rounds(threads - threads / 10))?;
        Ok(())
    }
}

/// Returns the resources that may be in use after many threads: the simulated driver records every call.
fn hardly_more() -> InUse {
    InUse { device: 16 << 20, host: scaled(32, 64, 64) << 20, files: 8 }
}

/// Objects that a thread may still hold when it ends.
struct Left {
    _guard: StreamGuard,
    _stream: Stream,
    _own: PerThreadStream,
    _buffer: DeviceBuffer<u8>,
}

thread_local! {
    static LEFT: RefCell<Option<Left>> = const { RefCell::new(None) };
}

gpu_test! {
    needs 1;
    fn n06_streams_of_threads_that_end() -> Result<()> {
        let device = Device::get(0)?;
        let context = device.context()?;
        let pool = CachingPool::shared()?;
        let threads = scaled(1_000, 400, 6);
        let used = pool.usage(device).used;
        let rounds = |count: usize| -> Result<()> {
            for index in 0..count {
                let context = context.clone();
                let worker = thread::spawn(move || {
                    let stream = context.create_stream()?;
                    let guard = stream.enter()?;
                    let current = context.current_stream()?;
                    let mut buffer = current.alloc_with::<u8>(&Allocator::cache(), 1 << 16)?;
                    let own = context.per_thread_stream()?;
                    own.fill(&mut buffer, index as u8)?;
                    let mut back = [0; 16];
                    current.download(buffer.slice(..16)?, &mut back)?;
                    assert_eq!(back, [index as u8; 16]);
                    // Work of both streams is pending when the thread ends.
                    own.fill(buffer.slice_mut(..1 << 10)?, 1)?;
                    current.fill(buffer.slice_mut(1 << 10..)?, 2)?;
                    let left = Left { _guard: guard, _stream: stream, _own: own, _buffer: buffer };
                    if index % 2 == 0 {
                        LEFT.with_borrow_mut(|slot| *slot = Some(left));
                    }
                    Ok::<_, Error>(())
                });
                worker.join().expect("no panic in the thread or its destructors")?;
                if index % 16 == 0 {
                    // On the simulated driver, work runs when a call waits for it.
                    device.synchronize()?;
                }
            }
            Ok(())
        };
        rounds(threads / 10)?;
        assert_flat(&[device.context()?], &hardly_more(), || rounds(threads - threads / 10))?;
        cuda_core::drops::flush();
        assert_eq!(pool.usage(device).used, used, "every stream cache gave its blocks back");
        Ok(())
    }
}

/// Checks at compile time whether a type has an auto trait.
macro_rules! has {
    ($type:ty: $bound:ident) => {{
        #[allow(dead_code, reason = "unused where the bound holds")]
        trait No {
            const ANSWER: bool = false;
        }
        impl<T: ?Sized> No for T {}
        struct Asked<T: ?Sized>(std::marker::PhantomData<T>);
        #[allow(dead_code, reason = "unused where the bound does not hold")]
        impl<T: ?Sized + $bound> Asked<T> {
            const ANSWER: bool = true;
        }
        // If the bound holds for this type, the inherent constant hides the trait's.
        <Asked<$type>>::ANSWER
    }};
}

/// Asserts `type: Send?, Sync?`, as documented; anything else does not compile.
macro_rules! matrix {
    ($($type:ty: $send:literal, $sync:literal;)*) => {
        $(
            const _: () = assert!(has!($type: Send) == $send, stringify!($type: Send));
            const _: () = assert!(has!($type: Sync) == $sync, stringify!($type: Sync));
        )*
    };
}

matrix! {
    Device: true, true;
    Context: true, true;
    Stream: true, true;
    PerThreadStream: false, false;
    Event: true, true;
    DeviceBuffer<u8>: true, true;
    DeviceSlice<'static, f32>: true, true;
    DeviceSliceMut<'static, f32>: true, true;
    PinnedBuffer<u8>: true, true;
    PinnedSlice<'static, u64>: true, true;
    PinnedSliceMut<'static, u64>: true, true;
    Guard: false, false;
    Error: true, true;
    cuda_core::Buffer<u8, cuda_core::DeviceMemory>: true, true;
    cuda_core::managed::ManagedBuffer<u8>: true, true;
    cuda_core::PitchedBuffer<u8>: true, true;
    cuda_core::Registered<Vec<u8>>: true, true;
    cuda_core::virtual_memory::VirtualBuffer<u8>: true, true;
    cuda_core::virtual_memory::PhysicalMemory: true, true;
    cuda_core::MemoryPool: true, true;
    cuda_core::image::CudaArray<u8>: true, true;
    cuda_core::image::MipmappedArray<u8>: true, true;
    cuda_core::image::ArraySliceMut<'static, u8>: true, true;
    cuda_core::image::Texture<u8>: true, true;
    cuda_core::image::Surface<u8>: true, true;
    cuda_core::Module: true, true;
    cuda_core::Function: true, true;
    cuda_core::Signal<u32>: true, true;
    cuda_core::StreamPool: true, true;
    cuda_core::StreamGuard: false, false;
    cuda_core::Ready<'static>: true, true;
    cuda_core::InFlight<Vec<u8>>: true, true;
    cuda_core::InFlightFuture<Vec<u8>>: true, true;
    cuda_core::ProfilerRange: true, true;
    // A value stays on its thread; the slot may be shared.
    cuda_core::ContextLocal<std::rc::Rc<u8>>: true, true;
    cuda_core::Current: true, true;
    cuda_core::drops::DropFailure: true, true;
    cuda_core::drops::DropHook: true, true;
    CachingPool: true, true;
    Allocator: true, true;
    cuda_core::adaptors::Statistics<Allocator>: true, true;
    cuda_core::adaptors::Tracking<Allocator>: true, true;
    cuda_core::adaptors::Limiting<Allocator>: true, true;
    cuda_core::adaptors::OnFailure<Allocator>: true, true;
    cuda_core::adaptors::Hooks<Allocator>: true, true;
    cuda_core::adaptors::Snapshot: true, true;
    cuda_core::DeviceGroup: true, true;
    cuda_core::Batch<'static>: false, false;
    cuda_core::Launch<'static, cuda_core::AnyThread>: true, true;
    cuda_core::Launch<'static, cuda_core::OneThread>: false, false;
    cuda_core::Scope<'static, 'static>: false, false;
    // Controls that prove the matrix detects a missing trait.
    *const u8: false, false;
    std::cell::Cell<u8>: true, false;
}

matrix! {
    cuda_core::SharedSlice<u8>: true, true;
    cuda_core::SharedSlice<u8, cuda_core::PinnedMemory>: true, true;
    cuda_core::Rejected<DeviceBuffer<u8>>: true, true;
    cuda_core::HostSlice<'static, u8>: true, true;
    cuda_core::interop::ExternalMemory: true, true;
    cuda_core::interop::ExternalSemaphore: true, true;
    cuda_core::jit::JitOptions: true, true;
    cuda_core::jit::Linker: true, true;
    cuda_core::nvrtc::Program: true, true;
    cuda_core::nvrtc::Ptx: true, true;
    cuda_core::pools::CachingPoolBuilder: true, true;
    cuda_core::pools::MemoryPoolBuilder: true, true;
    cuda_core::image::BoundTexture<'static>: true, true;
    cuda_core::PointerAttributes: true, true;
    cuda_core::Library: true, true;
    cuda_core::Kernel: true, true;
}

#[test]
fn n09_send_sync_matrix() {
    // The matrix above is the test; this only makes it appear in the list.
    assert!(has!(Stream: Send) && has!(DeviceBuffer<u8>: Sync) && !has!(Guard: Send));
}
