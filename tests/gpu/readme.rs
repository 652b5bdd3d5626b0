//! The README's Rust examples, which the build script writes to files.

use cuda_core::Result;
use support::gpu_test;

gpu_test! {
    needs 1;
    fn the_readmes_example() -> Result<()> {
        include!(concat!(env!("OUT_DIR"), "/readme_1.rs"))
    }
}

gpu_test! {
    needs 1, nvrtc;
    fn the_readmes_kernel() -> Result<()> {
        // The kernel as in the simulator's library.
        cuda_sim::kernels! {
            fn twice(x: &mut [f32; n], n: u32) {
                x.iter_mut().for_each(|x| *x *= 2.0);
            }
        }
        include!(concat!(env!("OUT_DIR"), "/readme_2.rs"))
    }
}

const _: () = assert!(matches!(env!("readme_examples").as_bytes(), b"2"), "each is above");
