//! Actions that happen once per process: the driver's initialisation, primary contexts, default pools. So
//! each fault needs a process of its own.

use std::env;
use std::process::Command;

use cuda_core::{Device, PinnedBuffer, Result};

use super::harness::again;
use super::stack;

/// The variable that names the failing call and its code for the child process.
const FAULT: &str = "CUDA_TESTS_INIT_FAULT";

/// The line that the child prints if the program does not make that call.
const NOT_REACHED: &str = "the fault was not reached";

#[test]
#[cfg_attr(miri, ignore = "starts processes")]
fn initialisation_fails_at_each_call() {
    for code in [2, 3, 100, 999, 123_456] {
        for nth in 1.. {
            let child = Command::new(env::current_exe().expect("this test has a file"))
                .args(["faults::process::initialisation", "--exact", "--nocapture"])
                .env(FAULT, format!("{nth}:{code}"))
                .output()
                .expect("the child starts");
            let text = String::from_utf8_lossy(&child.stdout);
            let errors = String::from_utf8_lossy(&child.stderr);
            assert!(child.status.success(), "call {nth}, code {code}: {text}{errors}");
            assert!(text.contains("1 passed"), "the child ran no test: {text}");
            if text.contains(NOT_REACHED) {
                assert!(nth > 20, "only {nth} calls");
                break;
            }
        }
    }
}

/// Uses everything for the first time, again if that fails. Without a fault in the environment it is a test
/// like any other.
#[test]
fn initialisation() {
    let session = support::simulator();
    let fault = env::var(FAULT);
    if let Ok(fault) = &fault {
        let (nth, code) = fault.split_once(':').expect("a call and a code");
        let code = cuda_sys::CUresult(code.parse().expect("a code"));
        session.fail_nth(None, nth.parse().expect("a call"), code);
    }
    let first_use = || -> Result<()> {
        assert!(Device::is_available() || session.fault_fired());
        let (a, b) = (again(|| Device::get(0))?, again(|| Device::get(1))?);
        again(|| a.enter().map(drop))?;
        let stream = again(|| b.create_stream())?;
        let mut buffer = again(|| stream.alloc::<u32>(4))?;
        let host = again(|| PinnedBuffer::from_slice(&b.context()?, &[1, 2, 3, 4]))?;
        again(|| stream.upload(&host, &mut buffer))?;
        let mut back = [0; 4];
        again(|| stream.download(&buffer, &mut back))?;
        assert_eq!(back, [1, 2, 3, 4]);
        Ok(())
    };
    first_use().expect("a single fault can be overcome");
    if !session.fault_fired() {
        println!("{NOT_REACHED}");
    }
    session.clear_faults();
    assert!(stack::snapshot().is_empty(), "something is current");
    session.settle();
    cuda_core::staging::trim().expect("no fault is left");
    let report = session.finish();
    assert!(report.violations.is_empty(), "{report}");
    // Failures are counted for the whole process: other tests share a process without a fault.
    let said = if fault.is_ok() { cuda_core::drops::failures() } else { 0 };
    assert_eq!(report.leaks.len() as u64, said, "{report}");
}
