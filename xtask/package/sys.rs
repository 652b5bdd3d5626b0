//! Moves bytes to every device and back through the driver's C functions.

use std::ffi::c_int;
use std::ptr;

use cuda_sys::*;

const BYTES: usize = 1 << 16;

fn main() {
    if let Some(version) = option_env!("SEEN_VERSION") {
        assert_eq!(version, CUDA_VERSION.to_string(), "VERSION is of other bindings");
    }
    let header = HEADER.map(|header| header.version.to_string());
    assert_eq!(option_env!("SEEN_HEADER_VERSION"), header.as_deref(), "of another header");
    load().unwrap_or_else(|error| panic!("{error}"));
    let mut devices = 0;
    check("cuInit", unsafe { cuInit(0) });
    check("cuDeviceGetCount", unsafe { cuDeviceGetCount(&mut devices) });
    for device in 0..devices {
        round_trip(device);
    }
    println!("{devices} devices, {BYTES} bytes each way: equal");
}

fn round_trip(ordinal: c_int) {
    let mut device = 0;
    let mut context = ptr::null_mut();
    check("cuDeviceGet", unsafe { cuDeviceGet(&mut device, ordinal) });
    check("cuDevicePrimaryCtxRetain", unsafe { cuDevicePrimaryCtxRetain(&mut context, device) });
    check("cuCtxSetCurrent", unsafe { cuCtxSetCurrent(context) });

    let sent: Vec<u8> = (0..BYTES).map(|i| (i * 31 + ordinal as usize) as u8).collect();
    let mut received = vec![0_u8; BYTES];
    let mut stream = ptr::null_mut();
    let mut address = 0;
    check("cuStreamCreate", unsafe {
        cuStreamCreate(&mut stream, CU_STREAM_NON_BLOCKING.0 as _)
    });
    // The plain name, which the header maps to `cuMemAlloc_v2`.
    check("cuMemAlloc", unsafe { cuMemAlloc(&mut address, BYTES) });
    check("cuMemcpyHtoDAsync_v2", unsafe {
        cuMemcpyHtoDAsync_v2(address, sent.as_ptr().cast(), BYTES, stream)
    });
    check("cuMemcpyDtoHAsync_v2", unsafe {
        cuMemcpyDtoHAsync_v2(received.as_mut_ptr().cast(), address, BYTES, stream)
    });
    check("cuStreamSynchronize", unsafe { cuStreamSynchronize(stream) });
    assert!(sent == received, "device {ordinal} changed the bytes");

    check("cuMemFree", unsafe { cuMemFree(address) });
    check("cuStreamDestroy", unsafe { cuStreamDestroy(stream) });
    check("cuCtxSetCurrent", unsafe { cuCtxSetCurrent(ptr::null_mut()) });
    check("cuDevicePrimaryCtxRelease", unsafe { cuDevicePrimaryCtxRelease(device) });
}

fn check(call: &str, result: CUresult) {
    assert_eq!(result, CUDA_SUCCESS, "{call}");
}
