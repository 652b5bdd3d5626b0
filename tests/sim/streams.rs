//! Streams and events when driver calls fail.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use cuda_core::{Device, Event, EventFlags, Result};
use cuda_sys::{
    CUDA_ERROR_CONTEXT_IS_DESTROYED, CUDA_ERROR_ILLEGAL_ADDRESS, CUDA_ERROR_INVALID_HANDLE,
    CUresult,
};
use support::{OnDrop, simulator};

#[test]
fn c11_host_fn_is_dropped_once_where_the_enqueue_fails() -> Result<()> {
    let session = simulator();
    let stream = Device::get(0)?.create_stream()?;
    let drops = Arc::new(AtomicU32::new(0));
    let counter = drops.clone();
    let owned = OnDrop(move || _ = counter.fetch_add(1, Ordering::SeqCst));
    session.fail_nth(Some("cuLaunchHostFunc"), 1, CUDA_ERROR_INVALID_HANDLE);
    let refused = stream.launch_host_func(move || {
        let _owned = &owned;
        panic!("the driver refused it");
    });
    let error = refused.expect_err("the call fails");
    assert_eq!(error.code(), Some(CUDA_ERROR_INVALID_HANDLE));
    assert_eq!(drops.load(Ordering::SeqCst), 1, "dropped at once");
    stream.synchronize()?;
    assert_eq!(drops.load(Ordering::SeqCst), 1, "and not again");
    drop(stream);
    session.assert_clean();
    Ok(())
}

/// Codes other than "not ready", one of them of a future driver.
const ERRORS: [CUresult; 4] = [
    CUDA_ERROR_INVALID_HANDLE,
    CUDA_ERROR_CONTEXT_IS_DESTROYED,
    CUDA_ERROR_ILLEGAL_ADDRESS,
    CUresult(12345),
];

#[test]
fn c20_an_error_of_a_query_is_not_not_yet() -> Result<()> {
    let session = simulator();
    let stream = Device::get(0)?.create_stream()?;
    for code in ERRORS {
        session.fail_nth(Some("cuStreamQuery"), 1, code);
        assert_eq!(stream.query().expect_err("an error").code(), Some(code));
        session.clear_faults();
    }
    // An error does not count as completion either.
    let mut buffer = stream.alloc::<u8>(100)?;
    stream.fill(&mut buffer, 1)?;
    session.fail_nth(Some("cuStreamQuery"), 1, CUDA_ERROR_INVALID_HANDLE);
    stream.query().expect_err("an error");
    drop(buffer);
    stream.synchronize()?;
    drop(stream);
    session.assert_clean();
    Ok(())
}

#[test]
fn d08_an_error_of_a_query_is_not_not_yet() -> Result<()> {
    let session = simulator();
    let context = Device::get(0)?.context()?;
    let event = Event::new(&context, EventFlags::DISABLE_TIMING)?;
    for code in ERRORS {
        session.fail_nth(Some("cuEventQuery"), 1, code);
        assert_eq!(event.query().expect_err("an error").code(), Some(code));
        session.clear_faults();
    }
    drop(event);
    session.assert_clean();
    Ok(())
}
