//! Plain names mean what the header's macros define; `symbol` always means the exact symbol.

use cuda_sys::*;

/// Whether two names mean the same function. Compares types, since each function has a type of its own.
fn same<F: 'static, G: 'static>(_: F, _: G) -> bool {
    std::any::TypeId::of::<F>() == std::any::TypeId::of::<G>()
}

#[test]
fn plain_names_lead_where_the_bundled_header_leads_them() {
    assert!(same(cuMemAlloc, cuMemAlloc_v2));
    assert!(same(cuCtxPopCurrent, cuCtxPopCurrent_v2));
    assert!(same(cuMemcpyHtoD, cuMemcpyHtoD_v2), "a name with a per-thread form");
    assert!(same(cuStreamDestroy, cuStreamDestroy_v2));
    assert!(same(cuInit, symbol::cuInit));
    assert!(!same(cuMemAlloc, cuMemFree));
}

#[test]
fn no_name_depends_on_the_header_that_is_found() {
    // In headers before 13.0 these plain names mean the floor's symbols.
    assert!(!same(cuEventElapsedTime, symbol::cuEventElapsedTime));
    assert!(same(cuEventElapsedTime, cuEventElapsedTime_v2));
    assert!(same(cuCtxCreate, cuCtxCreate_v4));
    assert_eq!(CUDA_VERSION, 13_050);
    // Before 12.0 this name meant another attribute.
    assert_eq!(CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS.0, 122);
}

#[test]
fn a_header_adds_what_it_alone_declares() {
    // 12.9 declares this constant; 13.x and the bundled bindings do not.
    let added = HEADER.map_or(&[][..], |header| header.adds);
    let version = HEADER.map(|header| header.version);
    assert_eq!(added.contains(&"CU_TARGET_COMPUTE_101"), version == Some(12_090));
    // The bundled bindings have these, including symbols that newer headers dropped.
    for name in ["cuInit", "cuMemcpyBatchAsync", "CUDA_SUCCESS", "CUuuid"] {
        assert!(!added.contains(&name), "{name}");
    }
    for name in ["cuMemcpyBatchAsync", "cuGraphAddNode", "cuCtxCreate_v2"] {
        assert!(DriverApi::SYMBOLS.contains(&name), "{name}");
    }
}

#[test]
fn every_symbol_of_the_floor_is_there() {
    let floor = include_str!("../build/floor_11_8.txt");
    let lost: Vec<_> = floor.lines().filter(|name| !DriverApi::SYMBOLS.contains(name)).collect();
    assert!(lost.is_empty(), "{lost:?}");
    assert_eq!(floor.lines().count(), 368);
}

#[test]
fn macros_that_bindgen_leaves_out_have_their_values() {
    assert_eq!([CU_STREAM_LEGACY, CU_STREAM_PER_THREAD].map(<*mut _>::addr), [1, 2]);
    let extra = [CU_LAUNCH_PARAM_END, CU_LAUNCH_PARAM_BUFFER_POINTER, CU_LAUNCH_PARAM_BUFFER_SIZE];
    assert_eq!(extra.map(<*mut _>::addr), [0, 1, 2]);
    let numbers = [
        CU_LAUNCH_PARAM_END_AS_INT,
        CU_LAUNCH_PARAM_BUFFER_POINTER_AS_INT,
        CU_LAUNCH_PARAM_BUFFER_SIZE_AS_INT,
    ];
    assert_eq!(numbers, [0, 1, 2]);
    assert_eq!([CU_DEVICE_CPU, CU_DEVICE_INVALID], [-1, -2]);
    assert_eq!(CU_STREAM_ATTRIBUTE_PRIORITY, CU_LAUNCH_ATTRIBUTE_PRIORITY);
}

#[test]
fn codes_are_values() {
    assert_eq!(CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER.0, 36);
    assert_ne!(cudaError_enum(u32::MAX), CUDA_SUCCESS);
    let shown = format!("{CUDA_ERROR_NOT_READY:?} {:?} {CU_AD_FORMAT_HALF:?}", CUresult(12345));
    assert_eq!(shown, "CUDA_ERROR_NOT_READY cudaError_enum(12345) CU_AD_FORMAT_HALF");
    let raw = CUgraphNodeType(2);
    assert_eq!(format!("{raw:?}"), "CU_GRAPH_NODE_TYPE_MEMSET");
}
