//! S06, S33: borrowed slices, and reused chunks.

use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};

use cuda_core::{Error, Result};
use cuda_sys::{CUDA_ERROR_UNKNOWN, cuMemHostRegister_v2, cuMemHostUnregister};

use super::{clean, device, pinned};

#[test]
fn s06_upload_from_pinned_memory_that_is_changed_at_once() {
    clean(|_| {
        let stream = device().create_stream()?;
        let mut buffer = stream.alloc::<u32>(64)?;
        let mut host = pinned(&[7; 64])?;
        stream.upload(host.as_slice()?, &mut buffer)?;
        host.as_mut_slice()?.fill(8);
        let mut back = [0; 64];
        stream.download(&buffer, &mut back)?;
        assert_eq!(back, [7; 64]);
        Ok(())
    });
}

#[test]
fn s06_upload_from_pinned_memory_that_is_freed_at_once() {
    clean(|_| {
        let stream = device().create_stream()?;
        let mut buffer = stream.alloc::<u32>(64)?;
        let host = pinned(&[7; 64])?;
        stream.upload(host.as_slice()?, &mut buffer)?;
        drop(host);
        let mut back = [0; 64];
        stream.download(&buffer, &mut back)?;
        assert_eq!(back, [7; 64]);
        Ok(())
    });
}

/// Runs `body` with memory that other code has registered, so that the driver treats it as pinned.
fn with_registered(
    mut memory: Vec<u32>,
    body: impl FnOnce(&mut [u32]) -> Result<()>,
) -> Result<()> {
    let guard = device().enter()?;
    let (start, bytes) = (memory.as_mut_ptr(), size_of_val(&memory[..]));
    // SAFETY: the vector has these bytes, and is not moved until they are unregistered below.
    let registered = unsafe { cuMemHostRegister_v2(start.cast(), bytes, 0) };
    support::check("cuMemHostRegister", registered);
    let result = body(&mut memory);
    // SAFETY: the memory was registered above, once.
    let unregistered = unsafe { cuMemHostUnregister(memory.as_mut_ptr().cast()) };
    support::check("cuMemHostUnregister", unregistered);
    drop(guard);
    result
}

#[test]
fn s06_upload_from_registered_memory() {
    clean(|_| {
        let stream = device().create_stream()?;
        let mut buffer = stream.alloc::<u32>(64)?;
        with_registered(vec![7; 64], |slice| {
            stream.upload(&*slice, &mut buffer)?;
            slice.fill(8);
            Ok(())
        })?;
        let mut back = [0; 64];
        stream.download(&buffer, &mut back)?;
        assert_eq!(back, [7; 64]);
        Ok(())
    });
}

#[test]
fn s06_download_to_registered_memory() {
    clean(|_| {
        let stream = device().create_stream()?;
        let mut buffer = stream.alloc::<u32>(64)?;
        stream.fill(&mut buffer, 7)?;
        with_registered(vec![0; 64], |slice| {
            stream.download(&buffer, &mut *slice)?;
            assert_eq!(slice, [7; 64]);
            stream.scope(|scope| scope.download(&buffer, slice))
        })
    });
}

#[test]
fn s06_scope_into_pinned_memory() {
    clean(|_| {
        let stream = device().create_stream()?;
        let mut buffer = stream.alloc::<u32>(64)?;
        stream.fill(&mut buffer, 7)?;
        let mut host = pinned(&[0; 64])?;
        stream.scope(|scope| scope.download(&buffer, host.as_mut_slice()?))?;
        assert_eq!(host.as_slice()?, [7; 64]);
        Ok(())
    });
}

