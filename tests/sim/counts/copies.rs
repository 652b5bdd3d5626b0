//! Copies: one call per operation of a created stream, none for an empty or refused one.

use cuda_core::{Device, PinnedBuffer, Shape};

use super::*;

#[test]
fn copies_fills_and_allocations_cost_1() {
    Counted::run(|driver| {
        let (context, stream, _) = two_streams()?;
        let mut host = PinnedBuffer::from_slice(&context, &[7u32; 16])?;
        let mut a = driver.expect(relaxed(ALLOC), || stream.alloc::<u32>(16))?;
        let zeroed = [&relaxed(ALLOC)[..], &["cuMemsetD8Async"]].concat();
        let mut b = driver.expect(zeroed, || stream.alloc_zeroed(16))?;
        for _ in 0..3 {
            driver.expect([UPLOAD], || stream.upload(&host, &mut a))?;
            driver.expect([COPY], || stream.copy(&a, &mut b))?;
            driver.expect(["cuMemsetD32Async"], || stream.fill(&mut a, 1))?;
            driver.expect(["cuMemsetD8Async"], || stream.fill_bytes(&mut a, 1))?;
            driver
                .expect(["cuMemsetD16Async"], || stream.fill(a.as_view_mut().cast::<u16>()?, 1))?;
            driver.expect([DOWNLOAD], || stream.download(&b, &mut host))?;
        }
        driver.expect(relaxed(FREE), || drop(a));
        Ok(driver.expect(relaxed(FREE), || b.close())?)
    });
}

/// A value without a repeating pattern needs a memset for each run of equal words, and a copy for each
/// doubling of the length.
#[test]
fn fills_of_any_width_cost_their_words_and_doublings() {
    Counted::run(|driver| {
        const ROWS: &str = "cuMemsetD2D32Async";
        const PLANE: &str = "cuMemcpy2DAsync_v2";
        /// The number of elements that memsets write before the first copy.
        const SEED: usize = if cfg!(miri) { 16 } else { 512 };
        let (context, stream, other) = two_streams()?;
        let mut x = stream.alloc::<f64>(6 * SEED)?;
        driver.expect(["cuMemsetD32Async"], || stream.fill(&mut x, 0.0))?;
        driver.expect([ROWS, ROWS], || stream.fill(x.slice_mut(..SEED)?, 1.1))?;
        driver.expect([ROWS, ROWS, COPY], || stream.fill(x.slice_mut(..SEED + 1)?, 1.1))?;
        driver.expect([ROWS, ROWS, COPY, COPY, COPY], || stream.fill(&mut x, 1.1))?;
        let mut y = stream.alloc::<[u32; 5]>(3)?;
        driver.expect([ROWS, ROWS, ROWS], || stream.fill(&mut y, [1, 1, 2, 3, 3]))?;
        driver
            .expect([ROWS], || stream.fill_pitched(y.pitched_mut(Shape::plane(3, 1))?, [7; 5]))?;
        let mut image = context.alloc_pitched::<f64>(3, 5)?;
        driver.expect([ROWS, ROWS, PLANE, PLANE, PLANE], || {
            stream.fill_pitched(image.pitched_mut()?, 1.1)
        })?;
        let gaps = Shape::volume(2, 2, 3).with_slice_height(3);
        driver.expect([ROWS, ROWS, PLANE, PLANE, PLANE], || {
            stream.fill_pitched(x.pitched_mut(gaps)?, 1.1)
        })?;
        // The fill is one operation: another stream waits once, for its end.
        other.checkpoint()?;
        driver.expect([RECORD, WAIT, ROWS, ROWS], || other.fill(x.slice_mut(..2)?, 1.1))
    });
}

#[test]
fn parts_cost_what_wholes_do() {
    Counted::run(|driver| {
        let (_, stream, _) = two_streams()?;
        let mut a = stream.alloc_zeroed::<u32>(16)?;
        let mut b = stream.alloc_zeroed::<u32>(16)?;
        driver.expect([COPY], || stream.copy(a.slice(1..5)?, b.slice_mut(3..7)?))?;
        let (mut head, mut tail) = driver.expect([], || a.split_at_mut(8))?;
        driver.expect([COPY], || stream.copy(&head, &mut tail))?;
        driver.expect(["cuMemsetD32Async"], || stream.fill(&mut head, 5))
    });
}

