//~ E0502
// A bound texture borrows the array until the launch is made: no write may come between.
use cuda_core::{Result, Stream, image::{CudaArray, Texture}};

fn write(stream: &Stream, texture: &Texture<f32>, array: &mut CudaArray<f32>) -> Result<()> {
    let bound = texture.bind(&*array)?;
    #[cfg(misuse)]
    stream.upload_to_array(&[0.0; 64], &mut *array)?;
    drop(bound);
    #[cfg(not(misuse))]
    stream.upload_to_array(&[0.0; 64], &mut *array)?;
    Ok(())
}

fn main() {
    let _: fn(&Stream, &Texture<f32>, &mut CudaArray<f32>) -> Result<()> = write;
}
