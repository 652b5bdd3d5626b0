//! Futures and owned copies that are dropped, forgotten, or lost: S23, S24, M.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use cuda_core::{Device, Error, Rejected, Resource, Result, pinned::StableHost};
use cuda_sim::{Fault, Mode, Session};
use support::{Alarm, DropReports, WatchedHost, block_on, simulator_in, stall};

/// Returns host memory, and a flag that is set when it is dropped.
fn owner() -> (impl StableHost<Element = u8> + Debug, Arc<AtomicBool>) {
    let dropped = Arc::new(AtomicBool::new(false));
    let drops = Arc::clone(&dropped);
    (WatchedHost::new(vec![7_u8; 64], move |_| drops.store(true, Ordering::Release)), dropped)
}

fn end(session: &Session) {
    cuda_core::drops::flush();
    session.settle();
    cuda_core::staging::trim().expect("idle chunks can be freed");
    session.assert_clean();
}

#[test]
fn s23_an_owner_that_is_given_up_stays_until_the_copy_is_done() -> Result<()> {
    let session = simulator_in(Mode::Lazy);
    let stream = Device::get(0)?.create_stream()?;
    let mut buffer = stream.alloc::<u8>(64)?;
    let (host, dropped) = owner();
    let held = stall(stream.as_raw());
    let flight = stream.upload_owned(host, &mut buffer)?;
    assert!(!flight.is_done()?);
    drop(flight);
    assert!(!dropped.load(Ordering::Acquire), "its copy has not run yet");
    held.release();
    cuda_core::drops::flush();
    assert!(dropped.load(Ordering::Acquire));
    drop((buffer, stream));
    end(&session);
    Ok(())
}

#[test]
fn s23_a_forgotten_flight_leaks_its_owner() -> Result<()> {
    let session = simulator_in(Mode::Lazy);
    let stream = Device::get(0)?.create_stream()?;
    let mut buffer = stream.alloc::<u8>(64)?;
    let (host, dropped) = owner();
    let flight = stream.upload_owned(host, &mut buffer)?;
    std::mem::forget(flight);
    stream.synchronize()?;
    assert!(!dropped.load(Ordering::Acquire));
    drop((buffer, stream));
    cuda_core::drops::flush();
    session.settle();
    assert_eq!(session.violations(), []);
    Ok(())
}

#[test]
fn s24_an_owner_that_cannot_be_proven_idle_is_leaked_and_reported() -> Result<()> {
    let session = simulator_in(Mode::Lazy);
    let mut reports = DropReports::listen();
    let stream = Device::get(0)?.create_stream()?;
    let mut buffer = stream.alloc::<u8>(64)?;
    let (host, dropped) = owner();
    let flight = stream.upload_owned(host, &mut buffer)?;
    session.inject(Fault::new(cuda_sys::CUDA_ERROR_LAUNCH_FAILED).function("cuEventSynchronize"));
    let Rejected { error, value: flight } = flight.wait().unwrap_err();
    assert_eq!(error.code(), Some(cuda_sys::CUDA_ERROR_LAUNCH_FAILED));
    session.inject(Fault::new(cuda_sys::CUDA_ERROR_LAUNCH_FAILED).function("cuEventRecord"));
    session.inject(Fault::new(cuda_sys::CUDA_ERROR_LAUNCH_FAILED).function("cuEventSynchronize"));
    session.inject(
        Fault::new(cuda_sys::CUDA_ERROR_LAUNCH_FAILED).function("cuStreamCreateWithPriority"),
    );
    drop(flight);
    cuda_core::drops::flush();
    session.clear_faults();
    assert!(!dropped.load(Ordering::Acquire), "never freed under a copy");
    let failures = reports.take();
    assert_eq!(failures.len(), 1, "{failures:?}");
    assert_eq!(failures[0].resource, Resource::HostMemory);
    drop((buffer, stream));
    drop(reports);
    end(&session);
    Ok(())
}

#[test]
fn m_a_lost_context_wakes_all_waiters() -> Result<()> {
    let session = simulator_in(Mode::Lazy);
    let stream = Device::get(0)?.create_stream()?;
    let mut buffer = stream.alloc::<u8>(64)?;
    stream.fill(&mut buffer, 1)?;
    session.inject(Fault::new(cuda_sys::CUDA_ERROR_ILLEGAL_ADDRESS).function("cuEventSynchronize"));
    let error = block_on(buffer.ready()).unwrap_err();
    assert!(error.is_sticky(), "{error}");
    session.clear_faults();
    // The failure belonged to that wait; later waits do not return it.
    block_on(buffer.ready())?;
    drop((buffer, stream));
    end(&session);
    Ok(())
}

#[test]
fn in_a_host_function_futures_fail() -> Result<()> {
    let session = simulator_in(Mode::Lazy);
    let stream = Device::get(0)?.create_stream()?;
    let (sender, receiver) = std::sync::mpsc::channel();
    let handle = stream.clone();
    stream.launch_host_func(move || {
        let polled = Alarm::new().poll(&mut handle.ready());
        sender.send(matches!(polled, Poll::Ready(Err(Error::InCallback)))).expect("the test waits");
    })?;
    stream.synchronize()?;
    assert!(receiver.recv().expect("the function ran"));
    drop(stream);
    end(&session);
    Ok(())
}

#[test]
fn an_owner_given_up_in_a_host_function() -> Result<()> {
    let session = simulator_in(Mode::Lazy);
    let device = Device::get(0)?;
    let (stream, other) = (device.create_stream()?, device.create_stream()?);
    let mut buffer = stream.alloc::<u8>(64)?;
    let (host, dropped) = owner();
    let flight = stream.upload_owned(host, &mut buffer)?;
    other.launch_host_func(move || drop(flight))?;
    other.synchronize()?;
    cuda_core::drops::flush();
    assert!(dropped.load(Ordering::Acquire));
    drop((buffer, stream, other));
    end(&session);
    Ok(())
}
