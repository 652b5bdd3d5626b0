//! Turns the version of the bound `cuda.h` into cfgs, for the calls that the floor lacks.
//!
//! Without this script, as in a build that skips it, the floor's calls alone are used.

/// Headers that brought calls which this crate uses: `cuda_12_4` means "from CUDA 12.4 on".
const VERSIONS: [(u32, &str); 7] = [
    (12000, "cuda_12_0"),
    (12020, "cuda_12_2"),
    (12030, "cuda_12_3"),
    (12040, "cuda_12_4"),
    (12050, "cuda_12_5"),
    (12080, "cuda_12_8"),
    (13000, "cuda_13_0"),
];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Set by cuda-sys (`links = "cuda"`): CUDA_VERSION of its header, 12080 for 12.8.
    let version = std::env::var("DEP_CUDA_VERSION")
        .ok()
        .and_then(|text| text.parse::<u32>().ok())
        .unwrap_or(0);
    for (since, cfg) in VERSIONS {
        println!("cargo::rustc-check-cfg=cfg({cfg})");
        if version >= since {
            println!("cargo::rustc-cfg={cfg}");
        }
    }
}
