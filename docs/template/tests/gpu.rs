//! Tests of the kernels themselves, on the first GPU, since the simulator does not run PTX:
//! `CUDA_SYS_LIBRARY=libcuda.so.1 CUDA_CORE_ALLOCATOR=cache cargo test -- --include-ignored`.

use cuda_core::Device;
use template::Kernels;

#[test]
#[ignore = "needs a GPU"]
fn the_kernel_adds() -> cuda_core::Result<()> {
    let stream = Device::get(0)?.create_stream()?;
    let kernels = Kernels::load(&stream)?;
    let x = stream.upload_new(&[3.0; 1000])?;
    let mut y = stream.upload_new(&[1.0; 1000])?;
    kernels.saxpy(&stream, 2.0, &x, &mut y)?;
    assert_eq!(stream.download_vec(&y)?, [7.0; 1000]);
    Ok(())
}
