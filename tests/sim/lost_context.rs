//! M: after a context is lost, its operations fail, and only those.

use cuda_core::{Device, Error, Event, EventFlags, PinnedBuffer, Rejected, Resource, Result};
use cuda_sim::{Fault, Mode, Session};
use cuda_sys::{CUDA_ERROR_ILLEGAL_ADDRESS, CUDA_ERROR_LAUNCH_FAILED, CUDA_ERROR_OUT_OF_MEMORY};
use support::{DropReports, context, simulator, simulator_in, sorted};

/// Makes the next fill lose device 0's context, and no other.
fn lose_at_next_fill(session: &Session) {
    let fault = Fault::new(CUDA_ERROR_ILLEGAL_ADDRESS).function("cuMemsetD8Async");
    session.inject(fault.sticky());
}

#[track_caller]
fn sticky<T: std::fmt::Debug>(what: &str, result: Result<T>) {
    match result {
        Err(error) if error.is_sticky() => {
            assert_eq!(error.code(), Some(CUDA_ERROR_ILLEGAL_ADDRESS), "{what}");
        }
        other => panic!("{what}: {other:?}"),
    }
}

#[test]
fn m_sticky_is_passed_on() -> Result<()> {
    let session = simulator_in(Mode::Lazy);
    let mut reports = DropReports::listen();
    let device = Device::get(0)?;
    let stream = device.create_stream()?;
    let mut buffer = stream.alloc::<u8>(1000)?;
    let mut pinned = PinnedBuffer::<u8>::zeroed(stream.context(), 1000)?;
    let event = Event::new(stream.context(), EventFlags::DEFAULT)?;
    let mut small = [7; 1000];
    let mut large = vec![7; 1000];
    stream.download(&buffer, &mut pinned)?;

    let guard = device.enter()?;
    lose_at_next_fill(&session);
    sticky("the call itself", stream.fill(&mut buffer, 1));
    sticky("fill", stream.fill(&mut buffer, 1));
    sticky("alloc", stream.alloc::<u8>(1));
    sticky("upload", stream.upload(&pinned, &mut buffer));
    sticky("upload", stream.upload(&[1; 1000], &mut buffer));
    sticky("download", stream.download(&buffer, &mut small));
    sticky("scope", stream.scope(|scope| scope.download(&buffer, &mut large)));
    assert!(small == [7; 1000] && large == [7; 1000], "slices are left alone");
    sticky("synchronize", stream.synchronize());
    sticky("query", stream.query());
    sticky("record", event.record(&stream));
    sticky("host function", stream.launch_host_func(|| ()));
    sticky("context", device.synchronize());
    sticky("memory_info", device.memory_info());
    sticky("create_stream", device.create_stream());
    sticky("pinned memory", PinnedBuffer::<u8>::new(stream.context(), 1));
    // The copy that fills the memory may never have run: its present content is not a valid result.
    sticky("as_slice", pinned.as_slice().map(<[u8]>::len));
    sticky("try_as_slice", pinned.try_as_slice().map(|_| ()));
    drop(guard);
    assert!(context::current().is_null(), "a guard leaves a lost context behind");

    // The other device's context still works.
    let other = Device::get(1)?.create_stream()?;
    let mut there = other.alloc::<u8>(3)?;
    other.upload(&[1, 2, 3], &mut there)?;
    let mut back = [0; 3];
    other.download(&there, &mut back)?;
    assert_eq!(back, [1, 2, 3]);
    drop((there, other));

    // Drops of the lost context's objects cannot release them: no panic, and each is reported.
    let guard = device.enter()?;
    assert_eq!(reports.take().len(), 0);
    drop((buffer, pinned, event, stream));
    let mut lost = reports.resources();
    lost.dedup();
    let all = [Resource::DeviceMemory, Resource::PinnedMemory, Resource::Event, Resource::Stream];
    assert_eq!(lost, sorted(all.to_vec()));
    drop(guard);
    assert!(context::current().is_null());
    assert_eq!(session.violations(), []);
    Ok(())
}

