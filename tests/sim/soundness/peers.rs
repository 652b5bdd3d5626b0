//! S42: access between devices that is disabled while it is used.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use cuda_core::adaptors::Limiting;
use cuda_core::{
    Allocator, CachingPool, Context, ContextFlags, Device, DeviceBuffer, Error, MemoryPool,
    PeerAccess, Resource, Result, Stream, drops,
};
use cuda_sim::{Fault, Mode, Session};
use cuda_sys::CUDA_ERROR_UNKNOWN;
use support::{context, kernels, two_devices};

use super::{clean, device};

#[test]
fn s42_disabling_waits_for_what_is_queued() {
    clean(|session| {
        let ([one, two], streams) = two_devices()?;
        one.enable_peer_access(&two)?;
        let source = streams[1].alloc_zeroed::<u32>(64)?;
        let mut target = streams[0].alloc::<u32>(64)?;
        streams[0].copy(&source, &mut target)?;
        assert!(session.pending_ops() > 0, "the copy has not run yet");
        one.disable_peer_access(&two)?;
        assert_eq!(session.pending_ops(), 0);
        Ok(())
    });
}

/// Pools belong to devices: closing one affects the streams of every context.
#[test]
fn s42_disabling_waits_for_other_contexts_of_the_device() {
    clean(|session| {
        let (a, b) = (device(), Device::get(1)?);
        let (one, two) = (a.context()?, b.context()?);
        one.enable_peer_access(&two)?;
        let created = Context::new(a, ContextFlags::default())?;
        let stream = created.create_stream()?;
        let home = b.create_stream()?;
        let source = home.alloc_zeroed::<u32>(64)?;
        let mut target = stream.alloc::<u32>(64)?;
        stream.copy(&source, &mut target)?;
        one.disable_peer_access(&two)?;
        assert_eq!(session.pending_ops(), 0, "the copy may need the access");
        drop((source, target));
        Ok(())
    });
}

#[test]
fn s42_copies_work_without_access() -> Result<()> {
    clean(|_| {
        let ([one, two], streams) = two_devices()?;
        one.enable_peer_access(&two)?;
        one.disable_peer_access(&two)?;
        let source = streams[1].alloc_zeroed::<u32>(64)?;
        let mut target = streams[0].alloc::<u32>(64)?;
        streams[0].copy(&source, &mut target)?;
        let mut back = [1; 64];
        streams[0].download(&target, &mut back)?;
        assert_eq!(back, [0; 64]);
        Ok(())
    });
    Ok(())
}

/// During the wait for the other device, another thread enqueues a copy on a device whose work was already
/// waited for.
#[test]
fn s42_a_copy_that_comes_during_the_wait_is_waited_for_too() {
    clean(|session| {
        let ([one, two], streams) = two_devices()?;
        one.enable_peer_access(&two)?;
        let source = streams[1].alloc_zeroed::<u32>(64)?;
        let mut target = streams[0].alloc::<u32>(64)?;
        streams[0].copy(&source, &mut target)?;
        streams[0].synchronize()?;
        comes_during_the_wait(
            session,
            &streams[1],
            "cuCtxDisablePeerAccess",
            || one.disable_peer_access(&two),
            || {
                streams[0].copy(&source, &mut target)?;
                Ok("cuMemcpyPeerAsync")
            },
        )
    });
}

/// Another thread makes the calls of `work` on a device whose work was already waited for, while `taking`,
/// which disables the access, waits for the other device. Asserts that they are followed by a wait, and the
/// wait by `taken`.
fn comes_during_the_wait(
    session: &Session,
    held_up: &Stream,
    taken: &str,
    taking: impl FnOnce() -> Result<()> + Send,
    work: impl FnOnce() -> Result<&'static str>,
) -> Result<()> {
    let stalled = support::stall(held_up.as_raw());
    let mark = session.mark();
    let waits = session.calls("cuCtxSynchronize");
    let enqueued = thread::scope(|scope| {
        let taking = scope.spawn(taking);
        // The first device's work is complete, the second's is stalled.
        session.await_calls("cuCtxSynchronize", waits + 2);
        let enqueued = work()?;
        drop(stalled);
        taking.join().expect("no assertion failed")?;
        Result::<_>::Ok(enqueued)
    })?;
    // The calls of all threads.
    let calls: Vec<_> = session.since(mark).iter().map(|call| call.name).collect();
    let at = |name: &str| calls.iter().position(|&call| call == name);
    let (enqueued, taken) = (at(enqueued).expect("enqueued"), at(taken).expect("taken"));
    let waits = &calls[enqueued..taken];
    assert!(waits.contains(&"cuCtxSynchronize"), "{waits:?}");
    assert_eq!(session.pending_ops(), 0, "the work came first: {calls:?}");
    Ok(())
}

