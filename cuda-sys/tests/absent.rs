//! A machine without a driver: every function returns 303, and `load` returns the reason.
//!
//! `CUDA_SYS_LIBRARY` names a file that does not exist, so a machine with a driver behaves like one
//! without.
#![cfg(not(cuda_sys_link))]

use std::ptr;
use std::sync::Once;

use cuda_sys::*;

const NOWHERE: &str = "/nonexistent/libcuda.so.1";

/// Makes the driver unavailable. Every test calls this first.
fn without_driver() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: every test of this process starts here, and `Once` makes the others wait: no
        // thread reads the environment meanwhile.
        unsafe { std::env::set_var("CUDA_SYS_LIBRARY", NOWHERE) };
    });
}

/// Calls a driver function.
macro_rules! call {
    ($name:ident($($arg:expr),*)) => {
        // SAFETY: without a driver the stub reads no argument.
        unsafe { $name($($arg),*) }
    };
}

#[test]
fn every_kind_of_call_is_refused() {
    without_driver();
    let (mut number, mut size, mut address) = (7, 7, 7);
    let mut pointer = ptr::null_mut();
    let refused = [
        call!(cuInit(0)),
        call!(cuDriverGetVersion(&mut number)),
        call!(cuDeviceGetCount(&mut number)),
        call!(cuCtxGetCurrent(&mut pointer)),
        call!(cuCtxSetCurrent(ptr::null_mut())),
        call!(cuMemAlloc_v2(&mut address, 1)),
        call!(cuMemAlloc(&mut address, 1)),
        call!(cuMemFree_v2(0)),
        call!(cuMemGetInfo_v2(&mut size, ptr::null_mut())),
        call!(cuMemcpyAsync(0, 0, 1, ptr::null_mut())),
        call!(cuStreamSynchronize(ptr::null_mut())),
        call!(cuLaunchHostFunc(ptr::null_mut(), None, ptr::null_mut())),
        call!(cuGetErrorName(CUDA_SUCCESS, ptr::null_mut())),
    ];
    assert_eq!(refused, [CUDA_ERROR_SHARED_OBJECT_INIT_FAILED; 13]);
    assert_eq!(CUDA_ERROR_SHARED_OBJECT_INIT_FAILED.0, 303);
    assert_eq!((number, size, address), (7, 7, 7), "a stub wrote through an argument");
}

#[test]
fn load_explains() {
    without_driver();
    let error = load().expect_err("nothing to load");
    let text = error.to_string();
    if cfg!(miri) {
        assert!(text.contains("not available under Miri"), "{text}");
    } else {
        assert_eq!(error.library(), NOWHERE);
        assert!(error.answer().contains("No such file"), "{text}");
        assert_eq!(text.matches(NOWHERE).count(), 1, "{text}");
        let names = format!("CUDA_SYS_LIBRARY names {NOWHERE}, which cannot be loaded: ");
        assert!(text.starts_with(&names) && !text.contains("Install"), "{text}");
    }
    assert_eq!(load().expect_err("the first outcome stands"), error);
}

#[test]
fn installing_comes_too_late() {
    without_driver();
    load().expect_err("nothing to load");
    // SAFETY: no address is ever returned.
    let late = unsafe { install(|_| unreachable!("the table is filled")) };
    assert_eq!(late, Err(InstallError::AlreadyFilled));
}