#[test]
fn copies_between_devices_cost_1() {
    Counted::run(|driver| {
        let here = Device::get(0)?.create_stream()?;
        let there = Device::get(1)?.create_stream()?;
        let a = here.alloc_zeroed::<u8>(64)?;
        let mut b = there.alloc_zeroed::<u8>(64)?;
        there.checkpoint()?;
        // The first use waits for the allocation on the other device.
        driver.expect([WAIT, PEER_COPY], || here.copy(&a, &mut b))?;
        driver.expect([PEER_COPY], || here.copy(&a, &mut b))
    });
}

#[test]
fn a_warm_pool_costs_1_relaxed_call_to_allocate_and_1_to_free() {
    Counted::run(|driver| {
        let (_, stream, _) = two_streams()?;
        for len in [1, 3, 1000, 1 << 20] {
            driver.expect(allocated_and_freed(), || stream.alloc::<u8>(len).map(drop))?;
        }
        Ok(())
    });
}

#[test]
fn empty_operations_cost_nothing() {
    Counted::run(|driver| {
        let (context, stream, other) = two_streams()?;
        let legacy = context.default_stream()?;
        let mut full = stream.alloc_zeroed::<u32>(4)?;
        let mark = driver.session.mark();
        let mut a = stream.alloc::<u32>(0)?;
        let mut b = legacy.alloc_zeroed::<u32>(0)?;
        let mut host = PinnedBuffer::<u32>::new(&context, 0)?;
        for stream in [&stream, &other, &legacy] {
            stream.upload(&host, &mut a)?;
            stream.download(&a, &mut host)?;
            stream.copy(&a, &mut b)?;
            stream.copy(&a, full.slice_mut(4..)?)?;
            stream.fill(&mut a, 1)?;
            stream.fill_bytes(&mut a, 1)?;
            stream.upload(&[], &mut a)?;
            stream.download(&a, &mut [])?;
            stream.fill(a.as_view_mut().cast::<u8>()?, 1)?;
            stream.scope(|_| Ok(()))?;
            stream.scope(|scope| scope.download(&a, &mut []))?;
        }
        let per_thread = context.per_thread_stream()?;
        per_thread.upload(&[], full.slice_mut(4..)?)?;
        per_thread.fill(full.slice_mut(3..3)?, 1)?;
        per_thread.download(full.slice(0..0)?, &mut [])?;
        assert!(host.as_slice()?.is_empty() && host.as_mut_slice()?.is_empty());
        assert!(PinnedBuffer::<u32>::zeroed(&context, 0)?.is_empty());
        assert!(PinnedBuffer::<u32>::from_slice(&context, &[])?.is_empty());
        a.synchronize()?;
        a.close()?;
        host.close()?;
        drop(b);
        assert_eq!(driver.session.names_since(mark), [""; 0]);
        Ok(())
    });
}

#[test]
fn refused_operations_cost_nothing() {
    Counted::run(|driver| {
        let (context, stream, _) = two_streams()?;
        let legacy = context.default_stream()?;
        let [elsewhere, third] =
            [Device::get(1)?.create_stream()?, Device::get(2)?.create_stream()?];
        let mut foreign = elsewhere.alloc_zeroed::<u32>(9)?;
        let mut host = PinnedBuffer::<u32>::zeroed(&context, 8)?;
        let mut buffer = stream.alloc_zeroed::<u32>(9)?;
        driver.refused(|| stream.upload(&host, &mut buffer));
        driver.refused(|| stream.download(&buffer, &mut host));
        driver.refused(|| stream.upload(&[0; 8], &mut buffer));
        driver.refused(|| stream.download(&buffer, &mut [0; 8]));
        let mut short = [0; 8];
        driver.refused(|| stream.scope(|scope| scope.download(&buffer, &mut short)));
        driver.refused(|| elsewhere.fill(&mut buffer, 1));
        driver.refused(|| elsewhere.upload(&[0; 9], &mut buffer));
        driver.refused(|| legacy.upload(&[0; 8], &mut buffer));
        driver.refused(|| legacy.upload(&[0; 9], &mut foreign));
        driver.refused(|| stream.copy(&buffer, foreign.slice_mut(..8)?));
        driver.refused(|| third.copy(&buffer, &mut foreign));
        driver.refused(|| stream.alloc::<u64>(usize::MAX));
        let mut odd = stream.alloc::<u8>(7)?;
        driver.refused(|| stream.fill(odd.as_view_mut().cast::<u32>()?, 1));
        driver.refused(|| buffer.slice(3..10).map(drop));
        driver.refused(|| buffer.split_at_mut(10).map(drop));
        driver.refused(|| Device::get(100));
        Ok(())
    });
}