#[test]
fn s42_a_launch_that_comes_during_the_wait_is_waited_for_too() {
    clean(|session| {
        let ([one, two], streams) = two_devices()?;
        one.enable_peer_access(&two)?;
        let source = streams[1].alloc_zeroed::<u32>(64)?;
        let mut target = streams[0].alloc::<u32>(64)?;
        let copy_words = kernels::get(&one, "copy_words")?;
        let mut launch = || {
            let mut launch = streams[0]
                .kernel(&copy_words)
                .elements(64)
                .arg(&mut target)
                .arg(&source)
                .arg(64u32);
            // SAFETY: 64 elements of both.
            unsafe { launch.launch() }?;
            Ok("cuLaunchKernelEx")
        };
        launch()?;
        streams[0].synchronize()?;
        comes_during_the_wait(
            session,
            &streams[1],
            "cuCtxDisablePeerAccess",
            || one.disable_peer_access(&two),
            launch,
        )
    });
}

#[test]
fn s42_work_that_comes_while_a_pool_is_closed_is_waited_for_too() {
    clean(|session| {
        let (a, b) = (device(), Device::get(1)?);
        let pool = MemoryPool::builder(b).build()?;
        let streams = [a.create_stream()?, b.create_stream()?];
        let mut source = streams[1].alloc_from::<u32>(&pool, 64)?;
        streams[1].fill(&mut source, 7)?;
        let mut target = streams[0].alloc::<u32>(64)?;
        let copy_words = kernels::get(&a.context()?, "copy_words")?;
        for kernel in [false, true] {
            pool.set_access(a, PeerAccess::ReadWrite)?;
            let work = || {
                if !kernel {
                    streams[0].copy(&source, &mut target)?;
                    return Ok("cuMemcpyPeerAsync");
                }
                let mut launch = streams[0]
                    .kernel(&copy_words)
                    .elements(64)
                    .arg(&mut target)
                    .arg(&source)
                    .arg(64u32);
                // SAFETY: 64 elements of both.
                unsafe { launch.launch() }?;
                Ok("cuLaunchKernelEx")
            };
            streams[0].synchronize()?;
            comes_during_the_wait(
                session,
                &streams[1],
                "cuMemPoolSetAccess",
                || pool.set_access(a, PeerAccess::None),
                work,
            )?;
            let mut back = [0; 64];
            streams[0].download(&target, &mut back)?;
            assert_eq!(back, [7; 64]);
        }
        drop((source, target));
        Ok(())
    });
}

/// The access at the launch counts, not that at the time when the argument was set.
#[test]
fn s42_a_launch_prepared_before_access_was_taken_away() {
    clean(|session| {
        let ([one, two], streams) = two_devices()?;
        let mut memory = streams[1].alloc_zeroed::<u32>(64)?;
        let add_one = kernels::get(&one, "add_one")?;
        let mut launch = streams[0].kernel(&add_one).elements(64).arg(&mut memory).arg(64u32);
        for _ in 0..2 {
            one.enable_peer_access(&two)?;
            // SAFETY: 64 elements.
            unsafe { launch.launch() }?;
            one.disable_peer_access(&two)?;
            assert_eq!(session.pending_ops(), 0);
            // SAFETY: the launch is refused.
            let refused = unsafe { launch.launch() };
            assert!(
                matches!(refused, Err(Error::WrongDevice(ref it)) if it.memory == 1),
                "{refused:?}"
            );
        }
        Ok(())
    });
}

/// A pool that was opened separately suffices for a launch; its access ends with the pool.
#[test]
fn s42_a_pool_of_ones_own_is_enough_for_a_launch() {
    clean(|_| {
        let (a, b) = (device(), Device::get(1)?);
        let add_one = kernels::get(&a.context()?, "add_one")?;
        let (here, there) = (a.create_stream()?, b.create_stream()?);
        let pool = MemoryPool::builder(b).build()?;
        let mut memory = there.alloc_from::<u32>(&pool, 64)?;
        there.fill(&mut memory, 1)?;
        let mut launch = here.kernel(&add_one).elements(64).arg(&mut memory).arg(64u32);
        // SAFETY: the launch is refused.
        assert!(unsafe { launch.launch() }.is_err());
        pool.set_access(a, PeerAccess::ReadWrite)?;
        // SAFETY: 64 elements.
        unsafe { launch.launch() }?;
        let mut back = [0; 64];
        there.download(&memory, &mut back)?;
        assert_eq!(back, [2; 64]);
        drop((memory, pool));
        let mut other = there.alloc_zeroed::<u32>(64)?;
        // SAFETY: the launch is refused.
        let refused =
            unsafe { here.kernel(&add_one).elements(64).arg(&mut other).arg(64u32).launch() };
        assert!(matches!(refused, Err(Error::WrongDevice(_))), "{refused:?}");
        Ok(())
    });
}

