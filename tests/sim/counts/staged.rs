//! Borrowed slices: one call per small slice, and a wait if data is copied back.

use cuda_core::{Device, Signal, WaitValue};
use support::Staged;

use super::*;

#[test]
fn small_slices_cost_1_up_and_a_wait_down() {
    Counted::run(|driver| {
        let (_, stream, _) = two_streams()?;
        let mut buffer = stream.alloc::<u32>(16)?;
        let first = [entered(relaxed("cuMemHostAlloc")), vec![UPLOAD]].concat();
        driver.expect(first, || stream.upload(&[1; 16], &mut buffer))?;
        for value in 2..10 {
            driver.expect([UPLOAD], || stream.upload(&[value; 16], &mut buffer))?;
            let mut back = [0; 16];
            let down = [&[DOWNLOAD][..], &relaxed(SYNC)].concat();
            driver.expect(down, || stream.download(&buffer, &mut back))?;
            assert_eq!(back, [value; 16]);
        }
        Ok(())
    });
}

#[test]
fn copies_to_new_memory_cost_memory_and_the_copy() {
    Counted::run(|driver| {
        let (_, stream, _) = two_streams()?;
        drop(stream.copy_new(&stream.upload_new(&[0_u32; 16])?)?);
        let buffer = driver
            .expect([EXCHANGE, ALLOC, EXCHANGE, UPLOAD], || stream.upload_new(&[1_u32; 16]))?;
        let copy = driver.expect([EXCHANGE, ALLOC, EXCHANGE, COPY], || stream.copy_new(&buffer))?;
        let down = [&[DOWNLOAD][..], &relaxed(SYNC)].concat();
        assert_eq!(driver.expect(down, || stream.download_vec(&copy))?, [1; 16]);
        let pinned = [entered(relaxed("cuMemHostAlloc")), vec![DOWNLOAD]].concat();
        let pinned = driver.expect(pinned, || stream.download_pinned(&copy))?;
        assert_eq!(pinned.as_slice()?, [1; 16]);
        assert!(driver.expect([], || stream.download_pinned(copy.slice(..0)?))?.is_empty());
        let nothing = driver.expect([], || stream.upload_new(&[0_u64; 0]))?;
        let nothing = driver.expect([], || stream.copy_new(&nothing))?;
        assert_eq!(driver.expect([], || stream.download_vec(&nothing))?, [0; 0]);
        Ok(())
    });
}

#[test]
fn a_scope_of_k_downloads_costs_k_and_a_wait() {
    Counted::run(|driver| {
        let (_, stream, _) = two_streams()?;
        let mut a = stream.alloc::<u32>(16)?;
        stream.upload(&[5; 16], &mut a)?;
        for k in 0..5 {
            let mut out = [[0; 16]; 5];
            let wait = (k > 0).then(|| relaxed(SYNC)).into_iter().flatten();
            driver.expect([DOWNLOAD].repeat(k).into_iter().chain(wait), || {
                stream
                    .scope(|scope| out[..k].iter_mut().try_for_each(|out| scope.download(&a, out)))
            })?;
            assert_eq!(out[..k], [[5; 16]; 5][..k]);
        }
        Ok(())
    });
}

#[test]
fn a_chunk_is_kept_for_other_streams() {
    Counted::run(|driver| {
        let (_, s, t) = two_streams()?;
        let mut a = s.alloc::<u8>(16)?;
        s.upload(&[1; 16], &mut a)?;
        s.synchronize()?;
        drop(a);
        drop(s);
        let mut b = t.alloc::<u8>(16)?;
        // No allocation: the first stream's chunk is idle.
        driver.expect(["cuMemcpyHtoDAsync_v2"], || t.upload(&[1; 16], &mut b))
    });
}

#[test]
#[cfg_attr(miri, ignore = "moves mebibytes")]
fn a_chunk_that_another_stream_may_be_done_with_costs_a_question() {
    Counted::run(|driver| {
        driver.session.set_mode(cuda_sim::Mode::Eager);
        let (_, s, t) = two_streams()?;
        let slice = vec![1; 400 << 10];
        let (mut a, mut b) = (s.alloc::<u8>(slice.len())?, t.alloc::<u8>(slice.len())?);
        // Two slices fit a chunk, so the first chunk is returned, with an event after it.
        (0..3).try_for_each(|_| s.upload(&slice, &mut a))?;
        let expected = [&relaxed("cuEventQuery")[..], &[UPLOAD]].concat();
        driver.expect(expected, || t.upload(&slice, &mut b))
    });
}

/// Of many streams, two are queried, however many are busy.
#[test]
#[cfg_attr(miri, ignore = "moves mebibytes")]
fn chunks_that_many_streams_are_busy_with_cost_two_questions() {
    Counted::run(|driver| {
        driver.session.set_mode(cuda_sim::Mode::Lazy);
        let (_, own, _) = two_streams()?;
        let slice = vec![1; 400 << 10];
        let mut buffer = own.alloc::<u8>(slice.len())?;
        let signal = Signal::new(&Device::get(0)?.context()?, 0_u32)?;
        let mut others = Vec::new();
        for _ in 0..5 {
            let stream = Device::get(0)?.create_stream()?;
            let mut buffer = stream.alloc::<u8>(slice.len())?;
            stream.wait_signal(&signal, WaitValue::Geq(1))?;
            // Two slices fit a chunk, so the first chunk is returned, with an event after it.
            (0..3).try_for_each(|_| stream.upload(&slice, &mut buffer))?;
            others.push((stream, buffer));
        }
        let asked = relaxed("cuEventQuery").repeat(2);
        let allocated = entered(relaxed("cuMemHostAlloc"));
        let expected = [asked, allocated, vec![UPLOAD]].concat();
        driver.expect(expected, || own.upload(&slice, &mut buffer))?;
        signal.set(1);
        Ok(())
    });
}

#[test]
fn a_large_slice_costs_a_copy_a_piece_and_a_record_a_chunk_or_piece() {
    const CHUNK: usize = 4 << 10;
    // Uploads: pieces of a quarter of a chunk, smaller at the ends of the slice, down to 256 bytes.
    const UP: [usize; 3] = [6, 4, 6];
    // Downloads: whole chunks, smaller at the ends.
    const DOWN: usize = 5 + 1 + 5;
    Counted::run(|driver| {
        // A chunk that becomes free early would save the allocation of another.
        driver.session.set_mode(cuda_sim::Mode::Lazy);
        let _alone = Staged::by(0, CHUNK)?;
        let stream = Device::get(0)?.create_stream()?;
        let mut buffer = stream.alloc::<u8>(3 * CHUNK)?;
        let slice = support::pattern(1, 3 * CHUNK);
        let mut back = vec![0; 3 * CHUNK];
        // From here on the chunks exist, and an event for each piece in flight.
        stream.upload(&slice, &mut buffer)?;
        stream.download(&buffer, &mut back)?;
        let chunk = |copies| [&[UPLOAD].repeat(copies)[..], &[RECORD]].concat();
        let calls = UP.map(chunk).concat();
        driver.expect(calls, || stream.upload(&slice, &mut buffer))?;
        stream.synchronize()?;
        let calls =
            [[DOWNLOAD, RECORD].repeat(DOWN), relaxed("cuEventSynchronize").repeat(DOWN)].concat();
        driver.expect(calls, || stream.download(&buffer, &mut back))?;
        support::assert_bytes(&back, &slice);
        Ok(())
    });
}
