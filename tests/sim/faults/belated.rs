//! Enqueues that take effect although they return an error.
//!
//! "Note that this function may also return error codes from previous, asynchronous launches", the CUDA
//! reference says of most calls that enqueue something; it does not say whether the call itself took effect.
//! So the library counts work whose enqueue failed as enqueued: it waits for that work before it frees,
//! reuses or reads the memory.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::thread;

use cuda_core::{
    Context, Device, DeviceBuffer, Event, EventFlags, MemoryPool, PinnedBuffer, PinnedPool,
    Registered, Rejected, Result, Signal, Stream, StreamKind,
    image::{ArrayFlags, ArrayShape, CudaArray, Surface, Texture, TextureDescriptor},
    interop::ShareableHandle,
    pinned::{PinnedBackend, RegisterFlags},
    staging,
    virtual_memory::{PhysicalMemory, VirtualBuffer},
};
use cuda_sim::{Fault, Mode};
use cuda_sys::{CUDA_ERROR_ILLEGAL_ADDRESS, CUDA_ERROR_LAUNCH_FAILED};
use support::{DropReports, judge, one_stream, two_streams};

use super::harness::{Scenario, Token, first};
use super::stack;

/// Calls that enqueue work and neither create nor release anything.
const ENQUEUES: &[&str] = &[
    "cuEventRecord",
    "cuLaunchHostFunc",
    "cuMemcpyAsync",
    "cuMemcpyDtoDAsync_v2",
    "cuMemcpyDtoHAsync_v2",
    "cuMemcpyHtoDAsync_v2",
    "cuMemcpyPeerAsync",
    "cuMemsetD16Async",
    "cuMemsetD32Async",
    "cuMemsetD8Async",
    "cuStreamWaitEvent",
];

/// Calls that release something.
const RELEASES: &[&str] = &[
    "cuArrayDestroy",
    "cuEventDestroy_v2",
    "cuMemAddressFree",
    "cuMemFreeAsync",
    "cuMemFreeHost",
    "cuMemFree_v2",
    "cuMemHostUnregister",
    "cuMemPoolDestroy",
    "cuMemRelease",
    "cuMemUnmap",
    "cuStreamDestroy_v2",
    "cuSurfObjectDestroy",
    "cuTexObjectDestroy",
];

#[derive(Debug, Clone, Copy)]
struct Run {
    mode: Mode,
    fault: Option<Belated>,
    /// The functions that the library calls again after a failure.
    tried_again: &'static [&'static str],
}

/// Selects the call, of any function, that takes effect and fails, and whether it also loses the context.
#[derive(Debug, Clone, Copy)]
enum Belated {
    Once(u64),
    Sticky(u64),
}

impl Belated {
    fn fault(self) -> Fault {
        let fault = match self {
            Self::Once(nth) => Fault::new(CUDA_ERROR_LAUNCH_FAILED).nth(nth),
            Self::Sticky(nth) => Fault::new(CUDA_ERROR_ILLEGAL_ADDRESS).nth(nth).sticky(),
        };
        fault.takes_effect()
    }
}

/// Runs the scenario without a fault, then with one at each of its enqueues. Asserts of each run that nothing
/// panicked, that the driver saw no misuse, that the context stack is unchanged, and that leaks were
/// reported.
fn sweep(scenario: Scenario) {
    every(ENQUEUES, &[], scenario);
}

/// Like [`sweep`], with a fault at each release. An object that is gone is reported like one that remains,
/// since the library cannot know, and is never released again.
fn sweep_releases(scenario: Scenario) {
    every(RELEASES, &[], scenario);
}

/// Like [`sweep_releases`], for scenarios in which a repeated call of `tried_again` finds the object gone, so
/// that it is not reported.
fn sweep_releases_tried_again(tried_again: &'static [&str], scenario: Scenario) {
    every(RELEASES, tried_again, scenario);
}

fn every(victims: &'static [&str], tried_again: &'static [&str], scenario: Scenario) {
    super::harness::prepare();
    let sweep = || {
        let modes = [Mode::Lazy, Mode::Eager, Mode::Threaded { seed: 1 }];
        // Under Miri a few calls suffice.
        let (modes, stride) = if cfg!(miri) { (&modes[2..], 31) } else { (&modes[..], 1) };
        for &mode in modes {
            let run = |fault| Run { mode, fault, tried_again };
            let calls = attempt(scenario, run(None));
            let hit = (1..).zip(calls).filter(|(_, name)| victims.contains(name));
            let hit: Vec<u64> = hit.map(|(nth, _)| nth).collect();
            assert!(!hit.is_empty(), "the scenario has no such call");
            for &nth in hit.iter().step_by(stride) {
                for fault in [Belated::Once(nth), Belated::Sticky(nth)] {
                    attempt(scenario, run(Some(fault)));
                }
            }
        }
    };
    // On a thread of its own, without a current context.
    let swept = thread::scope(|scope| scope.spawn(sweep).join());
    swept.unwrap_or_else(|panic| resume_unwind(panic));
}

