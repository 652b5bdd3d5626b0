//! The bindings, compared with the header by a C compiler.
//!
//! The comparison is made by this package's build script, as static assertions; here is what came
//! of it.

use std::collections::BTreeMap;

/// `passed`, `failed` or `not run`, and what there is to say about that.
const REPORT: &str = include_str!(concat!(env!("OUT_DIR"), "/abi_report.txt"));

#[test]
#[cfg_attr(
    not(abi_oracle),
    ignore = "needs the cuda.h that the bindings are of (CUDA_SYS_INCLUDE_DIR), and GCC or Clang"
)]
fn c_agrees_with_the_bindings() {
    let (verdict, details) = REPORT.split_once('\n').expect("a verdict and details");
    assert_eq!(verdict, "passed", "\n{details}");

    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for line in details.lines() {
        let (kind, rest) = line.split_once(' ').expect("a kind and a count");
        if kind == "exception" {
            println!("abi oracle: exception: {rest}");
        } else {
            *counts.entry(kind).or_default() += rest.parse::<usize>().expect("a count");
        }
    }
    println!("abi oracle: {counts:?}");
    println!(
        "abi oracle: {} assertions passed",
        counts.values().sum::<usize>()
    );

    // Nothing was lost on the way to the compiler.
    assert_eq!(counts["functions"], cuda_sys::DriverApi::SYMBOLS.len());
    // What the header of the floor, CUDA 11.8, comes to; newer ones have more.
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
        assert!(
            counts[kind] >= least,
            "{} {kind} are fewer than {least}",
            counts[kind]
        );
    }
}
