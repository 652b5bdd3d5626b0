//! Pinned memory from slabs.

use cuda_core::{PinnedBuffer, PinnedPool, Result, pinned::PinnedBackend};

use super::harness::{again, first, sweep};

#[test]
fn the_first_slab_and_its_end() {
    sweep(|| {
        PinnedPool::set_backend(PinnedBackend::Slab);
        let (_, context) = first()?;
        let buffer = PinnedBuffer::from_slice(&context, &[5_u8; 600])?;
        assert_eq!(buffer.as_slice()?, [5; 600]);
        drop(buffer);
        // Cached or not, the memory can be allocated again.
        let buffer = PinnedBuffer::from_slice(&context, &[6_u8; 600])?;
        assert_eq!(buffer.as_slice()?, [6; 600]);
        drop(buffer);
        PinnedPool::shared().trim(0).map(drop)
    });
}

#[test]
fn chunks_under_copies() {
    sweep(|| {
        PinnedPool::set_backend(PinnedBackend::Slab);
        let (device, context) = first()?;
        let stream = device.create_stream()?;
        let mut buffer = stream.alloc_zeroed::<u8>(600)?;
        let mut down = PinnedBuffer::<u8>::zeroed(&context, 600)?;
        for value in [5, 6] {
            let up = PinnedBuffer::from_slice(&context, &[value; 600])?;
            stream.upload(&up, &mut buffer)?;
            drop(up);
            stream.download(&buffer, &mut down)?;
        }
        let pending = PinnedBuffer::from_slice(&context, &[7_u8; 600])?;
        stream.upload(&pending, &mut buffer)?;
        drop(pending);
        assert_eq!(down.as_slice()?, [6; 600]);
        drop(down);
        PinnedPool::shared().trim(0)?;
        let other = PinnedBuffer::<u8>::new(&context, 600)?;
        drop(stream);
        drop(other);
        PinnedPool::shared().trim(0).map(drop)
    });
}

/// A fault fails one call, and no later one.
#[test]
fn once_more() {
    sweep(|| {
        PinnedPool::set_backend(PinnedBackend::Slab);
        let (_, context) = first()?;
        let sizes = [600, 70_000, 1];
        let buffers = sizes.map(|len| again(|| PinnedBuffer::<u8>::zeroed(&context, len)));
        let buffers = buffers.into_iter().collect::<Result<Vec<_>>>()?;
        assert!(buffers.iter().all(|buffer| {
            buffer.as_slice().is_ok_and(|bytes| bytes.iter().all(|byte| *byte == 0))
        }));
        again(|| PinnedPool::shared().trim(0))?;
        drop(buffers);
        again(|| PinnedPool::shared().trim(0)).map(drop)
    });
}