/// Runs the scenario once, and returns the calls that it made.
fn attempt(scenario: Scenario, run: Run) -> Vec<&'static str> {
    let session = support::simulator_in(run.mode);
    let drops = DropReports::listen();
    let mark = session.mark();
    if let Some(fault) = run.fault {
        session.inject(fault.fault());
    }
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let result = scenario();
        let excused = session.fault_fired();
        assert!(excused || result.is_ok(), "without a fault: {result:?}");
    }));
    cuda_core::drops::flush();
    assert_eq!(session.fault_fired(), run.fault.is_some(), "{run:?}");
    let calls = session.since(mark).into_iter().map(|call| call.name);
    let calls: Vec<_> = calls.filter(|name| !name.starts_with("cuGetError")).collect();
    session.clear_faults();
    let after = stack::unwind();
    session.settle();
    cuda_core::drops::flush();
    session.settle();
    staging::trim().expect("no fault is left");

    let victim = match run.fault {
        Some(Belated::Once(nth) | Belated::Sticky(nth)) => calls.get(nth as usize - 1),
        None => None,
    };
    let here = || format!("{run:?}, which hit {victim:?}");
    let mut reported = drops.end();
    if let Err(panic) = outcome {
        let message = panic.downcast_ref::<String>().map(String::as_str);
        let message = message.or(panic.downcast_ref::<&str>().copied());
        panic!("{}: panicked: {}", here(), message.unwrap_or("?"));
    }
    let violations = session.take_violations();
    assert!(violations.is_empty(), "{}: {violations:#?}", here());
    assert_eq!(after, [0; 0], "{}: the context stack changed", here());
    let leaks = session.leaks();
    if victim.is_some_and(|victim| RELEASES.contains(victim)) {
        // The first report names what the failed call released, or its owner.
        let first = reported.failures.first().map(|failure| failure.handle);
        let known = first.is_some() || run.tried_again.contains(victim.unwrap_or(&""));
        assert!(known, "{}: not reported", here());
        if first.is_some_and(|first| leaks.iter().all(|leak| leak.handle != first)) {
            reported.failures.remove(0);
            reported.counted -= 1;
        }
    }
    let compared = judge::compare(&leaks, &reported, false, |_| false);
    compared.unwrap_or_else(|wrong| panic!("{}: {wrong}", here()));
    judge::take_away(&session, leaks);
    calls
}

/// Copies up, across and down, and fills; then drops everything at once, host memory first.
fn copies<K: StreamKind>(home: &Stream, stream: &Stream<K>) -> Result<()> {
    let context = stream.context();
    let source = PinnedBuffer::from_slice(context, &[7_u8; 64])?;
    let mut target = PinnedBuffer::<u8>::zeroed(context, 64)?;
    let mut a = home.alloc::<u8>(64)?;
    let mut b = home.alloc::<u8>(64)?;
    let up = stream.upload(&source, &mut a);
    let across = stream.copy(&a, &mut b);
    let fills =
        [stream.fill_bytes(b.slice_mut(..16)?, 1), home.fill_bytes(b.slice_mut(16..32)?, 2)];
    let down = home.download(&b, &mut target);
    drop((source, target));
    drop((a, b));
    let [first, second] = fills;
    up.and(across).and(first).and(second).and(down)
}

#[test]
fn memory_is_freed_behind_its_copies() {
    sweep(|| {
        let stream = Device::get(0)?.create_stream()?;
        copies(&stream, &stream)
    });
}

#[test]
fn memory_is_freed_behind_its_copies_elsewhere() {
    sweep(|| {
        let (_, context) = first()?;
        copies(&context.create_stream()?, &context.create_stream()?)
    });
}

#[test]
fn memory_is_freed_behind_its_copies_on_default_streams() {
    sweep(|| {
        let (_, context) = first()?;
        copies(&context.default_stream()?, &context.per_thread_stream()?)
    });
}

