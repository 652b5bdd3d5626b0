//! Checks the bindings against the header with a C compiler.
//!
//! This package's build script makes the comparison, as static assertions; this test reports its result. For
//! a header of a release other than that of the bundled bindings, the build script checks only the bindings
//! that bindgen makes of that header, and compares those with the bundled ones: each difference must be one
//! of [`KNOWN`].

use std::collections::BTreeMap;

/// `passed`, `failed` or `not run`, and the details.
const REPORT: &str = include_str!(concat!(env!("OUT_DIR"), "/abi_report.txt"));

/// Differences of the headers of CUDA 11.8, 12.0, 12.4, 12.9 and 13.0 from that of 13.5, and why none matters
/// to a driver.
#[rustfmt::skip]
const KNOWN: [(&str, &str); 17] = [
    ("value CUDA_VERSION", "of the declarations"),
    ("value CU_CTX_FLAGS_MASK", "all flags, of which there are more"),
    ("value CU_JIT_NUM_OPTIONS", "a count"),
    ("value CU_COREDUMP_LIGHTWEIGHT_FLAGS", "all that make one, of which there are more"),
    ("value CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS", "11.8 has the value as .._V2"),
    ("value CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR", "11.8 has the value as .._V2"),
    ("name cuCtxCreate", "moved on in 13.0"),
    ("name cuGraphInstantiate", "moved on in 12.0"),
    ("name cuStreamGetCaptureInfo", "moved on in 13.0"),
    ("alignment CUtensorMap_st", "128 from 13.0 on: drivers want 64 at least"),
    ("alignment CUdevResource_st", "a pointer where padding was"),
    ("size CUdevSmResource_st", "a member of CUdevResource, which has room for 48 bytes"),
    ("size CUDA_CHILD_GRAPH_NODE_PARAMS_st", "a member of CUgraphNodeParams, which has room for 232"),
    ("size CUDA_EVENT_RECORD_NODE_PARAMS_st", "the same"),
    ("size CUDA_EXT_SEM_SIGNAL_NODE_PARAMS_v2_st", "the same"),
    ("size CUDA_EXT_SEM_WAIT_NODE_PARAMS_v2_st", "the same"),
    ("size CUDA_HOST_NODE_PARAMS_v2_st", "the same"),
];

const NCCL_REPORT: &str = include_str!(concat!(env!("OUT_DIR"), "/nccl_report.txt"));

#[test]
#[cfg_attr(
    not(nccl_oracle),
    ignore = "needs an nccl.h (CUDA_TESTS_NCCL_INCLUDE names its folder), and GCC or Clang"
)]
fn c_agrees_with_the_types_of_nccl() {
    let (verdict, details) = NCCL_REPORT.split_once('\n').expect("a verdict and details");
    assert_eq!(verdict, "passed", "\n{details}");
    println!("abi oracle: {details} assertions about nccl.h");
}

#[test]
#[cfg_attr(
    not(abi_oracle),
    ignore = "needs a cuda.h that cuda-sys has read (CUDA_SYS_INCLUDE_DIR), and GCC or Clang"
)]
fn c_agrees_with_the_bindings() {
    let (verdict, details) = REPORT.split_once('\n').expect("a verdict and details");
    assert_eq!(verdict, "passed", "\n{details}");

    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let mut unknown = Vec::new();
    for line in details.lines() {
        let (kind, rest) = line.split_once(' ').expect("a kind and a count");
        if kind == "exception" || kind == "difference" {
            println!("abi oracle: {kind}: {rest}");
            let known = KNOWN.iter().any(|(what, _)| rest.starts_with(&format!("{what}: ")));
            if kind == "difference" && !known {
                unknown.push(rest);
            }
        } else {
            *counts.entry(kind).or_default() += rest.parse::<usize>().expect("a count");
        }
    }
    assert_eq!(unknown, [""; 0], "the header differs from the bundled bindings");
    let symbols = counts.remove("symbols").expect("a count");
    println!("abi oracle: {counts:?}");
    println!("abi oracle: {} assertions passed", counts.values().sum::<usize>());

    // Proves that every symbol reached the compiler.
    assert_eq!(counts["functions"], symbols);
    // The least counts are those of the oldest supported header, CUDA 11.8; newer headers have more.
    for (kind, least) in [
        ("aliases", 115),
        ("alignments", 65),
        ("enums", 76),
        ("fields", 312),
        ("names", 426),
        ("offsets", 300),
        ("sizes", 65),
        ("values", 675),
    ] {
        assert!(counts[kind] >= least, "{} {kind} are fewer than {least}", counts[kind]);
    }
}
