//! How the environment configures the driver. The only test of its process.

use std::env;

use cuda_sim::Config;
use cuda_sys::*;

#[test]
fn an_empty_list_of_visible_devices_leaves_none() {
    // SAFETY: the only other thread, the test harness's, waits for this one.
    unsafe { env::set_var("CUDA_VISIBLE_DEVICES", "") };
    cuda_sim::install(Config::from_env()).expect("the first driver of this process");
    // SAFETY: initialisation takes no pointer.
    assert_eq!(unsafe { cuInit(0) }, CUDA_ERROR_NO_DEVICE);
    let mut devices = -1;
    // SAFETY: the caller passes a place for the count.
    assert_eq!(unsafe { cuDeviceGetCount(&mut devices) }, CUDA_ERROR_NOT_INITIALIZED);
    assert_eq!(devices, -1);
}
