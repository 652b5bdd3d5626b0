//! Memory, copies and fills on every kind of stream.

use cuda_core::{Device, PinnedBuffer, Result, Shape, Stream};
use support::two_streams;

use super::harness::{again, first, sweep};

/// Copies up, across and down, fills a part, and reads the result.
fn every_copy<K: cuda_core::StreamKind>(home: &Stream, stream: &Stream<K>) -> Result<()> {
    let context = stream.context();
    let source = PinnedBuffer::from_slice(context, &[1u16, 2, 3, 4, 5, 6, 7, 8])?;
    let mut target = PinnedBuffer::<u16>::zeroed(context, 8)?;
    let mut a = home.alloc::<u16>(8)?;
    let mut b = home.alloc_zeroed::<u16>(8)?;
    stream.upload(&source, &mut a)?;
    stream.copy(&a, &mut b)?;
    stream.fill(b.slice_mut(2..3)?, 0x0909)?;
    stream.fill_bytes(b.slice_mut(3..4)?, 7)?;
    stream.fill(b.as_view_mut().cast::<u32>()?.slice_mut(2..3)?, 0x0001_0002)?;
    stream.download(&b, &mut target)?;
    assert_eq!(target.as_slice()?, [1, 2, 0x0909, 0x0707, 2, 1, 7, 8]);
    // By several calls.
    stream.fill(b.as_view_mut().cast::<[u16; 2]>()?, [5, 6])?;
    let rows = b.as_view_mut().cast::<[u16; 2]>()?.pitched(Shape::plane(1, 3).with_pitch(6))?;
    stream.fill_pitched(rows, [3, 4])?;
    stream.download(&b, &mut target)?;
    assert_eq!(target.as_slice()?, [3, 4, 5, 3, 4, 6, 3, 4]);
    stream.synchronize()?;
    b.close()?;
    Ok(source.close()?)
}

#[test]
fn on_a_created_stream() {
    sweep(|| {
        let stream = Device::get(0)?.create_stream()?;
        every_copy(&stream, &stream)
    });
}

#[test]
fn on_a_blocking_stream() {
    sweep(|| {
        let (_, context) = first()?;
        let stream = context.stream_builder().blocking().priority(-1).build()?;
        assert!(stream.is_blocking()?);
        stream.priority()?;
        every_copy(&stream, &stream)
    });
}

#[test]
fn on_the_legacy_stream() {
    sweep(|| {
        let stream = first()?.1.default_stream()?;
        every_copy(&stream, &stream)
    });
}

#[test]
fn on_the_per_thread_stream() {
    sweep(|| {
        let (_, context) = first()?;
        every_copy(&context.create_stream()?, &context.per_thread_stream()?)
    });
}

#[test]
fn on_a_stream_that_is_not_home() {
    sweep(|| {
        let (_, context) = first()?;
        every_copy(&context.create_stream()?, &context.create_stream()?)
    });
}

#[test]
fn in_a_created_context() {
    sweep(|| {
        let device = Device::get(0)?;
        let context = cuda_core::Context::new(device, cuda_core::ContextFlags::SCHED_AUTO)?;
        every_copy(&context.default_stream()?, &context.create_stream()?)
    });
}

/// After a single failure, every operation can be repeated with the right result.
#[test]
fn every_operation_again() {
    sweep(|| {
        let context = again(|| Device::get(0)?.context())?;
        let s = again(|| context.create_stream())?;
        let t = again(|| context.create_stream())?;
        let mut target = again(|| PinnedBuffer::<u32>::zeroed(&context, 8))?;
        let mut a = again(|| s.alloc_zeroed::<u32>(8))?;
        let mut b = again(|| t.alloc::<u32>(8))?;
        again(|| s.upload(&[1, 2, 3, 4, 5, 6, 7, 8], &mut a))?;
        again(|| t.copy(&a, &mut b))?;
        again(|| s.fill(&mut a, 0))?;
        again(|| s.copy(b.slice(4..)?, a.slice_mut(..4)?))?;
        again(|| t.download(&a, &mut target))?;
        assert_eq!(again(|| target.as_slice().map(<[u32]>::to_vec))?, [5, 6, 7, 8, 0, 0, 0, 0]);
        let mut back = [0; 8];
        again(|| s.download(&b, &mut back))?;
        assert_eq!(back, [1, 2, 3, 4, 5, 6, 7, 8]);
        again(|| s.wait_stream(&t))?;
        again(|| t.checkpoint())?;
        again(|| s.synchronize())
    });
}

