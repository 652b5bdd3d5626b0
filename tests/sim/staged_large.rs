//! Large borrowed slices, in chunks small enough for the simulated driver and for Miri: S06, S33,
//! and copies by several threads.

use std::panic::{AssertUnwindSafe, catch_unwind, panic_any, resume_unwind};
use std::thread;

use cuda_core::{
    Device, Error, Result,
    staging::{self, StagingOptions},
};
use cuda_sim::{Mode, Session};
use cuda_sys::{CUDA_ERROR_LAUNCH_FAILED, CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_UNKNOWN};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
#[cfg(all(target_os = "linux", not(miri)))]
use support::threads_named;
use support::{Staged, pattern};

/// The smallest size of a chunk.
pub(crate) const CHUNK: usize = 4 << 10;

/// More than a copy may use at once, except under Miri.
pub(crate) const LEN: usize = if cfg!(miri) { 1 } else { 11 } * CHUNK + 3;

/// Runs `body` on its own thread with `threads` helper threads, then asserts that the driver saw no misuse,
/// that nothing is left and that no `Drop` failed.
pub(crate) fn clean(mode: Mode, threads: usize, body: impl FnOnce(&Session) -> Result<()> + Send) {
    clean_but_for(0, mode, threads, body);
}

/// Like [`clean`], for a body that permanently gives up `chunks` chunks.
pub(crate) fn clean_but_for(
    chunks: usize,
    mode: Mode,
    threads: usize,
    body: impl FnOnce(&Session) -> Result<()> + Send,
) {
    let session = support::simulator_in(mode);
    let failures = cuda_core::drops::failures();
    let staged = Staged::by(threads, CHUNK).expect("a size that chunks may have");
    thread::scope(|scope| {
        let body = scope.spawn(|| body(&session).expect("no operation of the test fails"));
        body.join().unwrap_or_else(|panic| resume_unwind(panic));
    });
    drop(staged);
    cuda_core::drops::flush();
    session.settle();
    cuda_core::staging::trim().expect("idle chunks can be freed");
    assert_eq!(cuda_core::drops::failures() - failures, chunks as u64, "other drops failed");
    assert_eq!(session.leaks().len(), chunks, "{:?}", session.leaks());
    assert_eq!(session.violations(), []);
}

/// Runs `body` in each mode of the simulated driver, with and without helpers.
pub(crate) fn everywhere(body: impl Fn(&Session) -> Result<()> + Sync) {
    for mode in [Mode::Lazy, Mode::Eager, Mode::Threaded { seed: 7 }] {
        for threads in [0, 3] {
            clean(mode, threads, &body);
            if cfg!(miri) {
                break;
            }
        }
    }
}

fn device() -> Device {
    Device::get(0).expect("the simulated driver has devices")
}

#[test]
fn j_large_slices_go_there_and_back() {
    everywhere(|_| {
        let stream = device().create_stream()?;
        let mut buffer = stream.alloc::<u8>(LEN + 2)?;
        stream.fill(&mut buffer, 0x11)?;
        let bytes = pattern(3, LEN);
        stream.upload(&bytes, buffer.slice_mut(1..=LEN)?)?;
        let mut back = vec![0; LEN + 2];
        stream.download(&buffer, &mut back)?;
        assert!(back[1..=LEN] == bytes, "the bytes came back changed");
        assert_eq!((back[0], back[LEN + 1]), (0x11, 0x11));
        let mut again = vec![0; LEN];
        stream.scope(|scope| scope.download(buffer.slice(1..=LEN)?, &mut again))?;
        assert!(again == bytes, "the scope's bytes differ");
        Ok(())
    });
}

#[test]
fn s06_large_source_may_change_at_once() {
    everywhere(|_| {
        let stream = device().create_stream()?;
        let mut buffer = stream.alloc::<u8>(LEN)?;
        let mut bytes = pattern(4, LEN);
        stream.upload(&bytes, &mut buffer)?;
        bytes.fill(0xEE);
        drop(bytes);
        let mut back = vec![0; LEN];
        stream.download(&buffer, &mut back)?;
        assert!(back == pattern(4, LEN), "the content at the call");
        Ok(())
    });
}

#[test]
fn s03_large_copies_of_several_streams_are_ordered() {
    everywhere(|_| {
        let (one, two) = (device().create_stream()?, device().create_stream()?);
        let mut buffer = one.alloc::<u8>(LEN)?;
        for round in 0..if cfg!(miri) { 1 } else { 3 } {
            let bytes = pattern(round, LEN);
            one.upload(&bytes, &mut buffer)?;
            let mut back = vec![0; LEN];
            two.download(&buffer, &mut back)?;
            assert!(back == bytes, "round {round}");
            two.fill(&mut buffer, 5)?;
            one.download(&buffer, &mut back)?;
            assert!(back == [5; LEN], "round {round}, filled");
        }
        Ok(())
    });
}