/// The host does not read or write memory that a copy may still access.
#[test]
fn the_host_waits() {
    sweep(|| {
        let (context, stream) = one_stream()?;
        let mut host = PinnedBuffer::from_slice(&context, &[1_u8; 64])?;
        let mut a = stream.alloc_zeroed::<u8>(64)?;
        let up = stream.upload(&host, &mut a);
        host.as_mut_slice()?.fill(2);
        let down = stream.download(&a, &mut host);
        let bytes = host.as_slice()?.to_vec();
        if up.is_ok() && down.is_ok() {
            assert_eq!(bytes, [1; 64]);
        }
        // A late copy does not change the memory.
        stream.synchronize()?;
        assert_eq!(host.as_slice()?, bytes);
        up.and(down)
    });
}

/// A chunk that a copy may still use is not used for the next slice.
#[test]
fn chunks_are_set_aside() {
    sweep(|| {
        let (_, context) = first()?;
        let stream = context.create_stream()?;
        let mut a = stream.alloc_zeroed::<u8>(64)?;
        let mut b = stream.alloc_zeroed::<u8>(64)?;
        let mut back = [9; 64];
        let down = stream.download(&a, &mut back);
        assert_eq!(back, if down.is_ok() { [0; 64] } else { [9; 64] });
        let ups = [stream.upload(&[1; 64], &mut a), stream.upload(&[2; 64], &mut b)];
        let (mut x, mut y) = ([9; 64], [9; 64]);
        let scope = stream.scope(|scope| {
            scope.download(&a, &mut x)?;
            scope.download(&b, &mut y)
        });
        if scope.is_ok() {
            for (up, (bytes, expected)) in ups.iter().zip([(x, 1), (y, 2)]) {
                assert!(up.is_err() || bytes == [expected; 64], "{bytes:?}");
            }
        } else {
            assert_eq!((x, y), ([9; 64], [9; 64]));
        }
        let [first, second] = ups;
        down.and(first).and(second).and(scope)
    });
}

#[test]
fn streams_wait_for_each_other() {
    sweep(|| {
        let (context, s, t) = two_streams()?;
        let event = Event::new(&context, EventFlags::DEFAULT)?;
        let mut a = s.alloc_zeroed::<u8>(8)?;
        let results = [
            event.record(&s),
            t.wait_event(&event),
            t.fill_bytes(&mut a, 3),
            s.checkpoint(),
            s.wait_stream(&t),
            s.fill_bytes(&mut a, 4),
            t.fill_bytes(&mut a, 5),
        ];
        drop((t, event));
        drop(a);
        results.into_iter().collect()
    });
}

#[test]
fn between_devices() {
    sweep(|| {
        let (s, t) = (Device::get(0)?.create_stream()?, Device::get(1)?.create_stream()?);
        let a = s.alloc_zeroed::<u8>(8)?;
        let mut b = t.alloc::<u8>(8)?;
        let across = t.copy(&a, &mut b);
        drop((s, a));
        let back = t.fill_bytes(&mut b, 1);
        across.and(back)
    });
}

#[test]
fn nothing_is_released_twice() {
    sweep_releases(|| {
        let (context, s, t) = two_streams()?;
        let event = Event::new(&context, EventFlags::DEFAULT)?;
        let mut host = PinnedBuffer::from_slice(&context, &[1_u8; 64])?;
        let mut a = s.alloc_zeroed::<u8>(64)?;
        t.upload(&host, &mut a)?;
        event.record(&t)?;
        s.download(&a, &mut host)?;
        drop((t, event));
        drop(host);
        drop(a);
        Ok(())
    });
}

/// Closes an owner. After an error it tries again, or drops what `close` returned, as a program may.
fn closed<T>(owner: T, close: fn(T) -> std::result::Result<(), Rejected<T>>) -> Result<()> {
    let Err(Rejected { error, value: owner }) = close(owner) else {
        return Ok(());
    };
    let _ = close(owner);
    Err(error)
}

