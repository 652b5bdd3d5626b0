//! What a ledger must record: S03, S15, S37.

use std::hint;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use cuda_core::{DeviceBuffer, Graph, Result, Stream, drops};
use cuda_sim::{LeakKind, Mode};
use cuda_sys::CUDA_ERROR_UNKNOWN;
use support::kernels;

use super::{clean, device, pinned, primary, within};

/// Creates three streams, and a buffer at home on the third that holds 7.
fn two_readers() -> Result<(Stream, Stream, Stream, DeviceBuffer<u32>)> {
    two_readers_of(64)
}

fn two_readers_of(len: usize) -> Result<(Stream, Stream, Stream, DeviceBuffer<u32>)> {
    let [a, b, home] =
        [device().create_stream()?, device().create_stream()?, device().create_stream()?];
    let mut buffer = home.alloc(len)?;
    home.fill(&mut buffer, 7)?;
    home.synchronize()?;
    Ok((a, b, home, buffer))
}

#[test]
fn s03_two_readers_then_a_writer() {
    clean(|_| {
        let (a, b, home, mut buffer) = two_readers()?;
        let (mut x, mut y) = (pinned(&[0; 64])?, pinned(&[0; 64])?);
        a.download(&buffer, &mut x)?;
        b.download(&buffer, &mut y)?;
        home.fill(&mut buffer, 8)?;
        home.synchronize()?;
        assert_eq!(x.as_slice()?, [7; 64]);
        assert_eq!(y.as_slice()?, [7; 64]);
        Ok(())
    });
}

#[test]
fn s03_two_readers_then_the_free() {
    clean(|_| {
        let (a, b, home, buffer) = two_readers()?;
        let (mut x, mut y) = (pinned(&[0; 64])?, pinned(&[0; 64])?);
        a.download(&buffer, &mut x)?;
        b.download(&buffer, &mut y)?;
        drop(buffer);
        home.synchronize()?;
        assert_eq!(x.as_slice()?, [7; 64]);
        assert_eq!(y.as_slice()?, [7; 64]);
        Ok(())
    });
}

#[test]
fn s03_a_stream_reads_what_it_wrote_then_another_writes() {
    for in_a_graph in [false, true] {
        clean(|_| {
            let (a, b, home, mut buffer) = two_readers()?;
            let capture = || Graph::capture(home.context(), |it| it.fill(&mut buffer, 9));
            let graph = in_a_graph.then(capture).transpose()?;
            let (mut x, mut y) = (pinned(&[0; 64])?, pinned(&[0; 64])?);
            a.download(&buffer, &mut x)?;
            home.download(&buffer, &mut y)?;
            b.fill(&mut buffer, 8)?;
            b.synchronize()?;
            assert_eq!((x.as_slice()?, y.as_slice()?), (&[7; 64][..], &[7; 64][..]));
            drop(graph);
            Ok(())
        });
    }
}

#[test]
fn s03_a_reader_does_not_wait_for_reads_of_the_stream_that_wrote() {
    clean(|session| {
        let (a, b, home, buffer) = two_readers()?;
        let [mut x, mut y, mut z, mut last] =
            [pinned(&[0; 64])?, pinned(&[0; 64])?, pinned(&[0; 64])?, pinned(&[0; 64])?];
        let c = device().create_stream()?;
        a.download(&buffer, &mut x)?;
        home.download(&buffer, &mut y)?;
        let waits = session.calls("cuStreamWaitEvent");
        b.download(&buffer, &mut z)?;
        c.download(&buffer, &mut last)?;
        assert_eq!(session.calls("cuStreamWaitEvent"), waits, "the write has completed");
        Ok(())
    });
}