#[test]
fn s06_a_failed_wait_leaves_the_destination_alone() {
    clean(|session| {
        let stream = device().create_stream()?;
        let mut buffer = stream.alloc::<u32>(64)?;
        stream.fill(&mut buffer, 7)?;
        let (mut one, mut two) = ([1; 64], [2; 64]);
        session.fail_nth(Some("cuStreamSynchronize"), 1, CUDA_ERROR_UNKNOWN);
        assert!(stream.download(&buffer, &mut one).is_err());
        session.fail_nth(Some("cuStreamSynchronize"), 1, CUDA_ERROR_UNKNOWN);
        assert!(stream.scope(|scope| scope.download(&buffer, &mut two)).is_err());
        assert_eq!((one, two), ([1; 64], [2; 64]));
        session.clear_faults();
        // The failed copies that are in flight must not affect later ones.
        stream.download(&buffer, &mut one)?;
        assert_eq!(one, [7; 64]);
        Ok(())
    });
}

#[test]
#[cfg_attr(miri, ignore = "moves mebibytes")]
fn s06_a_chunk_is_not_used_again_before_its_copy_ran() {
    clean(|_| {
        let stream = device().create_stream()?;
        let other = device().create_stream()?;
        const LEN: usize = 600 << 10;
        let mut buffers = Vec::new();
        // Each copy takes its own chunk and returns it while the copy is still queued.
        for round in 0..4_u8 {
            let stream = if round % 2 == 0 { &stream } else { &other };
            let mut buffer = stream.alloc::<u8>(LEN)?;
            stream.upload(&vec![round; LEN], &mut buffer)?;
            buffers.push(buffer);
        }
        for (buffer, round) in buffers.iter().zip(0..) {
            let mut back = vec![0xFF; LEN];
            stream.download(buffer, &mut back)?;
            assert!(back.iter().all(|byte| *byte == round), "round {round}");
        }
        Ok(())
    });
}

#[test]
fn s33_scope_panics() {
    clean(|_| {
        let stream = device().create_stream()?;
        let mut buffer = stream.alloc::<u32>(64)?;
        stream.fill(&mut buffer, 7)?;
        let mut back = [1; 64];
        let panic = catch_unwind(AssertUnwindSafe(|| {
            stream.scope(|scope| {
                scope.download(&buffer, &mut back)?;
                panic_any("the closure's own");
                #[allow(unreachable_code, reason = "it says what the closure returns")]
                Ok(())
            })
        }));
        let payload = panic.expect_err("the panic goes on");
        assert_eq!(payload.downcast_ref(), Some(&"the closure's own"));
        assert_eq!(back, [1; 64]);
        // The next copy through the chunk is not the one that was given up.
        stream.fill(&mut buffer, 8)?;
        stream.download(&buffer, &mut back)?;
        assert_eq!(back, [8; 64]);
        Ok(())
    });
}

#[test]
fn s33_scope_returns_an_error() {
    clean(|_| {
        let stream = device().create_stream()?;
        let buffer = stream.alloc_zeroed::<u32>(64)?;
        let mut back = [1; 64];
        let result = stream.scope(|scope| {
            scope.download(&buffer, &mut back)?;
            Err::<(), _>(Error::ContextInUse)
        });
        assert!(matches!(result, Err(Error::ContextInUse)));
        assert_eq!(back, [1; 64]);
        Ok(())
    });
}

#[test]
fn s33_scope_whose_sources_are_gone() {
    clean(|_| {
        let stream = device().create_stream()?;
        let mut back = [0; 64];
        stream.scope(|scope| {
            let mut buffer = stream.alloc::<u32>(64)?;
            stream.fill(&mut buffer, 23)?;
            scope.download(&buffer, &mut back)
        })?;
        assert_eq!(back, [23; 64]);
        Ok(())
    });
}

#[test]
#[cfg_attr(miri, ignore = "moves mebibytes")]
fn s33_scope_of_more_than_it_stages_at_once() {
    clean(|_| {
        let stream = device().create_stream()?;
        const LEN: usize = (17 << 20) + 5;
        let buffer = stream.alloc_zeroed::<u8>(LEN)?;
        let mut back = vec![1; LEN];
        stream.scope(|scope| scope.download(&buffer, &mut back))?;
        assert!(back.iter().all(|byte| *byte == 0));
        Ok(())
    });
}