#[test]
fn s06_a_large_download_that_fails_writes_what_has_landed_or_nothing() {
    // Wherever the copy fails, each byte of the slice is the old one or the requested one.
    let helpers: &[usize] = if cfg!(miri) { &[3] } else { &[0, 3] };
    for &threads in helpers {
        clean(Mode::Lazy, threads, |session| {
            let stream = device().create_stream()?;
            let mut buffer = stream.alloc::<u8>(LEN)?;
            let calls = ["cuEventSynchronize", "cuMemcpyDtoHAsync_v2", "cuEventRecord"];
            let stride = if cfg!(miri) { 31 } else { 1 };
            for call in calls {
                for nth in (1..).step_by(stride) {
                    stream.fill(&mut buffer, 7)?;
                    let mut back = vec![1; LEN];
                    session.fail_nth(Some(call), nth, CUDA_ERROR_LAUNCH_FAILED);
                    let result = stream.download(&buffer, &mut back);
                    let fired = session.fault_fired();
                    session.clear_faults();
                    assert_eq!(result.is_err(), fired, "{call} {nth}: {result:?}");
                    let seen = |byte: &u8| *byte == 7 || (fired && *byte == 1);
                    assert!(back == [7; LEN] || back.iter().all(seen), "{call} {nth}");
                    if fired && nth == 1 {
                        assert!(back == [1; LEN], "nothing has landed");
                    }
                    if !fired {
                        break;
                    }
                    // Copies that are left in flight must not affect later ones.
                    stream.fill(&mut buffer, 8)?;
                    stream.download(&buffer, &mut back)?;
                    assert!(back == [8; LEN], "{call} {nth}");
                }
            }
            Ok(())
        });
    }
}

#[test]
fn s06_up_to_a_chunk_a_failed_wait_leaves_the_slice_alone() {
    clean(Mode::Lazy, 3, |session| {
        let stream = device().create_stream()?;
        let mut buffer = stream.alloc::<u8>(CHUNK)?;
        stream.fill(&mut buffer, 7)?;
        let mut back = vec![1; CHUNK];
        session.fail_nth(Some("cuStreamSynchronize"), 1, CUDA_ERROR_UNKNOWN);
        assert!(stream.download(&buffer, &mut back).is_err());
        assert!(back.iter().all(|byte| *byte == 1));
        Ok(())
    });
}

#[test]
#[cfg_attr(miri, ignore = "needs many chunks")]
fn f10_a_copy_goes_on_with_the_chunks_it_has() {
    for threads in [0, 3] {
        clean(Mode::Lazy, threads, |session| {
            let stream = device().create_stream()?;
            let mut buffer = stream.alloc::<u8>(LEN)?;
            let bytes = pattern(9, LEN);
            for nth in 2..5 {
                cuda_core::staging::trim()?;
                session.inject(
                    cuda_sim::Fault::new(CUDA_ERROR_OUT_OF_MEMORY)
                        .function("cuMemHostAlloc")
                        .nth(nth)
                        .from_then_on(),
                );
                let uploaded = stream.upload(&bytes, &mut buffer);
                session.clear_faults();
                uploaded?;
                let mut back = vec![0; LEN];
                stream.download(&buffer, &mut back)?;
                assert!(back == bytes, "with {} chunks", nth - 1);
            }
            Ok(())
        });
    }
}

#[test]
fn n_many_callers_on_several_devices() {
    let rounds = if cfg!(miri) { 1 } else { 6 };
    for mode in [Mode::Threaded { seed: 11 }, Mode::Lazy] {
        clean(mode, 3, |_| {
            let caller = |number: u64| {
                let device = Device::get(number as u32 % 2)?;
                let stream = device.create_stream()?;
                for round in 0..rounds {
                    let len = LEN - 500 * number as usize;
                    let bytes = pattern(10 * number + round, len);
                    let mut buffer = stream.alloc::<u8>(len)?;
                    stream.upload(&bytes, &mut buffer)?;
                    let mut back = vec![0; len];
                    stream.download(&buffer, &mut back)?;
                    assert!(back == bytes, "caller {number}, round {round}");
                }
                Ok::<(), Error>(())
            };
            thread::scope(|scope| {
                let callers: Vec<_> =
                    (0..4).map(|number| scope.spawn(move || caller(number))).collect();
                let join = |caller: thread::ScopedJoinHandle<'_, Result<()>>| {
                    caller.join().unwrap_or_else(|panic| resume_unwind(panic))
                };
                callers.into_iter().try_for_each(join)
            })
        });
        if cfg!(miri) {
            break;
        }
    }
}

#[test]
fn n_callers_that_share_a_stream() {
    clean(Mode::Threaded { seed: 5 }, 2, |_| {
        let stream = device().create_stream()?;
        let mut buffer = stream.alloc::<u8>(2 * LEN)?;
        let (low, high) = buffer.as_view_mut().split_at_mut(LEN)?;
        thread::scope(|scope| {
            let callers = [(1, low), (2, high)].map(|(seed, half)| {
                let stream = &stream;
                scope.spawn(move || stream.upload(&pattern(seed, LEN), half))
            });
            let ended = callers.map(|caller| caller.join().expect("no panic"));
            ended.into_iter().collect::<Result<()>>()
        })?;
        let mut back = vec![0; 2 * LEN];
        stream.download(&buffer, &mut back)?;
        assert!(back[..LEN] == pattern(1, LEN) && back[LEN..] == pattern(2, LEN));
        Ok(())
    });
}

