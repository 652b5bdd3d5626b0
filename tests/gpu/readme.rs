//! The lines of Rust that the README opens with.

use cuda_core::Result;
use support::gpu_test;

gpu_test! {
    needs 1;
    fn the_readmes_example() -> Result<()> {
        // Written by the build script.
        include!(concat!(env!("OUT_DIR"), "/readme.rs"))
    }
}