#[test]
fn s03_a_reader_then_the_home_stream_reads_and_frees() {
    clean(|_| {
        let (a, _b, home, buffer) = two_readers()?;
        let (mut x, mut y) = (pinned(&[0; 64])?, pinned(&[0; 64])?);
        a.download(&buffer, &mut x)?;
        home.download(&buffer, &mut y)?;
        drop(buffer);
        home.synchronize()?;
        assert_eq!(x.as_slice()?, [7; 64]);
        Ok(())
    });
}

#[test]
fn s15_concurrent_readers_of_pinned_memory() {
    clean(|_| {
        let streams = [device().create_stream()?, device().create_stream()?];
        let mut host = pinned(&[0_u32; 64])?;
        for round in 0..8 {
            host.as_mut_slice()?.fill(round);
            thread::scope(|scope| {
                for stream in &streams {
                    let host = &host;
                    scope.spawn(move || {
                        let mut buffer = stream.alloc(64).expect("memory is there");
                        stream.upload(host, &mut buffer).expect("lengths agree");
                        assert_eq!(host.as_slice().expect("nothing writes"), [round; 64]);
                        let mut back = [0; 64];
                        stream.download(&buffer, &mut back).expect("it works");
                        assert_eq!(back, [round; 64]);
                        // The buffer's free is queued; the host does not know whether its copy is complete.
                        stream.upload(host, &mut buffer).expect("lengths agree");
                    });
                }
            });
        }
        Ok(())
    });
}

#[test]
fn s15_concurrent_readers_of_device_memory() {
    clean(|_| {
        let (a, b, home, mut buffer) = two_readers()?;
        for round in 0..8 {
            let shared = &buffer;
            thread::scope(|scope| {
                for stream in [&a, &b] {
                    scope.spawn(move || {
                        let mut copy = stream.alloc(64).expect("memory is there");
                        stream.copy(shared, &mut copy).expect("lengths agree");
                        let mut back = [0; 64];
                        stream.download(&copy, &mut back).expect("it works");
                        assert_eq!(back, [7 + round; 64]);
                        stream.copy(shared, &mut copy).expect("lengths agree");
                    });
                }
            });
            home.fill(&mut buffer, 8 + round)?;
        }
        Ok(())
    });
}

#[test]
fn s37_halves_written_on_two_streams_then_read() {
    clean(|_| {
        let (a, b, home, mut buffer) = two_readers()?;
        let (head, tail) = buffer.split_at_mut(32)?;
        a.fill(head, 1)?;
        b.fill(tail, 2)?;
        let mut back = [0; 64];
        home.download(&buffer, &mut back)?;
        assert_eq!(back[..32], [1; 32]);
        assert_eq!(back[32..], [2; 32]);
        Ok(())
    });
}

#[test]
fn s37_halves_written_on_two_streams_then_freed() {
    clean(|session| {
        let (a, b, home, mut buffer) = two_readers()?;
        let (head, tail) = buffer.split_at_mut(32)?;
        a.fill(head, 1)?;
        b.fill(tail, 2)?;
        assert!(session.pending_ops() > 0, "the fills have not run yet");
        drop(buffer);
        home.synchronize()
    });
}

#[test]
fn s37_chunks_do_not_wait_for_each_other() {
    clean(|session| {
        let (a, b, home, mut buffer) = two_readers()?;
        let mark = session.mark();
        let chunks = buffer.chunks_mut(10)?;
        assert_eq!(chunks.len(), 7);
        for ((number, chunk), stream) in (1..).zip(chunks).zip([&a, &b].into_iter().cycle()) {
            stream.fill(chunk, number)?;
        }
        assert_eq!(session.names_since(mark), ["cuMemsetD32Async"; 7]);
        let back = home.download_vec(&buffer)?;
        let expected: Vec<u32> = (0..64).map(|at| at / 10 + 1).collect();
        assert_eq!(back, expected);
        let last = buffer.chunks(10)?.last().expect("seven");
        assert_eq!(home.download_vec(last)?, [7; 4]);
        let (head, tail) = buffer.as_view().split_at(40)?;
        assert_eq!(home.download_vec(head)?, expected[..40]);
        assert_eq!(home.download_vec(tail)?, expected[40..]);
        Ok(())
    });
}

