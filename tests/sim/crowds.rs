//! However many streams existed before, an operation makes no more calls and keeps no more state.
//! `cargo xtask bench --scale` measures the time; these tests count calls and remaining objects.

use cuda_core::{Access, CachingPool, Device, DeviceBuffer, Result, Signal, Stream, WaitValue};
use cuda_sim::{Mode, Session};

/// Runs `test`, and asserts at the end that it left nothing behind.
fn run(mode: Mode, test: impl FnOnce(&Session) -> Result<()> + Send) {
    let session = support::simulator_in(mode);
    std::thread::scope(|scope| {
        let test = scope.spawn(|| test(&session).expect("no fault was injected"));
        test.join().expect("the test passed");
    });
    session.settle();
    cuda_core::drops::flush();
    support::trim_cache(&session).expect("no fault was injected");
    cuda_core::staging::trim().expect("no fault was injected");
    session.assert_clean();
}

fn device() -> Device {
    Device::get(0).expect("the simulated driver has devices")
}

/// Returns how many more events exist than when the session began.
fn events(session: &Session) -> i64 {
    session.calls("cuEventCreate") as i64 - session.calls("cuEventDestroy_v2") as i64
}

/// Creates a stream, reads on it, and drops it.
fn come_and_go(table: &DeviceBuffer<u8>) -> Result<()> {
    let stream = device().create_stream()?;
    // SAFETY: nothing else uses the buffer, and the noted use does not either.
    unsafe { table.note_use(&stream, Access::Read) }
}

/// Twice as many as the library keeps without checking them, and a few more; under Miri, some more than it
/// keeps unchecked.
const MANY: usize = if cfg!(miri) { 80 } else { 150 };

/// The number of streams that are created one after the other.
const ONE_BY_ONE: usize = if cfg!(miri) { 110 } else { 600 };

#[test]
fn streams_that_have_read_and_gone_leave_nothing() {
    run(Mode::Eager, |session| {
        let home = device().create_stream()?;
        let table = home.alloc::<u8>(64)?;
        let before = events(session);
        let mut most = 0;
        for _ in 0..ONE_BY_ONE {
            come_and_go(&table)?;
            most = most.max(events(session) - before);
        }
        assert!(most <= 70, "{most} events for {ONE_BY_ONE} streams");
        Ok(())
    });
}

#[test]
fn no_reader_asks_more_than_two_of_those_before_it() {
    run(Mode::Lazy, |session| {
        // However often they are queried, they are not complete.
        session.set_polls(u32::MAX);
        let home = device().create_stream()?;
        let mut table = home.alloc::<u8>(64)?;
        let mut most = 0;
        for _ in 0..MANY {
            let asked = session.calls("cuEventQuery");
            come_and_go(&table)?;
            most = most.max(session.calls("cuEventQuery") - asked);
        }
        assert_eq!(most, 2);
        // A writer waits for all of them.
        let waited = session.calls("cuStreamWaitEvent");
        home.fill(&mut table, 1)?;
        assert_eq!(session.calls("cuStreamWaitEvent") - waited, MANY as u64);
        Ok(())
    });
}

#[test]
fn streams_that_live_are_not_asked_when_they_read_again() {
    run(Mode::Lazy, |session| {
        session.set_polls(u32::MAX);
        let home = device().create_stream()?;
        let table = home.alloc::<u8>(64)?;
        let streams: Result<Vec<Stream>> = (0..MANY).map(|_| device().create_stream()).collect();
        let streams = streams?;
        let read = || -> Result<()> {
            for stream in &streams {
                stream.checkpoint()?;
                // SAFETY: nothing else uses the buffer, and the noted use does not either.
                unsafe { table.note_use(stream, Access::Read) }?;
            }
            Ok(())
        };
        read()?;
        let mark = session.mark();
        read()?;
        // Each checkpoint covers the stream's earlier reads.
        let names = session.names_since(mark);
        assert!(!names.contains(&"cuEventQuery"), "{names:?}");
        Ok(())
    });
}

/// Each block is needed until its work is complete, but the streams share one segment.
#[test]
fn small_blocks_of_streams_that_are_gone_share_a_segment() {
    run(Mode::Lazy, |session| {
        session.set_polls(u32::MAX);
        let pool = CachingPool::new();
        for _ in 0..if cfg!(miri) { 12 } else { 50 } {
            let stream = device().create_stream()?;
            let mut block = stream.alloc_with::<u8>(&pool.allocator(), 512)?;
            stream.fill(&mut block, 1)?;
        }
        assert_eq!(pool.usage(device()).reserved, 2 << 20);
        Ok(())
    });
}

/// More streams are busy than the pool queries at once; it still finds the blocks of streams that are gone.
#[test]
fn blocks_of_streams_that_are_gone_are_found_behind_busy_ones() {
    const BUSY: usize = 12;
    const OTHERS: usize = if cfg!(miri) { BUSY / 2 } else { 10 * BUSY };
    run(Mode::Eager, |session| {
        let pool = CachingPool::new();
        let use_and_free = |stream: &Stream, bytes: usize| -> Result<()> {
            let mut block = stream.alloc_with::<u8>(&pool.allocator(), bytes)?;
            // Only a part: interpreters take a second to fill a mebibyte.
            stream.fill(block.slice_mut(..64)?, 1)
        };
        let go = Signal::new(&device().context()?, 0u32)?;
        let mut busy = Vec::new();
        for _ in 0..BUSY {
            let stream = device().create_stream()?;
            stream.wait_signal(&go, WaitValue::Geq(1))?;
            use_and_free(&stream, 1 << 20)?;
            busy.push(stream);
        }
        // The streams release their kept blocks with their last handles.
        drop(busy);
        for _ in 0..OTHERS {
            let stream = device().create_stream()?;
            use_and_free(&stream, 1 << 20)?;
        }
        let reserved = pool.usage(device()).reserved;
        go.set(1);
        session.settle();
        assert!(reserved <= (2 * BUSY) << 20, "{} MiB", reserved >> 20);
        Ok(())
    });
}
