//! J, S06: copies of large borrowed slices, which several threads share.

use std::thread;

use cuda_core::{Device, Error, Result, Stream, StreamKind};
use cuda_sys::{CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, CUDA_SUCCESS};
use support::{Staged, gpu_test, one_stream, stall};

use crate::capture::Capture;
use crate::forms::{same, scaled, varied};

/// Returns the size of a chunk, which is small where large chunks take too long.
fn chunk() -> usize {
    scaled(1 << 20, 64 << 10, 4 << 10)
}

/// Returns a length beyond what a copy may use at once, and not a multiple of any unit.
fn large() -> usize {
    10 * chunk() + 4097
}

#[track_caller]
fn there_and_back<K: StreamKind>(
    stream: &Stream<K>,
    home: &Stream,
    len: usize,
    what: &str,
) -> Result<()> {
    let bytes = varied(len as u64, len);
    let mut buffer = home.alloc::<u8>(len)?;
    stream.upload(&bytes, &mut buffer)?;
    let mut back = vec![0; len];
    stream.download(&buffer, &mut back)?;
    same(&back, &bytes, what);
    stream.fill(&mut buffer, 0x3C)?;
    stream.scope(|scope| scope.download(&buffer, &mut back))?;
    same(&back, &vec![0x3C; len], what);
    Ok(())
}

gpu_test! {
    needs 1;
    fn j_large_slices_by_any_threads_in_any_chunks() -> Result<()> {
        let stream = Device::get(0)?.create_stream()?;
        for (threads, times) in [(0, 1), (1, 2), (3, 4), (7, 8), (20, 1)] {
            let chunk = times * chunk();
            let _staged = Staged::by(threads, chunk)?;
            for len in [chunk - 1, chunk + 1, 3 * chunk, large()] {
                let what = format!("{len} bytes, {threads} threads, chunks of {chunk}");
                there_and_back(&stream, &stream, len, &what)?;
            }
        }
        Ok(())
    }
}

gpu_test! {
    needs 1, heavy;
    fn j_large_slices_as_the_machine_would() -> Result<()> {
        let stream = Device::get(0)?.create_stream()?;
        for len in [3 << 20, (4 << 20) + 1, scaled(1 << 30, 24 << 20, 0) + 7] {
            there_and_back(&stream, &stream, len, &format!("{len} bytes"))?;
        }
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn j_large_slices_on_every_kind_of_stream() -> Result<()> {
        let _staged = Staged::by(3, chunk())?;
        let (context, home) = one_stream()?;
        there_and_back(&context.default_stream()?, &home, large(), "legacy")?;
        there_and_back(&context.per_thread_stream()?, &home, large(), "per thread")?;
        let blocking = context.stream_builder().blocking().build()?;
        there_and_back(&blocking, &home, large(), "blocking")
    }
}

gpu_test! {
    needs 2;
    fn j08_large_slices_while_another_device_is_current() -> Result<()> {
        let _staged = Staged::by(3, chunk())?;
        let (near, far) = (Device::get(0)?, Device::get(1)?);
        let stream = near.create_stream()?;
        let _guard = far.enter()?;
        there_and_back(&stream, &stream, large(), "with device 1 current")
    }
}

gpu_test! {
    needs 1;
    fn j12_large_slices_during_a_capture() -> Result<()> {
        let _staged = Staged::by(3, chunk())?;
        let device = Device::get(0)?;
        let stream = device.create_stream()?;
        let bytes = varied(12, large());
        let mut buffer = stream.alloc_zeroed::<u8>(large())?;
        stream.synchronize()?;
        for mode in [CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, CU_STREAM_CAPTURE_MODE_GLOBAL] {
            cuda_core::staging::trim()?;
            let captured = device.create_stream()?;
            let capture = Capture::begin(&captured, mode);
            let mut back = vec![0; large()];
            let up = stream.upload(&bytes, &mut buffer);
            let down = stream.download(&buffer, &mut back);
            assert_eq!(capture.end(), CUDA_SUCCESS, "the capture was invalidated");
            up?;
            down?;
            same(&back, &bytes, "copied beside a capture");
        }
        Ok(())
    }
}

gpu_test! {
    needs 1;
    fn s31_large_slices_in_a_host_function() -> Result<()> {
        let _staged = Staged::by(3, chunk())?;
        let stream = Device::get(0)?.create_stream()?;
        let mut buffer = stream.alloc_zeroed::<u8>(large())?;
        stream.synchronize()?;
        let (results, answers) = std::sync::mpsc::channel();
        let inner = stream.clone();
        stream.launch_host_func(move || {
            let mut slice = vec![0; large()];
            let up = inner.upload(&slice, &mut buffer);
            let down = inner.download(&buffer, &mut slice);
            // If the receiver is gone, the host function must not panic.
            let _ = results.send([up, down]);
        })?;
        stream.synchronize()?;
        for answer in answers.into_iter().flatten() {
            assert!(matches!(answer, Err(Error::InCallback)), "{answer:?}");
        }
        cuda_core::drops::flush();
        Ok(())
    }
}

gpu_test! {
    needs 1, asynchronous;
    fn s06_large_source_may_change_while_the_stream_is_busy() -> Result<()> {
        let _staged = Staged::by(3, chunk())?;
        // Not more chunks than are available.
        let len = 5 * chunk() + 1;
        let stream = Device::get(0)?.create_stream()?;
        let mut buffer = stream.alloc_zeroed::<u8>(len)?;
        stream.upload(&vec![1; len], &mut buffer)?;
        stream.synchronize()?;
        let mut bytes = varied(6, len);
        let stalled = stall(stream.as_raw());
        stream.upload(&bytes, &mut buffer)?;
        bytes.fill(0);
        stalled.release();
        let mut back = vec![0; len];
        stream.download(&buffer, &mut back)?;
        same(&back, &varied(6, len), "the content at the call");
        Ok(())
    }
}

gpu_test! {
    needs 2;
    fn n_large_slices_of_many_threads_on_two_devices() -> Result<()> {
        let _staged = Staged::by(5, chunk())?;
        let caller = |number: u32| {
            let stream = Device::get(number % 2)?.create_stream()?;
            for round in 0..scaled(8, 3, 1) {
                let len = large() - 1000 * (round + number as usize);
                let what = format!("caller {number}, round {round}");
                there_and_back(&stream, &stream, len, &what)?;
            }
            Ok::<(), Error>(())
        };
        thread::scope(|scope| {
            let callers: Vec<_> = (0..6).map(|number| scope.spawn(move || caller(number))).collect();
            let mut results = callers.into_iter().map(|caller| caller.join().expect("no panic"));
            results.try_for_each(|result| result)
        })
    }
}
