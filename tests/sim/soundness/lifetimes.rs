//! S17, S30: drops in every order, and drops that fail.

use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};

use cuda_core::{
    Context, ContextFlags, Event, EventFlags, PinnedBuffer, Result,
    drops::{self, DropFailure},
};
use cuda_sim::Fault;
use cuda_sys::{CUDA_ERROR_DEINITIALIZED, CUDA_ERROR_UNKNOWN};
use support::OnDrop;

use super::{clean, device, within};

type Slot = Option<Box<dyn FnOnce() + Send>>;

fn slot<T: Send + 'static>(value: T) -> Slot {
    Some(Box::new(move || drop(value)))
}

/// Creates one object of each kind in a created context, with work queued on all of them.
fn one_of_each() -> Result<[Slot; 6]> {
    let context = Context::new(device(), ContextFlags::default())?;
    let home = context.create_stream()?;
    let other = context.create_stream()?;
    let event = Event::new(&context, EventFlags::DEFAULT)?;
    let mut buffer = home.alloc::<u32>(64)?;
    home.fill(&mut buffer, 7)?;
    let mut host = PinnedBuffer::<u32>::zeroed(&context, 64)?;
    other.download(&buffer, &mut host)?;
    event.record(&other)?;
    Ok([slot(context), slot(home), slot(other), slot(event), slot(buffer), slot(host)])
}

/// Calls `f` with each order of `0..N`.
fn orders<const N: usize>(f: &mut impl FnMut(&[usize; N])) {
    fn place<const N: usize>(at: usize, order: &mut [usize; N], f: &mut impl FnMut(&[usize; N])) {
        if at == N {
            return f(order);
        }
        for next in at..N {
            order.swap(at, next);
            place(at + 1, order, f);
            order.swap(at, next);
        }
    }
    place(0, &mut std::array::from_fn(|index| index), f);
}

#[test]
fn s17_every_order_of_dropping() {
    clean(|session| {
        let mut tried = 0;
        orders(&mut |order: &[usize; 6]| {
            // Miri takes a second per order.
            tried += 1;
            if cfg!(miri) && tried % 97 != 0 {
                return;
            }
            let mut slots = one_of_each().expect("one of each can be made");
            for index in order {
                let drop_it = slots[*index].take().expect("each is dropped once");
                drop_it();
            }
            assert_eq!(session.violations(), [], "order {order:?}");
            assert_eq!(session.leaks(), [], "order {order:?}");
        });
        assert_eq!(tried, 720);
        Ok(())
    });
}

#[test]
fn s17_marks_keep_the_context_of_a_stream_that_is_gone() {
    clean(|_| {
        let context = Context::new(device(), ContextFlags::default())?;
        let stream = context.create_stream()?;
        let home = device().create_stream()?;
        let mut buffer = home.alloc::<u32>(64)?;
        stream.fill(&mut buffer, 7)?;
        drop(stream);
        drop(context);
        let mut back = [0; 64];
        home.download(&buffer, &mut back)?;
        assert_eq!(back, [7; 64]);
        Ok(())
    });
}

#[test]
fn s17_contexts_made_and_destroyed_in_turn() {
    clean(|_| {
        let keeper = device().create_stream()?;
        let mut buffer = keeper.alloc_zeroed::<u32>(64)?;
        for round in 1..8 {
            let context = Context::new(device(), ContextFlags::default())?;
            let default = context.default_stream()?;
            default.fill(&mut buffer, round)?;
            drop((default, context));
            let mut back = [0; 64];
            keeper.download(&buffer, &mut back)?;
            assert_eq!(back, [round; 64]);
        }
        Ok(())
    });
}

/// Runs `body`, in which drops may fail, for tests that leak on purpose.
fn failing(body: impl FnOnce(&cuda_sim::Session) -> Result<()> + Send) {
    let session = support::simulator();
    within(|| body(&session).expect("no operation of the test fails"));
    session.clear_faults();
    cuda_core::drops::flush();
    session.settle();
    assert_eq!(session.violations(), []);
}

#[test]
fn s30_drops_do_not_panic_when_everything_fails() {
    failing(|session| {
        let slots = one_of_each()?;
        let before = cuda_core::drops::failures();
        session.inject(Fault::new(CUDA_ERROR_UNKNOWN).from_then_on());
        slots.into_iter().flatten().for_each(|drop_it| drop_it());
        assert!(cuda_core::drops::failures() > before, "what was left is counted");
        Ok(())
    });
}

#[test]
fn s30_drops_are_quiet_when_the_driver_is_gone() {
    failing(|session| {
        let slots = one_of_each()?;
        let before = cuda_core::drops::failures();
        session.inject(Fault::new(CUDA_ERROR_DEINITIALIZED).from_then_on());
        slots.into_iter().flatten().for_each(|drop_it| drop_it());
        assert_eq!(cuda_core::drops::failures(), before);
        Ok(())
    });
}

#[test]
fn s30_drops_that_fail_while_unwinding() {
    failing(|session| {
        let stream = device().create_stream()?;
        let guard = device().enter()?;
        let buffer = stream.alloc::<u32>(64)?;
        session.inject(Fault::new(CUDA_ERROR_UNKNOWN).from_then_on());
        let panic = catch_unwind(AssertUnwindSafe(move || {
            let _all = (guard, buffer, stream);
            panic_any("the program's own");
        }));
        let payload = panic.expect_err("it panicked");
        assert_eq!(payload.downcast_ref(), Some(&"the program's own"));
        session.clear_faults();
        support::context::set_current(std::ptr::null_mut());
        Ok(())
    });
}

#[test]
fn s30_a_panicking_hook_does_not_reach_the_drop() {
    failing(|session| {
        let stream = device().create_stream()?;
        let buffer = stream.alloc::<u32>(64)?;
        // The payload panics again when it is dropped.
        drops::set_hook(|_: &DropFailure| panic_any(OnDrop(|| panic!("dropped"))));
        session.fail_nth(Some("cuMemFreeAsync"), 1, CUDA_ERROR_UNKNOWN);
        let panic = catch_unwind(AssertUnwindSafe(move || drop(buffer)));
        drops::take_hook();
        assert!(session.fault_fired());
        if let Err(payload) = panic {
            std::mem::forget(payload);
            panic!("the drop panicked");
        }
        Ok(())
    });
}