/// Other threads continue to copy while access is enabled and disabled.
#[test]
#[cfg_attr(miri, ignore = "loops long")]
fn s42_access_comes_and_goes_beside_copies() {
    clean(|_| {
        let (a, b) = (device(), Device::get(1)?);
        let (one, two) = (a.context()?, b.context()?);
        let copies = |from: Device, to: Device| -> Result<()> {
            let streams = [from.create_stream()?, to.create_stream()?];
            let source = streams[0].alloc_zeroed::<u32>(64)?;
            let mut target = streams[1].alloc::<u32>(64)?;
            for _ in 0..200 {
                streams[1].copy(&source, &mut target)?;
            }
            streams[1].synchronize()
        };
        thread::scope(|scope| {
            let threads = [scope.spawn(|| copies(a, b)), scope.spawn(|| copies(b, a))];
            for _ in 0..50 {
                one.enable_peer_access(&two)?;
                match one.disable_peer_access(&two) {
                    Err(Error::PeerAccessInUse(_)) => {}
                    other => other?,
                }
            }
            for thread in threads {
                thread.join().expect("no assertion failed")?;
            }
            Result::<()>::Ok(())
        })?;
        one.enable_peer_access(&two)?;
        one.disable_peer_access(&two)
    });
}

/// The library calls a hook after it has enqueued the work during which the failure occurred. The hook may
/// wait for that work.
#[test]
fn s42_a_hook_may_take_the_access_away_from_the_work_it_comes_up_in() {
    let session = support::simulator_in(Mode::Lazy);
    let calls = Arc::new(AtomicUsize::new(0));
    super::within(|| {
        let body = || {
            let ([one, two], streams) = two_devices()?;
            one.enable_peer_access(&two)?;
            let source = streams[1].alloc_zeroed::<u32>(64)?;
            let mut target = streams[0].alloc::<u32>(64)?;
            // The last mark of a dropped stream; removing it destroys the stream's event.
            let gone = one.create_stream()?;
            gone.fill(&mut target, 1)?;
            drop(gone);
            let count = calls.clone();
            drops::set_hook(move |failure| {
                assert_eq!(failure.resource, Resource::Event);
                one.disable_peer_access(&two).expect("nothing is under way");
                count.fetch_add(1, Ordering::Relaxed);
            });
            session.inject(Fault::new(CUDA_ERROR_UNKNOWN).function("cuEventDestroy_v2"));
            streams[0].copy(&source, &mut target)?;
            drops::take_hook();
            Result::<()>::Ok(())
        };
        body().expect("no operation of the test fails");
    });
    assert_eq!(calls.load(Ordering::Relaxed), 1, "the scenario calls the hook once");
    assert_eq!(session.violations(), []);
}

/// Allocates memory of the context from `cuMemAlloc`, cached.
fn cached(context: &Context) -> Result<DeviceBuffer<u32>> {
    let stream = context.create_stream()?;
    stream.alloc_with(&CachingPool::new().allocator(), 64)
}

/// The same, allocated through an adaptor.
fn limited(context: &Context) -> Result<DeviceBuffer<u32>> {
    let stream = context.create_stream()?;
    let limiting = Limiting::new(CachingPool::new().allocator(), 1024);
    stream.alloc_with(&Allocator::new(limiting), 64)
}

/// The same, with the adaptor beneath the pool.
fn cut_from_limited(context: &Context) -> Result<DeviceBuffer<u32>> {
    let stream = context.create_stream()?;
    let limited = Allocator::new(Limiting::new(Allocator::plain(), usize::MAX));
    let pool = CachingPool::builder().upstream(&limited).build()?;
    stream.alloc_with(&pool.allocator(), 64)
}

/// Allocates memory of the driver's pool.
fn pooled(device: Device) -> Result<DeviceBuffer<u32>> {
    let stream = device.create_stream()?;
    stream.alloc_with(&Allocator::driver_pool(), 64)
}

