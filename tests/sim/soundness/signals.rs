//! S02, S17, S23, S41: signals that are dropped, forgotten, shared and reused.

use std::collections::HashSet;
use std::time::Duration;

use cuda_core::{
    Context, ContextFlags, Device, PinnedPool, Result, Signal, Stream, WaitValue,
    pinned::PinnedBackend,
};
use cuda_sim::{Fault, Session};
use cuda_sys::{CUDA_ERROR_NOT_READY, CUDA_ERROR_OUT_OF_MEMORY};
use support::Staged;

use super::{clean, device, leaking, pinned};

#[test]
fn s02_the_place_of_a_signal_is_used_again_when_its_work_is_done() {
    clean(|session| {
        let stream = device().create_stream()?;
        let signal = Signal::new(&device().context()?, 0u32)?;
        let place = signal.as_raw();
        stream.write_signal(&signal, 1)?;
        drop(signal);
        let taken: Vec<_> =
            (0..70).map(|_| Signal::new(&device().context()?, 0u32)).collect::<Result<_>>()?;
        assert!(taken.iter().all(|other| other.as_raw() != place));
        let distinct: HashSet<_> = taken.iter().map(Signal::as_raw).collect();
        assert_eq!(distinct.len(), taken.len());
        stream.synchronize()?;
        assert!(taken.iter().all(|other| other.get() == 0), "no stream wrote there");
        drop(taken);
        cuda_core::staging::trim()?;
        assert_eq!(session.calls("cuMemHostAlloc"), session.calls("cuMemFreeHost"));
        Ok(())
    });
}

/// Returns a stream that waits for `go`, and then writes to the signals.
fn held_up(go: &Signal<u32>, signals: &[Signal<u32>]) -> Result<Stream> {
    let stream = device().create_stream()?;
    stream.wait_signal(go, WaitValue::Eq(1))?;
    signals.iter().try_for_each(|signal| stream.write_signal(signal, 1))?;
    Ok(stream)
}

/// Returns a stream whose writes to the signals are complete, which only the driver knows.
fn done_with(signals: &[Signal<u32>]) -> Result<Stream> {
    let stream = device().create_stream()?;
    signals.iter().try_for_each(|signal| stream.write_signal(signal, 1))?;
    stream.checkpoint()?;
    // SAFETY: the stream is live.
    support::check("cuStreamSynchronize", unsafe {
        cuda_sys::symbol::cuStreamSynchronize(stream.as_raw())
    });
    Ok(stream)
}

/// The number of slabs that [`all_places`] fills.
const SLABS: usize = if cfg!(miri) { 3 } else { 4 };

/// Returns signals that take all slots of all slabs; each slab but the first has a list of its own.
fn all_places(session: &Session) -> Result<Vec<Vec<Signal<u32>>>> {
    let mut slabs = vec![Vec::new()];
    while slabs.len() <= SLABS {
        let before = session.calls("cuMemHostAlloc");
        let signal = Signal::new(&device().context()?, 0)?;
        if session.calls("cuMemHostAlloc") > before {
            slabs.push(Vec::new());
        }
        slabs.last_mut().expect("one at least").push(signal);
    }
    slabs.pop();
    cuda_core::staging::trim()?;
    Ok(slabs)
}

#[test]
fn s41_places_that_wait_hide_none_whose_work_is_done() {
    clean(|session| {
        let mut slabs = all_places(session)?;
        let (go, mut used) = (slabs[SLABS - 2].remove(0), slabs.pop().expect("slabs"));
        slabs.push(used.split_off(4));
        let held = used.split_off(2);
        let done = done_with(&used)?;
        let waiting = held_up(&go, &held)?;
        let places: HashSet<_> = used.iter().map(Signal::as_raw).collect();
        drop((used, held));
        let allocated = session.calls("cuMemHostAlloc");
        let context = device().context()?;
        let found = [0u32, 0].map(|value| Signal::new(&context, value));
        let allocated = session.calls("cuMemHostAlloc") - allocated;
        go.set(1);
        waiting.synchronize()?;
        done.synchronize()?;
        assert_eq!(allocated, 0, "two places are idle");
        for signal in found {
            assert!(places.contains(&signal?.as_raw()));
        }
        Ok(())
    });
}