/// Continues after every failure: an earlier failed operation must not break a later one.
#[test]
fn every_operation_regardless() {
    sweep(|| {
        let (context, s, t) = two_streams()?;
        let mut target = PinnedBuffer::<u32>::zeroed(&context, 8)?;
        let mut a = s.alloc_zeroed::<u32>(8)?;
        let mut b = t.alloc::<u32>(8)?;
        let results = [
            t.fill(&mut b, 1),
            s.copy(&b, &mut a),
            t.fill(&mut b, 2),
            s.download(&a, &mut target),
            t.upload(&target, &mut b),
            target.as_mut_slice().map(|bytes| bytes.fill(7)),
            s.upload(&target, &mut a),
            t.copy(&a, &mut b),
            s.upload(&[9; 8], &mut a),
            t.download(&b, &mut target),
            target.try_as_slice().map(drop),
            b.synchronize(),
        ];
        let mut back = [0; 8];
        let down = s.download(&a, &mut back);
        if results[8].is_ok() && down.is_ok() {
            assert_eq!(back, [9; 8]);
        }
        results.into_iter().collect::<Result<()>>().and(down)
    });
}

#[test]
fn between_devices() {
    sweep(|| {
        let (s, t) = (Device::get(0)?.create_stream()?, Device::get(1)?.create_stream()?);
        let mut a = s.alloc_zeroed::<u32>(8)?;
        let mut b = t.alloc::<u32>(8)?;
        t.fill(&mut b, 5)?;
        s.copy(&b, &mut a)?;
        t.fill(&mut b, 6)?;
        t.copy(a.slice(..4)?, b.slice_mut(4..)?)?;
        let mut back = [0; 8];
        t.download(&b, &mut back)?;
        assert_eq!(back, [6, 6, 6, 6, 5, 5, 5, 5]);
        drop(b);
        drop(t);
        s.download(&a, &mut back)?;
        assert_eq!(back, [5; 8]);
        Ok(())
    });
}

#[test]
fn host_access() {
    sweep(|| {
        let (context, s, t) = two_streams()?;
        let mut a = s.alloc::<u32>(8)?;
        let mut host = PinnedBuffer::<u32>::zeroed(&context, 8)?;
        let (mut head, mut tail) = host.split_at_mut(4)?;
        s.fill(&mut a, 4)?;
        t.download(a.slice(4..)?, &mut tail)?;
        s.download(a.slice(..4)?, &mut head)?;
        let polled = tail.as_view().try_as_slice()?;
        assert!(polled.is_none_or(|polled| polled == [4; 4]));
        assert_eq!(tail.as_view().as_slice()?, [4; 4]);
        head.as_mut_slice()?.fill(8);
        assert_eq!(host.as_slice()?, [8, 8, 8, 8, 4, 4, 4, 4]);
        a.synchronize()
    });
}

#[test]
fn too_much_memory() {
    sweep(|| {
        let stream = Device::get(0)?.create_stream()?;
        let error = stream.alloc::<u8>(1 << 50).expect_err("a pebibyte");
        assert!(error.code().is_some());
        let mut small = stream.alloc_zeroed::<u8>(4)?;
        stream.fill(&mut small, 1)
    });
}

#[test]
fn raw_use() {
    sweep(|| {
        use cuda_core::Access;
        let (_, context) = first()?;
        let (s, t) = (context.create_stream()?, context.create_stream()?);
        let buffer = s.alloc_zeroed::<u8>(64)?;
        // SAFETY: both calls announce the work below, and nothing else uses the buffer.
        unsafe { buffer.note_use(&t, Access::Write) }?;
        // SAFETY: the buffer has 64 bytes and both are live.
        let code = unsafe { cuda_sys::symbol::cuMemsetD8Async(buffer.as_raw(), 3, 64, t.as_raw()) };
        // SAFETY: the fill above is the work, and nothing else has used the buffer.
        unsafe { buffer.note_use(&t, Access::Write) }?;
        let mut back = [0; 64];
        s.download(&buffer, &mut back)?;
        if code == cuda_sys::CUDA_SUCCESS {
            assert_eq!(back, [3; 64]);
        }
        Ok(())
    });
}
