//! Passes the metadata that direct dependents get from cuda-sys on to the programs, as environment variables.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    for name in ["BINDINGS", "VERSION", "HEADER_VERSION", "ROOT", "INCLUDE"] {
        if let Ok(value) = std::env::var(format!("DEP_CUDA_SYS_DRIVER_{name}")) {
            println!("cargo::rustc-env=SEEN_{name}={value}");
        }
    }
}
