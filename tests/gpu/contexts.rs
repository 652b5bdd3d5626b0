//! Contexts: setting, pushing and creating them, and creating objects in one context while another is
//! current.

use std::ffi::c_int;
use std::ptr;
use std::thread;
use std::time::{Duration, Instant};

use cuda_core::{
    Allocator, Context, ContextFlags, Current, Device, DeviceBuffer, Error, Event, EventFlags,
    PinnedBuffer, Result, Stream,
};
use cuda_sys::{
    CUcontext, CUdeviceptr, CUlimit, CUpointer_attribute, cuCtxSynchronize,
    cuDeviceGetDefaultMemPool, cuMemPoolGetAttribute, cuPointerGetAttribute, cuStreamGetCtx,
};
use support::{check, context, fails_a_call, gpu_test, stall};

use crate::capture::Capture;
use crate::stack;

fn created(ordinal: u32) -> Result<Context> {
    Context::new(Device::get(ordinal)?, ContextFlags::SCHED_AUTO)
}

gpu_test! {
    needs 2;
    fn a24_set_current_returns_previous() -> Result<()> {
        let c0 = Device::get(0)?.context()?;
        let c1 = Device::get(1)?.context()?;
        assert!(c0.set_current()?.is_none());
        assert_eq!(context::current(), c0.as_raw());
        let before = c1.set_current()?;
        assert_eq!(before.context(), Some(&c0));
        assert_eq!(before.as_raw(), c0.as_raw());
        assert_eq!(before.context().map(|c| c.device().ordinal()), Some(0));
        assert_eq!(context::current(), c1.as_raw());
        let before = c0.set_current()?;
        assert_eq!(before.context().map(|c| c.device().ordinal()), Some(1));
        // Set again, the context is its own predecessor.
        assert_eq!(c0.set_current()?.context(), Some(&c0));

        let own = created(1)?;
        assert_eq!(own.set_current()?.context(), Some(&c0));
        let foreign = context::Foreign::create(1);
        context::set_current(foreign.handle());
        match c0.set_current()? {
            Current::Unknown(unknown) => assert_eq!(unknown.as_raw(), foreign.handle()),
            other => panic!("{other:?} was current"),
        }
        assert_eq!(context::pop(), Some(c0.as_raw()));
        assert_eq!(context::pop(), None, "setting replaces, and pushes nothing");
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn a24_what_is_left_current_stays_alive() -> Result<()> {
        let leave: [fn(&Context) -> Result<()>; 2] =
            [|context| context.set_current().map(drop), Context::push];
        for leave in leave {
            let own = created(0)?;
            let handle = own.as_raw();
            leave(&own)?;
            drop(own);
            assert_eq!(context::current(), handle);
            // With a destroyed context, the wait would fail.
            // SAFETY: the call takes no argument.
            check("cuCtxSynchronize", unsafe { cuCtxSynchronize() });
            assert_eq!(Context::pop()?.as_raw(), handle);
            assert_eq!(context::pop(), None);

            // A thread that ends with a current context releases it.
            let end = || created(0).and_then(|own| leave(&own));
            let ended = thread::scope(|scope| scope.spawn(end).join());
            ended.expect("no panic on the way out")?;
        }
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn a27_floating_migrates() -> Result<()> {
        let data: Vec<u32> = (0..1000).collect();
        let pushed = Context::new_current(Device::get(0)?, ContextFlags::SCHED_AUTO)?;
        let floating = Context::pop()?;
        assert_eq!(floating, pushed);
        drop(pushed);
        assert_eq!(context::current(), ptr::null_mut());

        let work = || -> Result<(Stream, DeviceBuffer<u32>)> {
            floating.push()?;
            assert_eq!(context::current(), floating.as_raw());
            let stream = floating.create_stream()?;
            let mut buffer = stream.alloc(data.len())?;
            stream.upload(&data, &mut buffer)?;
            assert_eq!(Context::pop()?, floating);
            assert_eq!(context::pop(), None);
            Ok((stream, buffer))
        };
        let other = thread::scope(|scope| scope.spawn(work).join());
        let (stream, buffer) = other.expect("no assertion failed")?;

        floating.push()?;
        let mut back = vec![0; data.len()];
        stream.download(&buffer, &mut back)?;
        assert_eq!(back, data);
        assert_eq!(stream_context(&stream), floating.as_raw());
        assert_eq!(Context::pop()?, floating);
        assert_eq!(context::pop(), None);
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn a28_pop_returns_pushed() -> Result<()> {
        let created = created(0)?;
        created.push()?;
        assert_eq!(context::current(), created.as_raw());
        let popped = Context::pop()?;
        assert_eq!(popped.as_raw(), created.as_raw());
        assert_eq!(popped, created);
        assert_eq!(context::current(), ptr::null_mut());
        let empty = Context::pop().expect_err("the stack is empty");
        assert_eq!(empty.code(), Some(cuda_sys::CUDA_ERROR_INVALID_CONTEXT));
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn a29_push_twice() -> Result<()> {
        let primary = Device::get(0)?.context()?;
        let created = created(0)?;
        stack::with(primary.as_raw(), || {
            created.push()?;
            created.push()?;
            assert_eq!(Context::pop()?, created);
            assert_eq!(context::current(), created.as_raw());
            assert_eq!(Context::pop()?, created);
            assert_eq!(context::current(), primary.as_raw());
            Ok(())
        })
    }
}

gpu_test! {
    needs 1;
    fn a31_create_leaves_current_alone() -> Result<()> {
        let device = Device::get(0)?;
        let primary = device.context()?.as_raw();
        stack::with(primary, || {
            let created = created(0)?;
            assert_eq!(context::current(), primary);
            assert_ne!(created.as_raw(), primary);

            let pushed = Context::new_current(device, ContextFlags::SCHED_AUTO)?;
            assert_eq!(context::current(), pushed.as_raw());
            assert_ne!(pushed, created);
            assert_eq!(Context::pop()?, pushed);
            assert_eq!(context::current(), primary);
            Ok(())
        })
    }
}

gpu_test! {
    needs 1;
    fn a32_override_nested() -> Result<()> {
        let (c1, c2) = (created(0)?, created(0)?);
        stack::with(c1.as_raw(), || {
            let outer = c2.enter()?;
            let c3 = Context::new_current(c1.device(), ContextFlags::SCHED_AUTO)?;
            let inner = c3.enter()?;
            assert_eq!(context::current(), c3.as_raw());
            drop(inner);
            assert_eq!(Context::pop()?, c3);
            assert_eq!(context::current(), c2.as_raw());
            drop(outer);
            assert_eq!(context::current(), c1.as_raw());
            Ok(())
        })
    }
}

/// Calls `cuStreamGetCtx`.
fn stream_context(stream: &Stream) -> CUcontext {
    let mut context = ptr::null_mut();
    // SAFETY: the stream is live; the pointer is valid for a write.
    check("cuStreamGetCtx", unsafe { cuStreamGetCtx(stream.as_raw(), &mut context) });
    context
}

/// Returns the device ordinal of an address, by `cuPointerGetAttribute`.
fn device_of(address: CUdeviceptr) -> c_int {
    const ORDINAL: CUpointer_attribute = cuda_sys::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL;
    let mut ordinal: c_int = -1;
    // SAFETY: the attribute's value is an int, which the pointer is valid for.
    check("cuPointerGetAttribute", unsafe {
        cuPointerGetAttribute((&raw mut ordinal).cast(), ORDINAL, address)
    });
    ordinal
}

gpu_test! {
    needs 2;
    fn a35_create_on_own_device() -> Result<()> {
        let p0 = Device::get(0)?.context()?.as_raw();
        let context = Device::get(1)?.context()?;
        // With another device's context current, and with none.
        for current in [p0, ptr::null_mut()] {
            if !current.is_null() {
                context::push(current);
            }
            let stream = context.create_stream()?;
            assert_eq!(context::current(), current, "after a stream");
            assert_eq!(stream_context(&stream), context.as_raw());

            let event = Event::new(&context, EventFlags::DEFAULT)?;
            assert_eq!(context::current(), current, "after an event");
            // The driver refuses an event of another context.
            event.record(&stream)?;

            let buffer = stream.alloc::<u8>(100)?;
            assert_eq!(context::current(), current, "after device memory");
            assert_eq!(device_of(buffer.as_raw()), 1);
            assert_eq!(buffer.device().ordinal(), 1);

            let legacy = context.default_stream()?;
            let buffer = legacy.alloc_zeroed::<u8>(100)?;
            assert_eq!(context::current(), current, "after memory of the default stream");
            assert_eq!(device_of(buffer.as_raw()), 1);

            let pinned = PinnedBuffer::<u8>::zeroed(&context, 100)?;
            assert_eq!(context::current(), current, "after pinned memory");
            drop((pinned, buffer, legacy, event, stream));
            assert_eq!(context::current(), current, "after dropping them");
            stack::clear();
        }
        Ok(())
    }
}

gpu_test! {
    needs 2, asynchronous;
    fn a37_sync_other_device() -> Result<()> {
        const STALL: Duration = Duration::from_millis(200);
        let p0 = Device::get(0)?.context()?.as_raw();
        let d1 = Device::get(1)?;
        let stream = d1.create_stream()?;
        d1.synchronize()?;
        stack::with(p0, || {
            let started = Instant::now();
            stall(stream.as_raw()).release_after(STALL);
            d1.synchronize()?;
            let waited = started.elapsed();
            assert!(waited >= STALL || fails_a_call(), "waited {waited:?}");
            assert_eq!(context::current(), p0);

            let capture = Capture::begin(&stream, cuda_sys::CU_STREAM_CAPTURE_MODE_GLOBAL);
            let refused = d1.synchronize();
            assert_eq!(context::current(), p0, "after {refused:?}");
            drop(capture);
            refused.expect_err("a context with a capture cannot be waited for");
            Ok(())
        })
    }
}

/// Returns the bytes in use of the device's default pool.
fn pool_bytes(device: Device) -> u64 {
    let mut pool = ptr::null_mut();
    // SAFETY: the library returned the device's handle; the call writes one pool, to a local that
    // outlives it.
    check("cuDeviceGetDefaultMemPool", unsafe {
        cuDeviceGetDefaultMemPool(&mut pool, device.as_raw())
    });
    let mut bytes = 0u64;
    // SAFETY: the attribute's value is a cuuint64_t, which the pointer is valid for.
    check("cuMemPoolGetAttribute", unsafe {
        cuMemPoolGetAttribute(
            pool,
            cuda_sys::CU_MEMPOOL_ATTR_USED_MEM_CURRENT,
            (&raw mut bytes).cast(),
        )
    });
    bytes
}

gpu_test! {
    needs 2;
    fn a38_drop_elsewhere() -> Result<()> {
        const BYTES: usize = 8 << 20;
        let d0 = Device::get(0)?;
        let context = d0.context()?;
        let c1 = Device::get(1)?.context()?;
        d0.synchronize()?;
        let before = pool_bytes(d0);

        for elsewhere in [Some(&c1), None] {
            let stream = d0.create_stream()?;
            let event = Event::new(&context, EventFlags::DEFAULT)?;
            event.record(&stream)?;
            let pool = Allocator::driver_pool();
            let at_home = d0.create_stream()?.alloc_with::<u8>(&pool, BYTES)?;
            let on_legacy = context.default_stream()?.alloc_with::<u8>(&pool, BYTES)?;
            let pinned = PinnedBuffer::<u8>::zeroed(&context, BYTES)?;
            assert!(pool_bytes(d0) >= before + 2 * BYTES as u64);

            let drop_all = || {
                if let Some(elsewhere) = elsewhere {
                    context::push(elsewhere.as_raw());
                }
                let current = elsewhere.map_or(ptr::null_mut(), Context::as_raw);
                let unchanged = |what| assert_eq!(context::current(), current, "after {what}");
                drop(event);
                unchanged("an event");
                drop(stream);
                unchanged("a stream");
                drop(at_home);
                unchanged("device memory and its stream");
                drop(on_legacy);
                unchanged("memory of the default stream");
                drop(pinned);
                unchanged("pinned memory");
                stack::clear();
            };
            let thread = thread::scope(|scope| scope.spawn(drop_all).join());
            thread.expect("no assertion failed");
            d0.synchronize()?;
            assert_eq!(pool_bytes(d0), before, "the memory came back");
        }
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn a40_limits_and_cache_config() -> Result<()> {
        const FIFO: CUlimit = cuda_sys::CU_LIMIT_PRINTF_FIFO_SIZE;
        const HEAP: CUlimit = cuda_sys::CU_LIMIT_MALLOC_HEAP_SIZE;
        let (c1, c2) = (created(0)?, created(0)?);
        let primary = c1.device().context()?.as_raw();
        let untouched = (c2.limit(FIFO)?, c2.limit(HEAP)?);
        stack::with(primary, || {
            let more = [(FIFO, untouched.0 + (3 << 20)), (HEAP, untouched.1 + (16 << 20))];
            for (limit, value) in more {
                c1.set_limit(limit, value)?;
                // The driver may round up, within limits.
                let got = c1.limit(limit)?;
                assert!((value..2 * value).contains(&got), "set {value}, got {got}");
            }
            assert_eq!((c2.limit(FIFO)?, c2.limit(HEAP)?), untouched);

            let known = [
                Some(cuda_sys::CUDA_ERROR_UNSUPPORTED_LIMIT),
                Some(cuda_sys::CUDA_ERROR_INVALID_VALUE),
            ];
            let unknown = CUlimit(9999);
            for refused in [c1.limit(unknown).map(drop), c1.set_limit(unknown, 1)] {
                let error = refused.expect_err("no such limit");
                assert!(known.contains(&error.code()), "{error}");
            }
            // The cache configuration is a hint: the value read need not be the value set.
            c1.set_cache_config(cuda_sys::CU_FUNC_CACHE_PREFER_L1)?;
            assert!((0..=3).contains(&(c1.cache_config()?.0 as i64)));
            assert_eq!(context::current(), primary);
            Ok(())
        })
    }
}

gpu_test! {
    needs 1;
    fn flags_are_read_back() -> Result<()> {
        let device = Device::get(0)?;
        let waiting = ContextFlags::SCHED_BLOCKING_SYNC;
        let created = Context::new(device, waiting)?;
        const SCHEDULING: u32 = 7;
        assert_eq!(created.flags()?.bits() & SCHEDULING, waiting.bits());
        assert!(created.api_version()? >= 3000);

        let primary = device.context()?;
        let before = device.primary_state()?;
        assert!(before.is_active);
        device.set_primary_flags(waiting)?;
        assert_eq!(device.primary_state()?.flags.bits() & SCHEDULING, waiting.bits());
        assert_eq!(primary.flags()?.bits() & SCHEDULING, waiting.bits());
        device.set_primary_flags(before.flags)?;
        primary.reset_persisting_l2_cache()?;
        assert_eq!(context::current(), ptr::null_mut());
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn attached_without_an_owner() -> Result<()> {
        let foreign = context::Foreign::create(0);
        // SAFETY: no context is current.
        assert_eq!(unsafe { Context::attach_current() }?, None);
        stack::with(foreign.handle(), || {
            Context::current().expect_err("no owner keeps it alive");
            // SAFETY: `foreign` outlives everything that is made here.
            let attached = unsafe { Context::attach_current() }?.expect("one is current");
            assert_eq!(attached.as_raw(), foreign.handle());
            assert_eq!(attached.device().ordinal(), 0);
            let stream = attached.create_stream()?;
            assert_eq!(stream_context(&stream), foreign.handle());
            assert_eq!(Context::current()?, Some(attached));
            Ok(())
        })
    }
}

gpu_test! {
    needs 2;
    fn profiler_ranges() -> Result<()> {
        let p0 = Device::get(0)?.context()?.as_raw();
        let c1 = Device::get(1)?.context()?;
        for before in [p0, c1.as_raw(), ptr::null_mut()] {
            let ranges = || -> Result<()> {
                let steps: [&dyn Fn() -> Result<()>; 4] = [
                    &|| c1.start_profiler(),
                    &|| c1.stop_profiler(),
                    &|| {
                        let range = c1.profile()?;
                        assert_eq!(context::current(), before, "while it records");
                        drop(range);
                        Ok(())
                    },
                    &|| c1.profile()?.close().map_err(Error::from),
                ];
                for step in steps {
                    step()?;
                    assert_eq!(context::current(), before);
                }
                Ok(())
            };
            if before.is_null() {
                assert_eq!(context::current(), before);
                ranges()?;
            } else {
                stack::with(before, ranges)?;
            }
        }
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn s17_an_event_outlives_every_other_handle_of_its_context() -> Result<()> {
        let own = created(0)?;
        let stream = own.create_stream()?;
        let event = Event::new(&own, EventFlags::DEFAULT)?;
        event.record(&stream)?;
        drop((stream, own));
        event.synchronize()?;
        assert!(event.query()?);
        // The stream belongs to another context of the device.
        Device::get(0)?.create_stream()?.wait_event(&event)
    }
}
