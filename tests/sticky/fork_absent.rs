//! S48: a process forks while its threads look for a driver that is absent.

use std::sync::atomic::{AtomicBool, Ordering};

use cuda_core::{Device, Error};

use crate::fork::Stop;
use support::{child, in_a_fork};

/// Number of forks. On two cores one child in ten met a lock that a thread of the parent held.
const FORKS: u32 = 300;

/// Forks beside threads that look for a device; each child looks for one itself.
fn fork_beside_threads_that_look(expected: fn(&Error) -> bool) {
    let stopped = AtomicBool::new(false);
    let look = || {
        while !stopped.load(Ordering::Relaxed) {
            assert!(!Device::is_available());
        }
    };
    std::thread::scope(|scope| {
        let _stop = Stop(&stopped);
        scope.spawn(look);
        scope.spawn(look);
        for _ in 0..FORKS {
            in_a_fork(|| match Device::count() {
                Err(error) if expected(&error) => 0,
                Err(_) => 1,
                Ok(_) => 2,
            });
        }
    });
}

#[test]
fn s48_fork_without_a_driver() {
    let environment =
        [("CUDA_SYS_LIBRARY", Some("/nonexistent/libcuda.so.1")), ("CUDA_TESTS_SIM", None)];
    let name = concat!(module_path!(), "::s48_fork_without_a_driver");
    if child::ran(name, &environment) {
        return;
    }
    // The outcome of loading is final before the first fork; later calls take no lock.
    assert!(!Device::is_available());
    fork_beside_threads_that_look(|error| matches!(error, Error::NoDriver(_)));
    child::done();
}

#[test]
fn s48_fork_without_a_device() {
    /// A driver that finds no device, and has no lock that a fork could leave locked.
    unsafe extern "C" fn no_device(_: std::ffi::c_uint) -> cuda_sys::CUresult {
        cuda_sys::CUDA_ERROR_NO_DEVICE
    }
    let name = concat!(module_path!(), "::s48_fork_without_a_device");
    if child::ran(name, &[("CUDA_TESTS_SIM", None)]) {
        return;
    }
    let resolve = |name: &std::ffi::CStr| match name.to_bytes() {
        b"cuInit" => no_device as *const std::ffi::c_void,
        _ => std::ptr::null(),
    };
    // SAFETY: the one address is a function of cuInit's signature, for the life of the process.
    unsafe { cuda_sys::install(resolve) }.expect("a process without a driver");
    // A child forked while a thread initialised the driver must not initialise it itself.
    fork_beside_threads_that_look(|error| {
        matches!(error, Error::Forked) || error.code() == Some(cuda_sys::CUDA_ERROR_NO_DEVICE)
    });
    child::done();
}
