//! The Rust examples of the README, which the build script writes to files.

use cuda_core::Result;
use cuda_sim::register_kernel;
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
        register_kernel(
            "twice",
            |launch| vec![launch.writes::<f32>(0, launch.block()[0] as usize)],
            |launch, memory| {
                let twice = |x: &mut [f32]| x.iter_mut().for_each(|x| *x *= 2.0);
                memory.slice_mut(launch.address(0), twice)
            },
        );
        include!(concat!(env!("OUT_DIR"), "/readme_2.rs"))
    }
}
