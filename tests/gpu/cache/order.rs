//! H: memory freed on one stream and allocated on another.

use std::thread;

use cuda_core::{Access, CachingPool, Device, DeviceBuffer, Error, Result, Stream};
use support::{Driver, gpu_test, report, stall};

use super::{U, address, cached};
use crate::forms::{contents, same, scaled};

gpu_test! {
    needs 1, asynchronous;
    fn h02_no_cross_stream_reuse() -> Result<()> {
        let device = Device::get(0)?;
        let (one, two) = (device.create_stream()?, device.create_stream()?);
        let warm = cached(&two, 4 * U)?;
        let mut first = cached(&one, 4 * U)?;
        one.fill(&mut first, 1)?;
        one.synchronize()?;
        let place = address(&first);
        let held_up = stall(one.as_raw());
        one.fill(&mut first, 2)?;
        drop(first);
        let mut second = cached(&two, 4 * U)?;
        assert_ne!(address(&second), place, "work of the first stream may still use it");
        two.fill(&mut second, 3)?;
        same(&contents(&two, &second)?[..100], &[3; 100], "no other stream wrote");
        held_up.release();
        one.synchronize()?;
        drop(warm);
        Ok(())
    }
}

gpu_test! {
    needs 1, asynchronous;
    fn h02_taken_when_idle() -> Result<()> {
        let device = Device::get(0)?;
        let (one, two) = (device.create_stream()?, device.create_stream()?);
        let pool = CachingPool::new().allocator();
        let mut first = one.alloc_with::<u8>(&pool, 12 << 20)?;
        one.fill(&mut first, 1)?;
        let place = address(&first);
        drop(first);
        one.synchronize()?;
        let second = two.alloc_with::<u8>(&pool, 12 << 20)?;
        assert_eq!(address(&second), place, "the other stream is done with it");
        Ok(())
    }
}

gpu_test! {
    needs 1, asynchronous;
    fn h19_thread_reuse() -> Result<()> {
        let device = Device::get(0)?;
        let (one, two) = (device.create_stream()?, device.create_stream()?);
        let mut first = cached(&one, 3 * U)?;
        one.fill(&mut first, 1)?;
        let place = address(&first);
        let held_up = stall(one.as_raw());
        one.fill(&mut first, 2)?;
        drop(first);
        let elsewhere = thread::scope(|scope| {
            let same_stream = scope.spawn(|| cached(&one, 3 * U));
            let same_stream = same_stream.join().expect("no panic")?;
            assert_eq!(address(&same_stream), place);
            let other = scope.spawn(|| cached(&two, 3 * U));
            let elsewhere = other.join().expect("no panic")?;
            // A per-thread stream's use of the block is ordered after the home stream's work.
            let mut used = same_stream;
            let own = scope.spawn(move || -> Result<bool> {
                let own = used.context().per_thread_stream()?;
                own.fill(&mut used, 3)?;
                own.query()
            });
            assert!(!own.join().expect("no panic")?, "ahead of the work at home");
            Ok::<_, Error>(elsewhere)
        })?;
        assert_ne!(address(&elsewhere), place);
        held_up.release();
        device.synchronize()
    }
}

gpu_test! {
    needs 1;
    fn h23_stream_deleted() -> Result<()> {
        let device = Device::get(0)?;
        for _ in 0..3 {
            let stream = device.create_stream()?;
            let mut buffer = cached(&stream, 3 * U)?;
            stream.fill(&mut buffer, 23)?;
            drop(buffer);
            stream.close()?;
            let other = device.create_stream()?;
            let mut again = cached(&other, 3 * U)?;
            other.fill(&mut again, 32)?;
            same(&contents(&other, &again)?[..10], &[32; 10], "on another stream");
        }
        Ok(())
    }
}

gpu_test! {
    needs 1, asynchronous;
    fn h24_stream_handle_aba() -> Result<()> {
        let device = Device::get(0)?;
        let old = device.create_stream()?;
        let mut buffer = cached(&old, 3 * U)?;
        old.fill(&mut buffer, 1)?;
        old.synchronize()?;
        let (handle, place) = (old.as_raw(), address(&buffer));
        let held_up = stall(old.as_raw());
        old.fill(&mut buffer, 2)?;
        drop(buffer);
        drop(old);
        let mut streams = Vec::new();
        let mut came_back = false;
        while !came_back && streams.len() < 64 {
            let stream = device.create_stream()?;
            came_back = stream.as_raw() == handle;
            streams.push(stream);
        }
        if Driver::selected() == Driver::Loaded && !came_back {
            report!("the handle did not come back: only other streams were tried");
        } else {
            assert!(came_back, "the handle did not come back");
        }
        for stream in &streams {
            let new = cached(stream, 3 * U)?;
            assert_ne!(address(&new), place, "the old stream's work is not done");
        }
        held_up.release();
        device.synchronize()
    }
}

gpu_test! {
    needs 1, asynchronous;
    fn h27_used_on_not_early() -> Result<()> {
        used_elsewhere(|buffer, stream| stream.fill(buffer, 27))
    }
}

gpu_test! {
    needs 1, asynchronous;
    fn h27_used_on_declared() -> Result<()> {
        used_elsewhere(|buffer, stream| {
            // SAFETY: no work is enqueued without the library's knowledge.
            unsafe { buffer.note_use(stream, Access::Write) }
        })
    }
}

gpu_test! {
    needs 1, asynchronous;
    fn h28_used_on_slice() -> Result<()> {
        used_elsewhere(|buffer, stream| stream.fill(buffer.slice_mut(1000..2000)?, 28))
    }
}

/// Asserts that a block used on another, stalled stream is not reused before that stream has completed.
fn used_elsewhere(work: impl Fn(&mut DeviceBuffer<u8>, &Stream) -> Result<()>) -> Result<()> {
    // Removes cached blocks of other tests that would fit better.
    CachingPool::shared()?.trim(0)?;
    let device = Device::get(0)?;
    let (home, other) = (device.create_stream()?, device.create_stream()?);
    let mut buffer = cached(&home, 3 * U)?;
    home.fill(&mut buffer, 0)?;
    other.fill(&mut buffer, 0)?;
    device.synchronize()?;
    let place = address(&buffer);
    let held_up = stall(other.as_raw());
    work(&mut buffer, &other)?;
    drop(buffer);
    let meanwhile = cached(&home, 3 * U)?;
    assert_ne!(address(&meanwhile), place, "still in use");
    held_up.release();
    other.synchronize()?;
    let after = cached(&home, 3 * U)?;
    assert_eq!(address(&after), place, "not in use any more");
    Ok(())
}

gpu_test! {
    needs 1;
    fn s36_used_elsewhere_first() -> Result<()> {
        // The home stream's earlier work on the memory must come first.
        let device = Device::get(0)?;
        let (home, other) = (device.create_stream()?, device.create_stream()?);
        let len = scaled(64 << 20, 1 << 20, 1 << 12);
        for round in 0..20 {
            let mut first = cached(&home, len)?;
            home.fill(&mut first, 0xFF)?;
            drop(first);
            let mut second = cached(&home, len)?;
            other.fill(&mut second, round)?;
            let back = contents(&other, &second)?;
            assert!(back.iter().all(|byte| *byte == round), "round {round}");
        }
        Ok(())
    }
}