/// Launches `add_one` on the memory, on a stream of the context.
fn launched(context: &Context, memory: &mut DeviceBuffer<u32>) -> Result<()> {
    let add_one = kernels::get(context, "add_one")?;
    let stream = context.create_stream()?;
    let mut launch = stream.kernel(&add_one).elements(64).arg(memory).arg(64u32);
    // SAFETY: the memory has 64 elements; unless the kernel can access it, the launch is refused.
    unsafe { launch.launch() }
}

fn no_access(result: Result<()>) {
    assert!(matches!(result, Err(Error::WrongDevice(_))), "{result:?}");
}

/// The driver also grants access from one context to another.
#[test]
fn s42_a_launch_wants_access_of_its_own_context() {
    clean(|_| {
        let (a, b) = (device(), Device::get(1)?);
        let (one, two) = (a.context()?, b.context()?);
        let created = |device| Context::new(device, ContextFlags::default());
        let (beside_one, beside_two) = (created(a)?, created(b)?);
        for mut memory in [cached(&two)?, limited(&two)?, two.alloc(64)?] {
            let memory = &mut memory;
            no_access(launched(&one, memory));
            one.enable_peer_access(&beside_two)?;
            no_access(launched(&one, memory));
            one.enable_peer_access(&two)?;
            launched(&one, memory)?;
            no_access(launched(&beside_one, memory));
            one.disable_peer_access(&two)?;
            no_access(launched(&one, memory));
            one.disable_peer_access(&beside_two)?;
        }
        let mut pooled = pooled(b)?;
        no_access(launched(&beside_one, &mut pooled));
        one.enable_peer_access(&two)?;
        launched(&beside_one, &mut pooled)?;
        one.disable_peer_access(&two)
    });
}

#[test]
fn s42_a_default_pool_stays_open_that_was_opened_by_itself() {
    clean(|_| {
        let (a, b) = (device(), Device::get(1)?);
        let (one, two) = (a.context()?, b.context()?);
        let (pool, mut memory) = (b.default_memory_pool()?, pooled(b)?);
        pool.set_access(a, PeerAccess::ReadWrite)?;
        one.enable_peer_access(&two)?;
        one.disable_peer_access(&two)?;
        assert_eq!(pool.access(a)?, PeerAccess::ReadWrite);
        launched(&one, &mut memory)?;
        pool.set_access(a, PeerAccess::None)?;
        no_access(launched(&one, &mut memory));
        Ok(())
    });
}

#[test]
fn s42_a_default_pool_is_closed_in_spite_of_the_contexts_access() {
    clean(|_| {
        let (a, b) = (device(), Device::get(1)?);
        let (one, two) = (a.context()?, b.context()?);
        let (pool, mut memory) = (b.default_memory_pool()?, pooled(b)?);
        one.enable_peer_access(&two)?;
        launched(&one, &mut memory)?;
        pool.set_access(a, PeerAccess::None)?;
        no_access(launched(&one, &mut memory));
        launched(&one, &mut cached(&two)?)?;
        one.enable_peer_access(&two)?;
        launched(&one, &mut memory)?;
        one.disable_peer_access(&two)
    });
}

#[test]
fn s42_access_ends_with_the_context_whose_memory_it_was_to() {
    clean(|_| {
        let (one, b) = (device().context()?, Device::get(1)?);
        let mut memory = cached(&b.context()?)?;
        let created = Context::new(b, ContextFlags::default())?;
        one.enable_peer_access(&created)?;
        drop(created);
        let refused = launched(&one, &mut memory);
        assert!(matches!(refused, Err(Error::WrongDevice(_))), "{refused:?}");
        Ok(())
    });
}

#[test]
fn s27_memory_of_another_context_of_the_device() {
    clean(|_| {
        let primary = device().context()?;
        let created = Context::new(device(), ContextFlags::default())?;
        for allocate in [cached, limited, cut_from_limited] {
            let mut memory = allocate(&primary)?;
            let refused = launched(&created, &mut memory);
            assert!(matches!(refused, Err(Error::WrongContext(_))), "{refused:?}");
            launched(&primary, &mut memory)?;
        }
        Ok(())
    });
}

/// Another library's context may be a green context.
#[test]
fn s27_memory_of_a_foreign_context_is_not_refused() {
    clean(|_| {
        let primary = device().context()?;
        let raw = context::Foreign::create(0);
        // SAFETY: the context lives until the end of the test.
        let foreign = unsafe { Context::from_raw(raw.handle(), ()) }?;
        let mut memory = cached(&foreign)?;
        launched(&primary, &mut memory)
    });
}
