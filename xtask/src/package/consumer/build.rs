//! Passes on what cuda-sys tells its direct dependents, for the programs and for whoever builds.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    for name in ["BINDINGS", "VERSION", "ROOT", "INCLUDE"] {
        if let Ok(value) = std::env::var(format!("DEP_CUDA_{name}")) {
            println!("cargo::rustc-env=SEEN_{name}={value}");
        }
    }
}
