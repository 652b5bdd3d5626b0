//! What the environment makes of the driver, in a process for each setting.
#![cfg(not(miri))] // which starts no processes

use std::env;
use std::process::Command;

use cuda_sim::Config;
use cuda_sys::*;

const CHILD: &str = "CUDA_SIM_TEST_CHILD";

/// `cuInit` and the number of devices, in this process.
fn initialise() -> (u32, i32) {
    cuda_sim::install(Config::from_env()).expect("the first driver of this process");
    // SAFETY: initialisation takes no pointer.
    let code = unsafe { cuInit(0) };
    let mut devices = -1;
    // SAFETY: the count has a place.
    unsafe { cuDeviceGetCount(&mut devices) };
    (code.0 as u32, devices)
}

#[test]
fn visible_devices() {
    if env::var_os(CHILD).is_some() {
        println!("found {:?}", initialise());
        return;
    }
    for (visible, expected) in [
        ("", (CUDA_ERROR_NO_DEVICE, -1)),
        ("-1", (CUDA_ERROR_NO_DEVICE, -1)),
        ("0,0", (CUDA_ERROR_INVALID_DEVICE, -1)),
        ("1,0,", (CUDA_SUCCESS, 2)),
    ] {
        let mut child = Command::new(env::current_exe().expect("this program"));
        child.args(["--exact", "visible_devices", "--nocapture"]);
        let output = child.env(CHILD, "1").env("CUDA_VISIBLE_DEVICES", visible).output();
        let printed = String::from_utf8_lossy(&output.expect("the child").stdout).into_owned();
        let (code, devices) = expected;
        let found = format!("found ({}, {devices})", code.0);
        assert!(printed.contains(&found), "{visible:?}: not {found}: {printed}");
    }
}