/// More waits than the ledger distinguishes: the order may be stricter than necessary, never weaker.
#[test]
fn s37_many_chunks_may_wait_for_each_other() {
    for (len, count) in [(2, 64), (1, 128)] {
        clean(|session| {
            let (a, b, home, mut buffer) = two_readers_of(128)?;
            let mark = session.mark();
            for round in 1..3 {
                let chunks = buffer.chunks_mut(len)?;
                assert_eq!(chunks.len(), count);
                for ((number, chunk), stream) in (0..).zip(chunks).zip([&a, &b].into_iter().cycle())
                {
                    stream.fill(chunk, round * 100 + number)?;
                }
            }
            let names = session.names_since(mark);
            assert_eq!(names.contains(&"cuStreamWaitEvent"), count > 64);
            let back = home.download_vec(&buffer)?;
            let expected = (0..128).map(|at| 200 + at / len as u32);
            assert_eq!(back, expected.collect::<Vec<u32>>());
            Ok(())
        });
    }
}

#[test]
fn s37_halves_do_not_wait_for_each_other() {
    clean(|session| {
        let (a, b, _home, mut buffer) = two_readers()?;
        let (head, tail) = buffer.split_at_mut(32)?;
        a.fill(head, 1)?;
        let mark = session.mark();
        b.fill(tail, 2)?;
        assert_eq!(session.names_since(mark), ["cuMemsetD32Async"]);
        Ok(())
    });
}

#[test]
fn s37_a_write_of_the_middle_keeps_both_ends() {
    clean(|_| {
        let (a, b, home, mut buffer) = two_readers()?;
        a.fill(&mut buffer, 1)?;
        b.fill(buffer.slice_mut(16..48)?, 2)?;
        // Both ends still carry marks of `a`, whatever `b` has waited for.
        let mut back = [0; 64];
        home.download(buffer.slice(..16)?, &mut back[..16])?;
        home.download(buffer.slice(48..)?, &mut back[48..])?;
        assert_eq!(back[..16], [1; 16]);
        assert_eq!(back[48..], [1; 16]);
        Ok(())
    });
}

#[test]
fn s37_more_ranges_than_entries() {
    clean(|_| {
        let (a, b, home, mut buffer) = two_readers()?;
        for index in 0..64 {
            let stream = if index % 2 == 0 { &a } else { &b };
            stream.fill(buffer.slice_mut(index..=index)?, index as u32)?;
        }
        let mut back = [0; 64];
        home.download(&buffer, &mut back)?;
        assert!(back.iter().zip(0..).all(|(element, index)| *element == index));
        Ok(())
    });
}

/// A writer waits for the later of two reads by one stream.
#[test]
fn s03_the_same_reader_again_then_a_writer() {
    clean(|session| {
        let (a, _b, home, mut buffer) = two_readers()?;
        let (mut x, mut y) = (pinned(&[0; 64])?, pinned(&[0; 64])?);
        a.download(&buffer, &mut x)?;
        // The end of the first read has its own event.
        a.checkpoint()?;
        a.download(&buffer, &mut y)?;
        assert!(session.pending_ops() > 0, "the copies have not run yet");
        home.fill(&mut buffer, 8)?;
        home.synchronize()?;
        assert_eq!(x.as_slice()?, [7; 64]);
        assert_eq!(y.as_slice()?, [7; 64]);
        Ok(())
    });
}

/// A host buffer that only one stream ever reads is read repeatedly.
#[test]
fn s01_the_same_upload_again_then_change() {
    clean(|_| {
        let stream = device().create_stream()?;
        let mut host = pinned(&[7u32; 64])?;
        let (mut first, mut second) = (stream.alloc(64)?, stream.alloc(64)?);
        stream.upload(&host, &mut first)?;
        stream.checkpoint()?;
        stream.upload(&host, &mut second)?;
        host.as_mut_slice()?.fill(8);
        let mut back = [0; 64];
        stream.download(&second, &mut back)?;
        assert_eq!(back, [7; 64]);
        Ok(())
    });
}

