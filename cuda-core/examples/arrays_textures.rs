//! Copies an image to and from a CUDA array, in whole and in part, and samples it in a kernel through a
//! texture.

mod shared;

use std::process::ExitCode;

use cuda_core::{
    Device, Module,
    image::{ArrayFlags, ArrayShape, CudaArray, FilterMode, Texture, TextureDescriptor},
};

/// Texels per row, and number of rows.
const SIZE: usize = 64;

/// The factor by which the kernel magnifies.
const SCALE: usize = 2;

fn example() -> shared::Result {
    let device = shared::device()?;
    let stream = device.create_stream()?;
    let shape = ArrayShape::D2 { width: SIZE, height: SIZE };
    let mut image = CudaArray::<f32>::new(stream.context(), shape, ArrayFlags::default())?;
    // Each texel's value is the number of its column.
    let columns: Vec<f32> = (0..SIZE * SIZE).map(|at| (at % SIZE) as f32).collect();
    stream.upload_to_array(&columns, &mut image)?;

    let middle = image.region((SIZE / 2, 8), (2, 2))?;
    let mut four = [0.0; 4];
    stream.download_from_array(middle, &mut four)?;
    let column = (SIZE / 2) as f32;
    assert_eq!(four, [column, column + 1.0, column, column + 1.0]);
    println!("array: two by two texels from the middle are {four:?}");

    if shared::is_simulated(device)? {
        return Err(
            shared::Lacks("a real GPU: the simulated driver does not sample textures").into()
        );
    }
    sample(device, &image)
}

/// Launches a kernel that writes an image of twice the size.
fn sample(device: Device, image: &CudaArray<f32>) -> shared::Result {
    const WIDTH: usize = SIZE * SCALE;
    const LEN: usize = WIDTH * WIDTH;
    let stream = device.create_stream()?;
    let module = Module::from_ptx(stream.context(), include_str!("magnify.ptx"))?;
    let magnify = module.function("magnify")?;
    let descriptor = TextureDescriptor::default().with_filter(FilterMode::Linear);
    let texture = Texture::new(image, &descriptor)?;
    let mut large = stream.alloc::<f32>(LEN)?;
    let mut launch = stream.kernel(&magnify).elements(LEN);
    // The launch borrows the image, so the program cannot write to it until the launch is made.
    launch = launch.arg(texture.bind(image)?).arg(&mut large);
    launch = launch.arg(WIDTH as u32).arg(1.0 / SCALE as f32).arg(LEN as u32);
    // SAFETY: magnify(cudaTextureObject_t image, float *to, unsigned width, float scale, unsigned n)
    // writes n elements of `to`, which has as many.
    unsafe { launch.launch() }?;
    let mut back = vec![0.0; LEN];
    stream.download(&large, &mut back)?;
    assert_eq!(back[..4], [0.0, 0.25, 0.75, 1.25]);
    println!("texture: magnified, a row begins with {:?}", &back[..4]);
    Ok(())
}

fn main() -> ExitCode {
    shared::run(example)
}