#[test]
fn s41_a_signal_is_made_without_a_wait_where_the_host_is_out_of_memory() {
    clean(|session| {
        let mut slabs = all_places(session)?;
        let (go, idle) = (slabs[SLABS - 2].remove(0), slabs.pop().expect("slabs"));
        let waiting = held_up(&go, &[])?;
        let done = done_with(&idle)?;
        drop(idle);
        // The first queries do not show that the work is complete.
        for nth in 1..=4 {
            session.fail_nth(Some("cuEventQuery"), nth, CUDA_ERROR_NOT_READY);
        }
        session.fail_nth(Some("cuMemHostAlloc"), 1, CUDA_ERROR_OUT_OF_MEMORY);
        // If memory is freed, the test then fails rather than hangs.
        session.end_waits_for_values(Duration::from_secs(5));
        let (allocated, freed) = (session.calls("cuMemHostAlloc"), session.calls("cuMemFreeHost"));
        let found = Signal::new(&device().context()?, 0u32);
        let allocated = session.calls("cuMemHostAlloc") - allocated;
        let freed = session.calls("cuMemFreeHost") - freed;
        session.clear_faults();
        go.set(1);
        waiting.synchronize()?;
        done.synchronize()?;
        assert_eq!((allocated, freed), (1, 0), "freeing memory would wait for `go`");
        found.map(drop)
    });
}

#[test]
fn s02_a_wait_that_cannot_end_keeps_its_slot_and_blocks_nothing() {
    leaking(|session| {
        let stream = device().create_stream()?;
        let signal = Signal::new(&device().context()?, 0u32)?;
        let place = signal.as_raw();
        stream.wait_signal(&signal, WaitValue::Eq(1))?;
        drop((signal, stream));
        for _ in 0..10 {
            let others: Vec<_> =
                (0..64).map(|_| Signal::new(&device().context()?, 1u32)).collect::<Result<_>>()?;
            assert!(others.iter().all(|other| other.as_raw() != place));
        }
        assert_ne!(session.pending_ops(), 0, "it waits still");
        // Only a test can end that wait: the slot is still at its address.
        let waker = device().create_stream()?;
        // SAFETY: the slot is in pinned memory, which stays allocated while work uses it.
        support::check("cuStreamWriteValue32", unsafe {
            cuda_sys::symbol::cuStreamWriteValue32_v2(waker.as_raw(), place, 1, 0)
        });
        waker.synchronize()
    });
}

#[test]
fn s17_a_signal_and_a_context_that_goes_first() {
    clean(|_| {
        let created = Context::new(device(), ContextFlags::default())?;
        let stream = created.create_stream()?;
        let signal = Signal::new(&device().context()?, 0u32)?;
        stream.write_signal(&signal, 1)?;
        drop((stream, created));
        assert!(signal.get() <= 1);
        drop(signal);
        Ok(())
    });
}

#[test]
fn s23_a_forgotten_signal_is_leaked_and_no_more() {
    leaking(|_| {
        let stream = device().create_stream()?;
        let signal = Signal::new(&device().context()?, 0u32)?;
        stream.write_signal(&signal, 1)?;
        std::mem::forget(signal);
        stream.synchronize()
    });
}

