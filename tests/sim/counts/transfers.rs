//! Transfers: one call for any number of rows, one for a batch of any length.

use cuda_core::{Batch, Device, PinnedBuffer, Shape};

use super::*;

const COPY_2D: &str = "cuMemcpy2DAsync_v2";
const COPY_3D: &str = "cuMemcpy3DAsync_v2";
const PEER_3D: &str = "cuMemcpy3DPeerAsync";
const BATCH: &str = "cuMemcpyBatchAsync_v2";
const FIRST_BATCH: &str = "cuMemcpyBatchAsync";

#[test]
fn rows_cost_1() {
    Counted::run(|driver| {
        let (context, stream, _) = two_streams()?;
        let mut host = PinnedBuffer::<u32>::zeroed(&context, 64)?;
        let mut a = stream.alloc_zeroed::<u32>(64)?;
        let mut b = stream.alloc_zeroed::<u32>(64)?;
        let plane = Shape::plane(3, 4).with_pitch(20);
        let volume = Shape::volume(3, 4, 2).with_pitch(20);
        for (shape, call) in [(plane, COPY_2D), (volume, COPY_3D)] {
            driver.expect([call], || {
                stream.copy_pitched(host.pitched(shape)?, a.pitched_mut(shape)?)
            })?;
            driver
                .expect([call], || stream.copy_pitched(a.pitched(shape)?, b.pitched_mut(shape)?))?;
            driver.expect([call], || {
                stream.copy_pitched(b.pitched(shape)?, host.pitched_mut(shape)?)
            })?;
        }
        // A fill treats adjacent slices as one plane, but not slices with gaps.
        let fill = "cuMemsetD2D32Async";
        driver.expect([fill], || stream.fill_pitched(a.pitched_mut(plane)?, 1))?;
        driver.expect([fill], || stream.fill_pitched(a.pitched_mut(volume)?, 1))?;
        let apart = volume.with_slice_height(6);
        driver.expect([fill, fill], || stream.fill_pitched(a.pitched_mut(apart)?, 1))?;
        driver.expect([COPY], || stream.copy_within(&mut a, ..10, 20))?;
        drop((a, b, host));
        Ok(())
    });
}

#[test]
fn rows_between_devices_cost_1() {
    Counted::run(|driver| {
        let here = Device::get(0)?.create_stream()?;
        let there = Device::get(1)?.create_stream()?;
        let a = here.alloc_zeroed::<u8>(64)?;
        let mut b = there.alloc_zeroed::<u8>(64)?;
        there.checkpoint()?;
        let shape = Shape::plane(3, 4).with_pitch(10);
        let mut copy = || here.copy_pitched(a.pitched(shape)?, b.pitched_mut(shape)?);
        driver.expect([WAIT, PEER_3D], &mut copy)?;
        driver.expect([PEER_3D], &mut copy)
    });
}

#[test]
fn a_batch_costs_1() {
    Counted::run(|driver| {
        let (context, stream, other) = two_streams()?;
        let mut host = PinnedBuffer::<u32>::zeroed(&context, 64)?;
        let mut back = PinnedBuffer::<u32>::zeroed(&context, 64)?;
        let mut a = stream.alloc_zeroed::<u32>(64)?;
        let mut b = stream.alloc_zeroed::<u32>(64)?;
        let c = stream.alloc_zeroed::<u32>(64)?;
        driver.expect(entered([BATCH]), || {
            let mut batch = Batch::new();
            batch.upload(&host, &mut a)?;
            batch.copy(&c, &mut b)?;
            batch.download(&c, &mut back)?;
            stream.enqueue(batch)
        })?;
        // One wait covers all three that are needed.
        stream.checkpoint()?;
        driver.expect(entered([WAIT, BATCH]), || {
            let mut batch = Batch::new();
            batch.download(&a, &mut host)?;
            batch.copy(&c, &mut b)?;
            other.enqueue(batch)
        })?;
        driver.expect([COPY], || {
            let mut batch = Batch::new();
            batch.copy(&c, &mut b)?;
            other.enqueue(batch)
        })?;
        driver.expect([], || other.enqueue(Batch::new()))
    });
}

