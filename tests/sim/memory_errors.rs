//! E, F, J, K: calls that the library does not make, and the state after a failure.

use cuda_core::{Allocator, Device, Error, PinnedBuffer, Result};
use cuda_sim::{Fault, Session};
use cuda_sys::{CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_UNKNOWN};
use support::{DropReports, simulator};

/// Ends a session, and asserts that nothing leaked.
#[track_caller]
fn end(session: &Session) -> Result<()> {
    session.settle();
    cuda_core::staging::trim()?;
    session.assert_clean();
    Ok(())
}

#[test]
fn e12_zeroed_that_cannot_be_filled() -> Result<()> {
    let session = simulator();
    let stream = Device::get(0)?.create_stream()?;
    let before = session.device_bytes_in_use(0);
    session.fail_nth(Some("cuMemsetD8Async"), 1, CUDA_ERROR_UNKNOWN);
    let error = stream.alloc_zeroed::<u8>(1 << 20).expect_err("not zeroed");
    assert!(matches!(error, Error::Driver { op: "cuMemsetD8Async", .. }), "{error:?}");
    session.settle();
    assert_eq!(session.device_bytes_in_use(0), before);
    drop(stream);
    end(&session)
}

#[test]
fn e04_out_of_memory_says_what_there_is() -> Result<()> {
    let session = simulator();
    let stream = Device::get(1)?.create_stream()?;
    session.fail_nth(Some("cuMemAllocAsync"), 1, CUDA_ERROR_OUT_OF_MEMORY);
    match stream.alloc::<u32>(1 << 20) {
        Err(Error::OutOfMemory(it)) => {
            assert_eq!((it.op, it.requested, it.device), ("cuMemAllocAsync", 4 << 20, 1));
            let memory = it.memory.expect("the driver answered");
            assert!(memory.free <= memory.total && memory.total > 0);
        }
        other => panic!("{other:?}"),
    }
    // The query of the numbers may fail too; the error is then the same without numbers.
    session.fail_nth(Some("cuMemAllocAsync"), 1, CUDA_ERROR_OUT_OF_MEMORY);
    session.fail_nth(Some("cuMemGetInfo_v2"), 1, CUDA_ERROR_UNKNOWN);
    let error = stream.alloc::<u32>(1 << 20).expect_err("no memory");
    assert!(matches!(error, Error::OutOfMemory(ref it) if it.memory.is_none()), "{error:?}");
    session.clear_faults();
    drop(stream.alloc::<u32>(1 << 20)?);
    drop(stream);
    end(&session)
}

#[test]
fn f05_freed_once() -> Result<()> {
    let session = simulator();
    let stream = Device::get(0)?.create_stream()?;
    for (index, closes) in [true, false].into_iter().enumerate() {
        let pinned = PinnedBuffer::<u8>::new(stream.context(), 10)?;
        let buffer = stream.alloc::<u8>(10)?;
        if closes {
            pinned.close()?;
            buffer.close()?;
        } else {
            drop((pinned, buffer));
        }
        let frees = ["cuMemFreeHost", "cuMemFreeAsync"].map(|name| session.calls(name));
        assert_eq!(frees, [index as u64 + 1; 2]);
    }
    drop(stream);
    end(&session)
}

#[test]
fn k02_enabled_by_halves() -> Result<()> {
    let session = simulator();
    let [a, b] = [Device::get(0)?.context()?, Device::get(1)?.context()?];
    // The context's part succeeds and the pool's part fails: an error, which a second call repairs.
    session.fail_nth(Some("cuMemPoolSetAccess"), 1, CUDA_ERROR_UNKNOWN);
    let error = a.enable_peer_access(&b).expect_err("the pool stays closed");
    assert_eq!(error.code(), Some(CUDA_ERROR_UNKNOWN));
    a.enable_peer_access(&b)?;
    // Access is not disabled while work of either context may need it.
    for name in ["cuCtxSynchronize", "cuCtxDisablePeerAccess"] {
        session.fail_nth(Some(name), 1, CUDA_ERROR_UNKNOWN);
        let sets = session.calls("cuMemPoolSetAccess");
        a.disable_peer_access(&b).expect_err("refused");
        assert_eq!(session.calls("cuMemPoolSetAccess"), sets, "after {name} failed");
    }
    a.disable_peer_access(&b)?;
    end(&session)
}

/// The driver's code is that of a copy that needs a current context, after which the library repeats the
/// call. A second free could free an address that was allocated again by then.
#[test]
fn m15_a_free_that_was_refused_and_made_is_not_made_again() -> Result<()> {
    let session = simulator();
    let stream = Device::get(0)?.create_stream()?;
    let buffer = stream.alloc_with::<u8>(&Allocator::driver_pool(), 1000)?;
    let mut reports = DropReports::listen();
    let refused = Fault::new(CUDA_ERROR_INVALID_VALUE).function("cuMemFreeAsync");
    session.inject(refused.takes_effect());
    let frees = session.calls("cuMemFreeAsync");
    drop(buffer);
    assert_eq!(session.calls("cuMemFreeAsync"), frees + 1);
    assert_eq!(reports.take().len(), 1, "the library cannot know that it is gone");
    drop(stream);
    end(&session)
}
