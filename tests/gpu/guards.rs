//! Guards: the current context inside, and its restoration afterwards.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::ptr;
use std::sync::Barrier;
use std::thread;

use cuda_core::{Context, ContextFlags, Device, Error, Result};
use cuda_sys::{CUcontext, cuCtxGetDevice};
use support::{check, context, gpu_test};

use crate::flat::{InUse, assert_flat};
use crate::stack;

/// Returns a device, and the handle of its primary context.
pub(crate) fn device(ordinal: u32) -> Result<(Device, CUcontext)> {
    let device = Device::get(ordinal)?;
    let primary = device.context()?;
    assert_eq!(
        primary.as_raw(),
        context::primary(ordinal),
        "the object stands for the primary context"
    );
    Ok((device, primary.as_raw()))
}

/// Returns the device of `cuCtxGetDevice`.
#[track_caller]
fn current_device() -> u32 {
    let mut device = -1;
    // SAFETY: the call writes one ordinal, to a local that outlives it; without a current context
    // it is an error.
    check("cuCtxGetDevice", unsafe { cuCtxGetDevice(&mut device) });
    u32::try_from(device).expect("an ordinal")
}

gpu_test! {
    needs 2;
    fn a01_guard_basic() -> Result<()> {
        let (_, p0) = device(0)?;
        let (d1, p1) = device(1)?;
        stack::with(p0, || {
            let guard = d1.enter()?;
            assert_eq!(context::current(), p1);
            assert_eq!(guard.context(), &d1.context()?);
            assert_eq!(current_device(), 1);
            drop(guard);
            assert_eq!(context::current(), p0);
            Ok(())
        })
    }
}