#[test]
fn s41_another_stream_does_not_wait_for_the_signal() {
    clean(|_| {
        let [a, b] = [device().create_stream()?, device().create_stream()?];
        let mut buffer = a.alloc::<u32>(64)?;
        let mut host = pinned(&[7; 64])?;
        a.upload(&host, &mut buffer)?;
        let signal = Signal::new(&device().context()?, 0u32)?;
        a.wait_signal(&signal, WaitValue::Eq(1))?;
        for _ in 0..20 {
            // Later events must not replace the one before the wait.
            a.checkpoint()?;
            a.fill(&mut a.alloc::<u32>(64)?, 1)?;
        }
        host.as_mut_slice()?.fill(9);
        let mut back = [0; 64];
        b.download(&buffer, &mut back)?;
        assert_eq!(back, [7; 64]);
        signal.set(1);
        a.synchronize()
    });
}

#[test]
#[cfg_attr(miri, ignore = "moves many mebibytes")]
fn s41_a_stream_that_is_held_up_holds_up_no_small_copies_of_another() {
    clean(|session| {
        let [a, b] = [device().create_stream()?, device().create_stream()?];
        let data = vec![7_u8; 400 << 10];
        let (mut x, mut y) = (a.alloc::<u8>(data.len())?, b.alloc::<u8>(data.len())?);
        let signal = Signal::new(&device().context()?, 0u32)?;
        a.wait_signal(&signal, WaitValue::Geq(1))?;
        // Two copies fit a chunk: the first chunk is returned, and waits for the signal there.
        (0..3).try_for_each(|_| a.upload(&data, &mut x))?;
        let allocated = session.calls("cuMemHostAlloc");
        for round in 0..600 {
            b.upload(&data, &mut y)?;
            if round % 4 == 3 {
                b.synchronize()?;
            }
        }
        let allocated = session.calls("cuMemHostAlloc") - allocated;
        assert!(allocated <= 4, "{allocated} allocations where four chunks suffice");
        signal.set(1);
        a.synchronize()
    });
}

#[test]
#[cfg_attr(miri, ignore = "moves many mebibytes")]
fn s41_small_copies_of_a_stream_that_is_held_up_wait_for_nothing() {
    clean(|_| {
        let [a, b] = [device().create_stream()?, device().create_stream()?];
        let data = vec![7_u8; 400 << 10];
        let (mut x, mut y) = (a.alloc::<u8>(data.len())?, b.alloc::<u8>(data.len())?);
        let signal = Signal::new(&device().context()?, 0u32)?;
        a.wait_signal(&signal, WaitValue::Geq(1))?;
        // More than the number of chunks from which on a stream waits for its own chunks.
        (0..520).try_for_each(|_| a.upload(&data, &mut x))?;
        // Another stream, which has no chunks of its own, does not wait either.
        (0..3).try_for_each(|_| b.upload(&data, &mut y))?;
        signal.set(1);
        a.synchronize()
    });
}

#[test]
#[cfg_attr(miri, ignore = "moves many mebibytes")]
fn s41_a_stream_that_is_held_up_holds_up_no_large_copies_of_another() {
    const CHUNK: usize = 64 << 20;
    clean(|_| {
        let _large = Staged::by(0, CHUNK)?;
        let [a, b] = [device().create_stream()?, device().create_stream()?];
        // Too large for the chunks of small copies; only the used part of a chunk is touched.
        let data = vec![7_u8; 5 << 20];
        let (mut x, mut y) = (a.alloc::<u8>(data.len())?, b.alloc::<u8>(data.len())?);
        let signal = Signal::new(&device().context()?, 0u32)?;
        a.wait_signal(&signal, WaitValue::Geq(1))?;
        // More than the number of chunks from which on a stream waits for its own chunks.
        (0..5).try_for_each(|_| a.upload(&data, &mut x))?;
        (0..3).try_for_each(|_| b.upload(&data, &mut y))?;
        let mut back = vec![0; data.len()];
        b.download(&y, &mut back)?;
        assert!(back == data);
        signal.set(1);
        a.synchronize()
    });
}

