//! Contexts, their objects, and what keeps them alive: S08, S17, S23, S27, S38.

use std::mem;
use std::thread;

use cuda_core::{
    Context, ContextFlags, Device, DeviceSliceMut, Event, EventFlags, PinnedBuffer, Result,
};
use cuda_sys::{CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, cuPointerGetAttribute};
use support::{check, context, gpu_test};

use super::{LEN, assert_all, device, pinned, primary, warm};

gpu_test! {
    needs 2;
    fn s08_drop_where_another_context_is_current() -> Result<()> {
        let (stream, other) = (warm()?, warm()?);
        let event = Event::new(&primary()?, EventFlags::DEFAULT)?;
        let buffer = stream.alloc_zeroed::<u32>(LEN)?;
        let mut host = pinned(1, LEN)?;
        other.download(&buffer, &mut host)?;
        event.record(&other)?;
        thread::scope(|scope| {
            scope.spawn(move || {
                let foreign = context::Foreign::create(1);
                context::push(foreign.handle());
                drop((buffer, host, event, other, stream));
                assert_eq!(context::pop(), Some(foreign.handle()));
                assert_eq!(context::pop(), None);
            });
        });
        Ok(())
    }
}

/// Creates one object of each kind in a created context, and drops them in the order of `order`.
fn drop_in_order(order: [usize; 5]) -> Result<()> {
    let context = Context::new(device()?, ContextFlags::default())?;
    let stream = context.create_stream()?;
    let event = Event::new(&context, EventFlags::DEFAULT)?;
    let mut buffer = stream.alloc::<u32>(LEN)?;
    stream.fill(&mut buffer, 7)?;
    let mut host = PinnedBuffer::<u32>::new(&context, LEN)?;
    stream.download(&buffer, &mut host)?;
    event.record(&stream)?;
    let mut slots: [Option<Box<dyn FnOnce()>>; 5] = [
        Some(Box::new(move || drop(context))),
        Some(Box::new(move || drop(stream))),
        Some(Box::new(move || drop(event))),
        Some(Box::new(move || drop(buffer))),
        Some(Box::new(move || drop(host))),
    ];
    for index in order {
        let drop_it = slots[index].take().expect("each is dropped once");
        drop_it();
    }
    Ok(())
}

gpu_test! {
    needs 1;
    fn s17_orders_of_dropping() -> Result<()> {
        // Each object is dropped first once, and last once; the suite on the simulated driver tries all
        // orders.
        for first in 0..5 {
            drop_in_order(std::array::from_fn(|index| (first + index) % 5))?;
            drop_in_order(std::array::from_fn(|index| (first + 5 - index) % 5))?;
        }
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn s17_contexts_made_and_destroyed_in_turn() -> Result<()> {
        let keeper = warm()?;
        let mut buffer = keeper.alloc_zeroed::<u32>(LEN)?;
        for round in 1..6 {
            let context = Context::new(device()?, ContextFlags::default())?;
            let default = context.default_stream()?;
            default.fill(&mut buffer, round)?;
            drop((default, context));
            let mut back = vec![0; LEN];
            keeper.download(&buffer, &mut back)?;
            assert_all(&back, round);
        }
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn s23_forgotten_views_and_guards() -> Result<()> {
        let (a, b) = (warm()?, warm()?);
        let mut buffer = a.alloc_zeroed::<u32>(LEN)?;
        let (mut head, mut tail) = buffer.split_at_mut(LEN / 2)?;
        a.fill(&mut head, 1)?;
        b.fill(&mut tail, 2)?;
        // The soundness of a view must not depend on its destructor.
        const { assert!(!mem::needs_drop::<DeviceSliceMut<'static, u32>>()) };
        let _ = (head, tail);
        mem::forget(device()?.enter()?);
        let mut back = vec![0; LEN];
        a.download(&buffer, &mut back)?;
        assert_all(&back[..LEN / 2], 1);
        assert_all(&back[LEN / 2..], 2);
        assert_eq!(context::current(), context::primary(0));
        context::set_current(std::ptr::null_mut());
        Ok(())
    }
}

gpu_test! {
    needs 2;
    fn s27_memory_is_where_the_stream_is() -> Result<()> {
        let second = Device::get(1)?;
        let stream = second.create_stream()?;
        let wrong = device()?.enter()?;
        let buffer = stream.alloc::<u32>(LEN)?;
        let default = second.context()?.default_stream()?;
        let on_default = default.alloc::<u32>(LEN)?;
        wrong.restore()?;
        for address in [buffer.as_raw(), on_default.as_raw()] {
            let mut ordinal = -1_i32;
            // SAFETY: the attribute's value is an `int`, which the pointer is valid for.
            check("cuPointerGetAttribute", unsafe {
                cuPointerGetAttribute(
                    (&raw mut ordinal).cast(),
                    CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                    address,
                )
            });
            assert_eq!(ordinal, 1);
        }
        Ok(())
    }
}

fn drop_elsewhere(context: Context) {
    thread::scope(|scope| scope.spawn(move || drop(context)).join()).expect("it only drops");
}

gpu_test! {
    needs 1;
    fn s38_a_guard_keeps_what_it_saved() -> Result<()> {
        let context = Context::new(device()?, ContextFlags::default())?;
        let handle = context.as_raw();
        context.push()?;
        let guard = device()?.enter()?;
        drop_elsewhere(context);
        guard.restore()?;
        assert_eq!(context::current(), handle);
        device()?.enter()?.restore()?;
        assert_eq!(Context::pop()?.as_raw(), handle);
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn s38_guards_dropped_out_of_order_keep_what_they_leave() -> Result<()> {
        let context = Context::new(device()?, ContextFlags::default())?;
        let handle = context.as_raw();
        let outer = context.enter()?;
        let inner = context.enter()?;
        drop(outer);
        drop(inner);
        drop_elsewhere(context);
        assert_eq!(context::current(), handle);
        device()?.enter()?.restore()?;
        drop(Context::pop()?);
        assert!(context::current().is_null());
        Ok(())
    }
}
