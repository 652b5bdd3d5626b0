//! N03: a driver call that blocks one thread does not delay hits on other threads.

use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::time::Duration;

use cuda_core::{Allocator, Context, ContextFlags, Device, Error, Rejected};
use support::stall;

use super::*;

const HITS: usize = if cfg!(miri) { 12 } else { 1000 };

/// The time after which a blocked thread is released and the test fails. Miri's clock advances with the steps
/// of all threads.
const PATIENCE: Duration = Duration::from_secs(if cfg!(miri) { 2000 } else { 20 });

/// Allocates blocks from the stream's bins, and blocks that are cut from the pool's segments.
fn hits(stream: &Stream, pool: &CachingPool) -> Result<()> {
    for hit in 0..HITS {
        let held = alloc(stream, pool, 1 + hit % 5000)?;
        drop((alloc(stream, pool, 100_000)?, held));
    }
    Ok(())
}

/// Asserts that `work`, on its own thread, makes no driver call and ends while `held` lasts.
#[track_caller]
fn ends_while<H>(
    session: &Session,
    held: H,
    work: impl FnOnce() -> Result<()> + Send,
) -> Result<()> {
    let (ended, ends) = channel();
    std::thread::scope(|scope| {
        let worker = scope.spawn(move || {
            let mark = session.mark();
            let result = work();
            let _ = ended.send(session.names_since(mark));
            result
        });
        let asked = ends.recv_timeout(PATIENCE);
        drop(held);
        worker.join().expect("no panic")?;
        assert_eq!(asked.expect("it waited for another thread's call"), [""; 0]);
        Ok(())
    })
}

#[test]
fn n03_growth_holds_up_no_hit() {
    run(|session| {
        let device = Device::get(0)?;
        let (warm, cold) = (device.create_stream()?, device.create_stream()?);
        let (entered, enters) = channel();
        let (held, holds) = channel::<()>();
        let holds = Mutex::new(holds);
        let upstream = plain_after(move |bytes| {
            if bytes > U {
                let _ = entered.send(());
                let _ = holds.lock().expect("no panic").recv();
            }
        });
        let pool = CachingPool::builder().upstream(&upstream).build()?;
        let _segment = alloc(&warm, &pool, 100)?;
        let pool = &pool;
        std::thread::scope(|scope| {
            let grows = scope.spawn(|| alloc(&cold, pool, 3 * U).map(drop));
            enters.recv().expect("it grows");
            ends_while(session, held, || hits(&warm, pool))?;
            grows.join().expect("no panic")
        })
    });
}

#[test]
fn n03_a_trim_holds_up_no_hit() {
    run(|session| {
        let device = Device::get(0)?;
        let [warm, cold, busy] = [(); 3].map(|()| device.create_stream());
        let (warm, cold, busy) = (warm?, cold?, busy?);
        for pool in [CachingPool::new(), CachingPool::shared()?] {
            let _segment = alloc(&warm, &pool, 100)?;
            hits(&warm, &pool)?;
            drop(alloc(&cold, &pool, 7 * U)?);
            device.synchronize()?;
            let frees = session.calls("cuMemFree_v2");
            // The free waits for the stalled device.
            let held = stall(busy.as_raw());
            let pool = &pool;
            std::thread::scope(|scope| {
                let trims = scope.spawn(|| pool.trim(0));
                while session.calls("cuMemFree_v2") == frees && !trims.is_finished() {
                    std::thread::yield_now();
                }
                ends_while(session, held, || hits(&warm, pool))?;
                let trimmed = trims.join().expect("no panic")?;
                assert!(trimmed >= 7 * U, "{trimmed}");
                Ok::<_, cuda_core::Error>(())
            })?;
        }
        Ok(())
    });
}

/// A freed block refers to the streams of other contexts that used it, until their work is known to be done.
#[test]
fn a_block_keeps_no_context_that_was_waited_for() {
    run(|_| {
        let home = Device::get(0)?.create_stream()?;
        let context = Context::new(Device::get(0)?, ContextFlags::default())?;
        let mut block = home.alloc_with::<u8>(&Allocator::cache(), 64)?;
        context.create_stream()?.fill(&mut block, 7)?;
        drop(block);
        let Rejected { error, value: context } = context.close().expect_err("its work may run");
        assert!(matches!(error, Error::ContextInUse), "{error}");
        context.synchronize()?;
        cuda_core::drops::flush();
        Ok(context.close()?)
    });
}