#[test]
fn a_default_stream_has_no_batches() {
    Counted::run(|driver| {
        let (context, stream, _) = two_streams()?;
        let host = PinnedBuffer::<u32>::zeroed(&context, 64)?;
        let mut a = stream.alloc_zeroed::<u32>(64)?;
        stream.synchronize()?;
        a.synchronize()?;
        let legacy = context.default_stream()?;
        let (mut low, mut high) = a.split_at_mut(32)?;
        let mut batch = Batch::new();
        batch.upload(host.slice(..32)?, &mut low)?;
        batch.upload(host.slice(32..)?, &mut high)?;
        driver.expect(entered([ASK, UPLOAD, UPLOAD]), || legacy.enqueue(batch))
    });
}

#[test]
fn a_driver_without_batches_is_asked_one_by_one() {
    let newer = cuda_sys::CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER;
    let not_supported = cuda_sys::CUDA_ERROR_NOT_SUPPORTED;
    let one_by_one: &[_] = &[UPLOAD, UPLOAD];
    for (faults, then) in [
        // Drivers for CUDA 12.8 and 12.9, older drivers, and devices without batches.
        (&[(BATCH, newer)][..], &[FIRST_BATCH][..]),
        (&[(BATCH, newer), (FIRST_BATCH, newer)], one_by_one),
        (&[(BATCH, not_supported)], one_by_one),
    ] {
        let session = support::simulator();
        for (function, code) in faults {
            session.inject(cuda_sim::Fault::new(*code).function(function));
        }
        let stream = Device::get(0)
            .and_then(|device| device.create_stream())
            .expect("no fault was injected here");
        let copied = || -> Result<[u32; 4]> {
            let host = PinnedBuffer::from_slice(stream.context(), &[1, 2, 3, 4])?;
            let mut a = stream.alloc::<u32>(4)?;
            let (mut low, mut high) = a.split_at_mut(2)?;
            let mut batch = Batch::new();
            batch.upload(host.slice(..2)?, &mut low)?;
            batch.upload(host.slice(2..)?, &mut high)?;
            let mark = session.mark();
            stream.enqueue(batch)?;
            let tried = faults.iter().map(|(function, _)| *function);
            let calls: Vec<_> = tried.chain(then.iter().copied()).collect();
            let made = session.names_since(mark);
            assert!(made.windows(calls.len()).any(|made| made == calls), "{made:?}");
            let copies = made.iter().filter(|name| name.starts_with("cuMemcpy"));
            assert_eq!(copies.count(), calls.len(), "{made:?}");
            let mut back = [0; 4];
            stream.download(&a, &mut back)?;
            Ok(back)
        };
        assert_eq!(copied().expect("the copy still succeeds"), [1, 2, 3, 4]);
        assert!(session.fault_fired());
        session.clear_faults();
        drop(stream);
        session.settle();
        cuda_core::staging::trim().expect("no fault is left");
        session.assert_clean();
    }
}

#[test]
fn refused_rows_cost_nothing() {
    Counted::run(|driver| {
        let (_, stream, _) = two_streams()?;
        let elsewhere = Device::get(1)?.create_stream()?;
        let a = stream.alloc_zeroed::<u32>(64)?;
        let mut b = stream.alloc_zeroed::<u32>(64)?;
        let (plane, turned) = (Shape::plane(3, 4), Shape::plane(4, 3));
        driver.refused(|| stream.copy_pitched(a.pitched(plane)?, b.pitched_mut(turned)?));
        driver.refused(|| elsewhere.copy_pitched(a.pitched(plane)?, b.pitched_mut(plane)?));
        driver.refused(|| elsewhere.fill_pitched(b.pitched_mut(plane)?, 1));
        driver.refused(|| stream.copy_within(&mut b, ..10, 5));
        driver.refused(|| stream.copy_within(&mut b, ..10, 60));
        driver.refused(|| {
            let mut batch = Batch::new();
            batch.copy(&a, &mut b)?;
            elsewhere.enqueue(batch)
        });
        driver.refused(|| stream.upload_owned(vec![0; 9], &mut b));
        driver.refused(|| elsewhere.download_owned(&b, vec![0; 64]));
        Ok(())
    });
}