#[test]
fn nothing_is_closed_twice() {
    sweep_releases(|| {
        let (device, context) = first()?;
        let (s, t) = (context.create_stream()?, context.create_stream()?);
        let event = Event::new(&context, EventFlags::DEFAULT)?;
        let mut host = PinnedBuffer::<u8>::write_combined(&context, 64)?;
        let pool = MemoryPool::builder(device).build()?;
        let mut a = s.alloc_from::<u8>(&pool, 64)?;
        t.upload(&host, &mut a)?;
        event.record(&t)?;
        s.download(&a, &mut host)?;
        let registered = Registered::new(&context, vec![1_u8; 64], RegisterFlags::PORTABLE);
        let registered = registered?;
        t.upload(&registered, &mut a)?;
        let results = [
            closed(registered, Registered::close),
            closed(t, Stream::close),
            closed(event, Event::close),
            closed(host, PinnedBuffer::close),
            closed(a, DeviceBuffer::close),
            closed(pool, MemoryPool::close),
        ];
        results.into_iter().collect()
    });
}

/// Creates a buffer of two chunks, the first of them in use.
fn mapped(context: &Context) -> Result<VirtualBuffer<u8>> {
    let mut list = VirtualBuffer::new(context, 8 << 20)?;
    list.grow_to(1)?;
    context.create_stream()?.fill(&mut list, 1)?;
    list.grow_to(3 << 20)?;
    Ok(list)
}

#[test]
fn what_was_unmapped_is_found_out_when_that_is_tried_again() {
    sweep_releases_tried_again(&["cuMemUnmap"], || {
        let (_, context) = first()?;
        let mut list = mapped(&context)?;
        let shorter = list.shrink_to(1);
        shorter.and(closed(list, VirtualBuffer::close))
    });
}

#[test]
fn mapped_and_sampled_objects_are_not_closed_twice() {
    sweep_releases(|| {
        let (_, context) = first()?;
        let list = mapped(&context)?;
        let memory = PhysicalMemory::new(&context, 1, ShareableHandle::None)?;
        let shape = ArrayShape::D1 { width: 8 };
        let array = CudaArray::<u8>::new(&context, shape, ArrayFlags::SURFACE_LOAD_STORE)?;
        let texture = Texture::new(&array, &TextureDescriptor::default())?;
        let surface = Surface::new(&array)?;
        let results = [
            closed(list, VirtualBuffer::close),
            closed(memory, PhysicalMemory::close),
            closed(texture, Texture::close),
            closed(surface, Surface::close),
            closed(array, CudaArray::close),
        ];
        results.into_iter().collect()
    });
}

/// A slab that may be gone is not used again, if the next request has another slab.
#[test]
fn pinned_slabs_are_not_used_once_they_may_be_gone() {
    sweep_releases(|| {
        PinnedPool::set_backend(PinnedBackend::Slab);
        let (device, context) = first()?;
        let mut trimmed = Ok(());
        for value in 1..4_u8 {
            let signal = Signal::new(&device.context()?, 0_u32)?;
            let mut host = PinnedBuffer::<u8>::zeroed(&context, 64)?;
            signal.set(value.into());
            host.as_mut_slice()?.fill(value);
            assert_eq!(host.as_slice()?, [value; 64]);
            assert_eq!(signal.get(), u32::from(value));
            drop((signal, host));
            trimmed = trimmed.and(staging::trim().map(drop));
        }
        trimmed
    });
}

/// Chunks that the driver allocated, and that only copies use.
#[test]
#[cfg_attr(miri, ignore = "as with slabs, above")]
fn chunks_are_not_used_once_they_may_be_gone() {
    sweep_releases(|| {
        PinnedPool::set_backend(PinnedBackend::Driver);
        let stream = first()?.1.create_stream()?;
        let mut buffer = stream.alloc::<u8>(64)?;
        let mut trimmed = Ok(());
        for value in 1..4 {
            let mut back = [0; 64];
            stream.upload(&[value; 64], &mut buffer)?;
            stream.download(&buffer, &mut back)?;
            assert_eq!(back, [value; 64]);
            // The stream has its own chunk, which is released with the stream.
            let other = first()?.1.create_stream()?;
            other.upload(&[value; 64], &mut buffer)?;
            other.download(&buffer, &mut back)?;
            drop(other);
            trimmed = trimmed.and(staging::trim().map(drop));
        }
        trimmed
    });
}

/// A host function is dropped after a failed launch, whether or not the driver calls it.
#[test]
fn host_functions() {
    sweep(|| {
        let (_, context) = first()?;
        let stream = context.create_stream()?;
        let mut a = stream.alloc_zeroed::<u8>(8)?;
        let token = Token::new();
        let launched = stream.launch_host_func(move || drop(token));
        let filled = stream.fill_bytes(&mut a, 2);
        stream.synchronize()?;
        launched.and(filled)
    });
    assert_eq!(Token::reset(), 0, "values of host functions leaked");
}
