//! Borrowed slices of pinned memory, and scopes that end early: S06, S33.

use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::time::Duration;

use cuda_core::Result;
use cuda_sys::{cuMemHostRegister_v2, cuMemHostUnregister};
use support::{check, gpu_test, stall};

use super::{LEN, assert_all, device, pinned, warm};

const PAUSE: Duration = Duration::from_millis(50);

/// Number of elements whose bytes fit one chunk.
const FEW: usize = 10_000;

gpu_test! {
    needs 1, asynchronous;
    fn s06_upload_from_pinned_memory_that_is_changed_at_once() -> Result<()> {
        let stream = warm()?;
        let mut buffer = stream.alloc::<u32>(FEW)?;
        let mut host = pinned(7, FEW)?;
        let stalled = stall(stream.as_raw());
        stream.upload(host.as_slice()?, &mut buffer)?;
        host.as_mut_slice()?.fill(8);
        stalled.release();
        let mut back = vec![0; FEW];
        stream.download(&buffer, &mut back)?;
        assert_all(&back, 7);
        Ok(())
    }
}

gpu_test! {
    needs 1, asynchronous;
    fn s06_upload_from_registered_memory() -> Result<()> {
        let stream = warm()?;
        let mut buffer = stream.alloc::<u32>(FEW)?;
        let mut memory = vec![7; FEW];
        let guard = device()?.enter()?;
        let (start, bytes) = (memory.as_mut_ptr(), size_of_val(&memory[..]));
        // SAFETY: the vector has these bytes and is not moved before they are unregistered below.
        check("cuMemHostRegister", unsafe { cuMemHostRegister_v2(start.cast(), bytes, 0) });
        let stalled = stall(stream.as_raw());
        let uploaded = stream.upload(&memory, &mut buffer);
        memory.fill(8);
        stalled.release();
        let mut back = vec![0; FEW];
        let downloaded = stream.download(&buffer, &mut back);
        // SAFETY: registered above.
        check("cuMemHostUnregister", unsafe { cuMemHostUnregister(start.cast()) });
        drop(guard);
        uploaded?;
        downloaded?;
        assert_all(&back, 7);
        Ok(())
    }
}

gpu_test! {
    needs 1, asynchronous;
    fn s06_chunks_are_not_used_again_too_soon() -> Result<()> {
        let stream = warm()?;
        let mut buffers = Vec::new();
        for _ in 0..8 {
            buffers.push(stream.alloc::<u32>(LEN / 6)?);
        }
        let stalled = stall(stream.as_raw());
        for (buffer, round) in buffers.iter_mut().zip(0..) {
            stream.upload(&vec![round; LEN / 6], buffer)?;
        }
        stalled.release_after(PAUSE);
        for (buffer, round) in buffers.iter().zip(0..) {
            let mut back = vec![99; LEN / 6];
            stream.download(buffer, &mut back)?;
            assert_all(&back, round);
        }
        Ok(())
    }
}

gpu_test! {
    needs 1, asynchronous;
    fn s33_scope_panics() -> Result<()> {
        let stream = warm()?;
        let mut buffer = stream.alloc::<u32>(FEW)?;
        stream.fill(&mut buffer, 7)?;
        let mut back = vec![1; FEW];
        let stalled = stall(stream.as_raw());
        let panic = catch_unwind(AssertUnwindSafe(|| {
            stream.scope(|scope| -> Result<()> {
                scope.download(&buffer, &mut back)?;
                panic_any("the closure's own")
            })
        }));
        stalled.release();
        let payload = panic.expect_err("the panic goes on");
        assert_eq!(payload.downcast_ref(), Some(&"the closure's own"));
        stream.synchronize()?;
        assert_all(&back, 1);
        stream.fill(&mut buffer, 8)?;
        stream.download(&buffer, &mut back)?;
        assert_all(&back, 8);
        Ok(())
    }
}
