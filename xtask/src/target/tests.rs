//! The drivers and libraries of this program's own tests, and tests of targets.

use super::Libraries;
use super::first;

/// Returns a session of the driver of this program's own tests: a process has only one driver, so they share
/// it.
#[cfg(feature = "driver")]
pub(crate) fn simulated() -> cuda_sim::Session {
    let config = cuda_sim::Config::default().devices(2).quarantine(0).mode(cuda_sim::Mode::Eager);
    // The test that ran first has already installed the driver.
    let _ = cuda_sim::install(config);
    cuda_sim::Session::begin()
}

/// The libraries of a machine without any, for tests.
pub(crate) fn none() -> Libraries {
    let nowhere = || Err("nowhere".into());
    Libraries {
        runtime: nowhere(),
        nvrtc: nowhere(),
        device_runtime: Err("nowhere".into()),
        nccl: nowhere(),
    }
}

#[test]
fn a_choice_made_outside_is_narrowed_not_replaced() {
    assert_eq!(first(Some("2,5,7"), 2), "2,5");
    assert_eq!(first(None, 2), "0,1");
}

#[cfg(all(feature = "driver", target_os = "linux"))]
#[test]
fn a_file_is_found_among_those_mapped() {
    let libc = super::machine::mapped("libc.so").expect("every program has it");
    assert!(libc.starts_with('/') && libc.contains("/libc.so"), "{libc}");
    assert_eq!(super::machine::mapped("libnothing.so"), None);
}
