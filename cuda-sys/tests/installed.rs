//! A driver with a few functions, installed in place of a library.
#![cfg(not(cuda_sys_link))]

use std::ffi::{CStr, c_int, c_uint, c_void};
use std::ptr;

use cuda_sys::*;

/// The functions of this driver.
const PROVIDED: [&str; 3] = ["cuInit", "cuDriverGetVersion", "cuCtxSynchronize"];

/// A code that no header names.
const UNKNOWN: CUresult = cudaError_enum(987_654);

unsafe extern "C" fn init(flags: c_uint) -> CUresult {
    if flags == 0 { CUDA_SUCCESS } else { CUDA_ERROR_INVALID_VALUE }
}

unsafe extern "C" fn driver_get_version(version: *mut c_int) -> CUresult {
    // SAFETY: the caller passes a pointer to write to.
    unsafe { version.write(11_080) };
    CUDA_SUCCESS
}

unsafe extern "C" fn ctx_synchronize() -> CUresult {
    UNKNOWN
}

fn resolve(name: &CStr) -> *const c_void {
    match name.to_bytes() {
        b"cuInit" => init as *const c_void,
        b"cuDriverGetVersion" => driver_get_version as *const c_void,
        b"cuCtxSynchronize" => ctx_synchronize as *const c_void,
        _ => ptr::null(),
    }
}

/// Returns the driver, which the first test that runs installs.
fn driver() -> &'static DriverApi {
    // SAFETY: the three functions have the signatures of their symbols.
    match unsafe { install(resolve) } {
        Ok(()) | Err(InstallError::AlreadyFilled) => {}
        Err(other) => panic!("{other}"),
    }
    load().expect("a driver is installed")
}

#[test]
fn functions_reach_it() {
    driver();
    // SAFETY: no precondition.
    assert_eq!(unsafe { cuInit(0) }, CUDA_SUCCESS);
    // SAFETY: no precondition.
    assert_eq!(unsafe { symbol::cuInit(1) }, CUDA_ERROR_INVALID_VALUE);
    let mut version = 0;
    // SAFETY: a pointer to write to.
    assert_eq!(unsafe { cuDriverGetVersion(&mut version) }, CUDA_SUCCESS);
    assert_eq!(version, 11_080);
}

#[test]
fn the_table_is_public() {
    let api = driver();
    let mut version = 0;
    // SAFETY: a pointer to write to.
    let result = unsafe { (api.cuDriverGetVersion)(&mut version) };
    assert_eq!(result, CUDA_SUCCESS);
    assert_eq!(version, 11_080);
}

#[test]
fn unknown_codes_survive() {
    driver();
    // SAFETY: no precondition.
    let result = unsafe { cuCtxSynchronize() };
    assert_eq!(result, UNKNOWN);
    assert_eq!(result.0, 987_654);
    assert_eq!(format!("{result:?}"), "cudaError_enum(987654)");
}

#[test]
fn what_it_lacks_asks_for_a_newer_one() {
    let api = driver();
    let mut address = 7;
    // SAFETY: a pointer to write to.
    let result = unsafe { cuMemAlloc_v2(&mut address, 1) };
    assert_eq!(result, CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER);
    assert_eq!((result.0, address), (36, 7));

    let lacking: Vec<_> =
        DriverApi::SYMBOLS.iter().copied().filter(|name| !PROVIDED.contains(name)).collect();
    assert_eq!(api.missing(), lacking);
}

#[test]
fn a_second_driver_is_refused() {
    driver();
    // SAFETY: no address is ever returned.
    let second = unsafe { install(|_| unreachable!("the table is filled")) };
    assert_eq!(second, Err(InstallError::AlreadyFilled));
    assert_eq!(
        InstallError::AlreadyFilled.to_string(),
        "the table of driver functions was filled before"
    );
}