/// The first reader reads one range again; it may read other ranges, and other streams may read its range.
#[test]
fn s03_readers_of_several_ranges_then_a_writer() {
    clean(|_| {
        let (a, b, home, mut buffer) = two_readers()?;
        let mut targets = [(); 4].map(|()| pinned(&[0u32; 32]));
        let [w, x, y, z] = targets.each_mut().map(|target| target.as_mut().expect("memory"));
        a.download(buffer.slice(..32)?, &mut *w)?;
        a.checkpoint()?;
        a.download(buffer.slice(32..)?, &mut *x)?;
        b.download(buffer.slice(..32)?, &mut *y)?;
        a.download(buffer.slice(..32)?, &mut *z)?;
        home.fill(&mut buffer, 8)?;
        home.synchronize()?;
        for target in [w, x, y, z] {
            assert_eq!(target.as_slice()?, [7; 32]);
        }
        // The writer has waited for all other streams, so none of them is waited for again.
        a.download(buffer.slice(..32)?, targets[0].as_mut().expect("memory"))?;
        assert_eq!(targets[0].as_mut().expect("memory").as_slice()?, [8; 32]);
        Ok(())
    });
}

/// Two threads enqueue on one stream; the later point counts, whichever thread marks last.
#[test]
fn s15_one_stream_read_for_by_two_threads() {
    clean(|_| {
        let stream = device().create_stream()?;
        let mut host = pinned(&[0u32; 64])?;
        for round in 1..8 {
            host.as_mut_slice()?.fill(round);
            let mut targets = [stream.alloc::<u32>(64)?, stream.alloc(64)?];
            thread::scope(|scope| {
                for target in &mut targets {
                    let (host, stream) = (&host, &stream);
                    scope.spawn(move || {
                        stream.upload(host, &mut *target).expect("lengths agree");
                        stream.checkpoint().expect("no fault was injected");
                        stream.upload(host, target).expect("lengths agree");
                    });
                }
            });
            host.as_mut_slice()?.fill(0);
            for target in &targets {
                let mut back = [0; 64];
                stream.download(target, &mut back)?;
                assert_eq!(back, [round; 64]);
            }
        }
        Ok(())
    });
}

/// Two threads read on one stream, and the later read is marked first: between the earlier launch and its
/// mark, where the hook of a failed drop stops the thread. The later point counts.
#[test]
fn s15_the_later_of_two_reads_is_entered_first() {
    let session = support::simulator_in(Mode::Lazy);
    let body = || {
        let (a, b, home, buffer) = two_readers()?;
        let (reads, mut x) = (kernels::get(&primary(), "copy_words")?, home.alloc(64)?);
        let y = pinned(&[0u32; 64])?;
        a.download(&buffer, &mut pinned(&[0; 64])?)?;
        // When the launch is marked, no other record of this stream or its event exists.
        b.fill(&mut x, 0)?;
        b.checkpoint()?;
        b.synchronize()?;
        drop(b);
        let (buffer, read) = (Arc::new(buffer), Arc::new(Mutex::new((false, y))));
        let later = (a.clone(), buffer.clone(), read.clone());
        drops::set_hook(move |_| {
            let (stream, buffer, read) = later.clone();
            let reading = thread::spawn(move || {
                let (done, y) = &mut *read.lock().expect("no panic");
                // The end of the earlier read has its own event.
                *done = stream.checkpoint().is_ok() && stream.download(&*buffer, y).is_ok();
            });
            reading.join().expect("no panic");
        });
        session.fail_nth(Some("cuEventDestroy_v2"), 1, CUDA_ERROR_UNKNOWN);
        let mut launch = a.kernel(&reads).elements(64).arg(&mut x).arg(&*buffer).arg(64u32);
        // SAFETY: both have 64 elements.
        unsafe { launch.launch() }?;
        drops::take_hook();
        let mut buffer = Arc::into_inner(buffer).expect("the hook is gone");
        home.fill(&mut buffer, 8)?;
        home.synchronize()?;
        let (done, y) = &*read.lock().expect("no panic");
        assert!(*done, "the later read was enqueued");
        assert_eq!(y.as_slice()?, [7; 64]);
        Result::<()>::Ok(())
    };
    within(|| body().expect("no operation fails"));
    assert_eq!(session.violations(), []);
}