gpu_test! {
    needs 2;
    fn a02_guard_panic() -> Result<()> {
        #[derive(Debug, PartialEq)]
        struct Payload(u32);

        let (_, p0) = device(0)?;
        let (d1, p1) = device(1)?;
        stack::with(p0, || {
            let caught: Box<dyn Any + Send> = catch_unwind(AssertUnwindSafe(|| {
                let _guard = d1.enter().expect("device 1 can be entered");
                assert_eq!(context::current(), p1);
                panic_any(Payload(42))
            }))
            .expect_err("the closure panics");
            assert_eq!(context::current(), p0);
            assert_eq!(caught.downcast_ref(), Some(&Payload(42)), "the payload");
        });
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn a04_nest_same() -> Result<()> {
        let (d0, p0) = device(0)?;
        stack::with(p0, || {
            let outer = d0.enter()?;
            assert_eq!(context::current(), p0);
            let inner = d0.enter()?;
            assert_eq!(context::current(), p0);
            drop(inner);
            assert_eq!(context::current(), p0);
            drop(outer);
            assert_eq!(context::current(), p0);
            Ok(())
        })
    }
}

gpu_test! {
    needs 2;
    fn a05_nest_different() -> Result<()> {
        let (d0, p0) = device(0)?;
        let (d1, p1) = device(1)?;
        let outer = d0.enter()?;
        let inner = d1.enter()?;
        assert_eq!(context::current(), p1);
        drop(inner);
        assert_eq!(context::current(), p0);
        drop(outer);
        assert_eq!(context::current(), ptr::null_mut());
        assert_eq!(context::pop(), None);
        Ok(())
    }
}

gpu_test! {
    needs 2;
    fn a06_nest_deep() -> Result<()> {
        let pairs = [device(0)?, device(1)?];
        stack::with(pairs[0].1, || {
            let mut guards = Vec::new();
            for depth in 0..4 {
                let (device, primary) = pairs[depth % 2];
                guards.push(device.enter()?);
                assert_eq!(context::current(), primary, "entry {depth}");
            }
            for depth in (0..4_usize).rev() {
                drop(guards.pop());
                // The context entered by the guard below this one; for the lowest guard, the context current
                // before all of them.
                let (_, below) = pairs[depth.saturating_sub(1) % 2];
                assert_eq!(context::current(), below, "exit {depth}");
            }
            Ok(())
        })
    }
}

gpu_test! {
    needs 2;
    fn a07_device_usable_after() -> Result<()> {
        let (d1, p1) = device(1)?;
        let rounds = |count: usize| {
            (0..count).try_for_each(|_| {
                let guard = d1.enter()?;
                assert_eq!(context::current(), p1);
                drop(guard);
                assert_eq!(context::current(), ptr::null_mut());
                Ok(())
            })
        };
        rounds(100)?;
        // A leak of 1,200 bytes per round would exceed this. The simulated driver's log of calls takes half
        // of it.
        let most = InUse { device: 1 << 20, host: 1 << 20, files: 8 };
        let many = if cfg!(miri) { 10 } else { 900 };
        assert_flat(&[d1.context()?], &most, || rounds(many))?;

        let stream = d1.create_stream()?;
        let mut buffer = stream.alloc::<u32>(3)?;
        stream.upload(&[1, 2, 3], &mut buffer)?;
        let mut back = [0; 3];
        stream.download(&buffer, &mut back)?;
        assert_eq!(back, [1, 2, 3]);
        let _guard = d1.enter()?;
        assert_eq!(context::current(), p1);
        Ok(())
    }
}

gpu_test! {
    needs 2;
    fn a08_current_device_is_the_guards() -> Result<()> {
        let ((_, p0), (d1, _)) = (device(0)?, device(1)?);
        stack::with(p0, || {
            assert_eq!(current_device(), 0);
            let guard = d1.enter()?;
            assert_eq!(current_device(), 1);
            drop(guard);
            assert_eq!(current_device(), 0);
            Ok(())
        })
    }
}

gpu_test! {
    needs 2;
    fn a09_guards_per_thread() -> Result<()> {
        let step = Barrier::new(2);
        // Each thread enters two guards, both threads at once; then the inner guards end one after the other,
        // and so do the outer ones.
        let nested = |outer: u32, first: bool| -> Result<()> {
            let (outer, handle) = device(outer)?;
            let (inner, inner_handle) = device(0)?;
            let outer = outer.enter()?;
            step.wait();
            let inner = inner.enter()?;
            assert_eq!(context::current(), inner_handle);
            step.wait();
            if !first {
                step.wait();
            }
            drop(inner);
            assert_eq!(context::current(), handle);
            if first {
                step.wait();
            }
            step.wait();
            assert_eq!(context::current(), handle);
            drop(outer);
            assert_eq!(context::current(), ptr::null_mut());
            Ok(())
        };
        thread::scope(|scope| {
            let nested = &nested;
            let threads = [(0, true), (1, false)]
                .map(|(outer, first)| scope.spawn(move || nested(outer, first)));
            for thread in threads {
                thread.join().expect("no assertion failed")?;
            }
            Ok(())
        })
    }
}

gpu_test! {
    needs 1;
    fn a10_restore_none() -> Result<()> {
        let (d0, p0) = device(0)?;
        assert_eq!(context::current(), ptr::null_mut());
        let guard = d0.enter()?;
        assert_eq!(context::current(), p0);
        drop(guard);
        assert_eq!(context::current(), ptr::null_mut());
        assert_eq!(context::pop(), None, "the stack is empty, not only its top");
        Ok(())
    }
}

gpu_test! {
    needs 2;
    fn a11_raw_set_inside() -> Result<()> {
        let (_, p0) = device(0)?;
        let (d1, _) = device(1)?;
        let other = context::Foreign::create(0);
        // The second case is harder: the same device as the context set inside, but another
        // context.
        for before in [p0, other.handle()] {
            stack::with(before, || {
                let guard = d1.enter()?;
                context::set_current(p0);
                drop(guard);
                assert_eq!(context::current(), before);
                Ok::<_, Error>(())
            })?;
        }
        Ok(())
    }
}

gpu_test! {
    needs 2;
    fn a13_query_not_cache() -> Result<()> {
        let (d0, p0) = device(0)?;
        let (_, p1) = device(1)?;
        d0.context()?.set_current()?;
        context::set_current(p1);
        let guard = d0.enter()?;
        assert_eq!(context::current(), p0);
        drop(guard);
        assert_eq!(context::current(), p1);
        assert_eq!(context::pop(), Some(p1));
        assert_eq!(context::pop(), None);
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn a14_invalid_ordinal() -> Result<()> {
        let (d0, p0) = device(0)?;
        let count = Device::count()?;
        stack::with(p0, || {
            for asked in [count, 100, u32::MAX] {
                match Device::get(asked).and_then(Device::enter) {
                    Err(Error::NoSuchDevice { ordinal, count: found, .. }) => {
                        assert_eq!((ordinal, found), (asked, count));
                    }
                    other => panic!("device {asked} of {count}: {other:?}"),
                }
                assert_eq!(context::current(), p0);
            }
            let guard = d0.enter()?;
            assert_eq!(context::current(), p0);
            guard.restore()
        })
    }
}

gpu_test! {
    needs 1;
    fn a16_same_device_other_ctx() -> Result<()> {
        let (d0, p0) = device(0)?;
        let other = context::Foreign::create(0);
        assert_ne!(other.handle(), p0);
        stack::with(other.handle(), || {
            let guard = d0.enter()?;
            assert_eq!(context::current(), p0);
            drop(guard);
            assert_eq!(context::current(), other.handle());
            Ok(())
        })
    }
}

gpu_test! {
    needs 2;
    fn a17_explicit_restore_result() -> Result<()> {
        let (d0, p0) = device(0)?;
        let (d1, p1) = device(1)?;
        stack::with(p0, || {
            let outer = d1.enter()?;
            let inner = d0.enter()?;
            inner.restore()?;
            // A second restore would also end the scope of the outer guard.
            assert_eq!(context::current(), p1);
            outer.restore()?;
            assert_eq!(context::current(), p0);
            Ok(())
        })
    }
}

gpu_test! {
    needs 1;
    fn a20_leaked_push_null_saved() -> Result<()> {
        let (d0, p0) = device(0)?;
        let pushed = context::Foreign::create(0);
        let guard = d0.enter()?;
        context::push(pushed.handle());
        drop(guard);
        assert_ne!(context::current(), p0, "setting NULL pops one entry only");
        assert_eq!(context::current(), ptr::null_mut());
        assert_eq!(context::pop(), None);

        let guard = d0.enter()?;
        for _ in 0..3 {
            context::push(pushed.handle());
        }
        guard.restore()?;
        assert_eq!(context::pop(), None);
        Ok(())
    }
}

gpu_test! {
    needs 2;
    fn a21_leaked_push_saved() -> Result<()> {
        let (d0, p0) = device(0)?;
        let (_, p1) = device(1)?;
        let pushed = context::Foreign::create(0);
        for before in [p0, p1] {
            context::push(before);
            let guard = d0.enter()?;
            context::push(pushed.handle());
            drop(guard);
            assert_eq!(context::current(), before);
            stack::clear();
        }
        Ok(())
    }
}

gpu_test! {
    needs 2;
    fn a22_inner_pop() -> Result<()> {
        let (d0, p0) = device(0)?;
        let (_, p1) = device(1)?;
        let other = context::Foreign::create(0);
        for before in [p0, p1, other.handle()] {
            stack::with(before, || {
                let guard = d0.enter()?;
                assert_eq!(context::pop(), Some(p0));
                drop(guard);
                assert_eq!(context::current(), before);
                Ok::<_, Error>(())
            })?;
        }
        // With no entry below, there is nothing to restore.
        let guard = d0.enter()?;
        assert_eq!(context::pop(), Some(p0));
        guard.restore()?;
        assert_eq!(context::pop(), None);
        Ok(())
    }
}

gpu_test! {
    needs 2;
    fn a25_out_of_order_drop() -> Result<()> {
        let (d0, p0) = device(0)?;
        let (d1, _) = device(1)?;
        let first = d0.enter()?;
        let second = d1.enter()?;
        drop(first);
        assert_eq!(context::current(), ptr::null_mut(), "what the first one saw");
        drop(second);
        assert_eq!(context::current(), p0, "what the second one saw");
        stack::clear();
        Ok(())
    }
}

gpu_test! {
    needs 2;
    fn a25_out_of_order_drop_keeps_a_created_context_alive() -> Result<()> {
        let (d0, _) = device(0)?;
        let (d1, p1) = device(1)?;
        let created = Context::new(d0, ContextFlags::SCHED_AUTO)?;
        let handle = created.as_raw();
        let first = created.enter()?;
        let second = d1.enter()?;
        drop(first);
        // This is the program's last reference, but the second guard has the handle.
        drop(created);
        drop(second);
        assert_eq!(context::current(), handle);
        assert_eq!(current_device(), 0, "a destroyed context would return an error");
        let current = Context::current()?.expect("one is current");
        current.synchronize()?;
        drop(current);
        // Replacing the current context releases it.
        let before = d1.context()?.set_current()?;
        assert_eq!(before.as_raw(), handle);
        drop(before);
        assert_eq!(context::pop(), Some(p1));
        assert_eq!(context::pop(), None);
        Ok(())
    }
}
