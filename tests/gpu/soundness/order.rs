//! Waits and frees after stalled work: S01, S02, S03, S26, S36, S37, S41, S42.

use std::thread;
use std::time::Duration;

use cuda_core::{Allocator, Context, ContextFlags, Device, Result};
use support::{blocks, freed_behind_a_stall, gpu_test, stall};

use super::{LEN, assert_all, device, pinned, warm};

/// How long a stream is stalled if the test itself waits for it.
const PAUSE: Duration = Duration::from_millis(50);

gpu_test! {
    needs 1, asynchronous;
    fn s01_download_then_read() -> Result<()> {
        let stream = warm()?;
        let mut buffer = stream.alloc::<u32>(LEN)?;
        let mut host = pinned(0, LEN)?;
        let stalled = stall(stream.as_raw());
        stream.fill(&mut buffer, 7)?;
        stream.download(&buffer, &mut host)?;
        assert!(host.try_as_slice()?.is_none());
        stalled.release_after(PAUSE);
        assert_all(host.as_slice()?, 7);
        Ok(())
    }
}

gpu_test! {
    needs 1, asynchronous;
    fn s01_upload_then_change() -> Result<()> {
        let stream = warm()?;
        let mut buffer = stream.alloc::<u32>(LEN)?;
        let mut host = pinned(7, LEN)?;
        let stalled = stall(stream.as_raw());
        stream.upload(&host, &mut buffer)?;
        stalled.release_after(PAUSE);
        host.as_mut_slice()?.fill(8);
        let mut back = vec![0; LEN];
        stream.download(&buffer, &mut back)?;
        assert_all(&back, 7);
        Ok(())
    }
}

gpu_test! {
    needs 1, asynchronous;
    fn s02_stream_and_buffer_dropped_before_their_work() -> Result<()> {
        let (home, other) = (warm()?, warm()?);
        let mut source = freed_behind_a_stall(|| home.alloc::<u32>(LEN))?;
        home.fill(&mut source, 7)?;
        let mut host = pinned(0, LEN)?;
        let stalled = stall(other.as_raw());
        other.download(&source, &mut host)?;
        drop(other);
        drop(source);
        // Gets the same memory if it is free.
        let mut next = home.alloc::<u32>(LEN)?;
        home.fill(&mut next, 8)?;
        stalled.release_after(PAUSE);
        home.synchronize()?;
        assert_all(host.as_slice()?, 7);
        Ok(())
    }
}

gpu_test! {
    needs 1, asynchronous;
    fn s03_two_readers_then_a_writer() -> Result<()> {
        let (a, b, home) = (warm()?, warm()?, warm()?);
        let mut buffer = home.alloc::<u32>(LEN)?;
        home.fill(&mut buffer, 7)?;
        home.synchronize()?;
        let (mut x, mut y) = (pinned(0, LEN)?, pinned(0, LEN)?);
        let stalled = stall(a.as_raw());
        a.download(&buffer, &mut x)?;
        b.download(&buffer, &mut y)?;
        home.fill(&mut buffer, 8)?;
        assert!(!home.query()?, "the writer waits for the first reader");
        stalled.release_after(PAUSE);
        home.synchronize()?;
        assert_all(x.as_slice()?, 7);
        assert_all(y.as_slice()?, 7);
        Ok(())
    }
}

gpu_test! {
    needs 1, asynchronous;
    fn s26_zeroed_is_zero_on_another_stream() -> Result<()> {
        let (home, other) = (warm()?, warm()?);
        let mut dirty = home.alloc::<u32>(LEN)?;
        home.fill(&mut dirty, 9)?;
        drop(dirty);
        let stalled = stall(home.as_raw());
        let buffer = home.alloc_zeroed::<u32>(LEN)?;
        let mut host = pinned(1, LEN)?;
        other.download(&buffer, &mut host)?;
        assert!(!other.query()?, "the reader waits for the fill");
        stalled.release_after(PAUSE);
        assert_all(host.as_slice()?, 0);
        Ok(())
    }
}

