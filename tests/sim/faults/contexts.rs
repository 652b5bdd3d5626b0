//! Devices, contexts, guards and the stack.

use cuda_core::{Context, ContextFlags, ContextLocal, Device, Error, Resource};
use support::DropReports;

use super::harness::{again, first, foreign, pop, sweep};

#[test]
fn looking_at_devices() {
    sweep(|| {
        assert_eq!(Device::count()?, 4);
        for device in Device::all()? {
            device.name()?;
            device.uuid()?;
            assert_eq!(Device::by_pci_bus_id(&device.pci_bus_id()?)?, device);
            device.compute_capability()?;
            assert!(device.attributes().memory_pools_supported()?);
            assert!(device.primary_state()?.is_active);
            let memory = device.memory_info()?;
            assert!(memory.free <= memory.total);
        }
        let (a, b) = (Device::get(0)?, Device::get(1)?);
        assert!(a.can_access_peer(b)? && !a.can_access_peer(a)?);
        cuda_core::driver_version().map(drop)
    });
}

#[test]
fn asking_a_context() {
    sweep(|| {
        let (_, context) = first()?;
        let limit = cuda_sys::CU_LIMIT_STACK_SIZE;
        let stack = context.limit(limit)?;
        context.set_limit(limit, stack)?;
        context.set_cache_config(context.cache_config()?)?;
        context.stream_priority_range()?;
        context.memory_info()?;
        let _guard = context.enter()?;
        assert_eq!(Context::current()?.as_ref(), Some(&context));
        context.synchronize()
    });
}

#[test]
fn nested_guards() {
    sweep(|| {
        let (a, b) = (Device::get(0)?, Device::get(1)?);
        let raw = [a.context()?.as_raw(), b.context()?.as_raw()];
        let outer = a.enter()?;
        let inner = b.enter()?;
        let same = b.enter()?;
        let deep = a.enter()?;
        drop(deep);
        let after = again(Context::current)?;
        assert_eq!(after.map(|now| now.as_raw()), Some(raw[1]));
        drop(same);
        inner.restore()?;
        let after = again(Context::current)?;
        assert_eq!(after.map(|now| now.as_raw()), Some(raw[0]));
        drop(outer);
        Ok(())
    });
}

#[test]
fn guard_on_what_is_current() {
    sweep(|| {
        let (_, context) = first()?;
        let _outer = context.enter()?;
        context.enter()?.restore()?;
        drop(context.enter()?);
        Ok(())
    });
}

#[test]
fn guard_around_a_panic() {
    sweep(|| {
        let (_, context) = first()?;
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _guard = context.enter()?;
            std::panic::resume_unwind(Box::new("out"));
            #[allow(unreachable_code, reason = "gives the closure its type")]
            Ok::<(), cuda_core::Error>(())
        }));
        caught.unwrap_or(Ok(()))
    });
}

#[test]
fn created_context() {
    sweep(|| {
        let context = Context::new(Device::get(1)?, ContextFlags::SCHED_BLOCKING_SYNC)?;
        let stream = context.create_stream()?;
        let mut buffer = stream.alloc_zeroed::<u32>(16)?;
        drop(context);
        stream.upload(&[3; 16], &mut buffer)?;
        let mut back = [0; 16];
        stream.download(&buffer, &mut back)?;
        assert_eq!(back, [3; 16]);
        Ok(())
    });
}

#[test]
fn guards_of_created_contexts() {
    sweep(|| {
        let device = Device::get(0)?;
        let a = Context::new(device, ContextFlags::SCHED_AUTO)?;
        let outer = a.enter()?;
        let b = Context::new(device, ContextFlags::SCHED_AUTO)?;
        let inner = b.enter()?;
        drop((a, b));
        drop(inner);
        outer.restore()
    });
}

#[test]
fn created_current_and_popped() {
    sweep(|| {
        let context = Context::new_current(Device::get(1)?, ContextFlags::SCHED_AUTO)?;
        assert_eq!(pop()?, context);
        Ok(())
    });
}

#[test]
fn pushed_and_popped() {
    sweep(|| {
        let (_, context) = first()?;
        context.push()?;
        let twice = context.push();
        if twice.is_ok() {
            assert_eq!(pop()?, context);
        }
        assert_eq!(pop()?, context);
        twice
    });
}

#[test]
fn floating_context_on_another_thread() {
    sweep(|| {
        Context::new_current(Device::get(1)?, ContextFlags::SCHED_AUTO)?;
        let context = pop()?;
        let elsewhere = std::thread::spawn(move || {
            context.push()?;
            let used = context.create_stream().and_then(|stream| stream.alloc_zeroed::<u8>(8));
            pop()?;
            used.map(drop)
        });
        elsewhere.join().expect("no panic")
    });
}

