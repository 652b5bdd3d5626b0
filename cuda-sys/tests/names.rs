//! Plain names mean what the header's macros make of them; `symbol` always means the exact symbol.

use cuda_sys::*;

/// Two names of one function have one type, which is its own: they compare by type.
fn same<F: 'static, G: 'static>(_: F, _: G) -> bool {
    std::any::TypeId::of::<F>() == std::any::TypeId::of::<G>()
}

#[test]
fn plain_names_follow_the_header() {
    assert!(same(cuMemAlloc, cuMemAlloc_v2));
    assert!(same(cuCtxPopCurrent, cuCtxPopCurrent_v2));
    assert!(
        same(cuMemcpyHtoD, cuMemcpyHtoD_v2),
        "a name with a per-thread form"
    );
    assert!(same(cuStreamDestroy, cuStreamDestroy_v2));
    assert!(same(cuInit, symbol::cuInit));
    assert!(!same(cuMemAlloc, cuMemFree));
}

#[test]
fn symbols_follow_no_header() {
    // The floor's symbol, wherever the plain name leads to: from CUDA 13.0 on elsewhere.
    assert_eq!(
        same(cuEventElapsedTime, symbol::cuEventElapsedTime),
        CUDA_VERSION < 13_000
    );
}

#[test]
fn every_symbol_of_the_floor_is_there() {
    let floor = include_str!("../build/floor_11_8.txt");
    let lost: Vec<_> = floor
        .lines()
        .filter(|name| !DriverApi::SYMBOLS.contains(name))
        .collect();
    assert!(lost.is_empty(), "{lost:?}");
    assert_eq!(floor.lines().count(), 368);
}

#[test]
fn codes_are_values() {
    assert_eq!(CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER.0, 36);
    assert_ne!(cudaError_enum(u32::MAX), CUDA_SUCCESS);
}