#[test]
fn s33_scope_of_large_slices_panics() {
    everywhere(|_| {
        let stream = device().create_stream()?;
        let mut buffer = stream.alloc::<u8>(LEN)?;
        stream.fill(&mut buffer, 7)?;
        let mut back = vec![1; LEN];
        let panic = catch_unwind(AssertUnwindSafe(|| {
            stream.scope(|scope| -> Result<()> {
                scope.download(&buffer, &mut back)?;
                panic_any("the closure's own")
            })
        }));
        let payload = panic.expect_err("the panic goes on");
        assert_eq!(payload.downcast_ref(), Some(&"the closure's own"));
        assert!(back == [1; LEN]);
        stream.fill(&mut buffer, 8)?;
        stream.download(&buffer, &mut back)?;
        assert!(back == [8; LEN]);
        Ok(())
    });
}

#[test]
fn settings_that_cannot_be_are_refused() {
    let session = support::simulator();
    let before = staging::options().expect("the environment sets none");
    for (threads, chunk) in [(65, CHUNK), (0, 0), (0, 1000), (0, 3 << 20), (0, 1 << 30)] {
        let refused = staging::set_options(StagingOptions::new(threads, chunk));
        assert!(
            matches!(refused, Err(Error::Invalid(ref it)) if it.reason.contains("expected")),
            "{refused:?}"
        );
    }
    assert_eq!(staging::options().ok(), Some(before));
    assert_eq!(session.trace().len(), 0, "the driver is asked nothing");
}

/// Waits until the library has that many threads, recognised by their names, which each thread sets itself.
#[cfg(all(target_os = "linux", not(miri)))]
#[track_caller]
fn expect_workers(count: usize) {
    let workers = || threads_named("cuda-core worke").expect("Linux reports them");
    let found = (0..100_000).map(|_| workers()).find(|found| *found == count);
    assert_eq!(found, Some(count), "there are {}", workers());
}

#[test]
#[cfg(all(target_os = "linux", not(miri)))]
fn threads_are_started_once_and_not_for_small_copies() {
    clean(Mode::Lazy, 3, |_| {
        cuda_core::staging::trim()?;
        let stream = device().create_stream()?;
        let mut buffer = stream.alloc::<u8>(LEN)?;
        let mut back = vec![0; LEN];
        for len in [1, 100, CHUNK] {
            stream.upload(&back[..len], buffer.slice_mut(..len)?)?;
            stream.download(buffer.slice(..len)?, &mut back[..len])?;
        }
        expect_workers(0);
        for _ in 0..5 {
            stream.upload(&back, &mut buffer)?;
            stream.download(&buffer, &mut back)?;
            expect_workers(3);
        }
        cuda_core::staging::trim()?;
        expect_workers(0);
        stream.upload(&back, &mut buffer)?;
        expect_workers(3);
        Ok(())
    });
}

/// One copy of a random program.
#[derive(Debug, Clone)]
struct Copy {
    up: bool,
    stream: usize,
    start: usize,
    len: usize,
    seed: u64,
}

fn copies() -> impl Strategy<Value = Vec<Copy>> {
    let copy = (any::<bool>(), 0..2_usize, 0..LEN, 1..LEN, any::<u64>()).prop_map(
        |(up, stream, start, len, seed)| Copy {
            up,
            stream,
            start,
            len: len.min(LEN - start),
            seed,
        },
    );
    prop::collection::vec(copy, 1..if cfg!(miri) { 3 } else { 12 })
}

#[test]
fn j_random_copies_in_random_chunks() {
    let config = crate::property::config(if cfg!(miri) { 2 } else { 300 });
    let modes = prop_oneof![
        Just(Mode::Lazy),
        Just(Mode::Eager),
        any::<u64>().prop_map(|seed| Mode::Threaded { seed }),
    ];
    let program = (modes, 0..4_usize, 12..16_u32, copies());
    let result = TestRunner::new(config).run(&program, |(mode, threads, shift, copies)| {
        clean(mode, threads, |_| {
            let _staged = Staged::by(threads, 1 << shift)?;
            let streams = [device().create_stream()?, device().create_stream()?];
            let mut buffer = streams[0].alloc_zeroed::<u8>(LEN)?;
            let mut model = vec![0; LEN];
            for copy in copies {
                let (stream, range) = (&streams[copy.stream], copy.start..copy.start + copy.len);
                if copy.up {
                    let bytes = pattern(copy.seed, copy.len);
                    stream.upload(&bytes, buffer.slice_mut(range.clone())?)?;
                    model[range].copy_from_slice(&bytes);
                } else {
                    let mut back = vec![0xEE; copy.len];
                    stream.download(buffer.slice(range.clone())?, &mut back)?;
                    assert!(back == model[range], "{copy:?}");
                }
            }
            Ok(())
        });
        Ok(())
    });
    if let Err(error) = result {
        panic!("{error}");
    }
}
