//! `ContextLocal`: one value per thread and context, created and dropped with the context current.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::rc::Rc;
use std::sync::Mutex;
use std::thread::{self, ThreadId};

use cuda_core::{Context, ContextFlags, ContextLocal, Device, Error, Result};
use support::{context, gpu_test};

/// Events of handles: thread, context, and whether the handle was created or dropped.
type Log = Mutex<Vec<(ThreadId, usize, &'static str)>>;

/// Stands for a cuBLAS handle: it remembers the context that was current, and is not `Send`.
struct Handle {
    log: &'static Log,
    context: usize,
    uses: Cell<u32>,
    _not_send: Rc<()>,
}

fn note(log: &Log, what: &'static str) -> usize {
    let current = context::current().addr();
    let entry = (thread::current().id(), current, what);
    log.lock().expect("no panic").push(entry);
    current
}

impl Handle {
    fn new(log: &'static Log) -> Self {
        Self { log, context: note(log, "made"), uses: Cell::new(0), _not_send: Rc::new(()) }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let current = note(self.log, "dropped");
        assert_eq!(current, self.context, "dropped with its context current");
    }
}

fn new_log() -> &'static Log {
    Box::leak(Box::default())
}

fn events(log: &Log) -> Vec<(ThreadId, usize, &'static str)> {
    log.lock().expect("no panic").clone()
}

/// Uses the handle once, and returns how often it has been used.
fn used<F: Fn(&Context) -> Result<Handle>>(
    slot: &ContextLocal<Handle, F>,
    context: &Context,
) -> Result<u32> {
    slot.with(context, |handle| {
        assert_eq!(context::current(), context.as_raw());
        assert_eq!(handle.context, context.as_raw().addr());
        handle.uses.set(handle.uses.get() + 1);
        Ok(handle.uses.get())
    })
}

gpu_test! {
    needs 2;
    fn one_handle_a_thread_and_context() -> Result<()> {
        let log = new_log();
        let slot = ContextLocal::new(|_: &Context| Ok::<_, Error>(Handle::new(log)));
        let (c0, c1) = (Device::get(0)?.context()?, Device::get(1)?.context()?);
        assert_eq!((used(&slot, &c0)?, used(&slot, &c0)?, used(&slot, &c1)?), (1, 2, 1));
        thread::scope(|scope| {
            let elsewhere = scope.spawn(|| {
                assert_eq!(used(&slot, &c0)?, 1);
                // The current context is unchanged.
                context::push(c1.as_raw());
                assert_eq!(used(&slot, &c0)?, 2);
                assert_eq!(context::pop(), Some(c1.as_raw()));
                Ok::<_, Error>(thread::current().id())
            });
            let ended = elsewhere.join().expect("no assertion failed")?;
            let dropped = (ended, c0.as_raw().addr(), "dropped");
            assert_eq!(events(log).last(), Some(&dropped), "with its thread");
            Ok::<_, Error>(())
        })?;
        let before = events(log).len();
        drop(slot);
        let dropped = events(log).split_off(before);
        assert_eq!(dropped.len(), 2, "the slot's own thread drops at once: {dropped:?}");
        assert_eq!(context::current(), ptr::null_mut());
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn a_handle_of_a_created_context_keeps_it() -> Result<()> {
        let log = new_log();
        let slot = ContextLocal::new(|_: &Context| Ok::<_, Error>(Handle::new(log)));
        let created = Context::new(Device::get(0)?, ContextFlags::SCHED_AUTO)?;
        used(&slot, &created)?;
        let handle = created.as_raw();
        drop(created);
        context::push(handle);
        // With a destroyed context, the query would fail.
        assert!(Context::current()?.is_some());
        assert_eq!(context::pop(), Some(handle));
        drop(slot);
        assert_eq!(events(log).len(), 2);
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn a_slot_dropped_elsewhere_leaves_handles_to_their_threads() -> Result<()> {
        let log = new_log();
        let slot = ContextLocal::new(|_: &Context| Ok::<_, Error>(Handle::new(log)));
        let context = Device::get(0)?.context()?;
        used(&slot, &context)?;
        let here = thread::current().id();
        thread::scope(|scope| scope.spawn(move || drop(slot)).join()).expect("it only drops");
        assert_eq!(events(log).len(), 1, "no other thread drops it");
        // The thread's next use of any slot drops it.
        let other_log = new_log();
        let other = ContextLocal::new(|_: &Context| Ok::<_, Error>(Handle::new(other_log)));
        used(&other, &context)?;
        assert_eq!(events(log).last(), Some(&(here, context.as_raw().addr(), "dropped")));
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn a_handle_that_cannot_be_made_is_asked_for_again() -> Result<()> {
        let log = new_log();
        let fails = Cell::new(true);
        let slot = ContextLocal::new(|_: &Context| {
            if fails.replace(false) { Err(Error::ContextInUse) } else { Ok(Handle::new(log)) }
        });
        let context = Device::get(0)?.context()?;
        assert!(matches!(used(&slot, &context), Err(Error::ContextInUse)));
        assert_eq!(context::current(), ptr::null_mut());
        assert_eq!(used(&slot, &context)?, 1);
        // A panic during a use restores the current context, and keeps the handle.
        let caught = catch_unwind(AssertUnwindSafe(|| {
            slot.with(&context, |_| -> Result<()> { panic!("on the way") })
        }));
        assert!(caught.is_err());
        assert_eq!(context::current(), ptr::null_mut());
        assert_eq!(used(&slot, &context)?, 2);
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn a_handle_made_within_a_use() -> Result<()> {
        let (outer_log, inner_log) = (new_log(), new_log());
        let outer = ContextLocal::new(|_: &Context| Ok::<_, Error>(Handle::new(outer_log)));
        let inner = ContextLocal::new(|_: &Context| Ok::<_, Error>(Handle::new(inner_log)));
        let context = Device::get(0)?.context()?;
        outer.with(&context, |_| {
            assert_eq!(used(&inner, &context)?, 1);
            assert_eq!(used(&outer, &context)?, 1);
            Ok(())
        })?;
        assert_eq!((used(&inner, &context)?, used(&outer, &context)?), (2, 2));
        assert_eq!((events(outer_log).len(), events(inner_log).len()), (1, 1));
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn handles_of_a_thread_that_ends_leave_their_context() -> Result<()> {
        /// The part of the library that a thread uses first, and whose thread-locals may therefore be dropped
        /// last.
        #[derive(Clone, Copy)]
        enum First {
            Handle,
            Guard,
            Current,
        }
        for first in [First::Handle, First::Guard, First::Current] {
            let log = new_log();
            let slot = ContextLocal::new(|_: &Context| Ok::<_, Error>(Handle::new(log)));
            let context = Context::new(Device::get(0)?, ContextFlags::default())?;
            let run = || {
                match first {
                    First::Handle => {}
                    First::Guard => context.enter()?.restore()?,
                    First::Current => drop(context.set_current()?),
                }
                used(&slot, &context).map(drop)
            };
            thread::scope(|scope| scope.spawn(run).join()).expect("no panic")?;
            assert_eq!(events(log).len(), 2, "made, and dropped with the thread");
            context.close()?;
        }
        Ok(())
    }
}