/// The last users of a half are its writers, whatever read the whole before.
#[test]
fn s37_halves_written_behind_a_reader_of_the_whole() {
    clean(|_| {
        let (a, b, home, mut buffer) = two_readers()?;
        let mut whole = pinned(&[0u32; 64])?;
        for round in 8..11 {
            a.download(&buffer, &mut whole)?;
            let (low, high) = buffer.split_at_mut(32)?;
            b.fill(low, round)?;
            home.fill(high, round)?;
            assert_eq!(whole.as_slice()?, [round - 1; 64]);
        }
        Ok(())
    });
}

/// A program with a stream per request, whose weights and kernels live as long as the program. A wait of
/// another stream covers each request's reads, so that the end of the reads is never queried.
#[test]
#[cfg_attr(miri, ignore = "gets to no crowd, which is when streams are asked about")]
fn streams_that_are_gone_do_not_pile_up() {
    const REQUESTS: usize = 200;
    clean(|session| {
        let context = primary();
        let module = kernels::load(&context)?;
        let copy_words = module.function("copy_words")?;
        let weights = device().create_stream()?.alloc_zeroed::<u32>(16)?;
        let server = device().create_stream()?;
        for _ in 0..REQUESTS {
            let request = device().create_stream()?;
            let mut answer = server.alloc::<u32>(16)?;
            let mut launch =
                request.kernel(&copy_words).elements(16).arg(&mut answer).arg(&weights).arg(16u32);
            // SAFETY: 16 elements of both.
            unsafe { launch.launch() }?;
            server.download(&answer, &mut [1; 16])?;
        }
        let events = session.leaks();
        let events = events.iter().filter(|leak| leak.kind == LeakKind::Event);
        assert!(events.count() < REQUESTS / 2);
        Ok(())
    });
}

/// The time in which a reader could be hidden is short: the mutant `ledger-moved-before-its-reader`, which this
/// test must catch, prolongs it.
#[test]
fn s37_a_half_that_a_graph_takes_hides_no_reader_of_the_other() {
    const ROUNDS: u32 = if cfg!(miri) { 4 } else { 200 };
    clean(|_| {
        let (reader, writer, home, _) = two_readers()?;
        let (mut copy, mut taken) = (home.alloc::<u32>(64)?, home.alloc::<u32>(32)?);
        for round in 0..ROUNDS {
            // The first graph that uses the buffer moves the entries of its ledger.
            let mut buffer = home.alloc::<u32>(64)?;
            reader.copy(&buffer, &mut copy)?;
            let (low, mut high) = buffer.split_at_mut(32)?;
            let ready = AtomicBool::new(false);
            let graph = thread::scope(|scope| {
                let capture = || {
                    Graph::capture(home.context(), |stream| {
                        ready.store(true, Ordering::Release);
                        stream.copy(&low, &mut taken)
                    })
                };
                let graph = scope.spawn(capture);
                while !ready.load(Ordering::Acquire) {
                    hint::spin_loop();
                }
                // In each round at another moment of the capture.
                (0..round % 100 * 4).for_each(|_| hint::spin_loop());
                let written = writer.fill(&mut high, 8);
                written.and(graph.join().expect("no panic"))
            });
            drop(graph?);
        }
        Ok(())
    });
}
