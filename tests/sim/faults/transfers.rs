//! Copies of rows, and batches of copies.

use cuda_core::{Batch, Device, PinnedBuffer, Result, Shape, Stream};
use support::{one_stream, two_streams};

use super::harness::sweep;

fn rows<K: cuda_core::StreamKind>(home: &Stream, stream: &Stream<K>) -> Result<()> {
    let shape = Shape::volume(2, 2, 2).with_pitch(12);
    let source =
        PinnedBuffer::from_slice(home.context(), &[1u32, 2, 0, 3, 4, 0, 5, 6, 0, 7, 8, 0])?;
    let mut target = PinnedBuffer::<u32>::zeroed(home.context(), 8)?;
    let mut a = home.alloc_zeroed::<u32>(12)?;
    let plane = Shape::plane(1, 4).with_pitch(12);
    stream.copy_pitched(source.pitched(shape)?, a.pitched_mut(shape)?)?;
    stream.fill_pitched(a.slice_mut(1..)?.pitched(plane)?, 9)?;
    stream.copy_pitched(a.pitched(shape)?, target.pitched_mut(Shape::volume(2, 2, 2))?)?;
    assert_eq!(target.as_slice()?, [1, 9, 3, 9, 5, 9, 7, 9]);
    Ok(())
}

#[test]
fn in_rows() {
    sweep(|| {
        let (context, home) = one_stream()?;
        rows(&home, &home)?;
        rows(&home, &context.create_stream()?)?;
        rows(&home, &context.default_stream()?)
    });
}

#[test]
fn in_batches() {
    sweep(|| {
        let (context, s, t) = two_streams()?;
        let source = PinnedBuffer::from_slice(&context, &[1u32, 2, 3, 4])?;
        let mut target = PinnedBuffer::<u32>::zeroed(&context, 4)?;
        let mut a = s.alloc::<u32>(4)?;
        let (mut low, mut high) = a.split_at_mut(2)?;
        let mut up = Batch::new();
        up.upload(source.slice(..2)?, &mut low)?;
        up.upload(source.slice(2..)?, &mut high)?;
        s.enqueue(up)?;
        let mut b = t.alloc::<u32>(4)?;
        let mut across = Batch::new();
        across.copy(&a, &mut b)?;
        across.download(&a, &mut target)?;
        t.enqueue(across)?;
        assert_eq!(target.as_slice()?, [1, 2, 3, 4]);
        let mut back = [0; 4];
        s.download(&b, &mut back)?;
        assert_eq!(back, [1, 2, 3, 4]);
        Ok(())
    });
}

#[test]
fn between_devices() {
    sweep(|| {
        let (s, t) = (Device::get(0)?.create_stream()?, Device::get(1)?.create_stream()?);
        let a = s.alloc_zeroed::<u32>(8)?;
        let mut b = t.alloc::<u32>(8)?;
        t.fill(&mut b, 5)?;
        let shape = Shape::plane(2, 2).with_pitch(12);
        s.copy_pitched(a.pitched(shape)?, b.pitched_mut(shape)?)?;
        let mut batch = Batch::new();
        batch.copy(a.slice(..1)?, b.slice_mut(7..)?)?;
        t.enqueue(batch)?;
        let mut back = [1; 8];
        t.download(&b, &mut back)?;
        assert_eq!(back, [0, 0, 5, 0, 0, 5, 5, 0]);
        Ok(())
    });
}
