//! Tests of what launches kernels have the simulator in their own process, where closures stand for the
//! kernels. `gpu.rs` tests the kernels themselves.
//!
//! They hold a `Session`: there is one at a time in a process, so these tests run one after the other. A
//! test without a session would disturb their counts, which is why `copies.rs` is another file, and so
//! another process.

use std::sync::Once;

use cuda_core::Device;
use cuda_sim::{Config, Session};
use template::Kernels;

/// Starts a test: installs the simulator and its kernels before the first one.
fn simulator() -> Session {
    static INSTALL: Once = Once::new();
    INSTALL.call_once(|| {
        cuda_sim::install(Config::from_env()).expect("no driver call before this one");
        cuda_sim::kernels! {
            fn saxpy(a: f32, x: &[f32; n], y: &mut [f32; n], n: u32) {
                y.iter_mut().zip(x).for_each(|(y, x)| *y += a * x);
            }
        }
    });
    Session::begin()
}

fn two_x_plus_y() -> cuda_core::Result<Vec<f32>> {
    let stream = Device::get(0)?.create_stream()?;
    let kernels = Kernels::load(&stream)?;
    let x = stream.upload_new(&[3.0; 1000])?;
    let mut y = stream.upload_new(&[1.0; 1000])?;
    kernels.saxpy(&stream, 2.0, &x, &mut y)?;
    stream.download_vec(&y)
}

#[test]
fn adds() -> cuda_core::Result<()> {
    let session = simulator();
    assert_eq!(two_x_plus_y()?, [7.0; 1000]);
    assert_eq!(session.calls("cuLaunchKernelEx"), 1);
    // No missing order, no use of freed memory, no kernel without a closure.
    assert_eq!(session.violations(), []);
    // Nothing leaked, once all work is done and the library has given back what it keeps for reuse.
    cuda_core::synchronize_and_trim()?;
    session.assert_clean();
    Ok(())
}

#[test]
fn survives_a_failure_at_every_call() -> cuda_core::Result<()> {
    let session = simulator();
    for nth in 1.. {
        session.clear_faults();
        session.fail_nth(None, nth, cuda_core::sys::CUDA_ERROR_OUT_OF_MEMORY);
        let result = two_x_plus_y();
        if let Ok(y) = &result {
            assert_eq!(*y, [7.0; 1000]);
        }
        // Of leaks nothing is asserted: a driver keeps what it fails to release.
        assert_eq!(session.violations(), []);
        if !session.fault_fired() {
            return result.map(drop);
        }
    }
    Ok(())
}
