//~ E0499
// A launch borrows each surface that it binds exclusively, so two need two launches.
use cuda_core::{Result, image::{CudaArray, Surface}};

fn twice(surface: &Surface<f32>, array: &mut CudaArray<f32>) -> Result<()> {
    let one = surface.bind_mut(&mut *array)?;
    #[cfg(not(misuse))]
    drop(one);
    let two = surface.bind_mut(&mut *array)?;
    drop(two);
    #[cfg(misuse)]
    drop(one);
    Ok(())
}

fn main() {
    let _: fn(&Surface<f32>, &mut CudaArray<f32>) -> Result<()> = twice;
}
