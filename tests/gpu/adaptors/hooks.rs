//! Hooks: functions that are called for each allocation and free of a thread.

use std::cell::RefCell;
use std::rc::Rc;
use std::thread;

use cuda_core::adaptors::{HookEvent, HookPoint, Hooks, Limiting};
use cuda_core::{Allocator, CachingPool, Result};
use support::gpu_test;

use super::{MIB, alloc, out_of_memory, shared, stream};

gpu_test! {
    needs 1;
    fn i18_hooks() -> Result<()> {
        let stream = stream()?;
        let (hooks, allocator) = shared(Hooks::new(Limiting::new(Allocator::driver_pool(), MIB)));
        let events: Rc<RefCell<Vec<_>>> = Rc::default();
        let record = |who: u32| {
            let events = Rc::clone(&events);
            move |event: &HookEvent<'_>| {
                let failed = event.error.is_some();
                events.borrow_mut().push((who, event.point, event.bytes, event.address, failed));
            }
        };
        use HookPoint::{AfterAllocate, AfterDeallocate, BeforeAllocate, BeforeDeallocate};
        drop(alloc(&allocator, &stream, 1)?);
        let buffer = hooks.with(record(0), || -> Result<_> {
            let buffer = alloc(&allocator, &stream, 100)?;
            // An allocation of another thread, and one through another allocator, are not reported.
            thread::scope(|scope| {
                let elsewhere = || drop(alloc(&allocator, &stream, 2).expect("little enough"));
                scope.spawn(elsewhere).join().expect("no panic");
            });
            drop(stream.alloc::<u8>(3)?);
            out_of_memory(alloc(&allocator, &stream, 2 * MIB));
            Ok(buffer)
        })?;
        let address = Some(buffer.as_raw());
        assert_eq!(events.take(), [
            (0, BeforeAllocate, 100, None, false),
            (0, AfterAllocate, 100, address, false),
            (0, BeforeAllocate, 2 * MIB, None, false),
            (0, AfterAllocate, 2 * MIB, None, true),
        ]);
        // The outer hook comes first; a panic in a hook has no effect, and a hook's own allocations
        // are not reported.
        hooks.with(record(1), || hooks.with(|_| panic!("in a hook"), || {
            let own = allocator.clone();
            let stream_of_hook = stream.clone();
            hooks.with(move |_| drop(alloc(&own, &stream_of_hook, 7)), || {
                hooks.with(record(2), || drop(buffer));
            });
        }));
        assert_eq!(events.take(), [
            (1, BeforeDeallocate, 100, address, false),
            (2, BeforeDeallocate, 100, address, false),
            (1, AfterDeallocate, 100, address, false),
            (2, AfterDeallocate, 100, address, false),
        ]);
        drop(alloc(&allocator, &stream, 1)?);
        assert_eq!(events.take(), [], "no hook is called outside");
        assert_eq!(hooks.inner().used(), 0);
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn i18_hooks_around_a_pool() -> Result<()> {
        let stream = stream()?;
        let (below, upstream) = shared(Hooks::new(Allocator::plain()));
        let pool = CachingPool::builder().upstream(&upstream).build()?;
        let (above, allocator) = shared(Hooks::new(pool.allocator()));
        let events: Rc<RefCell<Vec<_>>> = Rc::default();
        let record = |who: &'static str| {
            let events = Rc::clone(&events);
            move |event: &HookEvent<'_>| events.borrow_mut().push((who, event.point))
        };
        use HookPoint::{AfterAllocate, AfterDeallocate, BeforeAllocate, BeforeDeallocate};
        let work = || -> Result<()> {
            let miss = alloc(&allocator, &stream, MIB)?;
            assert_eq!(events.take(), [
                ("pool", BeforeAllocate),
                ("driver", BeforeAllocate),
                ("driver", AfterAllocate),
                ("pool", AfterAllocate),
            ], "a miss");
            drop(miss);
            assert_eq!(events.take(), [("pool", BeforeDeallocate), ("pool", AfterDeallocate)]);
            let hit = alloc(&allocator, &stream, MIB)?;
            assert_eq!(events.take(), [("pool", BeforeAllocate), ("pool", AfterAllocate)], "a hit");
            drop(hit);
            events.take();
            stream.synchronize()?;
            pool.trim(0)?;
            assert_eq!(events.take(), [("driver", BeforeDeallocate), ("driver", AfterDeallocate)]);
            Ok(())
        };
        above.with(record("pool"), || below.with(record("driver"), work))
    }
}