/// A chunk that is not available yet is requested repeatedly, without an additional chunk each time.
#[test]
#[cfg_attr(miri, ignore = "moves many mebibytes")]
fn s41_a_large_copy_of_a_stream_that_is_held_up_has_its_eight_chunks() {
    const CHUNK: usize = 8 << 20;
    clean(|_| {
        // With more threads to help, the next piece is requested earlier.
        let _helped = Staged::by(64, CHUNK)?;
        let stream = device().create_stream()?;
        let data = vec![7_u8; 6 * CHUNK + CHUNK / 2];
        let mut buffer = stream.alloc::<u8>(data.len())?;
        let signal = Signal::new(&device().context()?, 0u32)?;
        stream.wait_signal(&signal, WaitValue::Geq(1))?;
        // More than the number of chunks from which on a stream waits for its own chunks.
        let part = 5 << 20;
        for _ in 0..34 {
            stream.upload(&data[..part], buffer.slice_mut(..part)?)?;
        }
        stream.upload(&data, &mut buffer)?;
        signal.set(1);
        stream.synchronize()
    });
}

/// If the host cannot allocate a new chunk, copies use the existing ones.
#[test]
#[cfg_attr(miri, ignore = "moves mebibytes")]
fn small_copies_go_on_where_the_host_is_out_of_memory() {
    clean(|session| {
        let [a, b] = [device().create_stream()?, device().create_stream()?];
        let mut data = vec![7_u8; 400 << 10];
        let (mut x, mut y) = (a.alloc::<u8>(data.len())?, b.alloc::<u8>(data.len())?);
        // Two copies fit a chunk: the first two chunks are in flight.
        (0..5).try_for_each(|_| a.upload(&data, &mut x))?;
        let none = Fault::new(CUDA_ERROR_OUT_OF_MEMORY).function("cuMemHostAlloc");
        session.inject(none.from_then_on());
        for (value, stream) in (8..).zip([&a, &b, &a]) {
            data.fill(value);
            (0..3).try_for_each(|_| stream.upload(&data, &mut y))?;
        }
        let back = a.download_vec(&y)?;
        assert!(session.fault_fired() && back == data);
        Ok(())
    });
}

#[test]
#[cfg_attr(miri, ignore = "moves many mebibytes")]
fn chunks_that_were_too_many_are_given_back() {
    clean(|_| {
        PinnedPool::set_backend(PinnedBackend::Slab);
        let stream = device().create_stream()?;
        let data = vec![7_u8; 400 << 10];
        let mut buffer = stream.alloc::<u8>(data.len())?;
        let signal = Signal::new(&device().context()?, 0u32)?;
        let (idle, used) = (256 << 20, || PinnedPool::shared().usage().map(|usage| usage.used));
        stream.wait_signal(&signal, WaitValue::Geq(1))?;
        (0..540).try_for_each(|_| stream.upload(&data, &mut buffer))?;
        assert!(used()? > idle, "while it was held up");
        signal.set(1);
        stream.synchronize()?;
        (0..40).try_for_each(|_| stream.upload(&data, &mut buffer))?;
        assert!(used()? <= idle + (1 << 20), "{}", used()?);
        stream.synchronize()
    });
}

/// The host's access to a signal is synchronised like any value that threads share.
#[test]
fn s15_threads_hand_memory_over_by_a_signal() {
    clean(|_| {
        let (one, two) = (device().create_stream()?, Device::get(1)?.create_stream()?);
        let (ping, pong) =
            (Signal::new(&device().context()?, 0u32)?, Signal::new(&device().context()?, 0u32)?);
        let rounds = if cfg!(miri) { 3 } else { 20 };
        std::thread::scope(|scope| {
            let answer = scope.spawn(|| -> Result<()> {
                for round in 1..=rounds {
                    two.wait_signal(&ping, WaitValue::Geq(round))?;
                    two.write_signal(&pong, round)?;
                    two.synchronize()?;
                }
                Ok(())
            });
            for round in 1..=rounds {
                ping.set(round);
                one.wait_signal(&pong, WaitValue::Geq(round))?;
                one.synchronize()?;
                assert!(pong.get() >= round);
            }
            answer.join().expect("no assertion failed")
        })
    });
}
