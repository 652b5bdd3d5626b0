//! The thread's current stream.

use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::thread;

use cuda_core::{Context, ContextFlags, Device, Event, EventFlags, Result};
use support::{assert_bytes, context, gpu_test, kernels, one_stream, stall, two_streams};

use crate::stack;

gpu_test! {
    needs 1;
    fn c04_current_nested() -> Result<()> {
        let context = Device::get(0)?.context()?;
        assert_eq!(context.current_stream()?, context.default_stream()?);
        let [x, s1, s2] = [context.create_stream()?, context.create_stream()?, context.create_stream()?];
        assert_eq!(x.set_current()?, context.default_stream()?);
        {
            let one = s1.enter()?;
            assert_eq!(one.stream(), &s1);
            assert_eq!(context.current_stream()?, s1);
            {
                let _two = s2.enter()?;
                assert_eq!(context.current_stream()?, s2);
                assert_eq!(Device::get(0)?.current_stream()?, s2);
            }
            assert_eq!(context.current_stream()?, s1);
            one.restore()?;
        }
        assert_eq!(context.current_stream()?, x);
        assert_eq!(context.default_stream()?.set_current()?, x);
        assert_eq!(context.current_stream()?, context.default_stream()?);
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn c04_restored_by_a_panic() -> Result<()> {
        let (context, x, s) = two_streams()?;
        x.set_current()?;
        let panic = catch_unwind(AssertUnwindSafe(|| {
            let _guard = s.enter().expect("it can be entered");
            panic_any(7_u8);
        }));
        assert_eq!(panic.expect_err("it panicked").downcast_ref(), Some(&7_u8));
        assert_eq!(context.current_stream()?, x);
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn c04_the_setter_inside_a_scope() -> Result<()> {
        let context = Device::get(0)?.context()?;
        let [x, s, t] = [context.create_stream()?, context.create_stream()?, context.create_stream()?];
        x.set_current()?;
        let guard = s.enter()?;
        assert_eq!(t.set_current()?, s);
        assert_eq!(context.current_stream()?, t);
        drop(guard);
        assert_eq!(context.current_stream()?, x, "the scope's end brings back what it saw");

        // Guards dropped out of order: the guard dropped last decides.
        let (first, second) = (s.enter()?, t.enter()?);
        drop(first);
        assert_eq!(context.current_stream()?, x);
        drop(second);
        assert_eq!(context.current_stream()?, s);
        // The same holds for the context.
        stack::clear();
        Ok(())
    }
}

gpu_test! {
    needs 2;
    fn c06_current_wrong_device() -> Result<()> {
        let (c0, c1) = (Device::get(0)?.context()?, Device::get(1)?.context()?);
        let stream = c0.create_stream()?;
        let own = c1.create_stream()?;
        own.set_current()?;
        let guard = c1.enter()?;
        {
            let _stream = stream.enter()?;
            assert_eq!(context::current(), c0.as_raw(), "device and stream switch together");
            assert_eq!(c0.current_stream()?, stream);
            assert_eq!(c1.current_stream()?, own, "each device has its own");
        }
        assert_eq!(context::current(), c1.as_raw());
        assert_eq!(c0.current_stream()?, c0.default_stream()?);

        // The plain setter affects only the stream's own device, whatever is current.
        stream.set_current()?;
        assert_eq!(context::current(), c1.as_raw());
        assert_eq!(c0.current_stream()?, stream);
        assert_eq!(c1.current_stream()?, own);
        guard.restore()
    }
}

gpu_test! {
    needs 1;
    fn c06_current_in_another_context_of_the_device() -> Result<()> {
        let device = Device::get(0)?;
        let created = Context::new(device, ContextFlags::default())?;
        let (primary, inside) = (device.create_stream()?, created.create_stream()?);
        let _primary = primary.enter()?;
        {
            let _inside = inside.enter()?;
            assert_eq!(context::current(), created.as_raw());
            assert_eq!(created.current_stream()?, inside);
            assert_eq!(device.current_stream()?, primary);
        }
        assert_eq!(created.current_stream()?, created.default_stream()?);
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn c07_current_per_thread() -> Result<()> {
        let (context, stream) = one_stream()?;
        let _guard = stream.enter()?;
        let elsewhere = thread::scope(|scope| {
            scope.spawn(|| context.current_stream()).join().expect("no assertion failed")
        })?;
        assert_eq!(elsewhere, context.default_stream()?);
        assert_eq!(context.current_stream()?, stream);
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn c08_drop_while_current() -> Result<()> {
        let context = Device::get(0)?.context()?;
        let add_one = kernels::get(&context, "add_one")?;
        let stream = context.create_stream()?;
        let id = stream.id();
        let barrier = std::sync::Barrier::new(2);
        let work = |handle: cuda_core::Stream| -> Result<()> {
            handle.set_current()?;
            barrier.wait();
            drop(handle);
            barrier.wait();
            // The threads' own references are the last ones.
            let current = context.current_stream()?;
            assert_eq!(current.id(), id);
            let mut buffer = current.alloc::<u32>(1000)?;
            current.fill(&mut buffer, 7)?;
            let mut launch = current.kernel(&add_one).elements(1000).arg(&mut buffer).arg(1000u32);
            // SAFETY: the buffer has as many elements as the launch.
            unsafe { launch.launch() }?;
            let mut back = [0; 1000];
            current.download(&buffer, &mut back)?;
            assert_eq!(back, [8; 1000]);
            Ok(())
        };
        let (one, two) = (stream.clone(), stream);
        thread::scope(|scope| {
            let threads = [scope.spawn(|| work(one)), scope.spawn(|| work(two))];
            threads.map(|thread| thread.join().expect("no assertion failed")).into_iter().collect()
        })
    }
}

gpu_test! {
    needs 1, asynchronous;
    fn c18_scope_does_not_sync() -> Result<()> {
        let stream = Device::get(0)?.create_stream()?;
        let mut buffer = stream.alloc_zeroed::<u8>(1000)?;
        stream.synchronize()?;
        let stall = stall(stream.as_raw());
        {
            let guard = stream.enter()?;
            guard.stream().fill(&mut buffer, 7)?;
        }
        assert!(context::current().is_null());
        assert!(!stream.query()?, "the end of the scope waits for nothing");
        stall.release();
        let mut back = [0; 1000];
        stream.download(&buffer, &mut back)?;
        assert_bytes(&back, &[7; 1000]);
        Ok(())
    }
}

gpu_test! {
    needs 1, asynchronous;
    fn d09_record_default() -> Result<()> {
        let (context, stream, idle) = two_streams()?;
        let event = Event::new(&context, EventFlags::DISABLE_TIMING)?;
        let stall = stall(stream.as_raw());
        {
            let _idle = idle.enter()?;
            event.record_current()?;
            event.synchronize()?;
            assert!(event.query()?, "it is on the idle stream");
            let _stalled = stream.enter()?;
            event.record_current()?;
        }
        for _ in 0..5 {
            assert!(!event.query()?, "the stream of the scope is stalled");
        }
        stall.release();
        event.synchronize()?;
        assert!(event.query()?);
        Ok(())
    }
}
