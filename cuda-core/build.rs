//! Turns the version of the bound `cuda.h` into cfgs, for the few calls that the floor lacks.
//!
//! Without this script, as in a build that skips it, the floor's calls alone are used.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(cuda_12_8)");
    // Set by cuda-sys (`links = "cuda"`): CUDA_VERSION of its header, 12080 for 12.8.
    let version = std::env::var("DEP_CUDA_VERSION")
        .ok()
        .and_then(|text| text.parse::<u32>().ok())
        .unwrap_or(0);
    if version >= 12080 {
        println!("cargo::rustc-cfg=cuda_12_8");
    }
}