#[test]
fn set_current_inside_a_guard() {
    sweep(|| {
        let (_, context) = first()?;
        let other = Context::new(Device::get(1)?, ContextFlags::SCHED_AUTO)?;
        let _guard = context.enter()?;
        let before = other.set_current()?;
        assert_eq!(before.context(), Some(&context));
        drop(other);
        context.set_current().map(drop)
    });
}

#[test]
fn foreign_context() {
    sweep(|| {
        let raw = foreign().handle();
        // SAFETY: the context lives as long as the process.
        let context = unsafe { Context::from_raw(raw, ()) }?;
        let stream = context.create_stream()?;
        let guard = context.enter()?;
        drop(stream.alloc_zeroed::<u8>(16)?);
        guard.restore()?;
        // SAFETY: the context lives as long as the process.
        assert_eq!(unsafe { Context::from_raw(raw, ()) }?, context);
        Ok(())
    });
}

#[test]
fn peer_access() {
    sweep(|| {
        let (a, b) = (Device::get(0)?.context()?, Device::get(1)?.context()?);
        a.enable_peer_access(&b)?;
        let used = (|| {
            a.enable_peer_access(&b)?;
            let (s, t) = (a.create_stream()?, b.create_stream()?);
            let mut here = s.alloc_zeroed::<u32>(16)?;
            let mut there = t.alloc::<u32>(16)?;
            t.fill(&mut there, 9)?;
            s.copy(&there, &mut here)?;
            let mut back = [0; 16];
            s.download(&here, &mut back)?;
            assert_eq!(back, [9; 16]);
            Ok(())
        })();
        again(|| a.disable_peer_access(&b))?;
        used
    });
}

#[test]
fn errors_are_described() {
    sweep(|| {
        let (_, context) = first()?;
        let error = context.limit(cuda_sys::CUlimit(999)).expect_err("no such limit");
        assert!(!error.to_string().is_empty());
        Ok(())
    });
}

#[test]
fn green_context() {
    sweep(|| {
        let all = Device::get(0)?.sm_resource()?;
        let split = all.split(8, 1)?;
        let context = Context::new_green(&[&split.groups[0]])?;
        let stream = context.create_stream()?;
        let mut buffer = stream.alloc_zeroed::<u32>(16)?;
        let guard = context.enter()?;
        drop(context);
        stream.fill(&mut buffer, 3)?;
        let mut back = [0; 16];
        stream.download(&buffer, &mut back)?;
        assert_eq!(back, [3; 16]);
        guard.restore()
    });
}

#[test]
fn a_green_context_that_cannot_be_destroyed_is_counted() {
    let session = support::simulator();
    let split = Device::get(0).and_then(|it| it.sm_resource()?.split(8, 1)).expect("as many");
    let mut drops = DropReports::listen();
    for call in ["cuCtxFromGreenCtx", "cuGreenCtxDestroy"] {
        session.fail_nth(Some(call), 1, cuda_sys::CUDA_ERROR_UNKNOWN);
    }
    let refused = Context::new_green(&[&split.groups[0]]).expect_err("a fault was injected");
    assert!(matches!(refused, Error::Driver { op: "cuCtxFromGreenCtx", .. }), "{refused:?}");
    let [left] = &drops.take()[..] else { panic!("one leaked context") };
    assert_eq!((left.resource, session.leaks().len()), (Resource::Context, 1));
    support::judge::take_away(&session, session.leaks());
}

/// A value that remembers the context it was created in, and must be dropped with that current.
struct Handle {
    made_in: Option<Context>,
}

/// Returns the current context, if the driver returns it.
fn current() -> Option<Context> {
    again(Context::current).ok().flatten()
}

impl Drop for Handle {
    fn drop(&mut self) {
        if let (Some(now), Some(made_in)) = (current(), &self.made_in) {
            assert_eq!(now, *made_in);
        }
    }
}

#[test]
fn library_handles() {
    sweep(|| {
        let (_, primary) = first()?;
        let created = Context::new(Device::get(1)?, ContextFlags::SCHED_AUTO)?;
        let slot = ContextLocal::new(|_: &Context| Ok::<_, Error>(Handle { made_in: current() }));
        for context in [&primary, &created] {
            // After a failure this runs again, with a new value or the same.
            again(|| {
                slot.with(context, |handle| {
                    assert!(handle.made_in.as_ref().is_none_or(|made_in| made_in == context));
                    Ok::<_, Error>(())
                })
            })?;
        }
        // The slot's drop drops the values, each in its context.
        drop(slot);
        Ok(())
    });
}

#[test]
fn profiler_ranges() {
    sweep(|| {
        let context = Device::get(1)?.context()?;
        context.start_profiler()?;
        again(|| context.stop_profiler())?;
        drop(context.profile()?);
        let range = context.profile()?;
        range.close().or_else(|rejected| rejected.value.close()).map_err(Error::from)
    });
}
