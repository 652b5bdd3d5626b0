//! Waits of the host, and frees after queued work: S01, S02, S26, S36.

use cuda_core::{DeviceBuffer, Result};
use cuda_sim::Fault;

use super::{clean, device, pinned};

#[test]
fn s01_download_then_read() {
    clean(|_| {
        let stream = device().create_stream()?;
        let mut buffer = stream.alloc::<u32>(64)?;
        stream.fill(&mut buffer, 7)?;
        let mut host = pinned(&[0; 64])?;
        stream.download(&buffer, &mut host)?;
        assert_eq!(host.as_slice()?, [7; 64]);
        Ok(())
    });
}

#[test]
fn s01_download_then_read_of_a_view() {
    clean(|_| {
        let stream = device().create_stream()?;
        let mut buffer = stream.alloc::<u32>(64)?;
        stream.fill(&mut buffer, 7)?;
        let mut host = pinned(&[0; 64])?;
        stream.download(&buffer, &mut host)?;
        assert_eq!(host.slice(10..20)?.as_slice()?, [7; 10]);
        assert_eq!(host.slice_mut(20..30)?.as_mut_slice()?, [7; 10]);
        Ok(())
    });
}

#[test]
fn s01_upload_then_change() {
    clean(|_| {
        let stream = device().create_stream()?;
        let mut buffer = stream.alloc::<u32>(64)?;
        let mut host = pinned(&[7; 64])?;
        stream.upload(&host, &mut buffer)?;
        host.as_mut_slice()?.fill(8);
        let mut back = [0; 64];
        stream.download(&buffer, &mut back)?;
        assert_eq!(back, [7; 64], "the copy reads the content at its enqueue");
        Ok(())
    });
}

#[test]
fn s01_download_then_drop() {
    clean(|session| {
        let stream = device().create_stream()?;
        let buffer = stream.alloc_zeroed::<u32>(64)?;
        let mut host = pinned(&[0; 64])?;
        stream.download(&buffer, &mut host)?;
        assert!(session.pending_ops() > 0, "the copy has not run yet");
        drop(host);
        Ok(())
    });
}

#[test]
fn s01_polling_does_not_lend_early() {
    clean(|session| {
        session.set_polls(1);
        let stream = device().create_stream()?;
        let mut buffer = stream.alloc::<u32>(64)?;
        stream.fill(&mut buffer, 7)?;
        let mut host = pinned(&[0; 64])?;
        stream.download(&buffer, &mut host)?;
        assert_eq!(host.try_as_slice()?, None);
        loop {
            if let Some(elements) = host.try_as_slice()? {
                assert_eq!(elements, [7; 64]);
                return Ok(());
            }
        }
    });
}

#[test]
fn s02_stream_dropped_before_its_work() {
    clean(|session| {
        let home = device().create_stream()?;
        let mut source = home.alloc::<u32>(64)?;
        let mut copied = home.alloc::<u32>(64)?;
        home.fill(&mut source, 7)?;
        let other = device().create_stream()?;
        other.copy(&source, &mut copied)?;
        drop(other);
        assert!(session.pending_ops() > 0, "the copy has not run yet");
        drop(source);
        let mut back = [0; 64];
        home.download(&copied, &mut back)?;
        assert_eq!(back, [7; 64]);
        Ok(())
    });
}

#[test]
fn s02_home_stream_dropped_first() {
    clean(|_| {
        let home = device().create_stream()?;
        let other = device().create_stream()?;
        let mut source = home.alloc::<u32>(64)?;
        home.fill(&mut source, 7)?;
        drop(home);
        let mut host = pinned(&[0; 64])?;
        other.download(&source, &mut host)?;
        drop(source);
        assert_eq!(host.as_slice()?, [7; 64]);
        Ok(())
    });
}

#[test]
fn s02_stream_closed_with_clones_left() -> Result<()> {
    clean(|_| {
        let stream = device().create_stream()?;
        let clone = stream.clone();
        let mut buffer = stream.alloc::<u32>(64)?;
        stream.close()?;
        clone.fill(&mut buffer, 7)?;
        clone.close()?;
        let reader = device().create_stream()?;
        let mut back = [0; 64];
        reader.download(&buffer, &mut back)?;
        assert_eq!(back, [7; 64]);
        Ok(())
    });
    Ok(())
}

#[test]
fn s26_zeroed_is_zero_on_another_stream() {
    clean(|_| {
        let home = device().create_stream()?;
        let other = device().create_stream()?;
        let buffer = home.alloc_zeroed::<u32>(64)?;
        let mut back = [9; 64];
        other.download(&buffer, &mut back)?;
        assert_eq!(back, [0; 64]);
        Ok(())
    });
}

#[test]
fn s26_filled_after_the_allocation_is_done() {
    clean(|_| {
        let home = device().create_stream()?;
        let other = device().create_stream()?;
        let mut buffer = home.alloc::<u32>(64)?;
        home.synchronize()?;
        home.fill_bytes(&mut buffer, 0)?;
        let mut back = [9; 64];
        other.download(&buffer, &mut back)?;
        assert_eq!(back, [0; 64]);
        Ok(())
    });
}

/// One of a fill's four calls fails: the ledger has a mark for the calls before it, and for the one that may
/// have taken effect.
#[test]
fn s26_a_fill_that_fails_midway_is_waited_for() {
    const LEN: usize = if cfg!(miri) { 60 } else { 2000 };
    let calls = ["cuMemsetD2D32Async", "cuMemcpyDtoDAsync_v2"].map(|name| [(name, 1), (name, 2)]);
    for (name, nth) in calls.into_iter().flatten() {
        for takes_effect in [false, true] {
            clean(|session| {
                let home = device().create_stream()?;
                let other = device().create_stream()?;
                let mut buffer = home.alloc::<f64>(LEN)?;
                let fault = Fault::new(cuda_sys::CUDA_ERROR_OUT_OF_MEMORY).function(name).nth(nth);
                session.inject(if takes_effect { fault.takes_effect() } else { fault });
                home.fill(&mut buffer, 1.1).expect_err("a call fails");
                session.clear_faults();
                // Runs after what was enqueued, and so does the free.
                other.fill(&mut buffer, 2.2)?;
                assert_eq!(other.download_vec(&buffer)?, [2.2; LEN]);
                home.fill(&mut buffer, 3.3)
            });
        }
    }
}

#[test]
fn s36_first_use_is_on_another_stream() {
    clean(|_| {
        let home = device().create_stream()?;
        let other = device().create_stream()?;
        let mut buffer: DeviceBuffer<u32> = home.alloc(64)?;
        other.fill(&mut buffer, 7)?;
        let mut back = [0; 64];
        other.download(&buffer, &mut back)?;
        assert_eq!(back, [7; 64]);
        Ok(())
    });
}

#[test]
fn s36_first_use_is_on_another_device() {
    clean(|_| {
        let home = device().create_stream()?;
        let other = cuda_core::Device::get(1)?.create_stream()?;
        let source = other.alloc_zeroed::<u32>(64)?;
        let mut buffer = home.alloc::<u32>(64)?;
        other.copy(&source, &mut buffer)?;
        let mut back = [9; 64];
        home.download(&buffer, &mut back)?;
        assert_eq!(back, [0; 64]);
        Ok(())
    });
}