#[test]
fn m_sticky_pinned_memory_is_kept() -> Result<()> {
    // Pinned memory that a device may still write is not returned to the host, neither by `close` nor by
    // `drop`.
    let session = simulator_in(Mode::Lazy);
    let mut reports = DropReports::listen();
    let device = Device::get(0)?;
    let stream = device.create_stream()?;
    let mut buffer = stream.alloc::<u8>(100)?;
    let mut pinned = PinnedBuffer::<u8>::zeroed(stream.context(), 100)?;
    stream.download(&buffer, &mut pinned)?;
    let guard = device.enter()?;
    lose_at_next_fill(&session);
    stream.fill(&mut buffer, 1).expect_err("the context is lost");
    drop(guard);
    let frees = session.calls("cuMemFreeHost");
    let Rejected { error, value: pinned } =
        pinned.close().expect_err("the copy cannot be proven complete");
    assert!(error.is_sticky(), "{error:?}");
    drop(pinned);
    assert_eq!(session.calls("cuMemFreeHost"), frees, "never asked for");
    assert_eq!(reports.resources(), [Resource::PinnedMemory]);
    session.clear_faults();
    drop((buffer, stream));
    session.settle();
    assert_eq!(session.violations(), []);
    Ok(())
}

#[test]
fn m_sticky_staging_recovers() -> Result<()> {
    // A chunk that the lost context may still use is not lent to another device.
    let session = simulator_in(Mode::Lazy);
    cuda_core::staging::trim()?;
    let device = Device::get(0)?;
    let stream = device.create_stream()?;
    let mut buffer = stream.alloc::<u8>(1 << 20)?;
    stream.upload(&vec![1; 1 << 20], &mut buffer)?;
    let guard = device.enter()?;
    lose_at_next_fill(&session);
    stream.fill(&mut buffer, 1).expect_err("the context is lost");
    drop(guard);
    let other = Device::get(1)?.create_stream()?;
    let mut there = other.alloc::<u8>(1 << 20)?;
    for round in 0..4 {
        let bytes = vec![round; 1 << 20];
        other.upload(&bytes, &mut there)?;
        let mut back = vec![9; 1 << 20];
        other.download(&there, &mut back)?;
        assert!(back == bytes, "round {round}");
    }
    assert_eq!(session.violations(), []);
    session.clear_faults();
    drop((buffer, stream, there, other));
    session.settle();
    cuda_core::staging::trim()?;
    assert_eq!(session.violations(), []);
    Ok(())
}

#[test]
fn m_sticky_staging_memory_that_is_not_pinned_is_reported_as_what_it_is() -> Result<()> {
    let session = simulator_in(Mode::Lazy);
    cuda_core::staging::trim()?;
    let mut reports = DropReports::listen();
    let device = Device::get(0)?;
    let stream = device.create_stream()?;
    let mut buffer = stream.alloc::<u8>(1 << 20)?;
    // All later calls of the context fail with this code, so the copy gets no pinned memory.
    let fault = Fault::new(CUDA_ERROR_OUT_OF_MEMORY).function("cuMemsetD8Async");
    session.inject(fault.sticky());
    stream.fill(&mut buffer, 1).expect_err("the context is lost");
    let pinned = session.calls("cuMemHostAlloc") + session.calls("cuMemHostRegister_v2");
    stream.upload(&[2; 1 << 20], &mut buffer).expect_err("the context is lost");
    let asked = session.calls("cuMemHostAlloc") + session.calls("cuMemHostRegister_v2");
    assert!(asked > pinned);
    drop((buffer, stream));
    reports.take();
    cuda_core::staging::trim()?;
    assert_eq!(reports.resources(), [Resource::HostMemory]);
    session.clear_faults();
    session.settle();
    assert_eq!(session.violations(), []);
    Ok(())
}

#[test]
fn m_transient_is_not_sticky() -> Result<()> {
    // A code that other drivers use for lost contexts, returned once: operations that the driver accepts
    // again succeed.
    let session = simulator();
    let stream = Device::get(0)?.create_stream()?;
    let mut buffer = stream.alloc::<u8>(10)?;
    session.fail_nth(Some("cuMemsetD8Async"), 1, CUDA_ERROR_LAUNCH_FAILED);
    let error = stream.fill(&mut buffer, 1).expect_err("once");
    assert!(error.is_sticky(), "by its code: {error:?}");
    stream.fill(&mut buffer, 2)?;
    let mut back = [0; 10];
    stream.download(&buffer, &mut back)?;
    assert_eq!(back, [2; 10]);
    // Unknown codes are passed on without interpretation.
    for number in [1_000_000, 36, 0x7FFF_FFFF] {
        let code = cuda_sys::CUresult(number);
        session.fail_nth(Some("cuMemsetD8Async"), 1, code);
        let error = stream.fill(&mut buffer, 3).expect_err("once");
        assert_eq!(error.code(), Some(code));
        assert!(!error.is_sticky() && !error.is_not_ready());
        assert!(error.to_string().contains(&number.to_string()), "{error}");
        assert!(matches!(error, Error::Driver { op: "cuMemsetD8Async", .. }));
    }
    drop((buffer, stream));
    session.settle();
    cuda_core::staging::trim()?;
    session.assert_clean();
    Ok(())
}