gpu_test! {
    needs 1, asynchronous;
    fn s36_first_use_is_on_another_stream() -> Result<()> {
        let (home, other) = (warm()?, warm()?);
        let stalled = stall(home.as_raw());
        let mut buffer = home.alloc_with::<u32>(&Allocator::driver_pool(), LEN)?;
        other.fill(&mut buffer, 7)?;
        assert!(!other.query()?, "the first user waits for the allocation");
        stalled.release_after(PAUSE);
        let mut back = vec![0; LEN];
        other.download(&buffer, &mut back)?;
        assert_all(&back, 7);
        Ok(())
    }
}

gpu_test! {
    needs 1, asynchronous;
    fn s37_halves_on_two_streams() -> Result<()> {
        let (a, b, home) = (warm()?, warm()?, warm()?);
        let mut buffer = freed_behind_a_stall(|| home.alloc::<u32>(LEN))?;
        home.synchronize()?;
        let stalled = stall(a.as_raw());
        let (head, tail) = buffer.split_at_mut(LEN / 2)?;
        a.fill(head, 1)?;
        b.fill(tail, 2)?;
        b.synchronize()?;
        // The half without stalled work can be read at once, the other half cannot.
        let mut back = vec![0; LEN];
        home.download(buffer.slice(LEN / 2..)?, &mut back[LEN / 2..])?;
        assert_all(&back[LEN / 2..], 2);
        let mut host = pinned(0, LEN)?;
        home.download(&buffer, &mut host)?;
        drop(buffer);
        assert!(!home.query()?, "the free waits for both halves");
        stalled.release_after(PAUSE);
        let all = host.as_slice()?;
        assert_all(&all[..LEN / 2], 1);
        assert_all(&all[LEN / 2..], 2);
        Ok(())
    }
}

gpu_test! {
    needs 1, asynchronous;
    fn s41_what_came_before_a_host_function_does_not_wait_for_it() -> Result<()> {
        let stream = warm()?;
        let mut buffer = stream.alloc::<u32>(LEN)?;
        let mut host = pinned(7, LEN)?;
        stream.upload(&host, &mut buffer)?;
        let release = blocks(&stream)?;
        stream.fill(&mut buffer, 8)?;
        // The host function waits for this thread, and this thread waits only for the upload.
        host.as_mut_slice()?.fill(9);
        drop(release);
        let mut back = vec![0; LEN];
        stream.download(&buffer, &mut back)?;
        assert_all(&back, 8);
        Ok(())
    }
}

gpu_test! {
    needs 2, asynchronous;
    fn s42_peer_access_is_taken_away_behind_the_copies() -> Result<()> {
        let (a, b) = (device()?, Device::get(1)?);
        let (one, two) = (a.context()?, b.context()?);
        one.enable_peer_access(&two)?;
        // Streams of a created context use the device's pool, like those of the primary context.
        let created = Context::new(a, ContextFlags::default())?;
        let (home, stream) = (b.create_stream()?, created.create_stream()?);
        let mut source = home.alloc::<u32>(LEN)?;
        home.fill(&mut source, 7)?;
        let mut target = stream.alloc::<u32>(LEN)?;
        stream.copy(&source, &mut target)?;
        stream.synchronize()?;
        stream.fill(&mut target, 0)?;
        let stalled = stall(stream.as_raw());
        stream.copy(&source, &mut target)?;
        let disabled = thread::scope(|scope| {
            let disabling = scope.spawn(|| one.disable_peer_access(&two));
            stalled.release_after(PAUSE);
            disabling.join().expect("no panic")
        });
        disabled?;
        assert!(stream.query()?, "the copy came first");
        let mut back = vec![0; LEN];
        stream.download(&target, &mut back)?;
        assert_all(&back, 7);
        Ok(())
    }
}
