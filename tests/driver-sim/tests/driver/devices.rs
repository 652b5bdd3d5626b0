//! Attributes of devices, and of pairs of them.

use std::ffi::{CStr, c_char, c_int};
use std::ptr::{null, null_mut};

use cuda_sys::*;

use crate::support::*;

#[test]
fn looking_retains_nothing() {
    let session = begin();
    let mut count = 0;
    ok!(cuDeviceGetCount(&mut count));
    assert_eq!(count, 4);
    let mut device = 0;
    fails!(CUDA_ERROR_INVALID_DEVICE, cuDeviceGet(&mut device, 4));
    fails!(CUDA_ERROR_INVALID_DEVICE, cuDeviceGet(&mut device, -1));
    let mut major = 0;
    ok!(cuDeviceGetAttribute(&mut major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 3));
    assert_eq!(major, 9);
    ok!(cuDeviceGetAttribute(&mut major, CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH, 3));
    assert_eq!(major, 1);
    let unknown = CUdevice_attribute(100_000);
    fails!(CUDA_ERROR_INVALID_VALUE, cuDeviceGetAttribute(&mut major, unknown, 3));
    let (mut flags, mut active) = (0, 1);
    ok!(cuDevicePrimaryCtxGetState(3, &mut flags, &mut active));
    assert_eq!(active, 0, "no test retains device 3");
    session.assert_clean();
}

#[test]
fn bus_ids() {
    let session = begin();
    let mut id = [0 as c_char; 16];
    ok!(cuDeviceGetPCIBusId(id.as_mut_ptr(), id.len() as c_int, 2));
    let mut device = -1;
    ok!(cuDeviceGetByPCIBusId(&mut device, id.as_ptr()));
    assert_eq!(device, 2);
    fails!(CUDA_ERROR_INVALID_VALUE, cuDeviceGetByPCIBusId(&mut device, c"fake:id".as_ptr()));
    let absent = c"0000:FE:00.0".as_ptr();
    fails!(CUDA_ERROR_INVALID_DEVICE, cuDeviceGetByPCIBusId(&mut device, absent));
    session.assert_clean();
}

#[test]
fn codes_have_names() {
    let session = begin();
    let mut text: *const c_char = null();
    ok!(cuGetErrorName(CUDA_ERROR_OUT_OF_MEMORY, &mut text));
    // SAFETY: the driver's names are static strings.
    assert_eq!(unsafe { CStr::from_ptr(text) }, c"CUDA_ERROR_OUT_OF_MEMORY");
    fails!(CUDA_ERROR_INVALID_VALUE, cuGetErrorString(CUresult(12_345), &mut text));
    assert!(text.is_null());
    session.assert_clean();
}

#[test]
fn peers() {
    let session = begin();
    let (a, b) = (bind(0), primary(1));
    let mut can = -1;
    ok!(cuDeviceCanAccessPeer(&mut can, 0, 1));
    assert_eq!(can, 1);
    ok!(cuDeviceCanAccessPeer(&mut can, 0, 0));
    assert_eq!(can, 0);
    fails!(CUDA_ERROR_INVALID_DEVICE, cuDeviceCanAccessPeer(&mut can, 0, 100));
    fails!(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, cuCtxDisablePeerAccess(b));
    ok!(cuCtxEnablePeerAccess(b, 0));
    fails!(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, cuCtxEnablePeerAccess(b, 0));
    ok!(cuCtxDisablePeerAccess(b));
    fails!(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, cuCtxEnablePeerAccess(a, 0));
    fails!(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, cuCtxDisablePeerAccess(a));
    session.assert_clean();
}

#[test]
fn what_the_driver_lacks_has_no_address() {
    let session = begin();
    let mut found = null_mut();
    ok!(cuGetProcAddress(c"cuProfilerStop".as_ptr(), &mut found, 4000, 0));
    assert!(!found.is_null());
    for absent in [c"cuProfilerStart", c"cuNothing"] {
        fails!(CUDA_ERROR_NOT_FOUND, cuGetProcAddress(absent.as_ptr(), &mut found, 4000, 0));
        assert!(found.is_null());
    }
    session.assert_clean();
}
