//! The Rust examples of the README, which the build script writes to files.

use cuda_core::Result;
use support::gpu_test;

gpu_test! {
    needs 1;
    fn the_readmes_example() -> Result<()> {
        include!(concat!(env!("OUT_DIR"), "/readme_1.rs"))
    }
}

gpu_test! {
    needs 1, real, nvrtc;
    fn the_readmes_kernel() -> Result<()> {
        include!(concat!(env!("OUT_DIR"), "/readme_2.rs"))
    }
}
